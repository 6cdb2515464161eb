package robotscache_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
)

// TestAnswered checks that the observer learns of each fetch before any caller gets its entry, so
// the log entry of the fetch comes first. It also learns that the result of a fetch is not kept
// after a purge, and of results that say nothing about the site.
func TestAnswered(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		t.Helper()
		ev := new(events)
		s := &site{took: 10 * time.Second}
		st := newMemory()
		c := newCache(t, robotscache.Config{Fetcher: s, Store: st, Observer: ev}, hot)
		defer c.Close()
		asked := func() {
			if e, _ := lookup(t, c, example(1)); e.Told.Load() != 1 {
				t.Error("got an entry before the observer learned of it")
			}
		}
		var wg sync.WaitGroup
		wg.Go(asked)
		time.Sleep(time.Second)
		if err := c.Purge(t.Context(), example(1)); err != nil {
			t.Error(err)
		}
		wg.Wait()
		asked()
		s.always(failure())
		if e, err := c.Refresh(t.Context(), example(1)); err != nil || e.Told.Load() != 1 {
			t.Errorf("after a failed refresh: error %v, or the observer did not learn of it", err)
		}
		s.always(fetch.Outcome{Cause: fetch.CauseLocal})
		_, _ = c.Refresh(t.Context(), example(2))
		s.always(fetch.Outcome{Cause: fetch.CauseForbiddenAddress})
		_, _ = c.Refresh(t.Context(), example(2))
		first, second := example(1).String(), example(2).String()
		want := []string{first + " rules false", first + " rules true", first + " rules true", second + " unreachable false"}
		if !slices.Equal(ev.answered, want) {
			t.Errorf("got %q\nwant %q", ev.answered, want)
		}
	})
}

// TestAnswerOf checks that an Answer describes the record at its time.
func TestAnswerOf(t *testing.T) {
	t.Parallel()
	p := fetch.Policy{}.Complete()
	k := fetch.Key{Origin: example(1), Agent: "AcmeBot"}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	good := p.Next(fetch.Record{Origin: k.Origin, Agent: k.Agent}, rulesOutcome(someRules), now)
	failing := p.Next(good, failure(), now.Add(time.Hour))
	answer := func(r fetch.Record, at time.Time) robotscache.Answer {
		return robotscache.AnswerOf(robotscache.EventKnown, k, robotscache.NewEntry(r, robotscache.Interpretation{Policy: p}), at)
	}
	for _, tt := range []struct {
		name  string
		got   robotscache.Answer
		state string
		cause fetch.Cause
		until time.Time
	}{
		{"rules", answer(good, now), "rules", "", now.Add(24 * time.Hour)},
		{"rules that cannot be refreshed", answer(failing, now.Add(2*time.Hour)), "rules", "", now.Add(24 * time.Hour)},
		{"rules whose time has ended", answer(failing, now.Add(25*time.Hour)), "unreachable", fetch.CauseStatus, time.Time{}},
	} {
		a := tt.got
		if a.State != tt.state || a.Cause != tt.cause || !a.FreshUntil.Equal(tt.until) || a.SHA256 != good.SHA256.Hex() || !a.FetchedAt.Equal(now) ||
			a.Origin != k.Origin.String() || a.FetchedAs != k.Agent {
			t.Errorf("%s: AnswerOf = %+v", tt.name, a)
		}
	}
}
