//go:build slow

package operate

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/robotscache/boltstore"
)

// TestReloadMidCrawl reloads the configuration three times while crawlers use a site with a
// Crawl-delay, one without, and one whose only answer takes longer than the whole crawl.
func TestReloadMidCrawl(t *testing.T) {
	t.Parallel()
	const pages, delay = 18, 500 * time.Millisecond
	server := testorigin.Start(t, testorigin.Config{})
	slow := server.Site(t, testorigin.SiteConfig{})
	slow.SetRobots(testorigin.OK("User-agent: *\nCrawl-delay: 0.5\n"))
	fast := server.Site(t, testorigin.SiteConfig{})
	fast.SetRobots(testorigin.OK("User-agent: *\nDisallow: /private\n"))
	fast.SetPages(testorigin.OK("page").After(20 * time.Millisecond))
	long := server.Site(t, testorigin.SiteConfig{})
	const text = "an answer that comes one byte after the other"
	long.SetPath("/long", testorigin.Drip(text, pages*delay/time.Duration(len(text))))

	config := func(version int) rig.Config {
		return rig.Config{Engine: fmt.Sprintf("user_agent Version/%d\npace {\nrate off\nwait 30s\n}", version)}
	}
	g := rig.New(t, config(0))
	client := g.Client("Tester/1.0")
	var asked atomic.Int64
	ask := func(site *testorigin.Site, path, want string) {
		asked.Add(1)
		a, err := rig.TryGet(t.Context(), client, site.URL(path))
		if err != nil || a.Status != http.StatusOK || want != "" && a.Body != want {
			t.Errorf("%s: status %d, error %v: %q", site.URL(path), a.Status, err, a.Body)
		}
	}

	var crawl sync.WaitGroup
	crawl.Go(func() { ask(long, "/long", text) })
	ctx, stop := context.WithCancel(t.Context())
	for range 2 {
		crawl.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				ask(fast, fmt.Sprintf("/page/%d", i), "")
			}
		})
	}
	for version := 1; version <= 3; version++ {
		var leg sync.WaitGroup
		for i := range pages / 3 { // the last of them wait while the next configuration is loaded
			leg.Go(func() { ask(slow, fmt.Sprintf("/leg/%d/%d", version, i), "") })
		}
		rig.Eventually(t, "a third of the crawl to begin", func() bool { return len(slow.PageExchanges()) >= (version-1)*pages/3+2 })
		if err := g.Reload(config(version)); err != nil {
			t.Error(err)
		}
		leg.Wait()
	}
	stop()
	crawl.Wait()

	if least := rig.LeastGap(slow.PageExchanges()); least < delay {
		t.Errorf("two requests came %v apart, want at least the Crawl-delay of %v", least, delay)
	}
	for _, site := range []*testorigin.Site{slow, fast, long} {
		if n := len(site.RobotsExchanges()); n != 1 || site.Dropped() > 0 {
			t.Errorf("%s: %d fetches of robots.txt, want 1", site.Origin(), n)
		}
	}
	if n := len(slow.PageExchanges()); n != pages {
		t.Errorf("%d pages with a Crawl-delay reached the origin, want %d", n, pages)
	}
	g.Stop()
	if n := len(g.ReadLogs()); n != int(asked.Load()) {
		t.Errorf("%d lines in the access log for %d requests", n, asked.Load())
	}
	t.Logf("%d requests over 3 reloads", asked.Load())
}

// TestRestartRefetchesNothing ends the process gracefully or not, and checks that the next one has
// the rulesets.
func TestRestartRefetchesNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		end  func(g *rig.Gateway, sites int)
	}{
		{"stop", func(g *rig.Gateway, _ int) { g.Stop() }},
		{"kill -9", func(g *rig.Gateway, sites int) {
			rig.Eventually(g.T, "the store to hold all records", func() bool { return stored(g.T, g.Store()) == sites })
			g.Kill()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			const sites = 10
			server := testorigin.Start(t, testorigin.Config{})
			for range sites {
				server.Site(t, testorigin.SiteConfig{}).SetRobots(testorigin.OK(rig.Rules))
			}
			g := rig.New(t, rig.Config{})
			visit := func() {
				for _, site := range server.Sites() {
					for page, want := range map[string]int{rig.OpenPage: http.StatusOK, rig.PrivatePage: http.StatusForbidden} {
						if a := g.MustFetch("Tester/1.0", site.URL(page)); a.Status != want {
							t.Errorf("%s: status %d, want %d", site.URL(page), a.Status, want)
						}
					}
				}
			}
			visit()
			tt.end(g, sites)
			if err := g.Start(rig.Config{}); err != nil {
				t.Fatal(err)
			}
			visit()
			for _, site := range server.Sites() {
				if n := len(site.RobotsExchanges()); n != 1 {
					t.Errorf("%s: %d fetches of robots.txt, want 1", site.Origin(), n)
				}
			}
			g.Stop()
			lines := g.ReadLogs()
			if len(lines) != 4*sites {
				t.Errorf("%d lines in the access log, want %d", len(lines), 4*sites)
			}
			for _, l := range lines[len(lines)/2:] {
				if s := l.Robots.Source; s != "store" && s != "hot" {
					t.Errorf("after the restart: the rules for %s came from %q", l.Request.URI, s)
				}
			}
		})
	}
}

// stored counts the records in a copy of a store in use. A copy made during a commit may be
// invalid.
func stored(t *testing.T, path string) int {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy.db")
	if err := os.WriteFile(copied, content, 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := boltstore.Open(boltstore.Config{Path: copied})
	if err != nil {
		return 0
	}
	defer store.Close()
	records, err := store.List(t.Context(), "", 100)
	if err != nil {
		return 0
	}
	return len(records)
}

// TestARefusedReloadForgetsNoAgent loads a configuration without an agent that fails only when a
// part of it runs. The agent's counters must stay.
func TestARefusedReloadForgetsNoAgent(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	config := rig.Config{Engine: rig.Unpaced, Site: "agent acmebot {\nowner search\n}\nunidentified allow"}
	g := rig.New(t, config)
	g.MustFetch("acmebot/1.0", site.URL("/page"))
	const counter = `crawlgate_agent_decisions_total{agent="acmebot",decision="allow",owner="search",reason="absent"}`
	counted := func() bool { return strings.Contains(g.Admin("/metrics").Body, "\n"+counter+" 1\n") }
	if !counted() {
		t.Fatal(g.Admin("/metrics").Body)
	}
	refused := config
	refused.Site = "agent otherbot\nunidentified allow"
	refused.Sites = "http://:8080 {\nbind 192.0.2.1\n}" // no address of this machine, which Caddy notices as it starts
	for range 10 {                                      // Caddy starts its parts in any order; the listener is first in half of the tries
		if err := g.Reload(refused); err == nil {
			t.Fatal("the reload did not fail")
		}
		if !counted() {
			t.Fatal("the counter of acmebot is gone")
		}
	}
}
