package integration

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// restarts are the ways in which a gateway ends and another one goes on.
var restarts = map[string]func(g *gateway, c gatewayConfig) error{
	"stop":    func(g *gateway, c gatewayConfig) error { g.stop(); return g.start(c) },
	"kill -9": func(g *gateway, c gatewayConfig) error { g.kill(); return g.start(c) },
	"a kill, and a start and a stop after it": func(g *gateway, c gatewayConfig) error {
		g.kill()
		if err := g.start(c); err != nil {
			return err
		}
		g.stop()
		return g.start(c)
	},
	"a lost file": func(g *gateway, c gatewayConfig) error {
		g.stop()
		if err := os.Remove(filepath.Join(filepath.Dir(g.store()), "blocks.json")); err != nil {
			return err
		}
		return g.start(c)
	},
	"reload": func(g *gateway, c gatewayConfig) error {
		return g.reload(gatewayConfig{Engine: "user_agent Other/1.0\n" + c.Engine})
	},
	"a reload that moves the store, and a kill": func(g *gateway, c gatewayConfig) error {
		moved := gatewayConfig{Engine: "store file " + filepath.Join(g.dir, "moved", "robots.db") + "\n" + c.Engine}
		if err := g.reload(moved); err != nil {
			return err
		}
		g.kill()
		return g.start(moved)
	},
}

// TestPaceDelayOutlivesTheProcess: the origin has no two requests closer together than its
// Crawl-delay, however the gateway between them ended. The audit agrees.
func TestPaceDelayOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	const delay = 4 * time.Second
	config := gatewayConfig{Engine: "pace {\nrate off\nwait 20s\n}"}
	for name, again := range restarts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
			site.SetRobots(testorigin.OK("User-agent: *\nCrawl-delay: 4\n"))
			g := startGateway(t, config)
			for i, path := range []string{"/a", "/b"} {
				if i > 0 {
					if err := again(g, config); err != nil {
						t.Fatal(err)
					}
				}
				if a := g.mustFetch("Tester/1.0", site.URL(path)); a.status != http.StatusNotFound && a.status != http.StatusOK {
					t.Fatalf("%s: %d: %s", path, a.status, a.body)
				}
			}
			at := arrivals(site)
			if len(at) != 2 {
				t.Fatalf("%d requests reached the origin", len(at))
			}
			gap := at[1].Sub(at[0])
			if gap < delay {
				t.Errorf("two requests came %v apart, which is less than the Crawl-delay of %v", gap, delay)
			}
			t.Logf("%v apart", gap)
			g.stop()
			store, _ := filepath.Glob(filepath.Join(g.dir, "moved", "robots.db"))
			store = append(store, g.store())
			if gaps := audit(t, "--store", store[0], filepath.Join(g.dir, "access.log")).totals.Gaps; gaps.Pairs != 1 || gaps.Kept != 1 {
				t.Errorf("the audit says %+v of the gaps", gaps)
			}
		})
	}
}

// TestPaceRestartHoldsNobodyUp: over an orderly stop a host that was not asked of late is asked at
// once, whatever its Crawl-delay, and so it is by a gateway that never ran before.
func TestPaceRestartHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nCrawl-delay: 2\n"))
	config := gatewayConfig{Engine: "pace {\nrate off\nwait 0s\n}"}
	g := startGateway(t, config)
	if a := g.mustFetch("Tester/1.0", site.URL("/a")); a.status >= 400 {
		t.Errorf("the first request of a new gateway: %d: %s", a.status, a.body)
	}
	g.stop()
	began := time.Now()
	eventually(t, "the delay to be over", func() bool { return time.Since(began) > 2*time.Second })
	if err := g.start(config); err != nil {
		t.Fatal(err)
	}
	if a := g.mustFetch("Tester/1.0", site.URL("/b")); a.status >= 400 {
		t.Errorf("%d: %s", a.status, a.body)
	}
}

// TestPaceKillKeepsTheGapOfAnother: an agent without a delay of its own keeps, over a kill, the gap
// of the agent before it. The gap is on the disk a second after the request.
func TestPaceKillKeepsTheGapOfAnother(t *testing.T) {
	t.Parallel()
	const delay = 5 * time.Second
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: Slow\nCrawl-delay: 5\n\nUser-agent: Quick\nDisallow: /private\n"))
	config := gatewayConfig{Engine: "pace {\nrate off\nwait 20s\n}"}
	g := startGateway(t, config)
	g.mustFetch("Slow/1.0", site.URL("/a"))
	eventually(t, "the gap to be on the disk", func() bool {
		file, _ := os.ReadFile(filepath.Join(filepath.Dir(g.store()), "blocks.json"))
		return strings.Contains(string(file), `"gap"`)
	})
	g.kill()
	if err := g.start(config); err != nil {
		t.Fatal(err)
	}
	g.mustFetch("Quick/1.0", site.URL("/b"))
	if at := arrivals(site); len(at) != 2 || at[1].Sub(at[0]) < delay {
		t.Errorf("requests came at %v, want a gap of %v", at, delay)
	}
}

// TestPaceKillForgetsTheOrderlyEnd: what an orderly stop wrote down, that no other host was asked of late, holds until the
// next start only: a request that leaves then keeps its gap over a kill at once.
func TestPaceKillForgetsTheOrderlyEnd(t *testing.T) {
	t.Parallel()
	const delay = 3 * time.Second
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nCrawl-delay: 3\n"))
	config := gatewayConfig{Engine: "pace {\nrate off\nwait 20s\n}"}
	g := startGateway(t, config)
	for _, again := range []string{"stop", "kill -9"} {
		if err := restarts[again](g, config); err != nil {
			t.Fatal(err)
		}
		g.mustFetch("Tester/1.0", site.URL("/"))
	}
	if at := arrivals(site); len(at) != 2 || at[1].Sub(at[0]) < delay {
		t.Errorf("requests came at %v, want a gap of %v", at, delay)
	}
}

// TestPaceSharedDelayOutlivesTheGateway: clocks in Redis are kept there.
func TestPaceSharedDelayOutlivesTheGateway(t *testing.T) {
	t.Parallel()
	const delay = 3 * time.Second
	redis := redistest.Start(t)
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nCrawl-delay: 3\n"))
	config := gatewayConfig{Engine: "pace {\nrate off\nwait 20s\nshared redis " + redis.URL() + "\n}"}
	g := startGateway(t, config)
	for i, again := range []func(*gateway, gatewayConfig) error{nil, restarts["stop"], restarts["kill -9"]} {
		if again != nil {
			if err := again(g, config); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "the clocks to be shared", func() bool { return g.metric("crawlgate_shared_clock_up") == 1 })
		g.mustFetch("Tester/1.0", site.URL("/"))
		at := arrivals(site)
		if len(at) != i+1 || i > 0 && at[i].Sub(at[i-1]) < delay {
			t.Fatalf("requests came at %v, want gaps of %v", at, delay)
		}
	}
}
