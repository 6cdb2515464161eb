//go:build slow

package pace

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// restarts are the ways in which one gateway ends and another one follows.
var restarts = map[string]func(g *rig.Gateway, c rig.Config) error{
	"stop":    func(g *rig.Gateway, c rig.Config) error { g.Stop(); return g.Start(c) },
	"kill -9": func(g *rig.Gateway, c rig.Config) error { g.Kill(); return g.Start(c) },
	"a kill, and a start and a stop after it": func(g *rig.Gateway, c rig.Config) error {
		g.Kill()
		if err := g.Start(c); err != nil {
			return err
		}
		g.Stop()
		return g.Start(c)
	},
	"a lost file": func(g *rig.Gateway, c rig.Config) error {
		g.Stop()
		if err := os.Remove(filepath.Join(filepath.Dir(g.Store()), "blocks.json")); err != nil {
			return err
		}
		return g.Start(c)
	},
	"reload": func(g *rig.Gateway, c rig.Config) error {
		return g.Reload(rig.Config{Engine: "user_agent Other/1.0\n" + c.Engine})
	},
	"a reload that moves the store, and a kill": func(g *rig.Gateway, c rig.Config) error {
		moved := rig.Config{Engine: "store file " + filepath.Join(g.Dir, "moved", "robots.db") + "\n" + c.Engine}
		if err := g.Reload(moved); err != nil {
			return err
		}
		g.Kill()
		return g.Start(moved)
	},
}

// TestPaceDelayOutlivesTheProcess checks that two requests to an origin are never closer than its
// Crawl-delay, however the gateway between them ended, and that the audit agrees.
func TestPaceDelayOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	const delay = 4 * time.Second
	config := rig.Config{Engine: "pace {\nrate off\nwait 20s\n}"}
	for name, again := range restarts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
			site.SetRobots(testorigin.OK("User-agent: *\nCrawl-delay: 4\n"))
			g := rig.New(t, config)
			for i, path := range []string{"/a", "/b"} {
				if i > 0 {
					if err := again(g, config); err != nil {
						t.Fatal(err)
					}
				}
				if a := g.MustFetch("Tester/1.0", site.URL(path)); a.Status != http.StatusNotFound && a.Status != http.StatusOK {
					t.Fatalf("%s: status %d, %s", path, a.Status, a.Body)
				}
			}
			at := rig.Arrivals(site)
			if len(at) != 2 {
				t.Fatalf("%d requests reached the origin, want 2", len(at))
			}
			gap := at[1].Sub(at[0])
			if gap < delay {
				t.Errorf("two requests came %v apart, want at least the Crawl-delay of %v", gap, delay)
			}
			t.Logf("%v apart", gap)
			g.Stop()
			store, _ := filepath.Glob(filepath.Join(g.Dir, "moved", "robots.db"))
			store = append(store, g.Store())
			if gaps := rig.Audit(t, "--store", store[0], filepath.Join(g.Dir, "access.log")).Totals.Gaps; gaps.Pairs != 1 || gaps.Kept != 1 {
				t.Errorf("the audit counts the gaps %+v, want one, kept", gaps)
			}
		})
	}
}

// TestPaceRestartHoldsNobodyUp checks that a host without recent requests gets the next one at
// once, after an orderly stop or from a new gateway, whatever its Crawl-delay.
func TestPaceRestartHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nCrawl-delay: 2\n"))
	config := rig.Config{Engine: "pace {\nrate off\nwait 0s\n}"}
	g := rig.New(t, config)
	if a := g.MustFetch("Tester/1.0", site.URL("/a")); a.Status >= 400 {
		t.Errorf("the first request of a new gateway: status %d, %s", a.Status, a.Body)
	}
	g.Stop()
	began := time.Now()
	rig.Eventually(t, "the delay to be over", func() bool { return time.Since(began) > 2*time.Second })
	if err := g.Start(config); err != nil {
		t.Fatal(err)
	}
	if a := g.MustFetch("Tester/1.0", site.URL("/b")); a.Status >= 400 {
		t.Errorf("after a restart: status %d, %s", a.Status, a.Body)
	}
}

// TestPaceKillKeepsTheGapOfAnother checks that an agent without a delay keeps the gap of an agent
// before it, over a kill. The gap is on the disk a second after the request.
func TestPaceKillKeepsTheGapOfAnother(t *testing.T) {
	t.Parallel()
	const delay = 5 * time.Second
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: Slow\nCrawl-delay: 5\n\nUser-agent: Quick\nDisallow: /private\n"))
	config := rig.Config{Engine: "pace {\nrate off\nwait 20s\n}"}
	g := rig.New(t, config)
	g.MustFetch("Slow/1.0", site.URL("/a"))
	rig.Eventually(t, "the gap to be on the disk", func() bool {
		file, _ := os.ReadFile(filepath.Join(filepath.Dir(g.Store()), "blocks.json"))
		return strings.Contains(string(file), `"gap"`)
	})
	g.Kill()
	if err := g.Start(config); err != nil {
		t.Fatal(err)
	}
	g.MustFetch("Quick/1.0", site.URL("/b"))
	if at := rig.Arrivals(site); len(at) != 2 || at[1].Sub(at[0]) < delay {
		t.Errorf("requests came at %v, want two with a gap of at least %v", at, delay)
	}
}

// TestPaceKillForgetsTheOrderlyEnd checks that the record of an orderly stop, that no other host
// had recent requests, holds only until the next start: a request after that start keeps its gap
// even over an immediate kill.
func TestPaceKillForgetsTheOrderlyEnd(t *testing.T) {
	t.Parallel()
	const delay = 3 * time.Second
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nCrawl-delay: 3\n"))
	config := rig.Config{Engine: "pace {\nrate off\nwait 20s\n}"}
	g := rig.New(t, config)
	for _, again := range []string{"stop", "kill -9"} {
		if err := restarts[again](g, config); err != nil {
			t.Fatal(err)
		}
		g.MustFetch("Tester/1.0", site.URL("/"))
	}
	if at := rig.Arrivals(site); len(at) != 2 || at[1].Sub(at[0]) < delay {
		t.Errorf("requests came at %v, want two with a gap of at least %v", at, delay)
	}
}

// TestPaceSharedDelayOutlivesTheGateway checks that clocks in Redis outlive a gateway.
func TestPaceSharedDelayOutlivesTheGateway(t *testing.T) {
	t.Parallel()
	const delay = 3 * time.Second
	redis := redistest.Start(t)
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nCrawl-delay: 3\n"))
	config := rig.Config{Engine: "pace {\nrate off\nwait 20s\nshared redis " + redis.URL() + "\n}"}
	g := rig.New(t, config)
	for i, again := range []func(*rig.Gateway, rig.Config) error{nil, restarts["stop"], restarts["kill -9"]} {
		if again != nil {
			if err := again(g, config); err != nil {
				t.Fatal(err)
			}
		}
		rig.Eventually(t, "the clocks to be shared", func() bool { return g.Metric("crawlgate_shared_clock_up") == 1 })
		g.MustFetch("Tester/1.0", site.URL("/"))
		at := rig.Arrivals(site)
		if len(at) != i+1 || i > 0 && at[i].Sub(at[i-1]) < delay {
			t.Fatalf("requests came at %v, want gaps of %v", at, delay)
		}
	}
}
