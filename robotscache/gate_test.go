//nolint:thelper // the functions that run over the hot tiers are tests, not helpers
package robotscache_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// asking is a fetcher that uses the gate like *fetch.Fetcher.
type asking struct {
	silent func(o origin.Origin) time.Duration // until the first byte
	slow   func(o origin.Origin) time.Duration // from there on

	mu      sync.Mutex
	reading int
	most    int // reading at once
}

func (a *asking) Fetch(ctx context.Context, k fetch.Key, gate fetch.Gate) fetch.Outcome {
	if !sleepUntil(ctx, a.silent(k.Origin)) {
		return fetch.Outcome{Cause: fetch.CauseTimeout}
	}
	ctx, done := context.WithCancel(ctx)
	defer done()
	gate(ctx)
	if ctx.Err() != nil {
		return fetch.Outcome{Cause: fetch.CauseTimeout}
	}
	a.read(1)
	defer a.read(-1)
	if !sleepUntil(ctx, a.slow(k.Origin)) {
		return fetch.Outcome{Cause: fetch.CauseTimeout}
	}
	return rulesOutcome(someRules)
}

func (a *asking) read(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reading += n
	a.most = max(a.most, a.reading)
}

func sleepUntil(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func always(d time.Duration) func(origin.Origin) time.Duration {
	return func(origin.Origin) time.Duration { return d }
}

// No more retrievals read files at once than there are slots, even if hundreds wait for their
// servers.
func TestExt_AnswersAreReadInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &asking{silent: always(3 * time.Second), slow: always(time.Second)}
		c := newCache(t, robotscache.Config{Fetcher: a, Parallel: 8}, nil)
		defer c.Close()
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() { wantAccess(t, first(lookup(t, c, example(i))), fetch.AccessRules) })
		}
		wg.Wait()
		if a.most != 6 {
			t.Errorf("%d were read at once, want 6", a.most)
		}
		synctest.Wait()
		if !c.Idle() {
			t.Error("a slot was not released")
		}
	})
}

func first(e *robotscache.Entry, _ robotscache.Source) *robotscache.Entry { return e }

// A server that answered in time but was not read in time, because there was no free slot, is not
// unreachable: nothing is recorded, and it is requested again soon.
func TestExt_WantOfPlacesIsNotTheSites(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		// Endless files take the only slot.
		endless := func(o origin.Origin) bool { return o != example(9) }
		a := &asking{
			silent: func(o origin.Origin) time.Duration {
				if endless(o) {
					return 0
				}
				return 3 * time.Second // so that others take the slot
			},
			slow: func(o origin.Origin) time.Duration {
				if endless(o) {
					return time.Hour
				}
				return 0
			},
		}
		c := newCache(t, robotscache.Config{Fetcher: a, Parallel: 1}, hot)
		defer c.Close()
		var wg sync.WaitGroup
		ask := func(i int, want fetch.Cause) {
			wg.Go(func() {
				e, _ := lookup(t, c, example(i))
				if v := e.View(time.Now()); v.Access != fetch.AccessDeny || v.Cause != want || v.NextAttempt.Before(time.Now()) {
					t.Errorf("origin %d: View = %+v", i, v)
				}
			})
			synctest.Wait()
		}
		ask(9, fetch.CauseLocal)
		time.Sleep(time.Second) // until the next may begin
		ask(1, fetch.CauseTimeout)
		wg.Wait()
		if e, ok := c.Peek(example(9), ""); ok {
			t.Errorf("stored a record %+v, want none", e.Record())
		}
		wantAccess(t, first(lookup(t, c, example(9))), fetch.AccessRules)
	})
}

// A fetch that fails by a fault of our machine is only answered to the requests that wait, and the
// next request tries again. The record does not change.
func TestExt_FaultsOfOurOwnAreNotRecorded(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{}
		st := newMemory()
		c := newCache(t, robotscache.Config{Fetcher: s, Store: st, Policy: fetch.Policy{Mode: fetch.ModeStale}}, hot)
		defer c.Close()
		lookup(t, c, example(1))
		known := first(lookup(t, c, example(1))).Record()

		s.always(fetch.Outcome{Cause: fetch.CauseLocal, Detail: "too many open files"})
		for n := range 3 {
			e, source := lookup(t, c, example(2))
			v := e.View(time.Now())
			if v.Access != fetch.AccessDeny || v.Cause != fetch.CauseLocal || source != robotscache.SourceFetch {
				t.Errorf("request %d: View = %+v from %v, want access denied by a local cause", n, v, source)
			}
			if pause := time.Until(v.NextAttempt); pause <= 0 || pause > 10*time.Second {
				t.Errorf("the retry is after %v, want at most 10s", pause)
			}
		}
		wantFetches(t, s, example(2), 3)
		if _, err := c.Refresh(t.Context(), example(1)); err != nil {
			t.Error(err)
		}
		e, _ := c.Peek(example(1), "")
		if r := e.Record(); !r.FetchedAt.Equal(known.FetchedAt) || !r.UnreachableSince.IsZero() {
			t.Errorf("the record changed to %+v", r)
		}
		time.Sleep(25 * time.Hour) // it has expired; the mode uses the last good copy at once
		wantAccess(t, first(lookup(t, c, example(1))), fetch.AccessLastGood)
		if records, err := st.List(t.Context(), "", 0); err != nil || len(records) != 1 || !records[0].UnreachableSince.IsZero() {
			t.Errorf("stored records = %+v, %v, want the unchanged one", records, err)
		}

		s.always(rulesOutcome(someRules))
		time.Sleep(6 * time.Second) // it has been retried in the background by then
		synctest.Wait()
		for i := 1; i <= 2; i++ {
			e, source := lookup(t, c, example(i))
			wantAccess(t, e, fetch.AccessRules)
			if tried := source != robotscache.SourceFetch; tried != (i == 1) { // the other was requested long ago
				t.Errorf("origin %d was retried in the background: %v, want the opposite", i, tried)
			}
		}
	})
}
