//go:build slow

package pace

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
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// TestPaceHeedsTheOrigin lets two agents with five workers each crawl a host that asks for a pause.
// No request reaches the host during the pause, some do soon after, and they keep the rate without
// a burst.
func TestPaceHeedsTheOrigin(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		answer      func() testorigin.Behaviour
		least, most time.Duration // bounds of the pause, which begins when the origin got the request
	}{
		{"429 with seconds", func() testorigin.Behaviour { return rig.Overloaded(429, "3") }, 3 * time.Second, 3 * time.Second},
		{"503 with seconds", func() testorigin.Behaviour { return rig.Overloaded(503, "3") }, 3 * time.Second, 3 * time.Second},
		{"503 with a date", func() testorigin.Behaviour {
			return rig.Overloaded(503, time.Now().Add(5*time.Second).UTC().Format(http.TimeFormat))
		}, 2 * time.Second, 5 * time.Second},
		{"430 with seconds", func() testorigin.Behaviour { return rig.Overloaded(430, "3") }, 3 * time.Second, 3 * time.Second},
		{"429 without", func() testorigin.Behaviour { return rig.Overloaded(429, "") }, 2 * time.Second, 2200 * time.Millisecond},
		{"503 with nonsense", func() testorigin.Behaviour { return rig.Overloaded(503, "soon") }, 2 * time.Second, 2200 * time.Millisecond},
		{"429 with more than the operator grants", func() testorigin.Behaviour { return rig.Overloaded(429, "86400") }, 6 * time.Second, 6 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			const rate = 10
			site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
			g := rig.New(t, rig.Config{Engine: "pace {\nrate 10/s\nburst 1\nwait 1s\nbackoff 2s 6s\n}"})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var workers sync.WaitGroup
			for _, agent := range []string{"Alpha", "Beta"} {
				g.CrawlUntil(ctx, &workers, agent, 5, site)
			}
			rig.Eventually(t, "the crawl to begin", func() bool { return len(site.PageExchanges()) >= 5 })
			site.SetPages(tt.answer())
			refused := 0 // the index of the refusal in the record
			rig.Eventually(t, "the origin to refuse", func() bool {
				for i, e := range site.PageExchanges() {
					if e.Status == http.StatusTooManyRequests || e.Status == 430 || e.Status == http.StatusServiceUnavailable {
						refused = i
						return true
					}
				}
				return false
			})
			site.SetPages(testorigin.OK("page"))
			rig.Eventually(t, "the crawl to go on", func() bool { return len(site.PageExchanges()) > refused+2*rate })
			stop()
			workers.Wait()

			// Ignore requests that were under way before the origin, which may be slow, had
			// answered.
			refusal := site.PageExchanges()[refused]
			after := slices.DeleteFunc(rig.Arrivals(site), func(at time.Time) bool { return !at.After(refusal.End) })
			pause := after[0].Sub(refusal.Arrived)
			if pause < tt.least || pause > tt.most+rig.Scheduling {
				t.Errorf("the pause was %v, want %v to %v", pause, tt.least, tt.most)
			}
			if least := rig.Shortest(after, rate); least < time.Second {
				t.Errorf("%d requests came within %v after the pause, want at most %d a second", rate+1, least, rate)
			}
			g.Stop()
			said := make(map[enforce.Reason]int)
			for _, l := range g.ReadLogs() {
				said[l.Robots.Reason]++
			}
			if said[enforce.ReasonBackoff] == 0 {
				t.Errorf("the log has the reasons %v, want backoff", said)
			}
			t.Logf("the pause was %v; reasons %v", pause, said)
		})
	}
}

// TestPaceBackoffDoubles lets an origin refuse every request without naming a pause.
func TestPaceBackoffDoubles(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetPages(rig.Overloaded(http.StatusServiceUnavailable, ""))
	g := rig.New(t, rig.Config{Engine: "pace {\nrate off\nwait 10s\nbackoff 1s 4s\n}"})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var workers sync.WaitGroup
	g.CrawlUntil(ctx, &workers, "Tester", 8, site)
	// Without a rate, several requests may be under way at the first refusal; the pauses follow
	// their bunch.
	rig.Eventually(t, "five bunches", func() bool { return len(bunches(rig.Arrivals(site))) >= 5 })
	stop()
	workers.Wait()
	begins := bunches(rig.Arrivals(site))
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second} {
		if got := begins[i+1].Sub(begins[i]); got < want || got > want*11/10+rig.Scheduling {
			t.Errorf("pause %d lasted %v, want %v and up to a tenth more", i+1, got, want)
		}
	}
}

// bunches returns the arrivals that follow half a second without any.
func bunches(times []time.Time) (begins []time.Time) {
	for i, at := range times {
		if i == 0 || at.Sub(times[i-1]) > 500*time.Millisecond {
			begins = append(begins, at)
		}
	}
	return begins
}

// TestPaceBlockOutlivesTheProcess ends the gateway in three ways while a host is blocked.
func TestPaceBlockOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	config := rig.Config{Engine: "pace {\nwait 0s\n}"}
	for _, tt := range []struct {
		name  string
		again func(g *rig.Gateway) error
	}{
		{"reload", func(g *rig.Gateway) error {
			return g.Reload(rig.Config{Engine: "user_agent Other/1.0\n" + config.Engine})
		}},
		{"stop", func(g *rig.Gateway) error { g.Stop(); return g.Start(config) }},
		{"kill -9", func(g *rig.Gateway) error {
			blocks := filepath.Join(filepath.Dir(g.Store()), "blocks.json")
			rig.Eventually(g.T, "the block to be on the disk", func() bool {
				content, err := os.ReadFile(blocks)
				return err == nil && strings.Contains(string(content), "until")
			})
			g.Kill()
			return g.Start(config)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
			site.SetPages(rig.Overloaded(http.StatusServiceUnavailable, "100"))
			g := rig.New(t, config)
			began := time.Now()
			if a := g.MustFetch("Alpha/1.0", site.URL("/")); a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") != "100" {
				t.Fatalf("the origin's own answer: status %d, want 503: %s", a.Status, a.Body)
			}
			rig.CheckRefusal(t, g.MustFetch("Beta/1.0", site.URL("/")), 90*time.Second, 100*time.Second)
			if err := tt.again(g); err != nil {
				t.Fatal(err)
			}
			a := g.MustFetch("Gamma/1.0", site.URL("/"))
			gone := time.Since(began).Truncate(time.Second)
			rig.CheckRefusal(t, a, 99*time.Second-gone, 101*time.Second-gone)
			if n := len(site.PageExchanges()); n != 1 {
				t.Errorf("%d requests reached the origin, want 1", n)
			}
			g.CheckReason(enforce.ReasonBackoff, 2)
		})
	}
}

// TestPaceBackoffOff checks that `backoff off` ignores the origin's pauses.
func TestPaceBackoffOff(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetPages(rig.Overloaded(http.StatusTooManyRequests, "100"))
	g := rig.New(t, rig.Config{Engine: "pace {\nwait 0s\nbackoff off\n}"})
	for i := range 3 {
		if a := g.MustFetch("Tester/1.0", site.URL("/"+strconv.Itoa(i))); a.Header.Get("Proxy-Status") != "" {
			t.Errorf("the gateway refused the request: status %d: %s", a.Status, a.Body)
		}
	}
}

// TestPaceBlockIsShared blocks a host at one gateway, and checks that the other gateway keeps the
// block at once.
func TestPaceBlockIsShared(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetPages(rig.Overloaded(http.StatusServiceUnavailable, "100"))
	config := rig.Config{Engine: fmt.Sprintf("pace {\nwait 1s\nshared redis %s\n}", redis.URL())}
	one, other := rig.New(t, config), rig.New(t, config)
	for _, g := range []*rig.Gateway{one, other} {
		rig.Eventually(t, "the clocks to be shared", func() bool { return g.Metric("crawlgate_shared_clock_up") == 1 })
	}
	if a := one.MustFetch("Alpha/1.0", site.URL("/")); a.Header.Get("Proxy-Status") != "" {
		t.Fatalf("the gateway refused the first request: status %d: %s", a.Status, a.Body)
	}
	rig.CheckRefusal(t, other.MustFetch("Beta/1.0", site.URL("/")), 90*time.Second, 100*time.Second)
	redis.Kill() // the block stays without Redis
	rig.Eventually(t, "redis to be missed", func() bool { return other.Metric("crawlgate_shared_clock_up") == 0 })
	// Without Redis the gateways take turns, so the first request after the block may begin a
	// moment later.
	rig.CheckRefusal(t, other.MustFetch("Beta/1.0", site.URL("/")), 80*time.Second, 101*time.Second)
	if n := len(site.PageExchanges()); n != 1 {
		t.Errorf("%d requests reached the origin, want 1", n)
	}
}
