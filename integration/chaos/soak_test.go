//go:build slow

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// TestChaosSoak is TestChaos over Redis, with a new configuration every 20 s and several kills and
// restarts of Redis. It judges every answer by the record of the origins, and checks that the
// gateway's memory, descriptors and goroutines do not grow. CRAWLGATE_CHAOS=15m makes it a soak.
func TestChaosSoak(t *testing.T) {
	rig.NeedsQuiet(t) // its clients send 160 requests a second in total
	c := timing{
		ttl: 4 * time.Second, retry: [2]time.Duration{time.Second, 4 * time.Second},
		timeout: 2 * time.Second, unreachableFor: 9 * time.Second, grace: time.Second,
	}
	lasts := chaosTime(t, 21*time.Second)
	period := min(20*time.Second, lasts/3)
	seed := chaosSeed(t)
	script := rand.New(rand.NewPCG(seed, 3))
	f := newFleet(t, chaosSites)
	f.retry = true
	f.begin(script)
	redis := startRedis(t)
	config := func(version int) rig.Config {
		return rig.Config{
			Engine: fmt.Sprintf("user_agent Soak/%d\n", version) + c.engine(redis.store()),
			Egress: "trust_ca " + rig.CAFile(t, f.server),
		}
	}
	g := rig.New(t, config(0))

	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var taken footprint
	var reloads, outages []span
	var side sync.WaitGroup
	side.Go(func() { f.change(ctx, script, 3*time.Second) })
	side.Go(func() { taken = watchFootprint(ctx, g, 500*time.Millisecond) })
	side.Go(func() { reloads = f.reloadEvery(ctx, t, g, period, config) })
	side.Go(func() { outages = redis.killEvery(ctx, f, period*3/2, period/4) })
	visits := f.crawl(ctx, g.Addr, chaosClients, seed, 200*time.Millisecond)
	side.Wait()
	g.Stop()

	t.Logf("%d reloads, %d kills of Redis, the longest without it %v", len(reloads), len(outages), longest(outages))
	judge(t, f, c, visits, linesByVisit(g), nil, reloads)
	taken.check(t)
}

// reloadEvery loads one configuration after the other until ctx ends, and returns the times in
// which a connection may break off because its listener closes.
func (f *fleet) reloadEvery(ctx context.Context, t *testing.T, g *rig.Gateway, period time.Duration, config func(int) rig.Config) []span {
	t.Helper()
	var all []span
	for version := 1; ; version++ {
		sleepFor(ctx, period)
		if ctx.Err() != nil {
			return all
		}
		began := time.Now()
		f.forking.Lock()
		err := g.Reload(config(version))
		f.forking.Unlock()
		if err != nil {
			t.Error(err)
		}
		all = append(all, span{began, time.Now()})
	}
}

// killEvery kills the server once a period until ctx ends, starts it again after a while, and
// returns the times in which it was down.
func (s *redisServer) killEvery(ctx context.Context, f *fleet, period, away time.Duration) []span {
	var all []span
	for {
		sleepFor(ctx, period-away)
		if ctx.Err() != nil {
			return all
		}
		began := time.Now()
		s.stop()
		sleepFor(ctx, away)
		f.forking.Lock()
		s.start()
		f.forking.Unlock()
		all = append(all, span{began, time.Now()})
	}
}

func longest(all []span) (most time.Duration) {
	for _, s := range all {
		most = max(most, s.to.Sub(s.from))
	}
	return most.Round(time.Millisecond)
}

// footprint has samples of what a gateway uses of its machine.
type footprint struct{ memory, descriptors, goroutines []int64 }

// watchFootprint samples the process until ctx ends.
func watchFootprint(ctx context.Context, g *rig.Gateway, every time.Duration) (u footprint) {
	pid := g.Cmd.Process.Pid
	for ctx.Err() == nil {
		rss, err := residentSet(pid)
		open, dirErr := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err == nil && dirErr == nil {
			u.memory = append(u.memory, rss>>20)
			u.descriptors = append(u.descriptors, int64(len(open)))
			u.goroutines = append(u.goroutines, int64(g.Metric("go_goroutines")))
		}
		sleepFor(ctx, every)
	}
	return u
}

// check checks that the gateway stays within the bounds for 500 origins and 32 clients, and does
// not grow.
func (u footprint) check(t *testing.T) {
	t.Helper()
	checkFlat(t, "memory in MiB", u.memory, 16, 350)
	checkFlat(t, "descriptors", u.descriptors, 200, 900)
	checkFlat(t, "goroutines", u.goroutines, 400, 1500)
}

// flatFrom is the number of samples, a minute's, from which the gateway fills its tables during the
// first third of a run only. In half of that time they still fill.
const flatFrom = 120

// checkFlat compares all samples with the given maximum, and in a long run the last third of them
// with the second. Growth by a quarter plus slack is noise.
func checkFlat(t *testing.T, name string, samples []int64, slack, most int64) {
	t.Helper()
	third := len(samples) / 3
	if third < 3 {
		t.Fatalf("%d samples of %s, want at least 9", len(samples), name)
	}
	median := func(s []int64) int64 {
		s = slices.Sorted(slices.Values(s))
		return s[len(s)/2]
	}
	first, middle, last := median(samples[:third]), median(samples[third:2*third]), median(samples[2*third:])
	t.Logf("%s: %d, %d, %d (medians of thirds), at most %d", name, first, middle, last, slices.Max(samples))
	if slices.Max(samples) > most {
		t.Errorf("%s: at most %d, want at most %d", name, slices.Max(samples), most)
	}
	if len(samples) >= flatFrom && last > middle+middle/4+slack {
		t.Errorf("%s grows: from %d to %d", name, middle, last)
	}
}
