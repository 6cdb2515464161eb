//nolint:thelper // the functions that run over the hot tiers are tests, not helpers
package robotscache_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// RFC 9309 2.4: an answer is used for its time to live. Afterwards a request waits for the next,
// and later requests share it.
func TestRFC9309_2_4_TimeToLive(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{took: time.Second}
		c := newCache(t, robotscache.Config{Fetcher: s}, hot)
		defer c.Close()
		s.always(fetch.Outcome{Kind: fetch.KindAbsent, Cause: fetch.CauseStatus, Status: 404, MaxAge: time.Hour, HasMaxAge: true})
		e, _ := lookup(t, c, example(1))
		wantAccess(t, e, fetch.AccessAllow)
		s.always(rulesOutcome(someRules))

		// There is no request in the last fifth, so nothing is refreshed early.
		time.Sleep(time.Hour)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				began := time.Now()
				e, _ := lookup(t, c, example(1))
				wantAccess(t, e, fetch.AccessRules)
				if took := time.Since(began); took != time.Second {
					t.Errorf("waited %v, want 1s", took)
				}
			})
		}
		wg.Wait()
		wantFetches(t, s, example(1), 2)
	})
}

// An origin in use is refreshed in the background from 80 % of its time to live on
// (docs/status-table.md), and no request waits for it again.
func TestExt_EarlyRefreshOfOriginsInUse(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{took: 10 * time.Second}
		c := newCache(t, robotscache.Config{Fetcher: s}, hot)
		defer c.Close()
		born := time.Now()
		lookup(t, c, example(1))
		for range 7 * 24 {
			time.Sleep(time.Hour)
			began := time.Now()
			lookup(t, c, example(1))
			if took := time.Since(began); took != 0 {
				t.Errorf("after %v a request waited %v, want 0", began.Sub(born), took)
			}
		}
		// It is refreshed every 19.2 hours, within an hour, for a week: the ninth would come after
		// 172.8 hours.
		wantFetches(t, s, example(1), 1+8)
		for i, f := range s.of(example(1))[1:] {
			if age := f.at.Sub(s.of(example(1))[i].at); age < 19*time.Hour || age > 21*time.Hour {
				t.Errorf("refresh %d came after %v, want 19h to 21h", i, age)
			}
		}
	})
}

// An origin that was requested since its fetch is refreshed once without another request; one that
// was not is left alone.
func TestExt_EarlyRefreshOnlyIfAskedSince(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{}
		c := newCache(t, robotscache.Config{Fetcher: s}, hot)
		defer c.Close()
		lookup(t, c, example(1)) // asked once
		lookup(t, c, example(2))
		time.Sleep(time.Hour)
		lookup(t, c, example(2)) // asked since
		time.Sleep(72 * time.Hour)
		wantFetches(t, s, example(1), 1)
		wantFetches(t, s, example(2), 2)
	})
}

// A failed early refresh, which is retried, does not degrade a record that has not expired. Once it
// has expired, the origin is unreachable.
func TestExt_FailedEarlyRefresh(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{}
		c := newCache(t, robotscache.Config{Fetcher: s}, hot)
		defer c.Close()
		lookup(t, c, example(1))
		s.always(failure())
		for range 23 {
			time.Sleep(time.Hour)
			e, _ := lookup(t, c, example(1))
			wantAccess(t, e, fetch.AccessRules)
		}
		if n := len(s.of(example(1))); n < 3 {
			t.Errorf("%d fetches, want at least 3", n)
		}
		time.Sleep(time.Hour)
		e, _ := lookup(t, c, example(1))
		wantAccess(t, e, fetch.AccessDeny)
	})
}

// An unreachable origin is refused at once, requested again in the background after its pause, and
// available as soon as it answers (docs/status-table.md).
func TestExt_UnreachableIsRetriedBehindTheAnswer(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{took: 10 * time.Second}
		s.always(failure())
		c := newCache(t, robotscache.Config{Fetcher: s}, hot)
		defer c.Close()
		e, _ := lookup(t, c, example(1))
		wantAccess(t, e, fetch.AccessDeny)

		for range 5 {
			v := e.View(time.Now())
			if v.NextAttempt.IsZero() {
				t.Fatal("View has no time of the retry")
			}
			// The crawler retries when it was told to. The list was faster.
			time.Sleep(time.Until(v.NextAttempt) + time.Millisecond)
			before := s.count()
			began := time.Now()
			e, _ = lookup(t, c, example(1))
			wantAccess(t, e, fetch.AccessDeny)
			if took := time.Since(began); took != 0 {
				t.Errorf("a request waited %v for a retry, want 0", took)
			}
			if s.count() != before {
				t.Errorf("a second retry was made at once")
			}
			time.Sleep(11 * time.Second) // the retry is over
			e, _ = lookup(t, c, example(1))
		}
		if n := s.count(); n != 6 {
			t.Errorf("%d fetches, want 6", n)
		}
		s.always(rulesOutcome(someRules))
		time.Sleep(2 * time.Hour)
		e, _ = lookup(t, c, example(1))
		wantAccess(t, e, fetch.AccessRules)
	})
}

// Requests during the pause do not fetch.
func TestExt_UnreachableIsLeftAloneDuringThePause(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{}
		s.always(fetch.Outcome{Cause: fetch.CauseStatus, Status: 503, RetryAfter: time.Hour})
		c := newCache(t, robotscache.Config{Fetcher: s}, hot)
		defer c.Close()
		for range 3000 {
			lookup(t, c, example(1))
			time.Sleep(time.Second)
		}
		wantFetches(t, s, example(1), 1)
	})
}

// Nothing is lost while a store is unavailable: records that it did not take are kept, and saved
// when it is available again.
func TestStore_AwayAndBack(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s, ev := &site{}, &events{}
		inner := newMemory()
		st := &flakyStore{Store: lasting{inner}}
		c := newCache(t, robotscache.Config{Fetcher: s, Store: st, Observer: ev}, hot)
		defer c.Close()
		st.fail(errAway)
		for range 3 {
			for i := range 5 {
				e, _ := lookup(t, c, example(i))
				wantAccess(t, e, fetch.AccessRules)
				wantFetches(t, s, example(i), 1)
			}
		}
		if n := c.Stats().Unsaved; n != 5 {
			t.Errorf("%d unsaved records, want 5", n)
		}
		if available, failed := ev.store(); len(available) != 1 || available[0] || failed < 5 {
			t.Errorf("observed availability %v and %d failures, want false and at least 5", available, failed)
		}
		time.Sleep(time.Minute)
		if n := c.Stats().Unsaved; n != 5 {
			t.Errorf("%d unsaved records after a minute, want 5", n)
		}
		st.fail(nil)
		time.Sleep(2 * time.Second)
		if n := c.Stats().Unsaved; n != 0 {
			t.Errorf("%d unsaved records once the store is available, want 0", n)
		}
		for i := range 5 {
			if _, err := inner.Load(t.Context(), fetch.Key{Origin: example(i)}); err != nil {
				t.Errorf("loading record %d: %v", i, err)
			}
		}
		lookup(t, c, example(9)) // reading works again, too
		if available, _ := ev.store(); len(available) != 2 || !available[1] {
			t.Errorf("observed availability %v, want false and true", available)
		}
	})
}

// Older records of a store that is available again do not replace newer ones.
func TestStore_OlderRecordDoesNotShadow(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{}
		st := &flakyStore{Store: newMemory()}
		c := newCache(t, robotscache.Config{Fetcher: s, Store: st}, hot)
		defer c.Close()
		lookup(t, c, example(1)) // the store has it
		st.fail(errAway)
		s.always(rulesOutcome("User-agent: *\nDisallow: /\n"))
		time.Sleep(25 * time.Hour)
		e, _ := lookup(t, c, example(1))
		newest := e.View(time.Now()).SHA256
		st.fail(nil)
		time.Sleep(time.Hour)
		for range 3 {
			e, _ = lookup(t, c, example(1))
			if e.View(time.Now()).SHA256 != newest {
				t.Error("an older record is used again")
			}
		}
		wantFetches(t, s, example(1), 2)
	})
}

// Records that could not be saved are saved by Close.
func TestClose_SavesTheRest(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		inner := newMemory()
		st := &flakyStore{Store: lasting{inner}}
		c := newCache(t, robotscache.Config{Fetcher: &site{}, Store: st}, hot)
		st.fail(errAway)
		lookup(t, c, example(1))
		st.fail(nil)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := inner.Load(t.Context(), fetch.Key{Origin: example(1)}); err != nil {
			t.Error(err)
		}

		c = newCache(t, robotscache.Config{Fetcher: &site{}, Store: st}, hot)
		st.fail(errAway)
		lookup(t, c, example(2))
		if err := c.Close(); err == nil {
			t.Error("Close lost records without an error")
		}
	})
}

// While the store is unavailable and there is no room in memory, records are dropped and fetched
// again.
func TestStore_UnsavedIsBounded(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s, ev := &site{}, &events{}
		st := &flakyStore{Store: newMemory()}
		st.fail(errAway)
		c := newCache(t, robotscache.Config{Fetcher: s, Store: st, Observer: ev, MaxSize: 64 << 10}, hot)
		for i := range 200 {
			lookup(t, c, example(i))
		}
		if n := c.Stats().Unsaved; n < 5 || n > 40 || ev.drops(robotscache.DropUnsaved) != 200-n {
			t.Errorf("%d unsaved records in 16 KiB and %d dropped", n, ev.drops(robotscache.DropUnsaved))
		}
		st.fail(nil)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Purge takes effect at once: the result of a fetch in progress is used only for the requests that
// wait for it.
func TestPurge_DuringFlight(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{took: 10 * time.Second}
		st := newMemory()
		c := newCache(t, robotscache.Config{Fetcher: s, Store: st}, hot)
		defer c.Close()
		var wg sync.WaitGroup
		wg.Go(func() {
			e, _ := lookup(t, c, example(1))
			wantAccess(t, e, fetch.AccessRules)
		})
		time.Sleep(time.Second)
		if err := c.Purge(t.Context(), example(1)); err != nil {
			t.Error(err)
		}
		wg.Wait()
		synctest.Wait()
		if r, err := st.Load(t.Context(), fetch.Key{Origin: example(1)}); !errors.Is(err, robotscache.ErrNotFound) {
			t.Errorf("Load after the purge = %+v, %v, want ErrNotFound", r, err)
		}
		if _, ok := c.Peek(example(1), ""); ok {
			t.Error("Peek finds a record after the purge")
		}
		lookup(t, c, example(1))
		wantFetches(t, s, example(1), 2)
	})
}

func TestPurge_ForgetsOneOrigin(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{}
		c := newCache(t, robotscache.Config{Fetcher: s}, hot)
		defer c.Close()
		for i := range 2 {
			lookup(t, c, example(i))
			lookup(t, c, example(i))
		}
		if err := c.Purge(t.Context(), example(0)); err != nil {
			t.Error(err)
		}
		if n := c.Stats().Due; n != 1 {
			t.Errorf("%d origins are due, want 1", n)
		}
		for i := range 2 {
			lookup(t, c, example(i))
		}
		wantFetches(t, s, example(0), 2)
		wantFetches(t, s, example(1), 1)

		c2 := newCache(t, robotscache.Config{Fetcher: s, Store: &undeletable{newMemory()}}, hot)
		defer c2.Close()
		if err := c2.Purge(t.Context(), example(0)); !errors.Is(err, errAway) {
			t.Errorf("Purge with a store that cannot delete: got %v, want its error", err)
		}
	})
}

type undeletable struct{ robotscache.Store }

func (*undeletable) Delete(context.Context, fetch.Key) error { return errAway }

// Refresh fetches an origin even if it is fresh; many calls at once share the fetch.
func TestRefresh(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{took: time.Second}
		c := newCache(t, robotscache.Config{Fetcher: s}, hot)
		defer c.Close()
		lookup(t, c, example(1))
		s.always(fetch.Outcome{Kind: fetch.KindAbsent, Cause: fetch.CauseStatus, Status: 404})
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				e, err := c.Refresh(t.Context(), example(1))
				if err != nil {
					t.Fatal(err)
				}
				wantAccess(t, e, fetch.AccessAllow)
			})
		}
		wg.Wait()
		e, _ := lookup(t, c, example(1))
		wantAccess(t, e, fetch.AccessAllow)
		wantFetches(t, s, example(1), 2)
	})
}

// Peek returns entries without changing anything.
func TestPeek(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{}
		st := &flakyStore{Store: newMemory()}
		c := newCache(t, robotscache.Config{Fetcher: s, Store: st}, hot)
		defer c.Close()
		if _, ok := c.Peek(example(1), ""); ok || s.count() != 0 {
			t.Error("Peek finds an unknown origin")
		}
		if _, ok := c.Peek(origin.Origin{}, ""); ok {
			t.Error("Peek finds the zero origin")
		}
		lookup(t, c, example(1))
		time.Sleep(48 * time.Hour) // long after it has expired
		e, ok := c.Peek(example(1), "")
		if !ok || e.Record().State != fetch.StateRules || s.count() != 1 {
			t.Errorf("Peek = %+v", e.Record())
		}
		wantAccess(t, e, fetch.AccessDeny)
	})
}

// RFC 9309 2.3.1.2, NUTCH-2581: if redirects end at the robots.txt of another origin, that origin
// is not requested again; otherwise it is.
func TestRFC9309_2_3_1_2_RedirectTargetsOwnRecord(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{}
		redirected := rulesOutcome(someRules)
		redirected.Hops = []string{example(2).RobotsURL()}
		redirected.Final = example(2)
		s.always(redirected)
		ev := &events{}
		c := newCache(t, robotscache.Config{Fetcher: s, Observer: ev}, hot)
		defer c.Close()
		lookup(t, c, example(1))
		synctest.Wait()
		e, _ := lookup(t, c, example(2))
		wantAccess(t, e, fetch.AccessRules)
		wantFetches(t, s, example(2), 0)
		if hops := e.Record().Hops; len(hops) != 0 {
			t.Errorf("the target has the hops %q, want none", hops)
		}

		// The target's own record is not replaced.
		s.always(fetch.Outcome{Kind: fetch.KindAbsent, Cause: fetch.CauseStatus, Status: 404})
		lookup(t, c, example(3))
		redirected.Final = example(3)
		s.always(redirected)
		lookup(t, c, example(4))
		synctest.Wait()
		e, _ = lookup(t, c, example(3))
		wantAccess(t, e, fetch.AccessAllow)

		// A failure at the target says nothing about the target.
		s.always(fetch.Outcome{Cause: fetch.CauseStatus, Status: 503, Final: example(6)})
		lookup(t, c, example(5))
		synctest.Wait()
		if _, ok := c.Peek(example(6), ""); ok {
			t.Error("a failure was recorded for the target")
		}

		// The observer learns of both records.
		s.always(rulesOutcome("User-agent: *\nDisallow: /other\n"))
		for _, i := range []int{1, 2} {
			if _, err := c.Refresh(t.Context(), example(i)); err != nil {
				t.Error(err)
			}
			synctest.Wait() // so that the observer is called for one after the other
		}
		want := []string{
			"https://n1.example: unknown, rules", "https://n2.example: unknown, rules", "https://n3.example: unknown, absent",
			"https://n4.example: unknown, rules", "https://n5.example: unknown, unreachable",
			"https://n1.example: rules, rules", "https://n2.example: rules, rules",
		}
		if !slices.Equal(ev.recorded, want) {
			t.Errorf("the observer recorded %q", ev.recorded)
		}
	})
}

// Many origins that are due at once are refreshed in time, even if the queue is too short for them.
func TestExt_EarlyRefreshWithAFullQueue(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{took: time.Second}
		c := newCache(t, robotscache.Config{Fetcher: s, InFlight: 4, Queue: 3}, hot)
		defer c.Close()
		for i := range 200 {
			lookup(t, c, example(i))
			lookup(t, c, example(i))
		}
		time.Sleep(23 * time.Hour)
		for i := range 200 {
			wantFetches(t, s, example(i), 2)
		}
	})
}
