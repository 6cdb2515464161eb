package pace

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// begun lets workers of all gateways ask for one host and take their time to
// connect before they begin. It returns when requests began.
func begun(t *testing.T, all []*Pacer, l Limit, script func(), connecting func(*rand.Rand) time.Duration) []time.Time {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var (
		mu sync.Mutex
		at []time.Time
		wg sync.WaitGroup
	)
	for g, p := range all {
		for i := range 5 {
			rnd := rand.New(rand.NewPCG(uint64(g), uint64(i)))
			wg.Go(func() {
				for ctx.Err() == nil {
					s, err := p.Acquire(ctx, Request{Limit: l, Agent: fmt.Sprint(i % 2), MaxWait: 60 * time.Second})
					if err != nil {
						sleep(ctx, 77*time.Millisecond)
						continue
					}
					sleep(ctx, connecting(rnd))
					if s.Begin(ctx) != nil {
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

// However long connecting takes, requests begin no closer together than the
// limit wants: at one gateway, and at several with the shared clock there, away
// and back.
func TestBeginKeepsTheGapWhateverConnectingTakes(t *testing.T) {
	t.Parallel()
	const apart = 2 * time.Second
	for name, connecting := range map[string]func(*rand.Rand) time.Duration{
		"at once": func(*rand.Rand) time.Duration { return 0 },
		"quick":   func(r *rand.Rand) time.Duration { return time.Duration(r.IntN(300)) * time.Millisecond },
		"slow":    func(r *rand.Rand) time.Duration { return time.Duration(r.IntN(5000)) * time.Millisecond },
		"now and then": func(r *rand.Rand) time.Duration {
			return time.Duration(r.IntN(10)/9*r.IntN(6000)) * time.Millisecond
		},
	} {
		for _, l := range []Limit{{Key: "h", Delay: apart}, {Key: "h", Interval: apart}, {Key: "h", Interval: apart / 4, Burst: 4, Delay: apart}} {
			for _, gateways := range []int{0, 1, 3} {
				t.Run(fmt.Sprintf("%s/%s,%s/%d", name, l.Interval, l.Delay, gateways), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						all := []*Pacer{New(Config{Random: noJitter})}
						start := time.Now()
						script := func() { time.Sleep(300 * time.Second) }
						if gateways > 0 {
							f := newFakeShared(true)
							all = f.gateways(gateways)
							script = func() {
								time.Sleep(100 * time.Second)
								f.turn(false)
								time.Sleep(100 * time.Second)
								f.turn(true)
								time.Sleep(100 * time.Second)
							}
						}
						at := begun(t, all, l, script, connecting)
						for i := 1; i < len(at); i++ {
							if gap := at[i].Sub(at[i-1]); gap < apart {
								t.Errorf("requests %d and %d began %s apart, want %s; the second after %s", i-1, i, gap, apart, at[i].Sub(start))
							}
						}
						t.Logf("%d of 150", len(at))
						if len(at) < 25 {
							t.Errorf("%d requests began in 300 s, want more", len(at))
						}
					})
				})
			}
		}
	}
}

func TestBeginAfterABlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Random: noJitter})
		r := Request{Limit: Limit{Key: "h", Concurrency: 3}}
		first, second := granted(t, p, r), granted(t, p, r)
		p.Blocked("h", time.Hour, true)
		var why *Refused
		if err := first.Begin(t.Context()); !errors.As(err, &why) || why.Reason != ReasonBlocked || why.RetryAfter != time.Hour {
			t.Errorf("Begin after the site asked to be left alone: %v", err)
		}
		first.Cancel()
		second.Done()
		if err := second.Begin(t.Context()); err != nil {
			t.Errorf("Begin of a slot that was given back: %v", err)
		}
		if err := (Slot{}).Begin(t.Context()); err != nil {
			t.Errorf("Begin of the zero slot: %v", err)
		}
	})
}

// A request that is late, and may not be held, is told when to come back.
func TestBeginTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Random: noJitter})
		r := Request{Limit: Limit{Key: "h", Delay: 10 * time.Second}, MaxWait: -1}
		late := granted(t, p, r)
		time.Sleep(11 * time.Second)
		next := granted(t, p, r)
		if err := next.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		var why *Refused
		if err := late.Begin(t.Context()); !errors.As(err, &why) || why.Reason != ReasonWait || why.RetryAfter != 6*time.Second {
			t.Errorf("Begin = %v, want refused for 6 s", err)
		}
		late.Cancel()
		time.Sleep(6 * time.Second)
		if s := granted(t, p, r); s.Begin(t.Context()) != nil {
			t.Error("the slot of the late one is lost")
		}
	})
}

func TestBeginEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Random: noJitter})
		r := Request{Limit: Limit{Key: "h", Delay: 10 * time.Second}, MaxWait: time.Minute}
		late := granted(t, p, r)
		time.Sleep(11 * time.Second)
		granted(t, p, r).Done()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := late.Begin(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Begin = %v, want the context's error", err)
		}
	})
}

// Whoever has booked the slot after a late one waits for it; the one after that
// is where it was.
func TestLateRequestsAreToldToOtherGateways(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeShared(true)
		all := f.gateways(2)
		r := Request{Limit: Limit{Key: "h", Delay: 10 * time.Second}, MaxWait: time.Minute}
		first := granted(t, all[0], r)
		start := time.Now()
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			if s := granted(t, all[1], r); time.Since(start) != 14*time.Second || s.Begin(t.Context()) != nil {
				t.Errorf("the next went after %s, want 10 s after the late one", time.Since(start))
			}
		})
		time.Sleep(4 * time.Second)
		if err := first.Begin(t.Context()); err != nil || time.Since(start) != 4*time.Second {
			t.Errorf("Begin after %s: %v", time.Since(start), err)
		}
		first.Sent()
		first.Done()
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.told != 1 {
			t.Errorf("told %d times, want once", f.told)
		}
	})
}
