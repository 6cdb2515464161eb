package pace

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// However long connecting takes, requests begin no closer together than the limit requires, at one
// gateway and at several that share a clock.
func TestConfirmKeepsTheGapWhateverConnectingTakes(t *testing.T) {
	t.Parallel()
	const least = 2 * time.Second
	for name, connecting := range map[string]func(*rand.Rand) time.Duration{
		"at once": noTime,
		"quick":   func(r *rand.Rand) time.Duration { return time.Duration(r.IntN(300)) * time.Millisecond },
		"slow":    func(r *rand.Rand) time.Duration { return time.Duration(r.IntN(5000)) * time.Millisecond },
		"now and then": func(r *rand.Rand) time.Duration {
			return time.Duration(r.IntN(10)/9*r.IntN(6000)) * time.Millisecond
		},
	} {
		for _, l := range []Limit{{Key: "h", Delay: least}, {Key: "h", Interval: least}, {Key: "h", Interval: least / 4, Burst: 4, Delay: least}} {
			for _, gateways := range []int{0, 1, 3} {
				t.Run(fmt.Sprintf("%s/%s,%s/%d", name, l.Interval, l.Delay, gateways), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						all := []*Pacer{New(Config{Random: noJitter})}
						if gateways > 0 {
							all = newFakeShared(true).gateways(gateways)
						}
						at := crawlGateways(t, all, l, connecting, func() { time.Sleep(300 * time.Second) })
						apart(t, at, least)
						t.Logf("%d of 150", len(at))
						if len(at) < 40 {
							t.Errorf("%d requests began in 300 s, want at least 40", len(at))
						}
					})
				})
			}
		}
	}
}

func TestConfirmAfterABlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Random: noJitter})
		r := Request{Limit: Limit{Key: "h", Concurrency: 3}}
		first, second := granted(t, p, r), granted(t, p, r)
		p.RecordFailure("h", time.Hour)
		var why *Refused
		if err := first.Confirm(t.Context()); !errors.As(err, &why) || why.Reason != ReasonBlocked || why.RetryAfter != time.Hour {
			t.Errorf("Confirm after a block began = %v, want blocked for an hour", err)
		}
		first.Cancel()
		second.Done()
		if err := second.Confirm(t.Context()); err != nil {
			t.Errorf("Confirm of a slot that was given back = %v, want nil", err)
		}
		if err := (Slot{}).Confirm(t.Context()); err != nil {
			t.Errorf("Confirm of the zero slot = %v, want nil", err)
		}
	})
}

// A late request that must not be held is told when to come back.
func TestConfirmTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Random: noJitter})
		r := Request{Limit: Limit{Key: "h", Delay: 10 * time.Second}, MaxWait: -1}
		late := granted(t, p, r)
		time.Sleep(11 * time.Second)
		next := granted(t, p, r)
		if err := next.Confirm(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		var why *Refused
		if err := late.Confirm(t.Context()); !errors.As(err, &why) || why.Reason != ReasonWait || why.RetryAfter != 6*time.Second {
			t.Errorf("Confirm = %v, want refused for 6 s", err)
		}
		late.Cancel()
		time.Sleep(6 * time.Second)
		if s := granted(t, p, r); s.Confirm(t.Context()) != nil {
			t.Error("the slot of the late request is lost")
		}
	})
}

func TestConfirmEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Random: noJitter})
		r := Request{Limit: Limit{Key: "h", Delay: 10 * time.Second}, MaxWait: time.Minute}
		late := granted(t, p, r)
		time.Sleep(11 * time.Second)
		granted(t, p, r).Done()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := late.Confirm(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Confirm = %v, want the context's error", err)
		}
	})
}

// A request that misses its slot at the shared clock reserves another one. If the shared clock is
// then unreachable, the request is refused for a round.
func TestConfirmReservesAgain(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeShared(true)
			all := f.gateways(2)
			r := Request{Limit: Limit{Key: "h", Delay: 10 * time.Second}, MaxWait: time.Minute}
			first := granted(t, all[0], r)
			second := granted(t, all[1], r) // waits for 10 s plus the slack
			start := time.Now()
			if err := second.Confirm(t.Context()); err != nil || time.Since(start) != 0 {
				t.Errorf("Confirm in time: %v after %s", err, time.Since(start))
			}
			if away {
				f.set(false)
			}
			err := first.Confirm(t.Context())
			if !away && (err != nil || time.Since(start) != 10*time.Second+fakeSlack) {
				t.Errorf("Confirm too late: %v after %s, want another slot", err, time.Since(start))
			}
			if why := new(Refused); away && (!errors.As(err, &why) || why.RetryAfter != 2*(10*time.Second+625*time.Millisecond)) {
				t.Errorf("Confirm too late: %v, want refused for a round", err)
			}
			first.Done()
		})
	}
}
