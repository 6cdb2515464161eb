//nolint:thelper // the functions that run over the hot tiers are tests, not helpers
package robotscache_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// overTiers runs a test in a bubble over each hot tier.
func overTiers(t *testing.T, test func(t *testing.T, hot robotscache.HotTier)) {
	t.Helper()
	for name, hot := range hotTiers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, hot()) })
		})
	}
}

// Two thousand requests at once for an unknown origin cause one fetch, and all get its answer.
func TestLookup_ManyFirstRequestsShareOneFetch(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{took: time.Second}
		c := newCache(t, robotscache.Config{Fetcher: s}, hot)
		defer c.Close()
		var sources [5]atomic.Int32
		var wg sync.WaitGroup
		for range 2000 {
			wg.Go(func() {
				e, source := lookup(t, c, example(1))
				wantAccess(t, e, fetch.AccessRules)
				sources[source].Add(1)
			})
		}
		wg.Wait()
		wantFetches(t, s, example(1), 1)
		if got := sources[robotscache.SourceFetch].Load(); got != 1 {
			t.Errorf("%d requests report a fetch, want 1", got)
		}
		if got := sources[robotscache.SourceWait].Load(); got != 1999 {
			t.Errorf("%d requests report that they waited, want 1999", got)
		}
		if n := c.Flights(); n != 0 {
			t.Errorf("%d flights are left, want 0", n)
		}
	})
}

// Neither the request that caused a fetch nor one that waits for it ends the fetch when it ends.
func TestLookup_LeavingDoesNotCancel(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{took: 5 * time.Second}
		c := newCache(t, robotscache.Config{Fetcher: s}, hot)
		defer c.Close()
		leave := func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			if e, source, err := c.Lookup(ctx, example(1), robotscache.Asker{}); !errors.Is(err, context.DeadlineExceeded) || e != nil {
				t.Errorf("Lookup of a request that ended: %v, %v, %v", e, source, err)
			}
			if took := time.Since(began); took != time.Second {
				t.Errorf("Lookup returned after %v, want 1s", took)
			}
		}
		var wg sync.WaitGroup
		wg.Go(leave) // the leader
		synctest.Wait()
		wg.Go(leave)
		wg.Go(func() {
			e, source := lookup(t, c, example(1))
			wantAccess(t, e, fetch.AccessRules)
			if source != robotscache.SourceWait {
				t.Errorf("source = %v, want SourceWait", source)
			}
		})
		wg.Wait()
		wantFetches(t, s, example(1), 1)
	})
}

// The next request can use the fetch of a request that ended.
func TestLookup_FetchGoesOnForNobody(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{took: 5 * time.Second}
		c := newCache(t, robotscache.Config{Fetcher: s}, hot)
		defer c.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := c.Lookup(ctx, example(1), robotscache.Asker{}); !errors.Is(err, context.Canceled) {
			t.Errorf("Lookup: got %v, want context.Canceled", err)
		}
		time.Sleep(6 * time.Second)
		if _, source := lookup(t, c, example(1)); source != robotscache.SourceHot && source != robotscache.SourceStore {
			t.Errorf("source = %v, want hot or store", source)
		}
		wantFetches(t, s, example(1), 1)
	})
}

// With an origin that hangs, the first request gets the record of the failure when the budget is
// used up, and others get ErrPending after their own.
func TestLookup_Budget(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{hang: func(origin.Origin) bool { return true }}
		c := newCache(t, robotscache.Config{Fetcher: s}, hot)
		defer c.Close()
		began := time.Now()
		e, _ := lookup(t, c, example(1))
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("Lookup took %v, want 20s", took)
		}
		wantAccess(t, e, fetch.AccessDeny)
		if v := e.View(time.Now()); v.State != fetch.StateUnreachable || v.Cause != fetch.CauseTimeout || v.NextAttempt.IsZero() {
			t.Errorf("View = %+v, want unreachable because of a timeout", v)
		}
	})
}

// A request that does not get a slot within the budget is refused, but the fetch is made.
func TestLookup_PendingInQueue(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{took: 15 * time.Second}
		c := newCache(t, robotscache.Config{Fetcher: s, InFlight: 1}, hot)
		defer c.Close()
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				began := time.Now()
				e, _, err := c.Lookup(t.Context(), example(i), robotscache.Asker{})
				switch {
				case i < 1 && err == nil:
					wantAccess(t, e, fetch.AccessRules)
				case i >= 1 && errors.Is(err, robotscache.ErrPending):
					if took := time.Since(began); took.Round(time.Second) != 20*time.Second {
						t.Errorf("refused after %v, want 20s", took)
					}
				default:
					t.Errorf("Lookup of origin %d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		time.Sleep(time.Minute)
		for i := range 4 {
			e, _ := lookup(t, c, example(i))
			wantAccess(t, e, fetch.AccessRules)
			wantFetches(t, s, example(i), 1)
		}
	})
}

func TestLookup_WaitersAreBounded(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{took: 10 * time.Second}
		ev := &events{}
		c := newCache(t, robotscache.Config{
			Fetcher: s, WaitersPerOrigin: 3, Waiters: 5, Observer: ev,
		}, hot)
		defer c.Close()
		var answered, refused atomic.Int32
		var wg sync.WaitGroup
		ask := func(o origin.Origin) {
			wg.Go(func() {
				began := time.Now()
				_, _, err := c.Lookup(t.Context(), o, robotscache.Asker{})
				switch {
				case err == nil:
					answered.Add(1)
				case errors.Is(err, robotscache.ErrPending) && time.Since(began) == 0:
					refused.Add(1)
				default:
					t.Errorf("Lookup after %v: %v", time.Since(began), err)
				}
			})
			synctest.Wait()
		}
		for range 4 {
			ask(example(1)) // exceeds the limit of the origin
		}
		for i := range 3 {
			ask(example(2 + i)) // exceeds the limit of all
		}
		if got := c.Stats().Waiters; got != 5 {
			t.Errorf("%d requests wait, want 5", got)
		}
		wg.Wait()
		if answered.Load() != 5 || refused.Load() != 2 || ev.drops(robotscache.DropWaiter) != 2 {
			t.Errorf("%d answered, %d refused and %d observed, want 5, 2 and 2", answered.Load(), refused.Load(), ev.drops(robotscache.DropWaiter))
		}
		if got := c.Stats().Waiters; got != 0 {
			t.Errorf("%d requests still wait, want 0", got)
		}
		if e, _ := lookup(t, c, example(1)); e == nil {
			t.Error("Lookup returns no entry")
		}
	})
}

func TestLookup_QueueIsBounded(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{took: time.Second}
		ev := &events{}
		c := newCache(t, robotscache.Config{Fetcher: s, InFlight: 2, Queue: 4, Observer: ev}, hot)
		defer c.Close()
		var refused atomic.Int32
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				if _, _, err := c.Lookup(t.Context(), example(i), robotscache.Asker{}); errors.Is(err, robotscache.ErrPending) {
					refused.Add(1)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		// One runs (three quarters of two) and four are queued.
		if got := refused.Load(); got != 5 || ev.drops(robotscache.DropQueue) != 5 {
			t.Errorf("%d of 10 were refused and %d observed, want 5 and 5", got, ev.drops(robotscache.DropQueue))
		}
		if s.most > 2 {
			t.Errorf("%d fetches ran at once, want at most 2", s.most)
		}
		for i := range 10 {
			lookup(t, c, example(i))
		}
	})
}

// No more fetches than allowed run at once, and none twice for an origin.
func TestLookup_ParallelFetchesAreBounded(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{took: time.Second}
		c := newCache(t, robotscache.Config{Fetcher: s, InFlight: 8}, hot)
		defer c.Close()
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() { lookup(t, c, example(i/3)) })
		}
		wg.Wait()
		if s.most != 6 || s.twice || s.count() != 100 {
			t.Errorf("%d at once, %d in all, twice: %v; want 6 (three quarters of 8) and 100", s.most, s.count(), s.twice)
		}
	})
}

// If our guard refuses an origin, the requests get its reason. Nothing is stored: the record of the
// origin stays as it was, and as soon as the guard permits the origin, the next request is
// answered. Many requests at once cause one check.
func TestLookup_ForbiddenIsNotKept(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{took: 100 * time.Millisecond}
		s.always(fetch.Outcome{Cause: fetch.CauseForbiddenPort, Detail: "port 25 is not open"})
		st := &flakyStore{Store: newMemory()}
		c := newCache(t, robotscache.Config{Fetcher: s, Store: st}, hot)
		defer c.Close()
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond) // one second in all
				_, _, err := c.Lookup(t.Context(), example(1), robotscache.Asker{})
				if refused, ok := errors.AsType[*robotscache.ForbiddenError](err); !ok || refused.Cause != fetch.CauseForbiddenPort {
					t.Errorf("Lookup: got %v, want a *ForbiddenError for the port", err)
				}
			})
		}
		wg.Wait()
		if n := s.count(); s.most != 1 || n > 11 {
			t.Errorf("%d looks, %d at once; want one after the other, some 10", n, s.most)
		}
		n := s.count()
		time.Sleep(time.Hour)
		if s.count() != n {
			t.Error("the origin was checked again without a request")
		}
		if _, known := c.Peek(example(1), ""); known || st.saves != 0 {
			t.Errorf("the cache has a record of the origin, or made %d saves", st.saves)
		}

		s.always(rulesOutcome(someRules))
		e, _ := lookup(t, c, example(1))
		wantAccess(t, e, fetch.AccessRules)
		s.always(fetch.Outcome{Cause: fetch.CauseForbiddenAddress})
		if _, err := c.Refresh(t.Context(), example(1)); err == nil {
			t.Error("Refresh of a forbidden origin gives no error")
		}
		if e, source := lookup(t, c, example(1)); source == robotscache.SourceFetch || e.Record().Attempts != 0 {
			t.Errorf("Lookup after the refresh: source %s, record %+v", source, e.Record())
		}

		// A redirect to an address that the guard refuses is a fault of the site.
		s.always(fetch.Outcome{Cause: fetch.CauseForbiddenAddress, Hops: []string{"http://10.0.0.1/"}})
		e, _ = lookup(t, c, example(2))
		wantAccess(t, e, fetch.AccessDeny)
		if r := e.Record(); r.Attempts != 1 || r.Cause != fetch.CauseForbiddenAddress {
			t.Errorf("record = %+v, want one attempt that failed by a forbidden address", r)
		}
	})
}

// A panic caused by hostile bytes affects one answer only.
func TestLookup_PanicIsContained(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{}
		s.set(func(o origin.Origin) fetch.Outcome {
			if o == example(1) {
				panic("defect")
			}
			return rulesOutcome(someRules)
		})
		ev := &events{}
		c := newCache(t, robotscache.Config{Fetcher: s, Observer: ev}, hot)
		defer c.Close()
		for range 2 {
			if _, _, err := c.Lookup(t.Context(), example(1), robotscache.Asker{}); !errors.Is(err, robotscache.ErrPending) {
				t.Errorf("Lookup: got %v, want ErrPending", err)
			}
		}
		lookup(t, c, example(2))
		if ev.panics != 2 || c.Flights() != 0 {
			t.Errorf("%d panics were observed and %d flights are left, want 2 and 0", ev.panics, c.Flights())
		}
	})
}

func TestLookup_NoOrigin(t *testing.T) {
	t.Parallel()
	s := &site{}
	c := newCache(t, robotscache.Config{Fetcher: s}, nil)
	defer c.Close()
	if _, _, err := c.Lookup(t.Context(), origin.Origin{}, robotscache.Asker{}); err == nil || s.count() != 0 {
		t.Errorf("Lookup of the zero origin: got %v, or a fetch was made", err)
	}
}

func TestNew_NeedsStoreAndFetcher(t *testing.T) {
	t.Parallel()
	if _, err := robotscache.New(robotscache.Config{}); err == nil {
		t.Error("New without a store gives no error")
	}
}

// Close ends fetches without recording the interruption as an answer, ends all waiting, and leaves
// nothing running.
func TestClose_EndsFlights(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{hang: func(origin.Origin) bool { return true }}
		st := lasting{newMemory()}
		c := newCache(t, robotscache.Config{Fetcher: s, Store: st, Parallel: 2}, hot)
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				if _, _, err := c.Lookup(t.Context(), example(i/2), robotscache.Asker{}); !errors.Is(err, robotscache.ErrClosed) {
					t.Errorf("Lookup: got %v, want ErrClosed", err)
				}
			})
		}
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		wg.Wait()
		if _, _, err := c.Lookup(t.Context(), example(99), robotscache.Asker{}); !errors.Is(err, robotscache.ErrClosed) {
			t.Errorf("Lookup after Close: got %v, want ErrClosed", err)
		}
		if _, err := c.Refresh(t.Context(), example(99)); !errors.Is(err, robotscache.ErrClosed) {
			t.Errorf("Refresh after Close: got %v, want ErrClosed", err)
		}
		if c.Flights() != 0 {
			t.Errorf("%d flights are left, want 0", c.Flights())
		}
		if records, err := st.List(t.Context(), "", 0); err != nil || len(records) != 0 {
			t.Errorf("stored records = %+v, %v, want none", records, err)
		}
	})
}

// Requests of an old configuration may still look up answers while the cache is closed.
func TestClose_DuringLookups(t *testing.T) {
	t.Parallel()
	s := &site{}
	c := newCache(t, robotscache.Config{Fetcher: s}, nil)
	lookup(t, c, example(1))
	c.WaitHot()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 20000 {
				o := example(1)
				if i%100 == 0 {
					o = example(g*1000 + i)
				}
				if _, _, err := c.Lookup(t.Context(), o, robotscache.Asker{}); err != nil && !errors.Is(err, robotscache.ErrClosed) {
					t.Error(err)
				}
				if i == 5000 && g == 0 {
					if err := c.Close(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
}
