package pace

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackoffAfterFailure(t *testing.T) {
	t.Parallel()
	p := Backoff{}.withDefaults()
	const now = 1000 * time.Hour
	tests := []struct {
		name       string
		before     backoff
		retryAfter time.Duration
		jitter     float64
		want       backoff
	}{
		{"first without Retry-After: 60 s", backoff{}, 0, 0, backoff{now + time.Minute, 1, true}},
		{"second: doubled", backoff{now - time.Second, 1, false}, 0, 0, backoff{now + 2*time.Minute, 2, true}},
		{"eleventh: 1,024 min", backoff{now, 10, false}, 0, 0, backoff{now + 1024*time.Minute, 11, true}},
		{"twelfth: a day at most", backoff{now, 11, false}, 0, 0.99, backoff{now + 24*time.Hour, 12, true}},
		{"many: still a day", backoff{now, 1 << 40, false}, 0, 0, backoff{now + 24*time.Hour, 1<<40 + 1, true}},
		{"jitter lengthens by a tenth at most", backoff{}, 0, 0.5, backoff{now + 63*time.Second, 1, true}},
		{"while it lasts: on its way already, no change", backoff{now + time.Second, 3, true}, 0, 0, backoff{now + time.Second, 3, true}},
		{"forgiven after 30 quiet minutes", backoff{now - 30*time.Minute, 7, false}, 0, 0, backoff{now + time.Minute, 1, true}},
		{"not forgiven before", backoff{now - 30*time.Minute + 1, 7, false}, 0, 0, backoff{now + 128*time.Minute, 8, true}},
		{"Retry-After to the second, no jitter", backoff{}, 7 * time.Second, 0.9, backoff{now + 7*time.Second, 0, true}},
		{"Retry-After leaves the count", backoff{now, 2, false}, time.Hour, 0, backoff{now + time.Hour, 2, true}},
		{"shorter Retry-After changes nothing", backoff{now + time.Hour, 2, true}, time.Second, 0, backoff{now + time.Hour, 2, true}},
		{"longer Retry-After prolongs", backoff{now + time.Second, 2, true}, time.Hour, 0, backoff{now + time.Hour, 2, true}},
		{"Retry-After of a day at most", backoff{}, 300 * time.Hour, 0, backoff{now + 24*time.Hour, 0, true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.before.afterFailure(p, now, tt.retryAfter, tt.jitter); got != tt.want {
				t.Errorf("afterFailure = %+v, want %+v", got, tt.want)
			}
		})
	}
}

func noJitter() float64 { return 0 }

func TestBlockedHoldsBackAllAgentsUntilItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Random: noJitter})
		limit := Limit{Key: "h", Interval: time.Second, Burst: 5}
		p.RecordFailure("h", 90*time.Second)
		for _, agent := range []string{"a", "b"} {
			why := refused(t, p, Request{Limit: limit, Agent: agent})
			if why.Reason != ReasonBlocked || why.RetryAfter != 90*time.Second {
				t.Fatalf("%s: refused with %+v, want blocked, 90 s", agent, why)
			}
		}
		time.Sleep(85 * time.Second)
		// Requests are held now, and the end of the block causes no burst.
		for i, want := range []time.Duration{5 * time.Second, time.Second, time.Second} {
			if s := granted(t, p, Request{Limit: limit, Agent: "a"}); s.Wait != want {
				t.Errorf("request %d was held for %s, want %s", i, s.Wait, want)
			}
		}
	})
}

// Requests that wait when the block begins are not sent before it ends. Those that may be held that
// long wait on; the others are refused at once.
func TestBlockedWhileRequestsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Random: noJitter})
		limit := Limit{Key: "h", Delay: 2 * time.Second}
		granted(t, p, Request{Limit: limit}).Done()
		start := time.Now()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				_, err := p.Acquire(t.Context(), Request{Limit: limit, Agent: "hasty"})
				var why *Refused
				if !errors.As(err, &why) || why.Reason != ReasonBlocked || why.RetryAfter < time.Minute {
					t.Errorf("hasty: %v, want blocked for a minute", err)
				}
				if at := time.Since(start); at != time.Second {
					t.Errorf("hasty: refused after %s, want at once, after 1 s", at)
				}
			})
			wg.Go(func() {
				s := granted(t, p, Request{Limit: limit, Agent: "patient", MaxWait: time.Hour})
				if s.Wait < time.Minute+time.Second {
					t.Errorf("patient: sent after %s, before the block ended", s.Wait)
				}
			})
		}
		time.Sleep(time.Second)
		p.RecordFailure("h", 0)
		wg.Wait()
		if at := time.Since(start); at != 63*time.Second {
			t.Errorf("the last patient request was sent after %s, want 63 s", at)
		}
	})
}

// A block may refuse a request that has just woken and is about to look again.
func TestBlockedWhileWokenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Random: noJitter})
		limit := Limit{Key: "h", Delay: 2 * time.Second}
		granted(t, p, Request{Limit: limit}).Done()
		w := p.waiter(p.config.Load(), &Request{Limit: limit, MaxWait: 3 * time.Second})
		defer w.leaveFrom(0)
		w.advance(t.Context())
		p.RecordFailure("h", 0)
		if _, ok := w.pass(&w.steps[0], p.coordination()); ok || w.refusal.Load() == nil {
			t.Error("a request passes a blocked clock")
		}
	})
}

// A block may begin while a request is current at this clock and waits at another one.
func TestBlockedWhileWaitingAtAnotherClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Random: noJitter})
		wide := Limit{Key: "addr:192.0.2.1", Interval: 10 * time.Second}
		granted(t, p, Request{Limit: wide}).Done()
		var wg sync.WaitGroup
		wg.Go(func() {
			s := granted(t, p, Request{Limit: Limit{Key: "h"}, Also: []Limit{wide}, MaxWait: time.Hour})
			if s.Wait != 31*time.Second {
				t.Errorf("held for %s, want 31 s", s.Wait)
			}
		})
		time.Sleep(time.Second)
		p.RecordFailure("h", 30*time.Second)
		time.Sleep(9 * time.Second)
		// Until then it does not occupy the wide clock.
		if s := granted(t, p, Request{Limit: wide}); s.Wait != 0 {
			t.Errorf("another request held for %s at the wide clock", s.Wait)
		}
		wg.Wait()
	})
}

// Eight requests in flight that all come back with 503 are one strike.
func TestBlockedByRequestsInFlightTogetherIsOneStrike(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Random: noJitter})
		for range 8 {
			p.RecordFailure("h", 0)
			time.Sleep(100 * time.Millisecond)
		}
		if b := p.States(1, false)[0]; b.Strikes != 1 || time.Until(b.Until) > time.Minute {
			t.Errorf("block = %+v, want one strike, a minute", b)
		}
	})
}

// The operator may end a block. The waiting requests are then sent at once, at the rate and without
// a burst, and the count of strikes starts again.
func TestUnblock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Random: noJitter})
		limit := Limit{Key: "h", Interval: time.Second, Burst: 5}
		p.RecordFailure("h", 0)
		time.Sleep(2 * time.Minute)
		p.RecordFailure("h", 0)
		until := time.Now().Add(2 * time.Minute)
		start := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { granted(t, p, Request{Limit: limit, MaxWait: time.Hour}) })
		}
		time.Sleep(time.Second)
		ended, found, err := p.Unblock("h")
		if err != nil || !found || ended.Key != "h" || !ended.Until.Equal(until) || ended.Strikes != 2 {
			t.Errorf("Unblock = %+v, %v, %v", ended, found, err)
		}
		wg.Wait()
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("three waiting requests were sent within %s, want 3 s: at the rate from the end of the block", took)
		}
		if s := p.Stats(); s.Blocked != 0 || len(p.States(10, false)) != 0 {
			t.Errorf("after Unblock: stats %+v, states %v, want no block", s, p.States(10, false))
		}
		for _, key := range []string{"h", "unknown"} {
			if _, found, err := p.Unblock(key); found || err != nil {
				t.Errorf("Unblock(%q) = %v, %v; want nothing to end", key, found, err)
			}
		}
		p.RecordFailure("h", 0)
		if b := p.States(1, false)[0]; b.Strikes != 1 {
			t.Errorf("after Unblock: %+v, want a first strike", b)
		}
	})
}

// A block that has ended is forgotten too, with its strikes, and other gateways are told.
func TestUnblockForAllGateways(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, other := New(Config{Random: noJitter}), New(Config{Random: noJitter})
		other.RecordFailure("h", 0)
		time.Sleep(2 * time.Minute)
		one.blockedElsewhere("h", time.Hour, 1)
		other.blockedElsewhere("h", 0, 0)
		if len(other.States(1, false)) != 0 || len(one.States(1, false)) != 1 {
			t.Errorf("the gateways have the blocks %v and %v", other.States(1, false), one.States(1, false))
		}
	})
}

func TestBlockedOff(t *testing.T) {
	t.Parallel()
	p := New(Config{Backoff: Backoff{Off: true}})
	p.RecordFailure("h", time.Hour)
	p.Restore([]State{{Key: "h", Until: time.Now().Add(time.Hour)}})
	granted(t, p, Request{Limit: Limit{Key: "h"}, MaxWait: -1}).Done()
	if got := p.Stats(); got.Blocked != 0 {
		t.Errorf("Stats = %+v, want no block", got)
	}
}

func TestBlocksSurviveARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		old := New(Config{Random: noJitter})
		old.RecordFailure("long", time.Hour)
		old.RecordFailure("short", time.Minute)
		old.RecordFailure("mid", 0)
		time.Sleep(time.Minute)
		old.RecordFailure("mid", 0)
		saved := old.States(2, false)
		if len(saved) != 2 || saved[0].Key != "long" || saved[1].Key != "mid" || saved[1].Strikes != 2 {
			t.Fatalf("States(2) = %+v, want the two longest, long and mid", saved)
		}
		time.Sleep(30 * time.Second) // the restart

		p := New(Config{Random: noJitter})
		p.Restore(saved)
		p.Restore([]State{
			{Key: "long", Until: time.Now().Add(time.Second)},    // shorter than the known block
			{Key: "over", Until: time.Now().Add(-time.Hour)},     // forgiven
			{Key: "ended", Until: time.Now(), Strikes: 3},        // remembered
			{Key: "mad", Until: time.Now().Add(1e6 * time.Hour)}, // a day at most
			{Key: "past", Until: time.Time{}, Strikes: 1},        // long ago
			{Key: "negative", Until: time.Now().Add(time.Minute), Strikes: -5},
		})
		got := map[string]time.Duration{}
		for _, b := range p.States(100, false) {
			got[b.Key] = time.Until(b.Until)
		}
		want := map[string]time.Duration{
			"long": time.Hour - 90*time.Second, "mid": 90 * time.Second, "ended": 0,
			"mad": 24 * time.Hour, "negative": time.Minute,
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("restored %v, want %v", got, want)
		}
		p.RecordFailure("ended", 0)
		for _, b := range p.States(100, false) {
			if b.Key == "ended" && b.Strikes != 4 {
				t.Errorf("after the restart the doubling went on with %+v, want strike 4", b)
			}
		}
		if n := p.Stats().Blocked; n != 5 {
			t.Errorf("%d keys are blocked, want 5", n)
		}
	})
}

// A request that waits for its slot is neither lost nor stuck if the same block is set again and
// again.
func TestBlockedAgainAndAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Random: noJitter})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			for ctx.Err() == nil {
				p.RecordFailure("h", 5*time.Second)
				time.Sleep(time.Second)
			}
		})
		wg.Go(func() {
			synctest.Wait()
			why := refused(t, p, Request{Limit: Limit{Key: "h"}, MaxWait: 20 * time.Second})
			if why.Reason != ReasonBlocked {
				t.Errorf("refused with %+v", why)
			}
			cancel()
		})
		wg.Wait()
		time.Sleep(5 * time.Second)
		if s := granted(t, p, Request{Limit: Limit{Key: "h"}}); s.Wait != 0 {
			t.Errorf("after the last block: held for %s", s.Wait)
		}
	})
}
