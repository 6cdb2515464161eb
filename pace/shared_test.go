package pace_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/pace"
	"github.com/crawlgate/crawlgate/pace/redisclock"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// cluster is some gateways with one Redis, and an origin's record of their requests.
type cluster struct {
	redis    *redistest.Server
	gateways []*gateway

	mu   sync.Mutex
	seen map[string][]time.Time
}

type gateway struct {
	clock *redisclock.Clock
	pacer *pace.Pacer
}

func newCluster(t *testing.T, n int) *cluster {
	t.Helper()
	c := &cluster{redis: redistest.Start(t), seen: make(map[string][]time.Time)}
	c.redis.Remember(1)
	for range n {
		k := c.clock(t, 100*time.Millisecond)
		c.gateways = append(c.gateways, &gateway{clock: k, pacer: pace.New(pace.Config{Shared: k})})
	}
	redistest.Eventually(t, "all gateways know each other", func() bool {
		for _, g := range c.gateways {
			if p := g.clock.Peers(); !p.Up || p.Count != n {
				return false
			}
		}
		return true
	})
	return c
}

// clock returns the clock of another gateway.
func (c *cluster) clock(t *testing.T, heartbeat time.Duration) *redisclock.Clock {
	t.Helper()
	l, err := link.New(link.Config{URL: c.redis.URL(), Heartbeat: heartbeat})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	k := redisclock.New(l, 1)
	t.Cleanup(k.Close)
	return k
}

// crawl requests the hosts in turn from the workers of one gateway until ctx ends.
func (c *cluster) crawl(ctx context.Context, g *gateway, workers, hosts int, l pace.Limit) {
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				r := pace.Request{Limit: l, Agent: fmt.Sprintf("agent-%d", i%3)}
				r.Key = fmt.Sprintf("host-%d", n%hosts)
				s, err := g.pacer.Acquire(ctx, r)
				if err != nil {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				at := s.At()
				s.Done()
				c.mu.Lock()
				c.seen[r.Key] = append(c.seen[r.Key], at)
				c.mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// apart fails the test if in any window between the two times a host got more requests than one for
// each interval, plus one that may have been late on its way without the shared clock's knowledge.
// The tests of redisclock check the slots themselves.
func (c *cluster) apart(t *testing.T, from, to time.Time, interval time.Duration) {
	t.Helper()
	for host, at := range c.seen {
		at = slices.DeleteFunc(slices.Clone(at), func(at time.Time) bool { return at.Before(from) || at.After(to) })
		for i := range at {
			for j := i + 1; j < len(at); j++ {
				if span := at[j].Sub(at[i]); span < time.Duration(j-i-1)*interval {
					t.Errorf("%s: %d requests within %s; the last at %s", host, j-i+1, span, at[j].Format("05.000"))
				}
			}
		}
	}
}

// within fails the test if in any window a host got more requests than one for each interval and
// one for each gateway.
func (c *cluster) within(t *testing.T, interval time.Duration) {
	t.Helper()
	n := len(c.gateways)
	for host, at := range c.seen {
		for i := range at {
			for j := i + n; j < len(at); j++ {
				if span := at[j].Sub(at[i]); span < time.Duration(j-i+1-n)*interval {
					t.Errorf("%s: %d requests within %s; the last at %s", host, j-i+1, span, at[j].Format("05.000"))
				}
			}
		}
	}
}

func (c *cluster) up() bool {
	return !slices.ContainsFunc(c.gateways, func(g *gateway) bool { return !g.clock.Peers().Up })
}

// total returns the number of requests, by host in order of time.
func (c *cluster) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, at := range c.seen {
		slices.SortFunc(at, time.Time.Compare)
		n += len(at)
	}
	return n
}

// Whatever happens to Redis, no host gets more than its rate plus one request of each gateway; with
// Redis, plus one request.
func TestSharedKeepsTheLimitOverGatewaysAndARedisOutage(t *testing.T) {
	t.Parallel()
	limits := map[string]pace.Limit{
		"rate":  {Interval: 100 * time.Millisecond, Concurrency: 8},
		"delay": {Delay: 150 * time.Millisecond},
	}
	for name, l := range limits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 3)
			ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
			defer cancel()
			var wg sync.WaitGroup
			for _, g := range c.gateways {
				wg.Go(func() { c.crawl(ctx, g, 20, 6, l) })
			}
			began := time.Now()
			time.Sleep(2 * time.Second)
			killed := time.Now()
			c.redis.Kill()
			with := c.total()
			time.Sleep(2 * time.Second)
			without := c.total()
			c.redis.Start()
			redistest.Eventually(t, "all gateways are back", c.up)
			back := c.total()
			wg.Wait()
			ended := c.total()
			t.Logf("%d requests with redis in %s, %d without in 2 s, %d after", with, killed.Sub(began), without-with, ended-back)
			if without == with || ended == back {
				t.Error("no request was sent while Redis was away, or after it came back")
			}
			interval := max(l.Interval, l.Delay)
			c.apart(t, began, killed, interval)
			c.within(t, interval)
		})
	}
}

// Gateways with a queue each share a host's slots evenly and lose none.
func TestSharedGivesEachGatewayItsPart(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	l := pace.Limit{Key: "h", Interval: 20 * time.Millisecond}
	got := make([]int, len(c.gateways))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var (
		mu    sync.Mutex
		total int
		wg    sync.WaitGroup
	)
	for i, g := range c.gateways {
		for range 5 {
			wg.Go(func() {
				for {
					s, err := g.pacer.Acquire(ctx, pace.Request{Limit: l, Agent: "a"})
					if err != nil {
						return
					}
					s.Done()
					mu.Lock()
					got[i]++
					if total++; total == 150 {
						cancel()
					}
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	for i, n := range got {
		if n < 150/3*7/10 || n > 150/3*13/10 {
			t.Errorf("gateway %d got %d of 150 slots, want a third within 30 %%", i, n)
		}
	}
}

// Whatever Redis forgets at any time, no gateway uses a forgotten slot, so the gaps hold.
func TestSharedKeepsGapsThoughRedisForgets(t *testing.T) {
	t.Parallel()
	const gap = 400 * time.Millisecond
	for name, forget := range map[string]string{
		"all":     "FLUSHALL",
		"a clock": `EVAL "for _, k in ipairs(redis.call('KEYS', '*:pace:*')) do redis.call('DEL', k) end" 0`,
		"an older snapshot": `EVAL "for _, k in ipairs(redis.call('KEYS', '*:pace:*')) do if string.match(k, ':era$') ` +
			`then redis.call('HSET', k, 'run', 'another') else redis.call('DEL', k) end end" 0`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 2)
			ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
			defer cancel()
			redistest.Eventually(t, "both listen", func() bool {
				return strings.Contains(c.redis.Say("PUBSUB NUMSUB crawlgate:{pace}:blocks"), ":2\r\n")
			})
			var wg sync.WaitGroup
			for _, g := range c.gateways {
				wg.Go(func() { c.crawl(ctx, g, 8, 3, pace.Limit{Delay: gap}) })
			}
			began := time.Now()
			for range 3 {
				time.Sleep(2 * time.Second)
				c.redis.Say(forget)
			}
			wg.Wait()
			if n := c.total(); n < 3*8 {
				t.Errorf("%d requests were sent, want at least 24", n)
			}
			for host, at := range c.seen {
				for i := 1; i < len(at); i++ {
					if got := at[i].Sub(at[i-1]); got < gap {
						t.Errorf("%s: two requests came %s apart, the later at %s", host, got, at[i].Sub(began))
					}
				}
			}
		})
	}
}

// A gateway that dies between reserving and sending loses only its one slot; the next one is an
// interval later.
func TestSharedDeadGatewayLosesOneSlotOnly(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	d := []pace.Demand{{Key: "h", Interval: time.Hour}}
	for i, due := range []time.Duration{0, time.Hour, 2 * time.Hour} {
		r, err := c.gateways[i%2].clock.Reserve(t.Context(), d, 1000*time.Hour)
		if err != nil || r.Outcome != pace.Reserved {
			t.Fatalf("Reserve = %+v, %v; want a slot", r, err)
		}
		if r.Wait > due+time.Minute || r.Wait < due-time.Minute {
			t.Errorf("slot %d is in %s, want %s", i, r.Wait, due)
		}
		if i == 1 {
			c.gateways[1].clock.Close() // with a reserved slot
		}
	}
}

func TestSharedCancelledRequestGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	r := pace.Request{Limit: pace.Limit{Key: "h", Interval: time.Hour}, MaxWait: 3 * time.Hour}
	first, err := c.gateways[0].pacer.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	first.Done()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := c.gateways[0].pacer.Acquire(ctx, r); err == nil {
		t.Fatal("Acquire succeeded with a canceled context")
	}
	got, err := c.gateways[1].clock.Reserve(t.Context(), []pace.Demand{{Key: "h", Interval: time.Hour}}, 1000*time.Hour)
	if err != nil || got.Wait > time.Hour+time.Minute {
		t.Errorf("Reserve = %+v, %v; want the cancelled slot, in an hour", got, err)
	}

	unused, err := c.gateways[1].pacer.Acquire(t.Context(), pace.Request{Limit: pace.Limit{Key: "i", Interval: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	unused.Cancel()
	again, err := c.gateways[0].pacer.Acquire(t.Context(), pace.Request{Limit: pace.Limit{Key: "i", Interval: time.Hour}, MaxWait: -1})
	if err != nil {
		t.Fatalf("after Cancel of a slot that was not used: %v", err)
	}
	again.Done()
}

func TestSharedBlockHoldsAtAllGateways(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	redistest.Eventually(t, "both listen", func() bool {
		return strings.Contains(c.redis.Say("PUBSUB NUMSUB crawlgate:{pace}:blocks"), ":2\r\n")
	})
	c.gateways[0].pacer.RecordFailure("h", time.Hour)
	redistest.Eventually(t, "the other gateway knows", func() bool { return c.gateways[1].pacer.Stats().Blocked == 1 })
	_, err := c.gateways[1].pacer.Acquire(t.Context(), pace.Request{Limit: pace.Limit{Key: "h", Interval: time.Second}})
	wantBlocked(t, err)

	// A gateway that missed the message learns of the block with its first reservation, and a Redis
	// that forgot it is told again.
	c.redis.Kill()
	redistest.Eventually(t, "redis is found away", func() bool { return !c.gateways[0].clock.Peers().Up })
	c.redis.Start()
	redistest.Eventually(t, "redis is found back", func() bool { return c.gateways[0].clock.Peers().Up })
	redistest.Eventually(t, "the block is told again", func() bool {
		return c.hasBlock("h")
	})
	k := c.clock(t, 0)
	redistest.Eventually(t, "the third is up", func() bool { return k.Peers().Up })
	third := pace.New(pace.Config{Shared: k})
	_, err = third.Acquire(t.Context(), pace.Request{Limit: pace.Limit{Key: "h", Interval: time.Second}})
	wantBlocked(t, err)
	if third.Stats().Blocked != 1 {
		t.Error("the third gateway does not remember the block")
	}
}

func (c *cluster) hasBlock(key string) bool {
	return c.redis.Say(`EVAL "return redis.call('HEXISTS', redis.call('KEYS', '*}:key:`+key+`')[1] or '', 'until')" 0`) == ":1\r\n"
}

// A shared clock that is reachable at the start learns of the blocks that a gateway had when it
// ended.
func TestSharedLearnsRestoredBlocks(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.gateways[0].pacer.Restore([]pace.State{{Key: "h", Until: time.Now().Add(time.Hour), Strikes: 1}})
	redistest.Eventually(t, "redis has the block", func() bool {
		return c.hasBlock("h")
	})
}

// wantBlocked fails the test unless err is the refusal of a key blocked for an hour.
func wantBlocked(t *testing.T, err error) {
	t.Helper()
	var why *pace.Refused
	if !errors.As(err, &why) || why.Reason != pace.ReasonBlocked || why.RetryAfter < 59*time.Minute {
		t.Errorf("error %v, want blocked for an hour", err)
	}
}

// One decision is one command to Redis.
func TestSharedDecisionIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	p := c.gateways[0].pacer
	acquire := func(host string) {
		t.Helper()
		s, err := p.Acquire(t.Context(), pace.Request{
			Limit: pace.Limit{Key: host, Interval: time.Minute},
			Also:  []pace.Limit{{Key: pace.PerSite.Key(host, netip.Addr{}), Interval: time.Minute}},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Done()
	}
	acquire("first.example") // loads the script
	const n = 50
	before := calls(t, c.redis)
	for i := range n {
		acquire(fmt.Sprintf("h%d.example", i))
	}
	// Heartbeats also call a script, ten times a second.
	if after := calls(t, c.redis); after-before < n || after-before > n+20 {
		t.Errorf("%d decisions took %d calls, want one each", n, after-before)
	}
}

func calls(t *testing.T, s *redistest.Server) int {
	t.Helper()
	for line := range strings.Lines(s.Say("INFO commandstats")) {
		var n int
		if _, err := fmt.Sscanf(line, "cmdstat_evalsha:calls=%d,", &n); err == nil {
			return n
		}
	}
	t.Fatal("INFO has no count of evalsha")
	return 0
}
