//go:build slow

package pace

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestPaceSharesOneHost lets five agents of 20 workers each crawl one host with a Crawl-delay. The
// gap holds by the origin's clock, each agent gets a fifth of the slots, and no slot is left
// unused.
func TestPaceSharesOneHost(t *testing.T) {
	t.Parallel()
	const (
		delay = 150 * time.Millisecond
		long  = 20 * time.Second
	)
	agents := []string{"Alpha", "Beta", "Gamma", "Delta", "Epsilon"}
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nCrawl-delay: 0.15\n"))
	g := rig.New(t, rig.Config{Engine: "pace {\nrate off\nwait 60s\n}"})

	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	began := time.Now()
	var workers sync.WaitGroup
	for _, agent := range agents {
		g.CrawlUntil(ctx, &workers, agent, 20, site)
	}
	rig.Pause(ctx, long)
	workers.Wait()
	left := time.Now()
	g.Stop()

	exchanges := site.PageExchanges()
	least := rig.LeastGap(exchanges)
	if least < delay {
		t.Errorf("two requests came %v apart, want at least the Crawl-delay of %v", least, delay)
	}
	got := make(map[string]int)
	for _, e := range exchanges {
		agent, _, _ := strings.Cut(e.Header.Get("User-Agent"), "/")
		got[agent]++
		// The gateway must notice that the clients left. Otherwise their requests would arrive for
		// 15 s.
		if late := e.Start.Sub(left); late > rig.Scheduling {
			t.Errorf("%s arrived %v after all clients had left", e.Target, late)
		}
	}
	share := float64(len(exchanges)) / float64(len(agents))
	for _, agent := range agents {
		if n := float64(got[agent]); n < 0.9*share || n > 1.1*share {
			t.Errorf("%s got %d of %d slots, want %.1f within a tenth", agent, got[agent], len(exchanges), share)
		}
	}
	if used := time.Duration(len(exchanges)) * delay; used < left.Sub(began)*3/4 {
		t.Errorf("%d requests in %v left slots unused", len(exchanges), left.Sub(began))
	}
	checkGone(g, len(agents)*20, len(exchanges))
	t.Logf("%d requests in %v, the shortest gap %v, shares %v", len(exchanges), left.Sub(began), least, got)
}

// checkGone checks that the log has the requests whose clients left while they were held, and no
// other refusal.
func checkGone(g *rig.Gateway, most, allowed int) {
	g.T.Helper()
	var gone, went int
	for _, l := range g.ReadLogs() {
		switch {
		case l.Robots.Reason == enforce.ReasonCanceled:
			gone++
		case l.Status == http.StatusOK:
			went++
		default:
			g.T.Errorf("the log line is %s", l.Raw)
		}
	}
	if gone == 0 || gone > most || went > allowed || gone+went < allowed {
		g.T.Errorf("the log has %d answered requests and %d whose clients left; %d reached the origin", went, gone, allowed)
	}
}
