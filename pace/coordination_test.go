package pace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fakeShared is an in-memory shared clock for gateways in one synctest bubble.
type fakeShared struct {
	mu       sync.Mutex
	up       bool
	since    time.Time
	clocks   map[string]gcra
	places   map[string]int // taken places
	reserved int
	released int
	blocked  []func(string, time.Duration, int)
	back     []func()
	begin    instant // until then, gateways may use slots that it has forgotten
	met      bool    // the gateways know each other
	wasAway  bool
	notYet   int  // the number of answers that it is too early
	dies     bool // at the next call
}

// fakeSlack is the longest delay of a request after its slot.
const fakeSlack = 10 * time.Millisecond

// fakeGateway is one gateway's view of a fakeShared.
type fakeGateway struct {
	*fakeShared
	count, turn int
	turns       int // 0 stands for the count
}

func newFakeShared(up bool) *fakeShared {
	return &fakeShared{up: up, met: up, since: time.Now().Add(-time.Hour), clocks: map[string]gcra{}, places: map[string]int{}}
}

// gateways returns n Pacers that share the clock.
func (f *fakeShared) gateways(n int) []*Pacer {
	out := make([]*Pacer, 0, n)
	for i := range n {
		out = append(out, New(Config{Random: noJitter, Shared: &fakeGateway{f, n, i, 0}}))
	}
	return out
}

// set takes the shared clock away, or brings it back without its memory.
func (f *fakeShared) set(up bool) {
	f.mu.Lock()
	f.up, f.since = up, time.Now()
	f.met, f.wasAway = f.met || up, f.met && (f.wasAway || !up)
	if up {
		f.clocks, f.begin = map[string]gcra{}, wall()+time.Second
	}
	back := f.back
	f.mu.Unlock()
	for _, b := range back {
		if up {
			b()
		}
	}
}

var errAway = errors.New("away")

func wall() instant { return time.Since(time.Unix(0, 0)) }

func (g *fakeGateway) Reserve(_ context.Context, demands []Demand, maxWait time.Duration) (Reservation, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dies {
		g.dies, g.up, g.wasAway, g.since = false, false, true, time.Now()
	}
	if !g.up {
		return Reservation{}, errAway
	}
	if now := wall(); now < g.begin {
		return Reservation{Outcome: NotYet, Wait: g.begin - now}, nil
	}
	g.reserved++
	if g.notYet > 0 {
		g.notYet--
		return Reservation{Outcome: NotYet, Wait: time.Second}, nil
	}
	now := wall()
	at := now
	for _, d := range demands {
		if _, known := g.clocks[d.Key]; !known {
			g.clocks[d.Key] = gcra{last: g.begin, tat: g.begin}
		}
		at = max(at, g.clocks[d.Key].ready(d.terms()))
	}
	if at-now > maxWait {
		return Reservation{Outcome: TooLate, Wait: at - now}, nil
	}
	for _, d := range demands {
		if d.Places > 0 && g.places[d.Key] >= d.Places {
			return Reservation{Outcome: Full, Wait: 100 * time.Millisecond}, nil
		}
	}
	before := map[string]gcra{}
	spaced := false
	for _, d := range demands {
		before[d.Key] = g.clocks[d.Key]
		g.places[d.Key]++
		if d.Spent {
			g.clocks[d.Key] = g.clocks[d.Key].withoutBurst(d.terms(), at)
		}
		g.clocks[d.Key] = g.clocks[d.Key].take(d.terms(), at)
		spaced = spaced || d.Delay > 0 || d.Interval > 0 && d.Tolerance == 0
	}
	r := Reservation{Outcome: Reserved, Wait: at - now, At: time.Now().Add(at - now), Token: before}
	if r.Until = r.At.Add(fakeSlack); !spaced {
		r.Until = r.At.Add(time.Hour)
	}
	return r, nil
}

// terms returns the terms of the demand, with the slack added.
func (d Demand) terms() terms {
	t := terms{interval: d.Interval, tolerance: max(0, d.Tolerance-fakeSlack), gap: d.Delay}
	if t.interval > 0 && d.Tolerance == 0 {
		t.interval += fakeSlack
	}
	if t.gap > 0 {
		t.gap += fakeSlack
	}
	return t
}

func (g *fakeGateway) Release(r Reservation) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.released++
	for key, before := range r.Token.(map[string]gcra) {
		g.places[key]--
		if g.clocks[key].last == r.At.Sub(time.Unix(0, 0)) {
			g.clocks[key] = before
		}
	}
	clear(r.Token.(map[string]gcra))
	return nil
}

func (g *fakeGateway) Hold(demands []Demand) Reservation {
	g.mu.Lock()
	defer g.mu.Unlock()
	held := make(map[string]gcra)
	for _, d := range demands {
		held[d.Key] = gcra{}
		g.places[d.Key]++
	}
	return Reservation{Token: held}
}

func (g *fakeGateway) Done(r Reservation, after func()) {
	g.mu.Lock()
	for key := range r.Token.(map[string]gcra) {
		g.places[key]--
	}
	g.mu.Unlock()
	after()
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

func (g *fakeGateway) Watch(blocked func(string, time.Duration, int), back func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.blocked = append(g.blocked, blocked)
	g.back = append(g.back, back)
}

func (g *fakeGateway) Peers() Peers {
	g.mu.Lock()
	defer g.mu.Unlock()
	peers := Peers{Up: g.up, For: time.Since(g.since), Count: g.count, Turn: g.turn, Time: wall()}
	if g.met && (!g.up || g.wasAway) {
		peers.Turns = cmp.Or(g.turns, g.count)
	}
	return peers
}

// crawlGateways crawls one host through all gateways with four workers each until the script ends,
// and returns when requests were sent. connecting returns the time between a request's grant and
// Confirm.
func crawlGateways(t *testing.T, all []*Pacer, l Limit, connecting func(*rand.Rand) time.Duration, script func(), also ...Limit) []time.Time {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var (
		mu sync.Mutex
		at []time.Time
		wg sync.WaitGroup
	)
	for g, p := range all {
		for i := range 4 {
			rnd := rand.New(rand.NewPCG(uint64(g), uint64(i)))
			wg.Go(func() {
				for ctx.Err() == nil {
					s, err := p.Acquire(ctx, Request{Limit: l, Also: also, Agent: fmt.Sprint(i % 2), MaxWait: 60 * time.Second})
					if err != nil {
						sleep(ctx, 77*time.Millisecond)
						continue
					}
					sleep(ctx, connecting(rnd))
					if s.Confirm(ctx) != nil {
						s.Cancel()
						continue
					}
					mu.Lock()
					at = append(at, time.Now())
					mu.Unlock()
					sleep(ctx, time.Duration(rnd.IntN(3))*100*time.Millisecond)
					s.Sent()
					s.Done()
				}
			})
		}
	}
	script()
	cancel()
	wg.Wait()
	slices.SortFunc(at, time.Time.Compare)
	return at
}

func noTime(*rand.Rand) time.Duration { return 0 }

// within fails the test if any window has more requests than its length in intervals plus extra.
func within(t *testing.T, at []time.Time, interval time.Duration, extra int) {
	t.Helper()
	for i := range at {
		for j := i + extra; j < len(at); j++ {
			if span := at[j].Sub(at[i]); span < time.Duration(j-i+1-extra)*interval {
				t.Errorf("%d requests within %s from request %d on, want at most %d and one for each %s",
					j-i+1, span, i, extra, interval)
				return
			}
		}
	}
}

// apart fails the test if two requests are closer together than least.
func apart(t *testing.T, at []time.Time, least time.Duration) {
	t.Helper()
	for i := 1; i < len(at); i++ {
		if gap := at[i].Sub(at[i-1]); gap < least {
			t.Errorf("requests %d and %d are %s apart, want at least %s", i-1, i, gap, least)
		}
	}
}

// Three gateways keep requests apart while they share a clock. While it is away, each keeps to a
// third of the rate and they take turns, so together they exceed the rate by at most two requests
// and stay apart. When it is back without its memory, they go on like this until it is reliable.
func TestSharedClockAwayAndBack(t *testing.T) {
	t.Parallel()
	const interval = 2 * time.Second
	for _, l := range []Limit{{Key: "h", Delay: interval}, {Key: "h", Interval: interval}, {Key: "h", Interval: interval, Burst: 5}} {
		t.Run(fmt.Sprintf("%s,%d,%s", l.Interval, l.Burst, l.Delay), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFakeShared(true)
				f.since = time.Now() // the burst is for later
				start := time.Now()
				at := crawlGateways(t, f.gateways(3), l, noTime, func() {
					time.Sleep(100 * time.Second)
					f.set(false)
					time.Sleep(100 * time.Second)
					f.set(true)
					time.Sleep(100 * time.Second)
				})
				within(t, at, interval, 3+max(0, l.Burst-1))
				var phases [3][]time.Time
				for _, a := range at {
					phase := min(int(a.Sub(start)/(100*time.Second)), 2)
					phases[phase] = append(phases[phase], a)
				}
				if l.Burst == 0 {
					apart(t, at, interval)
				}
				within(t, phases[1], interval, 3)
				for i, p := range phases {
					if len(p) < 44 {
						t.Errorf("%d requests were sent in phase %d of 100 s, want nearly 50", len(p), i)
					}
				}
				t.Logf("%d, %d and %d went", len(phases[0]), len(phases[1]), len(phases[2]))
			})
		})
	}
}

// A request with several clocks takes turns at the slowest one, and keeps all limits.
func TestTurnsOfSeveralClocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeShared(true)
		l := Limit{Key: "h", Delay: 2 * time.Second, Interval: 200 * time.Millisecond, Burst: 10}
		also := []Limit{{Key: "agent:a@h", Interval: 3 * time.Second}, {Key: "addr:192.0.2.1", Interval: 500 * time.Millisecond}}
		at := crawlGateways(t, f.gateways(3), l, noTime, func() {
			time.Sleep(20 * time.Second)
			f.set(false)
			time.Sleep(200 * time.Second)
			f.set(true)
			time.Sleep(20 * time.Second)
		}, also...)
		apart(t, at, 2*time.Second)
		if len(at) < 55 { // a gateway may go each 9 s, and each second round is 12.75 s
			t.Errorf("%d requests were sent in 240 s, want nearly 60", len(at))
		}
	})
}

// A request that goes at the end of its turn has time for its way to the site: the next gateway's
// request still comes later by the gap.
func TestTurnsLeaveTimeForTheWayToTheSite(t *testing.T) {
	t.Parallel()
	for _, gap := range []time.Duration{turnsFrom, 500 * time.Millisecond, time.Second, time.Minute} {
		d := terms{gap: gap, turns: true}
		turnOf := func(gateway int) turn {
			on := coordination{shared: true, away: true, count: 3, turns: 3, turn: gateway}
			return on.turnAt(gcra{}, d, "h", epochAge, epochAge)
		}
		first := turnOf(0)
		for _, gateway := range []int{1, 2} {
			next := turnOf(gateway)
			next.at = next.next(first.at + time.Nanosecond)
			if apart := next.at - first.at - first.late; apart < gap+lateness(d)/4 {
				t.Errorf("%s: gateway %d's turn begins %s after the last moment of the turn before, want %s", gap, gateway, apart, gap+lateness(d)/4)
			}
		}
	}
}

// Two gateways take turns and expect a third one, which starts while the shared clock is away and
// has no turn. The two leave out turns, so all three together keep the rate.
func TestGatewaysLeaveOutTurnsForThoseThatAreExpected(t *testing.T) {
	t.Parallel()
	const interval = 2 * time.Second
	for started, want := range map[int]int{2: 40, 3: 70} { // of 100: the two leave out every second turn
		t.Run(fmt.Sprint(started), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFakeShared(true)
				var all []*Pacer
				for turn, turns := range []int{2, 2, -1}[:started] {
					all = append(all, New(Config{Random: noJitter, Shared: &fakeGateway{f, 3, turn, turns}}))
				}
				f.set(false)
				at := crawlGateways(t, all, Limit{Key: "h", Delay: interval}, noTime, func() { time.Sleep(200 * time.Second) })
				if within(t, at, interval, 3); len(at) < want {
					t.Errorf("%d requests were sent in 200 s, want at least %d", len(at), want)
				}
				if started == 2 {
					apart(t, at, interval)
				}
			})
		})
	}
}

// However often the shared clock disappears and returns without its memory, the gateways exceed the
// rate by at most one request each, and always have a limit.
func TestModelGatewaysNeverExceedTheRate(t *testing.T) {
	t.Parallel()
	const gateways, interval = 3, 2 * time.Second
	for seed := range uint64(24) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 5))
				l := []Limit{{Delay: interval}, {Interval: interval}, {Interval: interval / 2, Burst: 3, Delay: interval}}[seed%3]
				l.Key = "h"
				f := newFakeShared(seed%2 == 0)
				connecting := func(r *rand.Rand) time.Duration {
					return time.Duration(r.IntN(10)/8*r.IntN(3000)) * time.Millisecond
				}
				at := crawlGateways(t, f.gateways(gateways), l, connecting, func() {
					for range 20 {
						time.Sleep(time.Duration(rnd.IntN(30_000)) * time.Millisecond)
						f.set(!f.up)
					}
				})
				within(t, at, interval, gateways)
				if seed%2 == 0 { // otherwise they do not know their turns at first
					apart(t, at, interval)
				}
				t.Logf("%d went in %s", len(at), at[len(at)-1].Sub(at[0]))
				if len(at) < 40 {
					t.Errorf("%d requests were sent, want at least 40", len(at))
				}
			})
		})
	}
}

// When the shared clock disappears, other gateways may just have used a host that this one has not.
// So it lets one round pass, and waits for its turn in the next one.
func TestSharedClockAwayWaitsARound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeShared(true)
		p := f.gateways(3)[0]
		f.set(false)
		r := Request{Limit: Limit{Key: "h", Delay: 2 * time.Second}, MaxWait: time.Hour}
		round := 3 * (2*time.Second + 50*time.Millisecond)
		if s := granted(t, p, r); s.Wait < round || s.Wait > round+4*(2*time.Second+125*time.Millisecond) {
			t.Errorf("held for %s, want a round and a turn", s.Wait)
		}
	})
}

// A request whose call failed uses its own gateway's clock only while the shared clock is away.
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
		f.set(true)
		wg.Wait()
		if f.reserved != 1 {
			t.Errorf("it reserved %d slots, want one", f.reserved)
		}
	})
}

func TestSharedClockNeverReached(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeShared(false)
		f.since = time.Now()
		l := Limit{Key: "h", Interval: time.Second, Burst: 10}
		at := crawlGateways(t, f.gateways(4), l, noTime, func() { time.Sleep(100 * time.Second) })
		within(t, at, time.Second, 4)
		if len(at) < 90 {
			t.Errorf("%d went in 100 s, want nearly 100, at the rate of all together", len(at))
		}
	})
}

// A gateway that knows no others has the whole rate while the shared clock is away.
func TestSharedClockAwayFromTheOnlyGateway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeShared(false)
		f.since = time.Now()
		p := f.gateways(1)[0]
		r := Request{Limit: Limit{Key: "h", Delay: 2 * time.Second}}
		for i, want := range []time.Duration{0, 2 * time.Second} {
			if s := granted(t, p, r); s.Wait != want {
				t.Errorf("request %d held for %s, want %s", i, s.Wait, want)
			}
		}
	})
}

// A request that leaves returns its reserved slot, and the next one uses it.
func TestSharedClockGetsASlotBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeShared(true)
		p := f.gateways(1)[0]
		r := Request{Limit: Limit{Key: "h", Delay: 8 * time.Second}, Agent: "a", MaxWait: time.Hour}
		granted(t, p, r).Done()
		end := waiting(t, p, 1, r)
		time.Sleep(8*time.Second + time.Millisecond) // its own clock permits it, so it has reserved
		var wg sync.WaitGroup
		wg.Go(func() {
			if s := granted(t, p, r); s.Wait > fakeSlack {
				t.Errorf("the next request was sent after %s, want the slot of the one that left", s.Wait)
			}
		})
		synctest.Wait()
		end()
		wg.Wait()
		if f.reserved != 3 || f.released != 1 {
			t.Errorf("%d reserved, %d released; want the second given back", f.reserved, f.released)
		}
		s := granted(t, p, r)
		s.Cancel()
		if f.released != 2 {
			t.Errorf("%d released, want also the slot of the request that was not sent", f.released)
		}
	})
}

// A slot that the shared clock has forgotten is void, both for a request that waits for it and for
// one that has it but was not sent yet.
func TestSharedClockForgetsASlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeShared(true)
		p := f.gateways(1)[0]
		r := Request{Limit: Limit{Key: "h", Delay: 8 * time.Second}, MaxWait: time.Hour}
		forget := func() {
			f.set(true)
			f.mu.Lock()
			defer f.mu.Unlock()
			f.since = f.since.Add(-time.Hour)
		}
		s := granted(t, p, r)
		forget()
		if err := s.Confirm(t.Context()); err != nil || f.reserved != 2 {
			t.Errorf("Confirm = %v after %d reservations, want nil after another one", err, f.reserved)
		}
		s.Done()
		var wg sync.WaitGroup
		wg.Go(func() { granted(t, p, r).Done() })
		time.Sleep(8*time.Second + time.Millisecond) // its own clock permits it, so it has reserved
		forget()
		wg.Wait()
		if f.reserved != 4 {
			t.Errorf("%d reservations, want another one for the request that waited", f.reserved)
		}
		time.Sleep(time.Hour) // the sweep ends
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

// All gateways together use the places while the shared clock counts them. Each uses its share
// while the clock is away or has just returned.
func TestSharedClockDividesThePlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, state := range []struct {
			up    bool
			since time.Duration
			want  map[int][]int
		}{
			{true, time.Hour, map[int][]int{8: {8, 0, 0}, 2: {2, 0, 0}, 9: {9, 0, 0}}},
			{true, 0, map[int][]int{8: {2, 2, 2}, 2: {1, 1, 0}, 9: {3, 3, 3}}},
			{false, time.Hour, map[int][]int{8: {2, 2, 2}, 2: {1, 1, 1}, 9: {3, 3, 3}}},
		} {
			f := newFakeShared(state.up)
			f.since = time.Now().Add(-state.since)
			for g, p := range f.gateways(3) {
				for places, want := range state.want {
					n := 0
					for i := range 10 {
						r := Request{Limit: Limit{Key: fmt.Sprint(places), Concurrency: places}, Agent: fmt.Sprint(i), MaxWait: -1}
						_, err := p.Acquire(t.Context(), r)
						why := new(Refused)
						if err == nil {
							n++
						} else if !errors.As(err, &why) || why.Reason != ReasonConcurrency {
							t.Errorf("%+v: refused with %v", state, err)
						}
					}
					if n != want[g] {
						t.Errorf("%+v: %d of %d places for gateway %d, want %d", state, n, places, g, want[g])
					}
				}
			}
		}
	})
}

// Answers that begin while the shared clock is away count as places when it is back.
func TestSharedClockCountsThePlacesOfAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeShared(false)
		all := f.gateways(2)
		r := Request{Limit: Limit{Key: "h", Concurrency: 2}, Agent: "a", MaxWait: -1}
		first := granted(t, all[0], r)
		granted(t, all[1], r)
		f.set(true)
		time.Sleep(time.Minute) // until then each gateway uses its share
		r.Agent = "b"           // one agent leaves a place at its gateway
		for _, p := range all {
			if why := refused(t, p, r); why.Reason != ReasonConcurrency {
				t.Errorf("refused with %v, want both places taken", why)
			}
		}
		first.Done()
		granted(t, all[1], r)
	})
}

// A request that waits for a place of another gateway gets it soon after it becomes free, and
// delays no other host.
func TestSharedClockWaitsForAPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := newFakeShared(true).gateways(2)
		r := Request{Limit: Limit{Key: "h", Concurrency: 1}, Also: []Limit{{Key: "addr:1", Interval: time.Millisecond, Burst: 10}}, Agent: "a"}
		first := granted(t, all[0], r)
		var wg sync.WaitGroup
		wg.Go(func() {
			s := granted(t, all[1], r)
			if s.Wait < 10*time.Second || s.Wait > 10*time.Second+150*time.Millisecond {
				t.Errorf("held for %s, want soon after 10 s", s.Wait)
			}
			s.Done()
		})
		time.Sleep(5 * time.Second)
		other := r
		other.Key = "i"
		s := granted(t, all[1], other)
		if s.Wait > 0 {
			t.Errorf("another host of the address waited for %s", s.Wait)
		}
		s.Done()
		time.Sleep(5 * time.Second)
		first.Done()
		wg.Wait()
	})
}

func TestSharedClockTellsBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeShared(true)
		all := f.gateways(2)
		all[0].RecordFailure("h", 0)
		if b := all[1].States(1, false); len(b) != 1 || b[0].Strikes != 1 || time.Until(b[0].Until) != time.Minute {
			t.Fatalf("the other gateway has %+v, want the block", b)
		}
		time.Sleep(time.Minute)
		all[1].RecordFailure("h", 0) // the doubling continues at any gateway
		if why := refused(t, all[0], Request{Limit: Limit{Key: "h", Delay: time.Second}}); why.RetryAfter != 2*time.Minute {
			t.Errorf("refused with %+v, want 2 min", why)
		}
		f.set(false)
		all[0].RecordFailure("told later", time.Hour)
		if n := all[1].Stats().Blocked; n != 1 {
			t.Fatalf("%d blocked at the other gateway", n)
		}
		f.set(true)
		synctest.Wait()
		if n := all[1].Stats().Blocked; n != 2 {
			t.Errorf("%d blocked at the other gateway after it came back, want 2", n)
		}
	})
}

// A block reported by another gateway is kept within this gateway's bounds.
func TestBlocksOfOtherGatewaysAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Random: noJitter})
		for _, b := range []struct {
			pause   time.Duration
			strikes int
			want    time.Duration
		}{
			{1<<63 - 1, 2, 24 * time.Hour}, {time.Minute, -3, time.Minute}, {-1 << 63, 1, 0}, {0, 1, 0},
		} {
			p.blockedElsewhere("h", b.pause, b.strikes)
			got, ok := p.Status("h", Limit{})
			if left := time.Until(got.Until); ok && got.Strikes >= 0 && max(left, 0) == b.want {
				p.endBlock("h")
				continue
			}
			t.Errorf("pause %s, %d strikes: %+v", b.pause, b.strikes, got)
		}
	})
}

// stuckShared is a shared clock that never answers.
type stuckShared struct {
	Shared
	back    func()
	blocked atomic.Int32
	end     chan struct{}
}

func (s *stuckShared) Watch(_ func(string, time.Duration, int), back func()) { s.back = back }

func (*stuckShared) Peers() Peers { return Peers{Up: true, Count: 1} }

func (s *stuckShared) Block(string, time.Duration, int) error {
	s.blocked.Add(1)
	<-s.end
	return nil
}

// TestNobodyWaitsForBlocksToBeTold checks that neither a reload nor the heartbeat that finds the
// shared clock again waits for a block to be reported. Blocks set before that are reported too.
func TestNobodyWaitsForBlocksToBeTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stuckShared{end: make(chan struct{})}
		p := New(Config{Shared: s})
		p.Restore([]State{{Key: "a", Until: time.Now().Add(time.Minute)}})
		synctest.Wait()
		p.Merge([]State{{Key: "b", Until: time.Now().Add(time.Minute)}})
		s.back()
		synctest.Wait()
		if n := s.blocked.Load(); n != 1 {
			t.Errorf("%d blocks are being reported, want one at a time", n)
		}
		close(s.end)
		synctest.Wait()
		if n := s.blocked.Load(); n != 3 {
			t.Errorf("%d blocks were reported, want a, and then a and b", n)
		}
		time.Sleep(time.Hour) // the sweep ends
	})
}
