package redisclock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/pace"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

const ever = 1000 * time.Hour

// clockAt returns a Clock that is up and does not listen.
func clockAt(tb testing.TB, s *redistest.Server) *Clock {
	tb.Helper()
	s.Remember(1)
	return openClock(tb, link.Config{URL: s.URL()})
}

func openClock(tb testing.TB, c link.Config) *Clock {
	tb.Helper()
	k := newClock(tb, c, 1)
	redistest.Eventually(tb, "the clock is up", func() bool { return k.Peers().Up })
	return k
}

func newClock(tb testing.TB, c link.Config, gateways int) *Clock {
	tb.Helper()
	l, err := link.New(c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(l.Close)
	k := New(l, gateways)
	tb.Cleanup(k.Close)
	return k
}

func demand(key string, interval time.Duration) pace.Demand {
	return pace.Demand{Key: key, Interval: interval}
}

// reserve reserves one slot, and fails the test without one.
func reserve(t *testing.T, k *Clock, d ...pace.Demand) pace.Reservation {
	t.Helper()
	r, err := k.Reserve(t.Context(), d, ever)
	if err != nil || r.Outcome != pace.Reserved {
		t.Fatalf("Reserve = %+v, %v; want a slot", r, err)
	}
	return r
}

// at returns the slot's time by Redis's clock.
func at(t *testing.T, r pace.Reservation) time.Duration {
	t.Helper()
	us, err := strconv.ParseInt(r.Token.([]token)[0].slot, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(us) * time.Microsecond
}

// about reports whether got is want plus at most the slack.
func about(got, want time.Duration) bool { return got >= want && got < want+time.Second }

func TestReserveKeepsOneIntervalApartForAllGateways(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	gateways := []*Clock{clockAt(t, s), clockAt(t, s), clockAt(t, s)}
	const each = 50
	var (
		mu    sync.Mutex
		slots []time.Duration
		wg    sync.WaitGroup
	)
	for _, k := range gateways {
		wg.Go(func() {
			for range each {
				slot := at(t, reserve(t, k, demand("h", 10*time.Second)))
				mu.Lock()
				slots = append(slots, slot)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(slots)
	for i := 1; i < len(slots); i++ {
		if gap := slots[i] - slots[i-1]; !about(gap, 10*time.Second) {
			t.Fatalf("slots %d and %d are %s apart, want 10 s", i-1, i, gap)
		}
	}
}

// A request may go a little later than its slot, and then takes a while to its site. The next one may
// go right at its slot, and must still come later by the gap.
func TestReserveLeavesTimeForTheWayToTheSite(t *testing.T) {
	t.Parallel()
	k := clockAt(t, redistest.Start(t))
	for _, gap := range []time.Duration{500 * time.Millisecond, time.Second, time.Minute} {
		d := pace.Demand{Key: gap.String(), Delay: gap}
		first, second := reserve(t, k, d), reserve(t, k, d)
		late := first.Until.Sub(first.At)
		if apart := at(t, second) - at(t, first) - late; apart < gap+delivery {
			t.Errorf("%s: %s after the latest time of a request, the next one may go; want %s more than the gap", gap, apart, delivery)
		}
	}
}

// The script must keep the definition: over every window of the past, the intervals of its slots
// must have passed except for the burst, and the gap to the neighbour must hold for both.
func TestReserveKeepsEveryWindow(t *testing.T) {
	t.Parallel()
	k := clockAt(t, redistest.Start(t))
	type slot struct {
		demand pace.Demand
		at     time.Duration
	}
	for seed := range uint64(8) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		key := fmt.Sprintf("h%d", seed)
		var slots []slot
		for range 80 {
			d := demand(key, time.Duration(rnd.IntN(4))*time.Millisecond)
			d.Tolerance = time.Duration(rnd.IntN(4)) * d.Interval
			d.Delay = time.Duration(rnd.IntN(3)) * 2 * time.Millisecond
			r, err := k.Reserve(t.Context(), []pace.Demand{d}, time.Duration(rnd.IntN(30))*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			if r.Outcome != pace.Reserved {
				continue
			}
			if rnd.IntN(5) == 0 {
				if err := k.Release(r); err != nil {
					t.Fatal(err)
				}
				continue
			}
			slots = append(slots, slot{d, at(t, r)})
		}
		for i, b := range slots {
			var sum time.Duration
			for j := i - 1; j >= 0; j-- {
				sum += slots[j].demand.Interval
				if least := slots[j].at + sum - b.demand.Tolerance; b.at < least {
					t.Fatalf("seed %d: slot %d is at %s, before %s by the rate since slot %d", seed, i, b.at, least, j)
				}
			}
			if i == 0 {
				continue
			}
			last := slots[i-1]
			if gap := b.at - last.at; gap < max(last.demand.Delay, b.demand.Delay) {
				t.Fatalf("seed %d: slots %d and %d are %s apart, want %s and %s", seed, i-1, i, gap, last.demand.Delay, b.demand.Delay)
			}
		}
	}
}

func TestReserveTakesNothingBeyondMaxWait(t *testing.T) {
	t.Parallel()
	k := clockAt(t, redistest.Start(t))
	reserve(t, k, demand("h", time.Hour))
	for range 3 {
		r, err := k.Reserve(t.Context(), []pace.Demand{demand("h", time.Hour)}, time.Minute)
		if err != nil || r.Outcome != pace.TooLate || r.Wait < 59*time.Minute || r.Wait > time.Hour+time.Second {
			t.Fatalf("Reserve = %+v, %v; want too late, in an hour", r, err)
		}
	}
}

func TestReserveSeveralClocksAllOrNone(t *testing.T) {
	t.Parallel()
	k := clockAt(t, redistest.Start(t))
	reserve(t, k, demand("addr", time.Hour))
	r, err := k.Reserve(t.Context(), []pace.Demand{demand("h", time.Hour), demand("addr", time.Hour)}, time.Minute)
	if err != nil || r.Outcome != pace.TooLate {
		t.Fatalf("Reserve = %+v, %v; want too late by the second clock", r, err)
	}
	if r := reserve(t, k, demand("h", time.Hour)); r.Wait != 0 {
		t.Errorf("first clock is reserved until %s: a slot was lost", r.Wait)
	}
}

func TestReserveKeepsASharedClockFreeWhileANarrowOneIsNotReady(t *testing.T) {
	t.Parallel()
	k := clockAt(t, redistest.Start(t))
	reserve(t, k, demand("h", time.Hour))
	r, err := k.Reserve(t.Context(), []pace.Demand{demand("h", time.Hour), demand("addr", time.Second)}, ever)
	if err != nil || r.Outcome != pace.NotYet || r.Wait < 59*time.Minute {
		t.Fatalf("Reserve = %+v, %v; want NotYet for an hour", r, err)
	}
	if r := reserve(t, k, demand("addr", time.Second)); r.Wait != 0 {
		t.Errorf("shared clock is reserved until %s", r.Wait)
	}
}

func TestReleaseGivesBackTheLastSlotOnly(t *testing.T) {
	t.Parallel()
	k := clockAt(t, redistest.Start(t))
	release := func(r pace.Reservation) {
		t.Helper()
		if err := k.Release(r); err != nil {
			t.Fatal(err)
		}
	}
	d := demand("h", time.Minute)
	first, second, third := reserve(t, k, d), reserve(t, k, d), reserve(t, k, d)
	release(second) // the third slot is still reserved, so nothing may move
	fourth := reserve(t, k, d)
	if gap := at(t, fourth) - at(t, third); !about(gap, time.Minute) {
		t.Errorf("after releasing an earlier slot the next is %s after the last, want 1 min", gap)
	}
	release(fourth)
	release(fourth) // the second release does nothing
	if again := reserve(t, k, d); (at(t, again) - at(t, fourth)).Abs() > time.Second {
		t.Errorf("released slot %s was not given again, but %s", at(t, fourth), at(t, again))
	}
	release(first)
}

func TestBlockHoldsForAllGatewaysAndIsAnnounced(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	one, other := clockAt(t, s), clockAt(t, s)
	told := make(chan message, 8)
	other.Watch(func(key string, pause time.Duration, strikes int) {
		told <- message{Key: key, Pause: pause, Strikes: strikes}
	}, func() {})
	one.Watch(func(key string, _ time.Duration, _ int) { t.Errorf("one was told of its own block of %s", key) }, func() {})
	redistest.Eventually(t, "both listen", func() bool {
		return strings.Contains(s.Say("PUBSUB NUMSUB crawlgate:{pace}:blocks"), ":2\r\n")
	})
	if err := one.Block("h e:1", time.Hour, 3); err != nil {
		t.Fatal(err)
	}
	if got := <-told; got != (message{Key: "h e:1", Pause: time.Hour, Strikes: 3}) {
		t.Errorf("other was told %+v", got)
	}
	if err := one.Block("h e:1", time.Minute, 1); err != nil {
		t.Fatal(err)
	}
	r, err := other.Reserve(t.Context(), []pace.Demand{demand("free", 0), demand("h e:1", 0)}, time.Minute)
	if err != nil || r.Outcome != pace.TooLate || r.BlockedKey != "h e:1" || r.Blocked < 59*time.Minute || r.Wait != r.Blocked {
		t.Errorf("Reserve = %+v, %v; want the longer of the blocks", r, err)
	}
}

func TestUnblockHoldsForAllGatewaysAndIsAnnounced(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	one, other := clockAt(t, s), clockAt(t, s)
	told := make(chan message, 8)
	other.Watch(func(key string, pause time.Duration, strikes int) {
		told <- message{Key: key, Pause: pause, Strikes: strikes}
	}, func() {})
	one.Watch(func(key string, _ time.Duration, _ int) { t.Errorf("one was told of its own block of %s", key) }, func() {})
	redistest.Eventually(t, "both listen", func() bool {
		return strings.Contains(s.Say("PUBSUB NUMSUB crawlgate:{pace}:blocks"), ":2\r\n")
	})
	if err := one.Block("h e:1", time.Hour, 3); err != nil {
		t.Fatal(err)
	}
	<-told
	for _, want := range []bool{true, false} {
		if found, err := one.Unblock("h e:1"); err != nil || found != want {
			t.Errorf("Unblock = %v, %v; want %v", found, err, want)
		}
		if got := <-told; got != (message{Key: "h e:1"}) {
			t.Errorf("other was told %+v", got)
		}
	}
	d := demand("h e:1", time.Second)
	d.Tolerance = 4 * time.Second
	if r := reserve(t, other, d); r.Wait != 0 {
		t.Errorf("the slot after Unblock is in %s", r.Wait)
	}
	if r := reserve(t, other, d); r.Wait < 900*time.Millisecond {
		t.Errorf("the second slot is in %s, want no burst", r.Wait)
	}
}

func TestBlockEndsWithoutABurst(t *testing.T) {
	t.Parallel()
	k := clockAt(t, redistest.Start(t))
	if err := k.Block("h", time.Minute, 1); err != nil {
		t.Fatal(err)
	}
	d := demand("h", time.Second)
	d.Tolerance = 4 * time.Second
	first := at(t, reserve(t, k, d))
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second} {
		if got := at(t, reserve(t, k, d)) - first; got != want {
			t.Errorf("a slot is %s after the first, want %s", got, want)
		}
	}
}

func TestPeersCountsAndForgets(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	beat := link.Config{URL: s.URL(), Heartbeat: 50 * time.Millisecond}
	a, b, c := openClock(t, beat), openClock(t, beat), openClock(t, beat)
	redistest.Eventually(t, "all three are counted", func() bool {
		return a.Peers().Count == 3 && b.Peers().Count == 3 && c.Peers().Count == 3
	})
	a.Close()
	redistest.Eventually(t, "the one that left is not counted", func() bool { return c.Peers().Count == 2 })
	b.link.Close() // dies without leaving
	redistest.Eventually(t, "the dead one is not counted", func() bool { return c.Peers().Count == 1 })
}

func TestAwayIsFoundOutAndComesBackByItself(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	joined := make(chan struct{}, 1)
	k := openClock(t, link.Config{URL: s.URL(), Heartbeat: 50 * time.Millisecond})
	k.Watch(func(string, time.Duration, int) {}, func() { signal(joined) })
	<-joined
	s.Kill()
	redistest.Eventually(t, "redis is found away", func() bool { return !k.Peers().Up })
	for range 100 {
		if _, err := k.Reserve(t.Context(), []pace.Demand{demand("h", 0)}, 0); !errors.Is(err, ErrAway) {
			t.Fatalf("Reserve while away: %v", err)
		}
	}
	if err := k.Block("h", time.Minute, 0); !errors.Is(err, ErrAway) {
		t.Errorf("Block while away: %v", err)
	}
	s.Start()
	redistest.Eventually(t, "redis is found back", func() bool { return k.Peers().Up })
	<-joined
	s.Remember(1)
	reserve(t, k, demand("h", 0))
}

func TestNewWithoutRedisIsAwayUntilItComes(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Kill()
	k := newClock(t, link.Config{URL: s.URL(), Heartbeat: 50 * time.Millisecond}, 4)
	redistest.Eventually(t, "it has tried", func() bool { return k.link.State().Why != nil })
	if p := k.Peers(); p.Up || p.Count != 4 {
		t.Errorf("Peers = %+v, want away, and the 4 configured", p)
	}
	s.Start()
	redistest.Eventually(t, "redis is found", func() bool { return k.Peers().Up })
	if n := k.Peers().Count; n != 4 {
		t.Errorf("%d gateways, want 4 while others may come back", n)
	}
	redistest.Eventually(t, "it is the only one", func() bool { return k.Peers().Count == 1 })
}

func TestReserveWithASpentBurst(t *testing.T) {
	t.Parallel()
	k := clockAt(t, redistest.Start(t))
	d := demand("h", time.Minute)
	d.Tolerance, d.Spent = 4*time.Minute, true
	first := at(t, reserve(t, k, d))
	d.Spent = false
	if gap := at(t, reserve(t, k, d)) - first; gap != time.Minute {
		t.Errorf("the slot after one with a spent burst is %s later, want a minute", gap)
	}
}
