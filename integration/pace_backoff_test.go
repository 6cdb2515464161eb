package integration

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// overloaded answers with a status, and with Retry-After if there is any.
func overloaded(status int, retryAfter string) testorigin.Behaviour {
	r := testorigin.Response{Status: status, Body: []byte("later\n")}
	if retryAfter != "" {
		r.Header = http.Header{"Retry-After": {retryAfter}}
	}
	return testorigin.Respond(r)
}

// TestPaceHeedsTheOrigin has two agents of five workers each crawl a host that wants to be left alone for a while: no
// request of either reaches it before its time, some soon after, and then at the rate, without a burst.
func TestPaceHeedsTheOrigin(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		answer      func() testorigin.Behaviour
		least, most time.Duration // of the pause, from the moment at which the origin had the request
	}{
		{"429 with seconds", func() testorigin.Behaviour { return overloaded(429, "3") }, 3 * time.Second, 3 * time.Second},
		{"503 with seconds", func() testorigin.Behaviour { return overloaded(503, "3") }, 3 * time.Second, 3 * time.Second},
		{"503 with a date", func() testorigin.Behaviour {
			return overloaded(503, time.Now().Add(5*time.Second).UTC().Format(http.TimeFormat))
		}, 2 * time.Second, 5 * time.Second},
		{"430 with seconds", func() testorigin.Behaviour { return overloaded(430, "3") }, 3 * time.Second, 3 * time.Second},
		{"429 without", func() testorigin.Behaviour { return overloaded(429, "") }, 2 * time.Second, 2200 * time.Millisecond},
		{"503 with nonsense", func() testorigin.Behaviour { return overloaded(503, "soon") }, 2 * time.Second, 2200 * time.Millisecond},
		{"429 with more than the operator grants", func() testorigin.Behaviour { return overloaded(429, "86400") }, 6 * time.Second, 6 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			const rate = 10
			site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
			g := startGateway(t, gatewayConfig{Engine: "pace {\nrate 10/s\nburst 1\nwait 1s\nbackoff 2s 6s\n}"})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var workers sync.WaitGroup
			for _, agent := range []string{"Alpha", "Beta"} {
				g.crawlUntil(ctx, &workers, agent, 5, site)
			}
			eventually(t, "the crawl to begin", func() bool { return len(site.PageExchanges()) >= 5 })
			site.SetPages(tt.answer())
			refused := 0 // where in the record the refusal is
			eventually(t, "the origin to refuse", func() bool {
				for i, e := range site.PageExchanges() {
					if e.Status == http.StatusTooManyRequests || e.Status == 430 || e.Status == http.StatusServiceUnavailable {
						refused = i
						return true
					}
				}
				return false
			})
			site.SetPages(testorigin.OK("page"))
			eventually(t, "the crawl to go on", func() bool { return len(site.PageExchanges()) > refused+2*rate })
			stop()
			workers.Wait()

			// Requests that came before the origin, which may be slow, had answered were on their way.
			refusal := site.PageExchanges()[refused]
			after := slices.DeleteFunc(arrivals(site), func(at time.Time) bool { return !at.After(refusal.End) })
			pause := after[0].Sub(refusal.Arrived)
			if pause < tt.least || pause > tt.most+scheduling {
				t.Errorf("the origin was left alone for %v, want %v to %v", pause, tt.least, tt.most)
			}
			if least := shortest(after, rate); least < time.Second {
				t.Errorf("%d requests came within %v after the pause, at a rate of %d a second", rate+1, least, rate)
			}
			g.stop()
			said := make(map[enforce.Reason]int)
			for _, l := range g.readLogs() {
				said[l.Robots.Reason]++
			}
			if said[enforce.ReasonBackoff] == 0 {
				t.Errorf("the log says %v", said)
			}
			t.Logf("left alone for %v; %v", pause, said)
		})
	}
}

// TestPaceBackoffDoubles has an origin refuse without end, and without saying for how long.
func TestPaceBackoffDoubles(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetPages(overloaded(http.StatusServiceUnavailable, ""))
	g := startGateway(t, gatewayConfig{Engine: "pace {\nrate off\nwait 10s\nbackoff 1s 4s\n}"})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var workers sync.WaitGroup
	g.crawlUntil(ctx, &workers, "Tester", 8, site)
	// With a rate of none, several may be on their way when the first refusal comes; the pauses follow their bunch.
	eventually(t, "five bunches", func() bool { return len(bunches(arrivals(site))) >= 5 })
	stop()
	workers.Wait()
	begins := bunches(arrivals(site))
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second} {
		if got := begins[i+1].Sub(begins[i]); got < want || got > want*11/10+scheduling {
			t.Errorf("pause %d lasted %v, want %v and up to a tenth more", i+1, got, want)
		}
	}
}

// bunches are the arrivals that follow half a second of quiet.
func bunches(times []time.Time) (begins []time.Time) {
	for i, at := range times {
		if i == 0 || at.Sub(times[i-1]) > 500*time.Millisecond {
			begins = append(begins, at)
		}
	}
	return begins
}

// TestPaceBlockOutlivesTheProcess ends the gateway in three ways while a host wants to be left alone.
func TestPaceBlockOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	config := gatewayConfig{Engine: "pace {\nwait 0s\n}"}
	for _, tt := range []struct {
		name  string
		again func(g *gateway) error
	}{
		{"reload", func(g *gateway) error {
			return g.reload(gatewayConfig{Engine: "user_agent Other/1.0\n" + config.Engine})
		}},
		{"stop", func(g *gateway) error { g.stop(); return g.start(config) }},
		{"kill -9", func(g *gateway) error {
			blocks := filepath.Join(filepath.Dir(g.store()), "blocks.json")
			eventually(g.t, "the block to be on the disk", func() bool {
				content, err := os.ReadFile(blocks)
				return err == nil && strings.Contains(string(content), "until")
			})
			g.kill()
			return g.start(config)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
			site.SetPages(overloaded(http.StatusServiceUnavailable, "100"))
			g := startGateway(t, config)
			began := time.Now()
			if a := g.mustFetch("Alpha/1.0", site.URL("/")); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "100" {
				t.Fatalf("the origin's own answer came as %d: %s", a.status, a.body)
			}
			checkRefusal(t, g.mustFetch("Beta/1.0", site.URL("/")), 90*time.Second, 100*time.Second)
			if err := tt.again(g); err != nil {
				t.Fatal(err)
			}
			a := g.mustFetch("Gamma/1.0", site.URL("/"))
			gone := time.Since(began).Truncate(time.Second)
			checkRefusal(t, a, 99*time.Second-gone, 101*time.Second-gone)
			if n := len(site.PageExchanges()); n != 1 {
				t.Errorf("%d requests reached the origin", n)
			}
			g.checkReason(enforce.ReasonBackoff, 2)
		})
	}
}

// TestPaceBackoffOff ignores what the origin says, as the operator wants.
func TestPaceBackoffOff(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetPages(overloaded(http.StatusTooManyRequests, "100"))
	g := startGateway(t, gatewayConfig{Engine: "pace {\nwait 0s\nbackoff off\n}"})
	for i := range 3 {
		if a := g.mustFetch("Tester/1.0", site.URL("/"+strconv.Itoa(i))); a.header.Get("Proxy-Status") != "" {
			t.Errorf("refused by the gateway: %d: %s", a.status, a.body)
		}
	}
}

// TestPaceBlockIsShared tells one gateway to leave a host alone: the other one does so at once.
func TestPaceBlockIsShared(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetPages(overloaded(http.StatusServiceUnavailable, "100"))
	config := gatewayConfig{Engine: fmt.Sprintf("pace {\nwait 1s\nshared redis %s\n}", redis.URL())}
	one, other := startGateway(t, config), startGateway(t, config)
	for _, g := range []*gateway{one, other} {
		eventually(t, "the clocks to be shared", func() bool { return g.metric("crawlgate_shared_clock_up") == 1 })
	}
	if a := one.mustFetch("Alpha/1.0", site.URL("/")); a.header.Get("Proxy-Status") != "" {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	checkRefusal(t, other.mustFetch("Beta/1.0", site.URL("/")), 90*time.Second, 100*time.Second)
	redis.Kill() // it is no less blocked without
	eventually(t, "redis to be missed", func() bool { return other.metric("crawlgate_shared_clock_up") == 0 })
	checkRefusal(t, other.mustFetch("Beta/1.0", site.URL("/")), 80*time.Second, 100*time.Second)
	if n := len(site.PageExchanges()); n != 1 {
		t.Errorf("%d requests reached the origin", n)
	}
}
