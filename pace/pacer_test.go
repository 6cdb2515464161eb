package pace

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// granted acquires a slot, and fails the test if it is refused.
func granted(t *testing.T, p *Pacer, r Request) Slot {
	t.Helper()
	s, err := p.Acquire(t.Context(), r)
	if err != nil {
		t.Fatalf("Acquire(%s): %v", r.Key, err)
	}
	return s
}

// refused fails the test unless the request is refused, and returns the refusal.
func refused(t *testing.T, p *Pacer, r Request) *Refused {
	t.Helper()
	s, err := p.Acquire(t.Context(), r)
	var why *Refused
	if !errors.As(err, &why) {
		t.Fatalf("Acquire(%s) = %v, %v; want a refusal", r.Key, s, err)
	}
	return why
}

func TestAcquireHoldsForExactlyTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{})
		r := Request{Limit: Limit{Key: "h", Delay: 2 * time.Second}, Agent: "a"}
		for i, want := range []time.Duration{0, 2 * time.Second, 2 * time.Second} {
			s := granted(t, p, r)
			s.Done()
			if s.Wait != want {
				t.Errorf("request %d held for %s, want %s", i, s.Wait, want)
			}
		}
	})
}

func TestAcquireRefusesBeyondMaxWaitAndUsesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{})
		r := Request{Limit: Limit{Key: "h", Interval: 30 * time.Second}, MaxWait: 10 * time.Second}
		granted(t, p, r).Done()
		time.Sleep(5 * time.Second)
		for range 3 {
			if why := refused(t, p, r); why.RetryAfter != 25*time.Second || why.Reason != ReasonWait {
				t.Fatalf("refused with %+v, want wait, 25 s", why)
			}
		}
		time.Sleep(25 * time.Second)
		if s := granted(t, p, r); s.Wait != 0 {
			t.Errorf("at the time told: held for %s, want none", s.Wait)
		}
	})
}

func TestAcquireCancelledWaitGivesTheSlotToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{})
		r := Request{Limit: Limit{Key: "h", Delay: time.Second}, Agent: "a"}
		start := time.Now()
		granted(t, p, r).Done()

		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := p.Acquire(ctx, r); !errors.Is(err, context.Canceled) {
				t.Errorf("Acquire with a canceled context = %v", err)
			}
		})
		synctest.Wait()
		at := make(chan time.Duration, 2)
		for range 2 {
			wg.Go(func() {
				granted(t, p, r).Done()
				at <- time.Since(start)
			})
			synctest.Wait()
		}
		time.Sleep(500 * time.Millisecond)
		cancel()
		wg.Wait()
		if first, second := <-at, <-at; first != time.Second || second != 2*time.Second {
			t.Errorf("the next two requests were sent at %s and %s, want 1s and 2s", first, second)
		}
	})
}

func TestAcquireAllKeysOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{})
		both := Request{
			Limit: Limit{Key: "h", Interval: time.Second},
			Also:  []Limit{{Key: "addr:192.0.2.1", Interval: 30 * time.Second}},
		}
		granted(t, p, both).Done()
		time.Sleep(2 * time.Second)
		if why := refused(t, p, both); why.Key != "addr:192.0.2.1" || why.RetryAfter != 28*time.Second {
			t.Fatalf("refused with %+v, want the address's 28 s", why)
		}
		if s := granted(t, p, Request{Limit: both.Limit}); s.Wait != 0 {
			t.Errorf("host alone held for %s: the refused request used its slot", s.Wait)
		}
	})
}
