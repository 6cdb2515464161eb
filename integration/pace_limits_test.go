package integration

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
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestPaceRefusesAtOnce asks twice where nobody is held: the second time the answer comes at once, with the time after
// which the next request does get through.
func TestPaceRefusesAtOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, engine, site, robots string }{
		{"wait 0s", "pace {\nrate 1/3s\nburst 1\nwait 0s\n}", "", ""},
		{"max_wait 0s", "pace {\nrate 1/3s\nburst 1\nwait 30s\n}", "max_wait 0s", ""},
		{"max_wait 0s of the agent", "pace {\nrate 1/3s\nburst 1\nwait 30s\n}", "max_wait 40s\nagent Tester {\nmax_wait 0s\n}", ""},
		{"Crawl-delay", "pace {\nrate off\nwait 0s\n}", "", "User-agent: *\nCrawl-delay: 3\n"},
		{"too short a wait", "pace {\nrate 1/3s\nburst 1\nwait 1s\n}", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
			site.SetRobots(testorigin.OK(tt.robots))
			g := startGateway(t, gatewayConfig{Engine: tt.engine, Site: tt.site})
			client := g.client("Tester/1.0")
			if a := get(t, client, site.URL("/1")); a.status != http.StatusOK {
				t.Fatalf("status %d: %s", a.status, a.body)
			}
			began := time.Now()
			for range 3 {
				a := get(t, client, site.URL("/2"))
				checkRefusal(t, a, time.Second, 3*time.Second)
			}
			if took := time.Since(began); took > scheduling {
				t.Errorf("three refusals took %v", took)
			}
			last := get(t, client, site.URL("/3"))
			checkRefusal(t, last, time.Second, 3*time.Second)
			after, _ := time.ParseDuration(last.header.Get("Retry-After") + "s")
			time.Sleep(after) // as a client does that heeds it
			if a := get(t, client, site.URL("/4")); a.status != http.StatusOK {
				t.Errorf("after its Retry-After: status %d: %s", a.status, a.body)
			}
			// The fourth came when it was due: refusals had used no slot. And not before.
			times := arrivals(site)
			if len(times) != 2 || times[1].Sub(times[0]) < 3*time.Second || times[1].Sub(times[0]) > 4*time.Second+scheduling {
				t.Errorf("the origin saw requests at %v", times)
			}
			g.checkReason(enforce.ReasonRateLimited, 4)
		})
	}
}

// TestPaceQueueFull has as many held as may be: the next is refused at once.
func TestPaceQueueFull(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	g := startGateway(t, gatewayConfig{Engine: "pace {\nrate 1/2s\nburst 1\nwait 30s\nqueue 3\n}"})
	client := g.client("Tester/1.0")
	get(t, client, site.URL("/first"))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	answers := make(chan answer, 5)
	var held sync.WaitGroup
	for i := range 5 {
		held.Go(func() {
			if a, err := tryGet(ctx, client, site.URL(fmt.Sprintf("/held/%d", i))); err == nil {
				answers <- a
			}
		})
	}
	for range 2 {
		select {
		case a := <-answers:
			checkRefusal(t, a, time.Second, 8*time.Second)
		case <-time.After(patience):
			t.Fatal("nobody was refused")
		}
	}
	if n := len(site.PageExchanges()); n > 2 {
		t.Errorf("%d requests reached the origin before the queue was full", n)
	}
	leave()
	held.Wait()
	g.checkReason(enforce.ReasonQueueFull, 2)
}

// TestPaceClientLeaves lets a client hang up while it is held: it is never sent out, and the next one has its slot.
func TestPaceClientLeaves(t *testing.T) {
	t.Parallel()
	const delay = 2 * time.Second
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nCrawl-delay: 2\n"))
	g := startGateway(t, gatewayConfig{Engine: "pace {\nrate off\nwait 30s\n}"})
	client := g.client("Tester/1.0")
	get(t, client, site.URL("/first"))

	var held sync.WaitGroup
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for i := range 5 {
		held.Go(func() {
			if a, err := tryGet(ctx, client, site.URL(fmt.Sprintf("/left/%d", i))); err == nil {
				t.Errorf("one that left was answered: %d", a.status)
			}
		})
	}
	eventually(t, "the others to be held", func() bool { return strings.Contains(g.admin("/robots/clocks").body, `"waiting":5`) })
	for state, listed := range map[string]bool{"waiting": true, "busy": false, "blocked": false} {
		if got := strings.Contains(g.admin("/robots/clocks?state="+state).body, `"queue":5`); got != listed {
			t.Errorf("clocks in state %s: listed %t, want %t", state, got, listed)
		}
	}
	held.Go(func() {
		if a, err := tryGet(t.Context(), client, site.URL("/last")); err != nil || a.status != http.StatusOK {
			t.Errorf("the last one: status %d, error %v", a.status, err)
		}
	})
	eventually(t, "the last one to be held", func() bool { return strings.Contains(g.admin("/robots/clocks").body, `"waiting":6`) })
	leave()
	held.Wait()

	exchanges := site.PageExchanges()
	if len(exchanges) != 2 || exchanges[1].Path != "/last" {
		t.Fatalf("the origin saw %+v", exchanges)
	}
	if gap := exchanges[1].Start.Sub(exchanges[0].Start); gap < delay || gap > delay+scheduling {
		t.Errorf("the one behind them came %v after the first, want %v", gap, delay)
	}
	g.checkReason(enforce.ReasonCanceled, 5)
}

// TestPaceConcurrency bounds the open responses of a host, whatever the rate: a place is taken until the answer's last
// byte, or until the client hangs up in the middle of it. Two agents share the places, as one alone gets all but one.
func TestPaceConcurrency(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetPages(testorigin.Drip("eight oc", 100*time.Millisecond))
	g := startGateway(t, gatewayConfig{Engine: "pace {\nrate off\nconcurrency 3\nwait 60s\n}"})
	client, other := g.client("Tester/1.0"), g.client("Other/1.0")
	var crawl sync.WaitGroup
	for i := range 12 {
		crawl.Go(func() {
			if a := get(t, []*http.Client{client, other}[i%2], site.URL(fmt.Sprintf("/%d", i))); a.status != http.StatusOK {
				t.Errorf("status %d: %s", a.status, a.body)
			}
		})
	}
	crawl.Wait()
	eventually(t, "the last exchange to end", func() bool {
		return !slices.ContainsFunc(site.PageExchanges(), func(e testorigin.Exchange) bool { return e.End.IsZero() })
	})
	if n := mostAtOnce(site.PageExchanges()); n != 3 {
		t.Errorf("%d open at once, want 3", n)
	}

	site.SetPages(testorigin.HangInBody("half an answer", 4))
	before := len(site.PageExchanges())
	var clients []*wire
	for _, agent := range []string{"Tester", "Other", "Tester"} {
		w := g.dial()
		if _, err := fmt.Fprintf(w, "GET %s HTTP/1.1\r\nHost: h\r\nUser-Agent: %s/1.0\r\n\r\n", site.URL("/hang"), agent); err != nil {
			t.Fatal(err)
		}
		if resp, err := http.ReadResponse(w.r, nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", resp, err)
		}
		clients = append(clients, w)
	}
	site.SetPages(testorigin.OK("page"))
	answered := make(chan answer, 1)
	go func() {
		a, _ := tryGet(t.Context(), client, site.URL("/waiting"))
		answered <- a
	}()
	select {
	case a := <-answered:
		t.Fatalf("a fourth was answered with %d while three were open", a.status)
	case <-time.After(time.Second):
	}
	if n := len(site.PageExchanges()) - before; n != 3 {
		t.Errorf("%d reached the origin, want 3", n)
	}
	_ = clients[0].Close()
	select {
	case a := <-answered:
		if a.status != http.StatusOK {
			t.Errorf("status %d: %s", a.status, a.body)
		}
	case <-time.After(10 * time.Second):
		t.Error("the place of an aborted request was not given to the next")
	}
}

// mostAtOnce counts exchanges that overlap.
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

// TestPaceCrawlDelay goes through what the operator may make of a site's Crawl-delay.
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
			g := startGateway(t, gatewayConfig{Engine: "pace {\n" + engine + "\nwait 30s\n}"})
			client := g.client("Tester/1.0")
			var crawl sync.WaitGroup
			for i := range 3 {
				crawl.Go(func() { get(t, client, site.URL(fmt.Sprintf("/%d", i))) })
			}
			crawl.Wait()
			times := arrivals(site)
			if least := shortest(times, 1); len(times) != 3 || least < tt.want || least > tt.want+scheduling {
				t.Errorf("%d requests, %v apart, want %v", len(times), least, tt.want)
			}
		})
	}
}

func TestPaceCrawlDelayRefused(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: Quick\nDisallow:\n\nUser-agent: *\nCrawl-delay: 60\n"))
	g := startGateway(t, gatewayConfig{Engine: "pace {\ncrawl_delay 0s 1s refuse\n}"})
	if a := g.mustFetch("Tester/1.0", site.URL("/")); a.status != http.StatusForbidden || a.header.Get("Proxy-Status") == "" {
		t.Errorf("status %d, Proxy-Status %q: %s", a.status, a.header.Get("Proxy-Status"), a.body)
	}
	if a := g.mustFetch("Quick/1.0", site.URL("/")); a.status != http.StatusOK {
		t.Errorf("an agent whose group asks for no delay: status %d: %s", a.status, a.body)
	}
	if n := len(site.PageExchanges()); n != 1 {
		t.Errorf("%d requests reached the origin", n)
	}
	g.checkReason(enforce.ReasonCrawlDelay, 1)
}

// TestPaceAgentRate slows one agent down and leaves the other alone.
func TestPaceAgentRate(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	g := startGateway(t, gatewayConfig{
		Engine: "pace {\nrate off\nwait 30s\n}",
		Site:   "agent slow {\ntoken Slow\nrate 1/s\n}\nagent quick {\ntoken Quick\n}",
	})
	var crawl sync.WaitGroup
	for _, agent := range []string{"Slow", "Quick"} {
		client := g.client(agent + "/1.0")
		for i := range 4 {
			crawl.Go(func() {
				if a := get(t, client, site.URL(fmt.Sprintf("/%s/%d", agent, i))); a.status != http.StatusOK {
					t.Errorf("%s: status %d: %s", agent, a.status, a.body)
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
	if least := leastGap(slow); len(slow) != 4 || least < time.Second {
		t.Errorf("%d requests of the slow one, %v apart", len(slow), least)
	}
	if len(quick) != 4 || quick[3].Start.Sub(quick[0].Start) > scheduling {
		t.Errorf("%d requests of the quick one: %+v", len(quick), quick)
	}
}

// TestPaceReloadKeepsTheClock loads a configuration between two requests.
func TestPaceReloadKeepsTheClock(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	config := gatewayConfig{Engine: "pace {\nrate 1/30s\nburst 1\nwait 0s\n}"}
	g := startGateway(t, config)
	if a := g.mustFetch("Tester/1.0", site.URL("/")); a.status != http.StatusOK {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	config.Engine = "user_agent Other/1.0\n" + config.Engine
	if err := g.reload(config); err != nil {
		t.Fatal(err)
	}
	checkRefusal(t, g.mustFetch("Tester/1.0", site.URL("/")), 10*time.Second, 30*time.Second)
	if n := len(site.PageExchanges()); n != 1 {
		t.Errorf("%d requests reached the origin", n)
	}
}
