//nolint:thelper // the functions that run over the hot tiers are tests, not helpers
package robotscache_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// slowStore takes some time per save, and may refuse one origin.
type slowStore struct {
	robotscache.Store
	took    time.Duration
	refuses origin.Origin
	err     error

	mu    sync.Mutex
	calls int
}

func (s *slowStore) Save(ctx context.Context, records ...fetch.Record) error {
	s.mu.Lock()
	s.calls++
	s.mu.Unlock()
	time.Sleep(s.took)
	for _, r := range records {
		if r.Origin == s.refuses {
			return s.err
		}
	}
	return s.Store.Save(ctx, records...)
}

func wantStored(t *testing.T, st robotscache.Store, o origin.Origin, want bool) {
	t.Helper()
	_, err := st.Load(t.Context(), fetch.Key{Origin: o})
	if want && err != nil || !want && !errors.Is(err, robotscache.ErrNotFound) {
		t.Errorf("%s is in the store: %v, want %v", o, err, want)
	}
}

// A gateway that is killed loses little: the first answer is saved at once, and those within a
// fiftieth of a second after it are saved together. They can be read before.
func TestWriteBehind_Coalesces(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		inner := newMemory()
		st := &slowStore{Store: lasting{inner}}
		s := &site{}
		c := newCache(t, robotscache.Config{Fetcher: s, Store: st, Parallel: 2000}, hot)
		defer c.Close()
		lookup(t, c, example(0))
		synctest.Wait()
		wantStored(t, inner, example(0), true)
		for i := 1; i < 4; i++ {
			time.Sleep(6 * time.Millisecond)
			lookup(t, c, example(i))
		}
		time.Sleep(time.Millisecond)
		wantStored(t, inner, example(1), false)
		lookup(t, c, example(1))
		wantFetches(t, s, example(1), 1)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		for i := range 4 {
			wantStored(t, inner, example(i), true)
		}
		if st.calls != 2 {
			t.Errorf("%d calls of Save, want 2", st.calls)
		}

		// Reads include records that are not saved yet.
		lookup(t, c, example(3))
		if records, err := c.List(t.Context(), "", 0); err != nil || len(records) != 4 {
			t.Errorf("List = %d records, %v, want 4", len(records), err)
		}
		e, _ := lookup(t, c, example(4))
		if body, err := c.Body(t.Context(), e.View(time.Now()).SHA256); err != nil || string(body) != someRules {
			t.Errorf("Body = %q, %v", body, err)
		}
		if history, err := c.History(t.Context(), fetch.Key{Origin: example(4)}); err != nil || len(history) != 1 {
			t.Errorf("History = %+v, %v, want one version", history, err)
		}

		began := time.Now()
		for i := range 1000 {
			lookup(t, c, example(10+i))
		}
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		if n := c.Stats().Unsaved; n != 0 || time.Since(began) != 20*time.Millisecond {
			t.Errorf("%d of 1000 records are pending after %v, want 0 after 20ms", n, time.Since(began))
		}
	})
}

// An answer that just misses a slow save is in the store within a fifth of a second.
func TestWriteBehind_MissedWrite(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		inner := newMemory()
		st := &slowStore{Store: lasting{inner}, took: 90 * time.Millisecond}
		c := newCache(t, robotscache.Config{Fetcher: &site{}, Store: st}, hot)
		defer c.Close()
		lookup(t, c, example(1))
		synctest.Wait() // the save has begun
		lookup(t, c, example(2))
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		wantStored(t, inner, example(2), true)
	})
}

// Each text and state of an origin is added to its history, even if the origin replaced it while a
// save was in progress or had failed.
func TestWriteBehind_EveryVersion(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		flaky := &flakyStore{Store: newMemory()}
		s := &site{}
		c := newCache(t, robotscache.Config{Fetcher: s, Store: &slowStore{Store: flaky, took: time.Second}}, hot)
		defer c.Close()
		answer := func(outs ...fetch.Outcome) {
			for _, out := range outs {
				time.Sleep(10 * time.Millisecond)
				s.always(out)
				if _, err := c.Refresh(t.Context(), example(1)); err != nil {
					t.Error(err)
				}
			}
		}
		gone := fetch.Outcome{Kind: fetch.KindAbsent, Cause: fetch.CauseStatus, Status: 404}
		first, second := rulesOutcome("Disallow: /first"), rulesOutcome("Disallow: /second")
		answer(first, second, second, gone, gone, first)
		flaky.fail(errAway)
		time.Sleep(5 * time.Second)
		answer(gone, second)
		flaky.fail(nil)
		time.Sleep(5 * time.Second)
		history, err := c.History(t.Context(), fetch.Key{Origin: example(1)})
		var sizes []int // of the texts, newest first
		for _, v := range history {
			sizes = append(sizes, v.Size)
		}
		one, two, none := len(first.Body), len(second.Body), 0
		if want := []int{two, none, one, none, two, one}; err != nil || !slices.Equal(sizes, want) {
			t.Errorf("history %v, want %v; %v", sizes, want, err)
		}
		if n := c.Stats().Unsaved; n != 0 {
			t.Errorf("%d records are pending, want 0", n)
		}
	})
}

// A purge during a save leaves nothing in the store, even if the save began before it.
func TestWriteBehind_PurgeDuringWrite(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		inner := newMemory()
		st := &slowStore{Store: lasting{inner}, took: time.Second}
		c := newCache(t, robotscache.Config{Fetcher: &site{}, Store: st}, hot)
		defer c.Close()
		lookup(t, c, example(1))
		lookup(t, c, example(2))
		time.Sleep(500 * time.Millisecond)
		if err := c.Purge(t.Context(), example(1)); err != nil {
			t.Error(err)
		}
		wantStored(t, inner, example(1), false)
		wantStored(t, inner, example(2), true)
		if _, ok := c.Peek(example(1), ""); ok {
			t.Error("Peek finds a record after the purge")
		}

		lookup(t, c, example(3))
		time.Sleep(500 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := c.Purge(ctx, example(3)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a purge that must not wait for the store: got %v, want context.DeadlineExceeded", err)
		}
	})
}

// Records that arrive while the store is retried are saved as well.
func TestWriteBehind_DuringRetry(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		inner := newMemory()
		flaky := &flakyStore{Store: lasting{inner}}
		st := &slowStore{Store: flaky, took: 500 * time.Millisecond}
		c := newCache(t, robotscache.Config{Fetcher: &site{}, Store: st}, hot)
		defer c.Close()
		flaky.fail(errAway)
		lookup(t, c, example(1))
		time.Sleep(time.Second) // the first save has failed
		flaky.fail(nil)
		time.Sleep(900 * time.Millisecond) // the second is in progress
		lookup(t, c, example(2))
		time.Sleep(3 * time.Second)
		wantStored(t, inner, example(1), true)
		wantStored(t, inner, example(2), true)
	})
}

// A record that cannot be stored does not block others. One that fails for another reason stays,
// and so do those after it.
func TestWriteBehind_RefusedRecord(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		inner, ev := newMemory(), &events{}
		st := &slowStore{Store: lasting{inner}, refuses: example(2), err: errors.New("slow")}
		c := newCache(t, robotscache.Config{Fetcher: &site{}, Store: st, Observer: ev}, hot)
		defer c.Close()
		for _, i := range []int{2, 0, 1, 3, 4} {
			lookup(t, c, example(i))
		}
		time.Sleep(10 * time.Second)
		if n := c.Stats().Unsaved; n != 5 || ev.drops(robotscache.DropUnsaved) != 0 {
			t.Errorf("%d records are pending and %d dropped, want 5 and 0", n, ev.drops(robotscache.DropUnsaved))
		}
		st.mu.Lock()
		st.err = fmt.Errorf("%w: it contradicts itself", robotscache.ErrInvalid)
		st.mu.Unlock()
		time.Sleep(2 * time.Second)
		for i := range 5 {
			wantStored(t, inner, example(i), i != 2)
		}
		if n := c.Stats().Unsaved; n != 0 || ev.drops(robotscache.DropUnsaved) != 1 {
			t.Errorf("%d records are pending and %d dropped, want 0 and 1", n, ev.drops(robotscache.DropUnsaved))
		}
	})
}

// If more records arrive than the store takes, retrievals wait for it: nothing is dropped, and no
// more is kept than the limit and one entry per retrieval.
func TestWriteBehind_Backpressure(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		inner, ev := newMemory(), &events{}
		st := &slowStore{Store: lasting{inner}, took: time.Second}
		s := &site{}
		s.always(rulesOutcome(strings.Repeat("Disallow: /\n", 10<<10)))
		const inFlight, n = 16, 400
		c := newCache(t, robotscache.Config{Fetcher: s, Store: st, Observer: ev, MaxSize: 4 << 20, InFlight: inFlight}, hot)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				for {
					e, _, err := c.Lookup(t.Context(), example(i), robotscache.Asker{})
					if err == nil {
						if most := 1<<20/e.Cost() + inFlight; int64(c.Stats().Unsaved) > most {
							t.Errorf("%d records of %d bytes are pending, want at most %d", c.Stats().Unsaved, e.Cost(), most)
						}
						return
					}
					if !errors.Is(err, robotscache.ErrPending) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if d := ev.drops(robotscache.DropUnsaved); d != 0 {
			t.Errorf("%d records were dropped, want 0", d)
		}
		for i := range n {
			wantStored(t, inner, example(i), true)
		}
	})
}
