package integration

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// chaosKills is how often the gateway dies. CRAWLGATE_CHAOS_KILLS says otherwise.
func chaosKills(t *testing.T) int {
	t.Helper()
	text := os.Getenv("CRAWLGATE_CHAOS_KILLS")
	if text == "" {
		return 5
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("CRAWLGATE_CHAOS_KILLS: %v", err)
	}
	return n
}

// TestChaosKill kills the gateway at random moments of the load of TestChaos and starts it again on the same store. What
// had been written for longer than the store's flush interval must be there: those origins are not asked again before
// their time, by the same rule as if nothing had happened.
func TestChaosKill(t *testing.T) {
	c := timing{ttl: 30 * time.Second, retry: [2]time.Duration{2 * time.Second, 8 * time.Second}, timeout: 2 * time.Second, unreachableFor: 20 * time.Second, grace: time.Second}
	seed := chaosSeed(t)
	script := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a script that can be repeated
	f := newFleet(t, chaosSites)
	f.begin(script)
	config := gatewayConfig{Engine: c.engine(""), Egress: "trust_ca " + caFile(t, f.server)}
	g := startGateway(t, config)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var visits []visit
	var side sync.WaitGroup
	side.Go(func() { f.change(ctx, script, 5*time.Second) })
	side.Go(func() { visits = f.crawl(ctx, g.addr, chaosClients, seed, 30*time.Millisecond) })
	moments := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // a script that can be repeated
	var deaths []span
	for range chaosKills(t) {
		sleepFor(ctx, 200*time.Millisecond+time.Duration(moments.Int64N(int64(1500*time.Millisecond))))
		died := time.Now()
		g.kill()
		f.forking.Lock()
		err := g.start(config)
		f.forking.Unlock()
		if err != nil {
			t.Fatalf("after death %d: %v", len(deaths)+1, err)
		}
		deaths = append(deaths, span{died, time.Now()})
	}
	sleepFor(ctx, 2*time.Second)
	cancel()
	side.Wait()
	g.stop()

	judge(t, f, c, visits, g.linesByVisit(), deaths)
	reportRestarts(t, f, c, deaths)
	if n := stored(t, g.store()); n == 0 {
		t.Error("the store is empty, or cannot be read")
	}
}

// reportRestarts says what the origins saw in the second after each restart. That none of it was too early, the oracle
// has checked; that it is no stampede is that origins whose records were kept, which is nearly all, were left alone.
func reportRestarts(t *testing.T, f *fleet, c timing, deaths []span) {
	t.Helper()
	after := make([]int, len(deaths))
	lost, kept := 0, 0
	for _, site := range f.sites {
		for _, a := range chronicleOf(site, c, deaths).attempts {
			if a.lost {
				lost++
			} else {
				kept++
			}
			for i, d := range deaths {
				if a.start.After(d.to) && a.start.Before(d.to.Add(time.Second)) {
					after[i]++
				}
			}
		}
	}
	most, sum := 0, 0
	var down time.Duration
	for i, n := range after {
		most, sum = max(most, n), sum+n
		down = max(down, deaths[i].to.Sub(deaths[i].from))
	}
	t.Logf("%d deaths, the longest of %v; %d outcomes had to survive all of them, %d were made too shortly before one; "+
		"in the second after a restart %d of %d origins were asked at most, %d on average",
		len(deaths), down.Round(time.Millisecond), kept, lost, most, len(f.sites), sum/max(len(deaths), 1))
	if len(deaths) > 1 && most > len(f.sites)/2 {
		t.Errorf("%d of %d origins were asked in the second after a restart", most, len(f.sites))
	}
}
