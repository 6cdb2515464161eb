package boltstore_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/boltstore"
	"github.com/crawlgate/crawlgate/robotscache/storetest"
)

func TestMain(m *testing.M) {
	if childMain() {
		return
	}
	goleak.VerifyTestMain(m)
}

func open(tb testing.TB, cfg boltstore.Config) *boltstore.Store {
	tb.Helper()
	s, err := boltstore.Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

func save(tb testing.TB, s *boltstore.Store, records ...fetch.Record) {
	tb.Helper()
	for _, r := range records {
		if err := s.Save(tb.Context(), r); err != nil {
			tb.Fatal(err)
		}
	}
}

func example(i int) origin.Origin {
	return origin.Origin{Scheme: "https", Host: fmt.Sprintf("n%d.example", i), Port: 443}
}

func wantCounts(t *testing.T, s *boltstore.Store, origins, texts int) {
	t.Helper()
	gotOrigins, gotTexts, err := s.Counts(t.Context())
	if err != nil || gotOrigins != origins || gotTexts != texts {
		t.Errorf("%d origins and %d texts in the file, %v; want %d and %d", gotOrigins, gotTexts, err, origins, texts)
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(tb testing.TB) storetest.Medium {
		tb.Helper()
		path := filepath.Join(tb.TempDir(), "sub", "robots.db")
		return storetest.Medium{
			Open: func(tb testing.TB) robotscache.Store {
				tb.Helper()
				return open(tb, boltstore.Config{Path: path, Versions: 4})
			},
			Versions: 4,
		}
	})
}

// A text is in the file once, for as long as anything refers to it.
func TestStore_TextsAreCounted(t *testing.T) {
	t.Parallel()
	s := open(t, boltstore.Config{Path: filepath.Join(t.TempDir(), "db"), Versions: 2})
	now := time.Now()
	a, b := example(1), example(2)
	save(t, s, storetest.Rules(a, "one", now), storetest.Rules(b, "one", now))
	wantCounts(t, s, 2, 1)
	save(t, s, storetest.Rules(a, "two", now.Add(time.Hour)))
	wantCounts(t, s, 2, 2)
	// "one" leaves a's history, and stays for b.
	save(t, s, storetest.Rules(a, "three", now.Add(2*time.Hour)))
	wantCounts(t, s, 2, 3)
	if err := s.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	wantCounts(t, s, 1, 2)
	// A last good copy is held although the history has dropped it.
	lost := storetest.Fail(storetest.Rules(a, "three", now.Add(2*time.Hour)), now.Add(30*time.Hour))
	save(t, s, lost)
	wantCounts(t, s, 1, 1)
	absent := fetch.Policy{}.Next(lost, fetch.Outcome{Kind: fetch.KindAbsent, Status: 404, Cause: fetch.CauseStatus}, now.Add(31*time.Hour))
	save(t, s, absent)
	wantCounts(t, s, 1, 0)
	save(t, s, storetest.Rules(a, "", now.Add(32*time.Hour)))
	wantCounts(t, s, 1, 1)
	if err := s.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	wantCounts(t, s, 0, 0)
}

// The policy that the package documents: 200 ms, 1,000 records, or Flush.
func TestStore_CommitsInBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, boltstore.Config{Path: filepath.Join(t.TempDir(), "db")})
		defer s.Close()
		now := time.Now()
		save(t, s, storetest.Rules(example(0), "text", now))
		time.Sleep(199 * time.Millisecond)
		if n := s.Queued(); n != 1 {
			t.Errorf("%d writes queued after 199 ms", n)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if n := s.Queued(); n != 0 {
			t.Errorf("%d writes queued after 201 ms", n)
		}
		began := time.Now()
		for i := range 1000 {
			save(t, s, storetest.Rules(example(i), "text", now))
		}
		synctest.Wait()
		if n := s.Queued(); n != 0 || time.Since(began) != 0 {
			t.Errorf("%d writes queued after 1,000 and %v", n, time.Since(began))
		}
		save(t, s, storetest.Rules(example(0), "text", now))
		if err := s.Flush(t.Context()); err != nil || s.Queued() != 0 || time.Since(began) != 0 {
			t.Errorf("flushed after %v: %v; %d queued", time.Since(began), err, s.Queued())
		}
	})
}

// A full disk costs nothing that was there, is told to those who save, and is
// overcome when there is room again.
func TestStore_DiskFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, boltstore.Config{Path: filepath.Join(t.TempDir(), "db")})
		defer s.Close()
		now := time.Now()
		first := storetest.Rules(example(0), "first", now)
		save(t, s, first)
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.SetMaxFile(1)
		var last fetch.Record
		var refused error
		for i := range 500 {
			last = storetest.Rules(example(i+1), strings.Repeat(fmt.Sprint(i), 20000), now)
			if err := s.Save(t.Context(), last); err != nil {
				refused = err
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if !errors.Is(refused, robotscache.ErrUnavailable) || !strings.Contains(refused.Error(), "commit failed") {
			t.Errorf("saving with a full disk: %v", refused)
		}
		if err := s.Flush(t.Context()); !errors.Is(err, robotscache.ErrUnavailable) {
			t.Errorf("flushing with a full disk: %v", err)
		}
		// What is queued is still seen.
		for _, r := range []fetch.Record{first, storetest.Rules(example(1), strings.Repeat("0", 20000), now)} {
			if got, err := s.Load(t.Context(), r.Origin); err != nil || !storetest.Equal(got, r) {
				t.Errorf("loading %s: %v", r.Origin, err)
			}
		}
		s.SetMaxFile(0)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if n := s.Queued(); n != 0 {
			t.Errorf("%d writes queued with room again", n)
		}
		save(t, s, last)
		if err := s.Flush(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Who saves more than the disk takes waits, within bounds and until ctx ends.
func TestStore_QueueIsBounded(t *testing.T) {
	t.Parallel()
	s := open(t, boltstore.Config{Path: filepath.Join(t.TempDir(), "db")})
	now := time.Now()
	text := strings.Repeat("Disallow: /\n", 40000)
	for i := range 160 { // 75 MB
		save(t, s, storetest.Rules(example(i), fmt.Sprint(i, text), now))
		if n := s.Queued(); n > 64<<20/len(text)+1 {
			t.Fatalf("%d writes of %d bytes queued", n, len(text))
		}
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 160 {
		want := storetest.Rules(example(i), fmt.Sprint(i, text), now)
		if got, err := s.Load(t.Context(), want.Origin); err != nil || !storetest.Equal(got, want) {
			t.Fatalf("record %d: %v", i, err)
		}
	}
}

// Records that nobody saves for the retention go, with their texts; others stay.
func TestStore_Retention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, boltstore.Config{Path: filepath.Join(t.TempDir(), "db"), Retention: 60 * 24 * time.Hour})
		defer s.Close()
		const old, kept = 2500, 3
		for i := range old {
			save(t, s, storetest.Rules(example(i), fmt.Sprintf("old %d", i/2), time.Now()))
		}
		for day := range 62 {
			for i := range kept {
				save(t, s, storetest.Rules(example(old+i), "kept", time.Now()))
			}
			if day == 58 {
				wantCounts(t, s, old+kept, old/2+1)
			}
			time.Sleep(24 * time.Hour)
		}
		wantCounts(t, s, kept, 1)
		for i := range kept {
			if _, err := s.Load(t.Context(), example(old+i)); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestStore_FlushGivesUp(t *testing.T) {
	t.Parallel()
	s := open(t, boltstore.Config{Path: filepath.Join(t.TempDir(), "db")})
	save(t, s, storetest.Rules(example(1), "text", time.Now()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Flush(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
