//go:build slow

package pace

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestPaceRefusesAtOnce sends two requests in a configuration that holds none. The second answer
// comes at once with the time at which the next request can pass, which it then does.
func TestPaceRefusesAtOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, engine, site, robots string }{
		{"wait 0s", "pace {\nrate 1/3s\nburst 1\nwait 0s\n}", "", ""},
		{"max_wait 0s of the agent", "pace {\nrate 1/3s\nburst 1\nwait 30s\n}", "agent Tester {\nmax_wait 0s\n}", ""},
		{"Crawl-delay", "pace {\nrate off\nwait 0s\n}", "", "User-agent: *\nCrawl-delay: 3\n"},
		{"too short a wait", "pace {\nrate 1/3s\nburst 1\nwait 1s\n}", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
			site.SetRobots(testorigin.OK(tt.robots))
			g := rig.New(t, rig.Config{Engine: tt.engine, Site: tt.site})
			client := g.Client("Tester/1.0")
			if a := rig.Get(t, client, site.URL("/1")); a.Status != http.StatusOK {
				t.Fatalf("status %d: %s", a.Status, a.Body)
			}
			began := time.Now()
			for range 3 {
				a := rig.Get(t, client, site.URL("/2"))
				rig.CheckRefusal(t, a, time.Second, 3*time.Second)
			}
			if took := time.Since(began); took > rig.Scheduling {
				t.Errorf("three refusals took %v, want at most %v", took, rig.Scheduling)
			}
			last := rig.Get(t, client, site.URL("/3"))
			rig.CheckRefusal(t, last, time.Second, 3*time.Second)
			after, _ := time.ParseDuration(last.Header.Get("Retry-After") + "s")
			time.Sleep(after) // like a client that keeps Retry-After
			if a := rig.Get(t, client, site.URL("/4")); a.Status != http.StatusOK {
				t.Errorf("after its Retry-After: status %d: %s", a.Status, a.Body)
			}
			// The fourth request came when it was due and not before: refusals use no slot.
			times := rig.Arrivals(site)
			if len(times) != 2 || times[1].Sub(times[0]) < 3*time.Second || times[1].Sub(times[0]) > 4*time.Second+rig.Scheduling {
				t.Errorf("the origin got requests at %v, want two about 3s apart", times)
			}
			g.CheckReason(enforce.ReasonRateLimited, 4)
		})
	}
}

// TestPaceQueueFull fills the queue: the next request is refused at once.
func TestPaceQueueFull(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	g := rig.New(t, rig.Config{Engine: "pace {\nrate 1/2s\nburst 1\nwait 30s\nqueue 3\n}"})
	client := g.Client("Tester/1.0")
	rig.Get(t, client, site.URL("/first"))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	answers := make(chan rig.Answer, 5)
	var held sync.WaitGroup
	for i := range 5 {
		held.Go(func() {
			if a, err := rig.TryGet(ctx, client, site.URL(fmt.Sprintf("/held/%d", i))); err == nil {
				answers <- a
			}
		})
	}
	for range 2 {
		select {
		case a := <-answers:
			rig.CheckRefusal(t, a, time.Second, 8*time.Second)
		case <-time.After(rig.Patience):
			t.Fatal("no request was refused")
		}
	}
	if n := len(site.PageExchanges()); n > 2 {
		t.Errorf("%d requests reached the origin before the queue was full, want at most 2", n)
	}
	leave()
	held.Wait()
	g.CheckReason(enforce.ReasonQueueFull, 2)
}

// TestPaceClientLeaves lets clients leave while their requests are held. These are never sent, and
// the next request gets their slot.
func TestPaceClientLeaves(t *testing.T) {
	t.Parallel()
	const delay = 2 * time.Second
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nCrawl-delay: 2\n"))
	g := rig.New(t, rig.Config{Engine: "pace {\nrate off\nwait 30s\n}"})
	client := g.Client("Tester/1.0")
	rig.Get(t, client, site.URL("/first"))

	var held sync.WaitGroup
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for i := range 5 {
		held.Go(func() {
			if a, err := rig.TryGet(ctx, client, site.URL(fmt.Sprintf("/left/%d", i))); err == nil {
				t.Errorf("a request whose client left was answered: status %d", a.Status)
			}
		})
	}
	rig.Eventually(t, "the others to be held", func() bool { return strings.Contains(g.Admin("/robots/clocks").Body, `"waiting":5`) })
	for state, listed := range map[string]bool{"waiting": true, "busy": false, "blocked": false} {
		if got := strings.Contains(g.Admin("/robots/clocks?state="+state).Body, `"queue":5`); got != listed {
			t.Errorf("clocks in state %s: listed %t, want %t", state, got, listed)
		}
	}
	held.Go(func() {
		if a, err := rig.TryGet(t.Context(), client, site.URL("/last")); err != nil || a.Status != http.StatusOK {
			t.Errorf("the last request: status %d, error %v", a.Status, err)
		}
	})
	rig.Eventually(t, "the last one to be held", func() bool { return strings.Contains(g.Admin("/robots/clocks").Body, `"waiting":6`) })
	leave()
	held.Wait()

	exchanges := site.PageExchanges()
	if len(exchanges) != 2 || exchanges[1].Path != "/last" {
		t.Fatalf("the origin got %+v, want two requests, the second for /last", exchanges)
	}
	if gap := exchanges[1].Start.Sub(exchanges[0].Start); gap < delay || gap > delay+rig.Scheduling {
		t.Errorf("the last request came %v after the first, want %v", gap, delay)
	}
	g.CheckReason(enforce.ReasonCanceled, 5)
}

// TestPaceConcurrency checks the bound on the open responses of a host, at any rate. A response is
// open until its last byte, or until the client leaves in the middle of it. Two agents use all
// places, because one alone gets all but one.
func TestPaceConcurrency(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetPages(testorigin.Drip("eight oc", 100*time.Millisecond))
	g := rig.New(t, rig.Config{Engine: "pace {\nrate off\nconcurrency 3\nwait 60s\n}"})
	client, other := g.Client("Tester/1.0"), g.Client("Other/1.0")
	var crawl sync.WaitGroup
	for i := range 12 {
		crawl.Go(func() {
			if a := rig.Get(t, []*http.Client{client, other}[i%2], site.URL(fmt.Sprintf("/%d", i))); a.Status != http.StatusOK {
				t.Errorf("status %d: %s", a.Status, a.Body)
			}
		})
	}
	crawl.Wait()
	rig.Eventually(t, "the last exchange to end", func() bool {
		return !slices.ContainsFunc(site.PageExchanges(), func(e testorigin.Exchange) bool { return e.End.IsZero() })
	})
	if n := mostAtOnce(site.PageExchanges()); n != 3 {
		t.Errorf("%d responses were open at once, want 3", n)
	}

	site.SetPages(testorigin.HangInBody("half an answer", 4))
	before := len(site.PageExchanges())
	var clients []*rig.Wire
	for _, agent := range []string{"Tester", "Other", "Tester"} {
		w := g.Dial()
		if _, err := fmt.Fprintf(w, "GET %s HTTP/1.1\r\nHost: h\r\nUser-Agent: %s/1.0\r\n\r\n", site.URL("/hang"), agent); err != nil {
			t.Fatal(err)
		}
		if resp, err := http.ReadResponse(w.Reader, nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("response %v, error %v, want 200", resp, err)
		}
		clients = append(clients, w)
	}
	site.SetPages(testorigin.OK("page"))
	answered := make(chan rig.Answer, 1)
	go func() {
		a, _ := rig.TryGet(t.Context(), client, site.URL("/waiting"))
		answered <- a
	}()
	select {
	case a := <-answered:
		t.Fatalf("a fourth request got status %d while three responses were open", a.Status)
	case <-time.After(time.Second):
	}
	if n := len(site.PageExchanges()) - before; n != 3 {
		t.Errorf("%d requests reached the origin, want 3", n)
	}
	_ = clients[0].Close()
	select {
	case a := <-answered:
		if a.Status != http.StatusOK {
			t.Errorf("status %d: %s", a.Status, a.Body)
		}
	case <-time.After(10 * time.Second):
		t.Error("the next request did not get the place of an aborted one")
	}
}

// mostAtOnce returns the largest number of exchanges that overlap.
func mostAtOnce(exchanges []testorigin.Exchange) int {
	most := 0
	for _, e := range exchanges {
		n := 0
		for _, other := range exchanges {
			if !other.Start.After(e.Start) && other.End.After(e.Start) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// TestPaceCrawlDelay checks the operator's options for a site's Crawl-delay.
func TestPaceCrawlDelay(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, option, delay string
		want                time.Duration
	}{
		{"a longer one is cut", "crawl_delay 0s 1s clamp", "3", time.Second},
		{"a longer one is kept", "crawl_delay 0s 1s honor", "3", 3 * time.Second},
		{"a shorter one is lengthened", "crawl_delay 1s 30s clamp", "0.1", time.Second},
		{"one in between stays", "crawl_delay 1s 30s refuse", "1.5", 1500 * time.Millisecond},
		{"within the burst of a slower rate", "rate 1/2s\nburst 5", "0.5", 500 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
			site.SetRobots(testorigin.OK("User-agent: *\nCrawl-delay: " + tt.delay + "\n"))
			engine := tt.option
			if engine[:4] != "rate" {
				engine += "\nrate off"
			}
			g := rig.New(t, rig.Config{Engine: "pace {\n" + engine + "\nwait 30s\n}"})
			client := g.Client("Tester/1.0")
			var crawl sync.WaitGroup
			for i := range 3 {
				crawl.Go(func() { rig.Get(t, client, site.URL(fmt.Sprintf("/%d", i))) })
			}
			crawl.Wait()
			times := rig.Arrivals(site)
			if least := rig.Shortest(times, 1); len(times) != 3 || least < tt.want || least > tt.want+rig.Scheduling {
				t.Errorf("%d requests, at least %v apart, want 3 requests %v apart", len(times), least, tt.want)
			}
		})
	}
}

func TestPaceCrawlDelayRefused(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: Quick\nDisallow:\n\nUser-agent: *\nCrawl-delay: 60\n"))
	g := rig.New(t, rig.Config{Engine: "pace {\ncrawl_delay 0s 1s refuse\n}"})
	if a := g.MustFetch("Tester/1.0", site.URL("/")); a.Status != http.StatusForbidden || a.Header.Get("Proxy-Status") == "" {
		t.Errorf("status %d, Proxy-Status %q, want 403 by the gateway: %s", a.Status, a.Header.Get("Proxy-Status"), a.Body)
	}
	if a := g.MustFetch("Quick/1.0", site.URL("/")); a.Status != http.StatusOK {
		t.Errorf("an agent whose group asks for no delay: status %d: %s", a.Status, a.Body)
	}
	if n := len(site.PageExchanges()); n != 1 {
		t.Errorf("%d requests reached the origin, want 1", n)
	}
	g.CheckReason(enforce.ReasonCrawlDelay, 1)
}

// TestPaceAgentRate slows one agent down and not the other.
func TestPaceAgentRate(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	g := rig.New(t, rig.Config{
		Engine: "pace {\nrate off\nwait 30s\n}",
		Site:   "agent slow {\ntoken Slow\nrate 1/s\n}\nagent quick {\ntoken Quick\n}",
	})
	var crawl sync.WaitGroup
	for _, agent := range []string{"Slow", "Quick"} {
		client := g.Client(agent + "/1.0")
		for i := range 4 {
			crawl.Go(func() {
				if a := rig.Get(t, client, site.URL(fmt.Sprintf("/%s/%d", agent, i))); a.Status != http.StatusOK {
					t.Errorf("%s: status %d: %s", agent, a.Status, a.Body)
				}
			})
		}
	}
	crawl.Wait()
	var slow, quick []testorigin.Exchange
	for _, e := range site.PageExchanges() {
		if e.Header.Get("User-Agent") == "Slow/1.0" {
			slow = append(slow, e)
		} else {
			quick = append(quick, e)
		}
	}
	if least := rig.LeastGap(slow); len(slow) != 4 || least < time.Second {
		t.Errorf("%d requests of the slow agent, %v apart, want 4 at least 1s apart", len(slow), least)
	}
	if len(quick) != 4 || quick[3].Start.Sub(quick[0].Start) > rig.Scheduling {
		t.Errorf("%d requests of the quick agent, want 4 without a pause: %+v", len(quick), quick)
	}
}

// TestPaceReloadKeepsTheClock reloads the configuration between two requests.
func TestPaceReloadKeepsTheClock(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	config := rig.Config{Engine: "pace {\nrate 1/30s\nburst 1\nwait 0s\n}"}
	g := rig.New(t, config)
	if a := g.MustFetch("Tester/1.0", site.URL("/")); a.Status != http.StatusOK {
		t.Fatalf("status %d: %s", a.Status, a.Body)
	}
	config.Engine = "user_agent Other/1.0\n" + config.Engine
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	rig.CheckRefusal(t, g.MustFetch("Tester/1.0", site.URL("/")), 10*time.Second, 30*time.Second)
	if n := len(site.PageExchanges()); n != 1 {
		t.Errorf("%d requests reached the origin, want 1", n)
	}
}
