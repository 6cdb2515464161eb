package robotscache_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// A broken exchange is repeated at once, within the budget of the retrieval, except in a run of
// failures: a site that is down gets one request per retry.
func TestExt_SecondTry(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) { //nolint:thelper // it is the test
		s := &site{}
		c := newCache(t, robotscache.Config{Fetcher: s}, hot)
		defer c.Close()
		reset := fetch.Outcome{Cause: fetch.CauseReset, Detail: "connection closed"}

		s.set(func(o origin.Origin) fetch.Outcome {
			if len(s.fetches) == 1 {
				return reset
			}
			return rulesOutcome(someRules)
		})
		wantAccess(t, first(lookup(t, c, example(1))), fetch.AccessRules)
		wantFetches(t, s, example(1), 2)

		s.always(reset)
		e := first(lookup(t, c, example(2)))
		wantAccess(t, e, fetch.AccessDeny)
		wantFetches(t, s, example(2), 2)
		if r := e.Record(); r.Attempts != 2 {
			t.Errorf("%d attempts, want 2", r.Attempts)
		}
		for n := range 3 {
			if _, err := c.Refresh(t.Context(), example(2)); err != nil {
				t.Error(err)
			}
			wantFetches(t, s, example(2), 3+n)
		}
	})
}

// Both attempts share one budget.
func TestExt_SecondTryInTheBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &site{took: 15 * time.Second}
		s.always(fetch.Outcome{Cause: fetch.CauseReset})
		c := newCache(t, robotscache.Config{Fetcher: s, Budget: 20 * time.Second}, nil)
		defer c.Close()
		started := time.Now()
		v := first(lookup(t, c, example(1))).View(time.Now())
		if took := time.Since(started); took != 20*time.Second || v.Cause != fetch.CauseTimeout || s.count() != 2 {
			t.Errorf("%d fetches, cause %s after %s, want 2 and a timeout after 20s", s.count(), v.Cause, took)
		}
	})
}
