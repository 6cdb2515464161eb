package pace

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestSweepForgetsOnlyWhatSaysNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Idle: time.Minute, Random: noJitter})
		granted(t, p, Request{Limit: Limit{Key: "idle"}}).Done()
		granted(t, p, Request{Limit: Limit{Key: "slow", Interval: time.Hour}}).Done()
		flying := granted(t, p, Request{Limit: Limit{Key: "flying", Concurrency: 1}})
		p.RecordFailure("blocked", 20*time.Minute)
		p.RecordFailure("struck", 0)
		if n := p.Stats().Keys; n != 5 {
			t.Fatalf("%d keys, want 5", n)
		}
		keys := func(after time.Duration, want int, why string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if n := p.Stats().Keys; n != want {
				t.Errorf("%d keys, want %d: %s", n, want, why)
			}
		}
		keys(59*time.Second, 5, "none is idle yet")
		keys(sweepRounds*sweepEvery+time.Second, 4, "idle is")
		flying.Done()
		keys(sweepRounds*sweepEvery, 3, "flying is")
		keys(20*time.Minute, 2, "blocked is over, and asked for by the site; struck is remembered for 30 min")
		keys(11*time.Minute, 1, "struck is forgiven")
		keys(28*time.Minute, 0, "slow is")
		for i := range p.table.shards {
			if n := len(p.table.shards[i].kept); n != 0 {
				t.Errorf("shard %d keeps %d blocked keys, want none", i, n)
			}
		}
		if p.sweeping.Load() {
			t.Error("the sweep still runs without keys")
		}
		granted(t, p, Request{Limit: Limit{Key: "again"}}).Done()
		keys(time.Minute+sweepRounds*sweepEvery, 0, "again is: the sweep runs again")
	})
}

// An agent's delay that is longer than Idle also counts for the request of an agent without one,
// although nothing on that request's clock shows it. The key must not be dropped before.
func TestSweepKeepsWhatTheLongestDelayNeeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Idle: time.Second, MaxKeys: 200, Random: noJitter})
		patient := func(key string) Request {
			return Request{Limit: Limit{Key: key, Delay: 10 * time.Minute}, MaxWait: time.Hour}
		}
		granted(t, p, patient("other")).Done()
		granted(t, p, Request{Limit: Limit{Key: "h"}}).Done()
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		if s := granted(t, p, patient("h")); s.Wait != time.Minute {
			t.Errorf("held for %s, want the minute that is left of its delay", s.Wait)
		}
		// If the number of keys reaches its bound, such keys are dropped.
		time.Sleep(5 * time.Minute)
		for i := range 400 {
			if s := granted(t, p, Request{Limit: Limit{Key: fmt.Sprint(i)}}); s.Wait != 0 {
				t.Fatalf("key %d held for %s", i, s.Wait)
			}
			time.Sleep(2 * time.Second)
		}
	})
}

// With traffic, the table has at most about twice as many clocks as are busy.
func TestSweepKeepsUpWithNewKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Idle: time.Minute})
		most := 0
		for i := range 60_000 { // 100 new keys a second for ten minutes
			granted(t, p, Request{Limit: Limit{Key: fmt.Sprintf("h%d", i)}}).Done()
			if i%100 == 99 {
				time.Sleep(time.Second)
				most = max(most, p.Stats().Keys)
			}
		}
		if most > 2*60*100 {
			t.Errorf("up to %d keys, want at most twice the 6,000 busy ones", most)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		for i := range p.table.shards {
			if n := len(p.table.shards[i].clocks); n != 0 {
				t.Fatalf("shard %d has %d clocks, want none", i, n)
			}
		}
	})
}

// fill requests hosts until each shard has its largest number of keys.
func fill(t *testing.T, p *Pacer, most int) {
	t.Helper()
	for i := 0; p.Stats().Keys < most; i++ {
		s, err := p.Acquire(t.Context(), Request{Limit: Limit{Key: fmt.Sprintf("own%d", i), Delay: time.Minute}})
		if why := (*Refused)(nil); err != nil && (!errors.As(err, &why) || why.Reason != ReasonOverflow) {
			t.Fatal(err)
		}
		s.Done()
	}
}

// Beyond the bound, requests for unknown keys are refused until a key is idle.
func TestFullTableRefusesUnknownKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{MaxKeys: 3 * shardCount, Idle: time.Second})
		fill(t, p, 3*shardCount)
		more := Limit{Key: "more", Delay: 10 * time.Second}
		for _, r := range []Request{
			{Limit: more, MaxWait: time.Hour},
			{Limit: Limit{Key: "own1"}, Also: []Limit{more}, MaxWait: time.Hour},
		} {
			if why := refused(t, p, r); why.Reason != ReasonOverflow || why.Key != "more" || why.RetryAfter != time.Second {
				t.Errorf("refused with %+v, want overflow", why)
			}
		}
		if s := p.Stats(); s.Keys != 3*shardCount || s.Waiting != 0 {
			t.Errorf("%+v, want no more keys and no waiting request", s)
		}
		time.Sleep(2 * time.Minute)
		for _, want := range []time.Duration{0, 10 * time.Second} {
			if w := granted(t, p, Request{Limit: more}).Wait; w != want {
				t.Errorf("a request for a new key was held for %s, want %s", w, want)
			}
		}
	})
}

func TestFullTableDoesNotForgetBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{MaxKeys: 8 * shardCount, Random: noJitter})
		fill(t, p, 8*shardCount)
		blocked, overflows := 0, 0
		for i := range 50 * shardCount { // enough for each shard's reserve of an eighth and one more
			key := fmt.Sprintf("b%d", i)
			p.RecordFailure(key, time.Hour)
			switch why := refused(t, p, Request{Limit: Limit{Key: key}}); {
			case why.Reason == ReasonBlocked && why.RetryAfter == time.Hour:
				blocked++
			case why.Reason == ReasonOverflow:
				overflows++
			default:
				t.Errorf("%s: %+v, want blocked for an hour", key, why)
			}
		}
		if blocked != 2*shardCount || overflows != 48*shardCount {
			t.Errorf("%d blocked, %d overflows, want 2 for each of %d shards", blocked, overflows, shardCount)
		}
	})
}

// Requests with several clocks, in every order, do not deadlock, and keep the limit of each clock.
func TestSeveralKeysNeverDeadlock(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := New(Config{})
				rnd := rand.New(rand.NewPCG(seed, 4))
				keys := []string{"h1", "h2", "h3", "site:s1", "site:s2", "addr:1", "addr:2", "agent:a@h1"}
				var (
					mu   sync.Mutex
					went = map[string][]time.Duration{}
					wg   sync.WaitGroup
				)
				start := time.Now()
				for range 200 {
					some := rnd.Perm(len(keys))[:1+rnd.IntN(4)]
					limits := make([]Limit, 0, len(some))
					for _, i := range some {
						limits = append(limits, Limit{Key: keys[i], Delay: 100 * time.Millisecond * time.Duration(i+1), Concurrency: 2})
					}
					flight := time.Duration(rnd.IntN(2000)) * time.Millisecond
					wg.Go(func() {
						s := granted(t, p, Request{Limit: limits[0], Also: limits[1:], MaxWait: 100 * time.Hour})
						mu.Lock()
						for _, l := range limits {
							went[l.Key] = append(went[l.Key], time.Since(start))
						}
						mu.Unlock()
						time.Sleep(flight)
						s.Done()
					})
				}
				wg.Wait()
				for i, key := range keys {
					for n := 1; n < len(went[key]); n++ {
						if gap := went[key][n] - went[key][n-1]; gap < 100*time.Millisecond*time.Duration(i+1) {
							t.Errorf("%s: two requests %s apart, want at least the interval", key, gap)
						}
					}
				}
			})
		})
	}
}

// A host that is not ready does not keep the address that it shares with others.
func TestSeveralKeysSlowHostLeavesTheAddressFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{})
		at := func(host string, delay time.Duration) Request {
			return Request{
				Limit:   Limit{Key: host, Delay: delay},
				Also:    []Limit{{Key: "addr:192.0.2.1", Delay: time.Second}},
				MaxWait: time.Hour,
			}
		}
		granted(t, p, at("slow", time.Minute)).Done()
		end := waiting(t, p, 1, at("slow", time.Minute))
		defer end()
		for i := range 5 {
			if s := granted(t, p, at("fast", 0)); s.Wait != time.Second {
				t.Errorf("request %d to the fast host held for %s, want 1 s", i, s.Wait)
			}
		}
	})
}

// All clocks of a request are charged, even if creating one of them sweeps their shard.
func TestSeveralKeysAreAllCharged(t *testing.T) {
	t.Parallel()
	p := New(Config{Idle: time.Nanosecond})
	for i := range 5000 {
		r := Request{Limit: Limit{Key: fmt.Sprintf("h%d", i), Delay: time.Hour}, MaxWait: -1}
		for j := range i % 5 {
			r.Also = append(r.Also, Limit{Key: fmt.Sprintf("site:%d.%d", i, j), Delay: time.Hour})
		}
		granted(t, p, r).Done()
		for _, l := range append(r.Also, r.Limit) {
			_ = refused(t, p, Request{Limit: l, MaxWait: -1})
		}
	}
}
