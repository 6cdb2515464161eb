//go:build slow

package pace

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// longer returns the duration of a phase of a test. The environment can ask for the full length
// behind the figures in pace/RESULTS.md.
func longer(t *testing.T, short time.Duration, variable string) time.Duration {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return short
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return d
}

// redisGateways is some gateways with one Redis that crawl the same hosts while the test runs.
type redisGateways struct {
	t        *testing.T
	redis    *redistest.Server
	sites    []*testorigin.Site
	gateways []*rig.Gateway
	workers  sync.WaitGroup
	stop     context.CancelFunc
}

// startRedisGateways sends two workers from each gateway to each host. Every second host has the
// Crawl-delay.
func startRedisGateways(t *testing.T, gateways, hosts int, engine, delay string) *redisGateways {
	t.Helper()
	f := &redisGateways{t: t, redis: redistest.Start(t)}
	server := testorigin.Start(t, testorigin.Config{RecordSize: 1 << 14})
	for i := range hosts {
		site := server.Site(t, testorigin.SiteConfig{})
		if i%2 == 1 {
			site.SetRobots(testorigin.OK("User-agent: *\nCrawl-delay: " + delay + "\n"))
		}
		f.sites = append(f.sites, site)
	}
	for range gateways {
		f.gateways = append(f.gateways, rig.New(t, rig.Config{
			Engine: fmt.Sprintf("store none\npace {\n%s\nshared redis %s\n}", engine, f.redis.URL()),
		}))
	}
	for _, g := range f.gateways {
		f.awaitShared(g, 1)
	}
	time.Sleep(2 * time.Second) // two heartbeats, after which each gateway knows all others
	ctx, stop := context.WithCancel(t.Context())
	f.stop = stop
	t.Cleanup(stop)
	for _, site := range f.sites {
		// Start one host after the other, like real crawls, so that they are not all due at the
		// same moments.
		time.Sleep(time.Second / time.Duration(hosts))
		for i, g := range f.gateways {
			g.CrawlUntil(ctx, &f.workers, fmt.Sprintf("Agent-%c", 'a'+i), 2, site)
		}
	}
	return f
}

func (f *redisGateways) awaitShared(g *rig.Gateway, want float64) {
	f.t.Helper()
	rig.Eventually(f.t, fmt.Sprintf("shared clocks: %v", want), func() bool { return g.Metric("crawlgate_shared_clock_up") == want })
}

// end stops the workers and returns the times of the requests by host.
func (f *redisGateways) end() [][]time.Time {
	f.stop()
	f.workers.Wait()
	all := make([][]time.Time, len(f.sites))
	for i, site := range f.sites {
		if n := site.Dropped(); n > 0 {
			f.t.Errorf("the record lacks %d requests", n)
		}
		all[i] = rig.Arrivals(site)
	}
	return all
}

// between returns the times in a phase.
func between(times []time.Time, from, to time.Time) (in []time.Time) {
	for _, at := range times {
		if at.After(from) && at.Before(to) {
			in = append(in, at)
		}
	}
	return in
}

// TestPaceThreeGateways sends 300 workers behind three gateways to 50 hosts, and kills Redis for a
// while and then one of the gateways. With Redis no host gets more than its rate or its Crawl-delay
// allows, without it no more than that and one request of each gateway. No host is idle for long.
func TestPaceThreeGateways(t *testing.T) {
	rig.NeedsQuiet(t)
	const (
		rate     = 2 // a second
		interval = time.Second / rate
		delay    = 700 * time.Millisecond
		settled  = 5 * time.Second // gateways keep to their share for this long after Redis is back
	)
	f := startRedisGateways(t, 3, 50, "rate 2/s\nburst 1\nwait 60s", "0.7")
	phase := 5 * time.Second

	began := time.Now()
	time.Sleep(phase)
	killed := time.Now()
	f.redis.Kill()
	for _, g := range f.gateways {
		f.awaitShared(g, 0)
	}
	time.Sleep(longer(t, 8*time.Second, "CRAWLGATE_REDIS_AWAY") - time.Since(killed))
	back := time.Now()
	f.redis.Start()
	for _, g := range f.gateways {
		f.awaitShared(g, 1)
	}
	rejoined := time.Now()
	time.Sleep(settled + phase)
	died := time.Now()
	f.gateways[0].Kill()
	time.Sleep(phase)
	ended := time.Now()
	all := f.end()

	worst, alone := [2]time.Duration{time.Hour, time.Hour}, [2]time.Duration{time.Hour, time.Hour}
	lonely := 0
	for i, times := range all {
		want := [2]time.Duration{interval, delay}[i%2]
		for _, shared := range [][]time.Time{between(times, began, killed), between(times, rejoined.Add(settled), ended)} {
			worst[i%2] = min(worst[i%2], rig.Shortest(shared, 1))
			// A request may be late on its way without the shared clock's knowledge, so the bound
			// leaves out one interval. The tests of redisclock, with an injected clock, check that
			// no two slots are closer.
			for n := rate; n < len(shared); n++ {
				if took, least := rig.Shortest(shared, n), time.Duration(n-1)*want; took < least {
					t.Errorf("host %d got %d requests within %v, want at least %v: %v", i, n+1, took, least, around(shared, n, killed))
				}
			}
		}
		alone[i%2] = min(alone[i%2], rig.Shortest(between(times, killed, back), 1))
		for n := len(f.gateways) + 1; n < len(times); n++ { // one request may have been late on its way
			if took, least := rig.Shortest(times, n), time.Duration(n-len(f.gateways))*want; took < least {
				t.Errorf("host %d got %d requests within %v, want at least %v", i, n+1, took, least)
			}
		}
		// The dead gateway had reserved at most the next slot.
		for after := between(times, died.Add(-2*want), ended); len(after) > 1; after = after[1:] {
			if gap := after[1].Sub(after[0]); gap > 2*want+rig.Scheduling {
				t.Logf("host %d was idle for %v when a gateway died", i, gap)
				lonely++
			}
		}
	}
	// A gateway that waits for the processor misses a slot too. If the dead gateway's slots were
	// lost for longer, all hosts would show it.
	if lonely > len(all)/2 {
		t.Errorf("%d hosts were idle for more than one interval when a gateway died, want at most half", lonely)
	}
	for _, p := range []struct {
		name     string
		from, to time.Time
		least    float64 // of what the rate allows; a busy machine reaches half
	}{
		{"with redis", began, killed, 0.5},
		{"without redis", killed, back, 0.3},
		{"with redis again", rejoined, died, 0.5},
		{"with two gateways", died, ended, 0.5},
	} {
		n := 0
		for _, times := range all {
			n += len(between(times, p.from, p.to))
		}
		seconds := p.to.Sub(p.from).Seconds()
		most := seconds * float64(len(all)) / 2 * (rate + float64(time.Second)/float64(delay))
		t.Logf("%s: %d requests in %.1f s, %.0f%% of what the hosts allow", p.name, n, seconds, 100*float64(n)/most)
		if float64(n) < p.least*most {
			t.Errorf("%s: %d requests in %.1f s, too few of the %.0f that the hosts allow", p.name, n, seconds, most)
		}
	}
	t.Logf("shortest gaps: %v at an interval of %v, %v at a Crawl-delay of %v; without redis %v and %v",
		worst[0], interval, worst[1], delay, alone[0], alone[1])
	for i, g := range f.gateways {
		said := g.Stderr.String()
		if n := strings.Count(said, "redis does not answer"); n != 1 {
			t.Errorf("gateway %d logged %d times that Redis does not answer, want once: %s", i, n, said)
		}
	}
}

// around returns the times, in seconds after zero, of the n+1 requests that came closest together,
// and their neighbours.
func around(times []time.Time, n int, zero time.Time) []string {
	least := rig.Shortest(times, n)
	for i := n; i < len(times); i++ {
		if times[i].Sub(times[i-n]) != least {
			continue
		}
		var all []string
		for _, at := range times[max(i-n-1, 0):min(i+2, len(times))] {
			all = append(all, fmt.Sprintf("%.3f", at.Sub(zero).Seconds()))
		}
		return all
	}
	return nil
}
