package pace

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestConcurrencyIsHeldUntilDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{})
		time.Sleep(loneAfter) // then the only agent gets all places
		var flying, most atomic.Int64
		var wg sync.WaitGroup
		start := time.Now()
		for range 40 {
			wg.Go(func() {
				s := granted(t, p, Request{Limit: Limit{Key: "h", Concurrency: 4}, MaxWait: time.Hour})
				most.Store(max(most.Load(), flying.Add(1)))
				time.Sleep(3 * time.Second)
				flying.Add(-1)
				s.Done()
				s.Done() // the second Done does nothing
			})
		}
		wg.Wait()
		if most.Load() != 4 {
			t.Errorf("%d in flight at once, want 4", most.Load())
		}
		if took := time.Since(start); took != 30*time.Second {
			t.Errorf("40 requests of 3 s, four at a time, took %s, want 30 s", took)
		}
	})
}

func TestConcurrencyCountsInTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{})
		r := Request{Limit: Limit{Key: "h", Concurrency: 1}, MaxWait: 10 * time.Second}
		s := granted(t, p, r)
		start := time.Now()
		why := refused(t, p, r)
		if why.Reason != ReasonConcurrency || why.RetryAfter != time.Second || time.Since(start) != 10*time.Second {
			t.Errorf("refused with %+v after %s, want concurrency after 10 s", why, time.Since(start))
		}
		s.Done()
		granted(t, p, r).Done()
	})
}

// A Slot that has ended must not return the place of a later one, although both use the same
// memory.
func TestDoneOfAnOldSlotDoesNothing(t *testing.T) {
	t.Parallel()
	p := New(Config{})
	r := Request{Limit: Limit{Key: "h", Concurrency: 1}, MaxWait: -1}
	for range 1000 {
		old := granted(t, p, r)
		old.Done()
		now := granted(t, p, r)
		old.Done()
		old.Cancel()
		old.Sent()
		_ = refused(t, p, r)
		now.Done()
	}
	Slot{}.Done()
	Slot{}.Cancel()
	Slot{}.Sent()
}

func TestDoneTogetherWithSent(t *testing.T) {
	t.Parallel()
	p := New(Config{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				s, err := p.Acquire(t.Context(), Request{Limit: Limit{Key: "h", Concurrency: 3}, MaxWait: time.Minute})
				if err != nil {
					t.Error(err)
					return
				}
				var both sync.WaitGroup
				both.Go(s.Sent)
				both.Go(s.Done)
				s.Cancel()
				both.Wait()
			}
		})
	}
	wg.Wait()
}

func TestCancelGivesTheSlotBackIfNoOtherWent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{})
		r := Request{Limit: Limit{Key: "h", Interval: time.Minute, Burst: 2, Concurrency: 5}, MaxWait: -1}
		first := granted(t, p, r)
		second := granted(t, p, r)
		_ = refused(t, p, r)
		first.Cancel() // another request was sent since, so the slot cannot be returned
		_ = refused(t, p, r)
		second.Cancel()
		granted(t, p, r).Done()
		_ = refused(t, p, r)
	})
}

func TestCancelWakesWhoWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{})
		r := Request{Limit: Limit{Key: "h", Delay: 8 * time.Second}}
		s := granted(t, p, r)
		var wg sync.WaitGroup
		wg.Go(func() {
			if s := granted(t, p, r); s.Wait != time.Second {
				t.Errorf("held for %s, want 1s, until the slot was returned", s.Wait)
			}
		})
		time.Sleep(time.Second)
		s.Cancel()
		wg.Wait()
	})
}

// For the site, the time counts at which the request reaches it; connecting may have taken a while.
func TestSentCountsTheGapFromNow(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		limit Limit
		want  time.Duration // of the next request, right after it was sent
		then  time.Duration // of the one after that, 4 s later
	}{
		{"delay", Limit{Key: "h", Delay: 8 * time.Second}, 8 * time.Second, 4 * time.Second},
		{"rate", Limit{Key: "h", Interval: 8 * time.Second}, 8 * time.Second, 4 * time.Second},
		{"a burst has room", Limit{Key: "h", Interval: 8 * time.Second, Burst: 2}, 0, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := New(Config{})
				s := granted(t, p, Request{Limit: tt.limit})
				time.Sleep(3 * time.Second)
				s.Sent()
				next := granted(t, p, Request{Limit: tt.limit})
				if next.Wait != tt.want {
					t.Errorf("the next request was held for %s, want %s", next.Wait, tt.want)
				}
				time.Sleep(4 * time.Second)
				s.Sent() // does nothing, because another request was sent since
				if last := granted(t, p, Request{Limit: tt.limit}); last.Wait != tt.then {
					t.Errorf("the request after that was held for %s, want %s", last.Wait, tt.then)
				}
			})
		})
	}
}
