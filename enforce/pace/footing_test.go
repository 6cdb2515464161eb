package pace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeShared is a shared clock in memory, for gateways in one bubble.
type fakeShared struct {
	mu       sync.Mutex
	up       bool
	since    time.Time
	meters   map[string]meter
	reserved int
	released int
	blocked  []func(string, time.Duration, int)
	joined   []func()
	late     []func(string, time.Time)
	told     int  // how often a request was late
	notYet   int  // answers this often that it is too early
	dies     bool // with the next question
}

// fakeGateway is one gateway's view of it.
type fakeGateway struct {
	*fakeShared
	rank, count int
}

func newFakeShared(up bool) *fakeShared {
	return &fakeShared{up: up, since: time.Now().Add(-time.Hour), meters: map[string]meter{}}
}

// gateways are n Pacers that share the clock.
func (f *fakeShared) gateways(n int) []*Pacer {
	out := make([]*Pacer, 0, n)
	for i := range n {
		out = append(out, New(Config{Random: noJitter, Shared: &fakeGateway{f, i, n}}))
	}
	return out
}

func (f *fakeShared) turn(up bool) {
	f.mu.Lock()
	f.up, f.since = up, time.Now()
	if up {
		f.meters = map[string]meter{} // it forgot all
	}
	joined := f.joined
	f.mu.Unlock()
	for _, j := range joined {
		if up {
			j()
		}
	}
}

var errAway = errors.New("away")

func wall() instant { return time.Since(time.Unix(0, 0)) }

func (g *fakeGateway) Reserve(_ context.Context, demands []Demand, maxWait time.Duration) (Reservation, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dies {
		g.dies, g.up, g.since = false, false, time.Now()
	}
	if !g.up {
		return Reservation{}, errAway
	}
	g.reserved++
	if g.notYet > 0 {
		g.notYet--
		return Reservation{Outcome: NotYet, Wait: time.Second}, nil
	}
	now := wall()
	at := now
	for _, d := range demands {
		m := g.meters[d.Key]
		if d.Debt > 0 {
			m.tat = max(m.tat, now+d.Debt)
		}
		if d.Ago >= 0 {
			m.last = max(m.last, now-d.Ago)
		}
		g.meters[d.Key] = m
		at = max(at, m.ready(terms{tolerance: d.Tolerance, gap: d.Delay}))
	}
	if at-now > maxWait {
		return Reservation{Outcome: TooLate, Wait: at - now}, nil
	}
	before := map[string]meter{}
	for _, d := range demands {
		before[d.Key] = g.meters[d.Key]
		g.meters[d.Key] = g.meters[d.Key].take(terms{interval: d.Interval, gap: d.Delay}, at)
	}
	return Reservation{Outcome: Booked, Wait: at - now, Early: time.Now().Add(at - now), At: time.Now().Add(at - now), Token: before}, nil
}

func (g *fakeGateway) Release(r Reservation) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.released++
	for key, before := range r.Token.(map[string]meter) {
		if g.meters[key].last == r.At.Sub(time.Unix(0, 0)) {
			g.meters[key] = before
		}
	}
	return nil
}

func (g *fakeGateway) Unblock(key string) (bool, error) { return false, g.Block(key, 0, 0) }

func (g *fakeGateway) Block(key string, pause time.Duration, strikes int) error {
	g.mu.Lock()
	up, all := g.up, g.blocked
	g.mu.Unlock()
	if !up {
		return errAway
	}
	for _, tell := range all {
		tell(key, pause, strikes)
	}
	return nil
}

// Late tells the other gateways at once, and moves the slot if it is the last one.
func (g *fakeGateway) Late(r Reservation, at time.Time) Reservation {
	g.mu.Lock()
	began := at.Sub(time.Unix(0, 0))
	for key := range r.Token.(map[string]meter) {
		if m := g.meters[key]; m.last == r.At.Sub(time.Unix(0, 0)) {
			m.tat += began - m.last
			m.last = began
			g.meters[key] = m
		}
	}
	all := g.late
	g.told++
	g.mu.Unlock()
	for key := range r.Token.(map[string]meter) {
		for _, tell := range all {
			tell(key, at)
		}
	}
	return r
}

func (g *fakeGateway) Watch(blocked func(string, time.Duration, int), late func(string, time.Time), joined func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.late = append(g.late, late)
	g.blocked = append(g.blocked, blocked)
	g.joined = append(g.joined, joined)
}

func (g *fakeGateway) Peers() Peers {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Peers{Up: g.up, For: time.Since(g.since), Joined: time.Since(g.since), Count: g.count, Rank: g.rank, Time: wall()}
}

// gaps lets all gateways crawl one host with several workers each until the
// script ends, and checks that no two requests are closer than least. It returns
// how many went.
func gaps(t *testing.T, all []*Pacer, l Limit, least time.Duration, script func()) int {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var (
		mu sync.Mutex
		at []time.Time
		wg sync.WaitGroup
	)
	for _, p := range all {
		for i := range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					s, err := p.Acquire(ctx, Request{Limit: l, Agent: fmt.Sprint(i % 2), MaxWait: 30 * time.Second})
					if err != nil {
						sleep(ctx, 77*time.Millisecond)
						continue
					}
					mu.Lock()
					at = append(at, time.Now())
					mu.Unlock()
					s.Done()
				}
			})
		}
	}
	script()
	cancel()
	wg.Wait()
	slices.SortFunc(at, time.Time.Compare)
	for i := 1; i < len(at); i++ {
		if gap := at[i].Sub(at[i-1]); gap < least {
			t.Errorf("requests %d and %d are %s apart, want %s", i-1, i, gap, least)
		}
	}
	return len(at)
}

func TestSharedClockAwayAndBack(t *testing.T) {
	t.Parallel()
	for _, l := range []Limit{{Key: "h", Delay: 2 * time.Second}, {Key: "h", Interval: 2 * time.Second}, {Key: "h", Interval: 2 * time.Second, Burst: 5}} {
		t.Run(fmt.Sprintf("%s,%d,%s", l.Interval, l.Burst, l.Delay), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFakeShared(true)
				all := f.gateways(3)
				if l.Burst > 1 { // used up: what comes later has no burst any more
					f.since = time.Now()
				}
				went := gaps(t, all, l, 2*time.Second, func() {
					time.Sleep(100 * time.Second)
					f.turn(false)
					time.Sleep(100 * time.Second)
					f.turn(true)
					time.Sleep(100 * time.Second)
				})
				// Each phase has 50 slots, less the guard, and a round is lost at a change.
				if went < 3*45-6 || went > 3*50+3 {
					t.Errorf("%d went in 300 s, want about 145", went)
				}
			})
		})
	}
}

// When the shared clock goes away, others may still use the slots they have
// booked: each gateway lets one round pass, also for a host that it has not
// asked before.
func TestSharedClockAwayLetsBookedSlotsPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeShared(true)
		all := f.gateways(3)
		f.turn(false)
		for i, p := range all {
			s := granted(t, p, Request{Limit: Limit{Key: fmt.Sprint(i), Delay: 2 * time.Second}, MaxWait: time.Hour})
			if i == 0 && s.Wait < 3*2*time.Second {
				t.Errorf("held for %s, want a round of 6 s at least", s.Wait)
			}
		}
	})
}

// A request whose question failed goes alone only as long as the shared clock is
// away: back again, that knows of others which the gateway does not.
func TestSharedClockIsTrustedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeShared(true)
		f.dies = true
		p := f.gateways(3)[0]
		var wg sync.WaitGroup
		wg.Go(func() {
			granted(t, p, Request{Limit: Limit{Key: "h", Delay: 10 * time.Second}, MaxWait: time.Hour}).Done()
		})
		time.Sleep(5 * time.Second)
		f.turn(true)
		wg.Wait()
		if f.reserved != 1 {
			t.Errorf("it booked %d slots, want one", f.reserved)
		}
	})
}

func TestSharedClockNeverReached(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeShared(false)
		f.since = time.Now()
		went := gaps(t, f.gateways(4), Limit{Key: "h", Interval: time.Second, Burst: 10}, time.Second, func() { time.Sleep(100 * time.Second) })
		if went < 85 || went > 100 {
			t.Errorf("%d went in 100 s, want nearly 100, at the rate of all together", went)
		}
	})
}

func TestSharedClockHandsABookedSlotOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeShared(true)
		p := f.gateways(1)[0]
		r := Request{Limit: Limit{Key: "h", Delay: 8 * time.Second}, Agent: "a", MaxWait: time.Hour}
		granted(t, p, r).Done()
		end := waiting(t, p, 1, r) // books
		var wg sync.WaitGroup
		wg.Go(func() {
			if s := granted(t, p, r); s.Wait > 9*time.Second {
				t.Errorf("the next in line went after %s, want in the slot of the one that left", s.Wait)
			}
		})
		synctest.Wait()
		end()
		wg.Wait()
		if f.reserved != 2 || f.released != 0 {
			t.Errorf("%d booked, %d released; want the second handed on", f.reserved, f.released)
		}
		waiting(t, p, 1, r)()
		if f.reserved != 3 || f.released != 1 {
			t.Errorf("%d booked, %d released; want the last released", f.reserved, f.released)
		}
	})
}

func TestSharedClockNotYet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeShared(true)
		f.notYet = 3
		p := f.gateways(1)[0]
		if s := granted(t, p, Request{Limit: Limit{Key: "h", Delay: time.Second}}); s.Wait != 3*time.Second {
			t.Errorf("held for %s, want 3 s", s.Wait)
		}
		f.notYet = 100
		if why := refused(t, p, Request{Limit: Limit{Key: "h", Delay: time.Second}}); why.Reason != ReasonWait {
			t.Errorf("refused with %+v", why)
		}
	})
}

func TestSharedClockDividesThePlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, up := range []bool{true, false} {
			f := newFakeShared(up)
			for _, p := range f.gateways(3) {
				for places, want := range map[int]int{8: 2, 2: 1, 9: 3} {
					key := fmt.Sprint(places)
					n := 0
					for i := range 10 {
						r := Request{Limit: Limit{Key: key, Concurrency: places}, Agent: fmt.Sprint(i), MaxWait: -1}
						if _, err := p.Acquire(t.Context(), r); err == nil {
							n++
						}
					}
					if n != want {
						t.Errorf("up %v: %d of %d places for one of three gateways, want %d", up, n, places, want)
					}
				}
			}
		}
	})
}

func TestSharedClockTellsBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeShared(true)
		all := f.gateways(2)
		all[0].Blocked("h", 0, false)
		if b := all[1].Blocks(1); len(b) != 1 || b[0].Strikes != 1 || time.Until(b[0].Until) != time.Minute {
			t.Fatalf("the other gateway has %+v, want the block", b)
		}
		time.Sleep(time.Minute)
		all[1].Blocked("h", 0, false) // the doubling goes on anywhere
		if why := refused(t, all[0], Request{Limit: Limit{Key: "h", Delay: time.Second}}); why.RetryAfter != 2*time.Minute {
			t.Errorf("refused with %+v, want 2 min", why)
		}
		f.turn(false)
		all[0].Blocked("told later", time.Hour, true)
		if n := all[1].Stats().Blocked; n != 1 {
			t.Fatalf("%d blocked at the other gateway", n)
		}
		f.turn(true)
		if n := all[1].Stats().Blocked; n != 2 {
			t.Errorf("%d blocked at the other gateway after it came back, want 2", n)
		}
	})
}

func TestDealtTurnsGoRound(t *testing.T) {
	t.Parallel()
	const each = 7 * time.Second
	for at := time.Duration(0); at < 100*time.Second; at += 500 * time.Millisecond {
		turns := make([]time.Duration, 0, 3)
		for rank := range 3 {
			d := dealt(at, each, 3, rank)
			if d < at || d >= at+3*each {
				t.Fatalf("at %s rank %d has its turn at %s", at, rank, d)
			}
			turns = append(turns, d)
		}
		slices.Sort(turns)
		if turns[1]-turns[0] != each || turns[2]-turns[1] != each {
			t.Fatalf("at %s the turns are %v", at, turns)
		}
	}
}
