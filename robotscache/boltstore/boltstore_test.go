package boltstore_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
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
	if err := s.Save(tb.Context(), records...); err != nil {
		tb.Fatal(err)
	}
}

const day = 24 * time.Hour

func example(i int) origin.Origin {
	return origin.Origin{Scheme: "https", Host: fmt.Sprintf("n%d.example", i), Port: 443}
}

func wantCounts(t *testing.T, s *boltstore.Store, origins, texts int) {
	t.Helper()
	gotOrigins, gotTexts, err := s.Counts()
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
				return open(tb, boltstore.Config{Path: path, Versions: 4, Retention: robotscache.Retention{For: day}})
			},
			Versions: 4,
			Retained: day,
		}
	})
}

// A text is kept once in the file, until it expires after the last save of a record with it.
func TestStore_TextsGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var over, early atomic.Int64 // the sweeper adds to them
		s := open(t, boltstore.Config{
			Path: filepath.Join(t.TempDir(), "db"), Versions: 2, Retention: robotscache.Retention{For: 100 * day},
			Dropped: func(n int, isEarly bool) {
				if isEarly {
					early.Add(int64(n))
				} else {
					over.Add(int64(n))
				}
			},
		})
		defer s.Close()
		a, b := example(1), example(2)
		save(t, s, storetest.Rules(a, "one", time.Now()), storetest.Rules(b, "one", time.Now()))
		wantCounts(t, s, 2, 1)
		save(t, s, storetest.Rules(a, "two", time.Now()), storetest.Rules(a, "three", time.Now()))
		wantCounts(t, s, 2, 3) // "one" has left the history of a
		if err := s.Delete(t.Context(), fetch.Key{Origin: b}); err != nil {
			t.Fatal(err)
		}
		wantCounts(t, s, 1, 3)
		// The last good copy applies again in mode unreachable stale: it is used as long as
		// failures are saved.
		lost := storetest.Rules(a, "three", time.Now())
		for range 90 {
			time.Sleep(day)
			lost = storetest.Fail(lost, time.Now())
			save(t, s, lost)
		}
		time.Sleep(13*day - time.Minute) // 100, 2 for the use of a record, 1 for the notes
		s.Sweep()
		wantCounts(t, s, 1, 3)
		time.Sleep(2 * time.Minute)
		s.Sweep()
		wantCounts(t, s, 1, 1)
		history, err := s.History(t.Context(), fetch.Key{Origin: a})
		if err != nil || len(history) != 2 || history[1].KeptUntil.Before(time.Now().Add(89*day)) {
			t.Errorf("History = %+v, %v, want two versions with a kept text", history, err)
		}
		time.Sleep(time.Until(history[1].KeptUntil) + time.Minute)
		s.Sweep()
		wantCounts(t, s, 0, 0) // the record has expired too
		synctest.Wait()        // for the sweeper, which may have dropped them
		if over.Load() != 3 || early.Load() != 0 {
			t.Errorf("%d texts were dropped in time and %d early, want 3 and 0", over.Load(), early.Load())
		}
	})
}

// Beyond the limit, the least recently used texts are dropped first, and counted.
func TestStore_TextsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var early atomic.Int64 // the sweeper adds to it
		s := open(t, boltstore.Config{
			Path: filepath.Join(t.TempDir(), "db"), Retention: robotscache.Retention{Max: 100 << 10},
			Dropped: func(n int, isEarly bool) {
				if isEarly {
					early.Add(int64(n))
				} else if n > 0 {
					t.Errorf("%d texts were dropped in time, want 0", n)
				}
			},
		})
		defer s.Close()
		noise := func(i int) fetch.Record {
			text := make([]byte, 1<<10)
			_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(text)
			return storetest.Rules(example(i), string(text), time.Now())
		}
		for i := range 150 {
			save(t, s, noise(i))
			time.Sleep(time.Hour)
			save(t, s, noise(0)) // always in use
		}
		synctest.Wait()
		// Each takes a little more than 1 KiB in the store.
		_, texts, err := s.Counts()
		if err != nil || texts < 90 || texts > 100 || int(early.Load()) != 150-texts {
			t.Errorf("%d texts are left and %d were dropped early, error %v", texts, early.Load(), err)
		}
		for i := range 150 {
			_, err := s.Load(t.Context(), fetch.Key{Origin: example(i)})
			if kept := i == 0 || i > 150-texts; kept != (err == nil) || !kept && !errors.Is(err, robotscache.ErrNotFound) {
				t.Errorf("loading record %d: %v", i, err)
			}
		}
		if h, err := s.History(t.Context(), fetch.Key{Origin: example(1)}); err != nil || len(h) != 1 || !h[0].KeptUntil.IsZero() {
			t.Errorf("history of an origin whose text was dropped: %+v, %v", h, err)
		}
		save(t, s, noise(1)) // as after another fetch
		if h, err := s.History(t.Context(), fetch.Key{Origin: example(1)}); err != nil || len(h) != 1 || h[0].KeptUntil.IsZero() {
			t.Errorf("history of an origin whose text came back: %+v, %v", h, err)
		}
		s.SetRetention(robotscache.Retention{Max: 10 << 10})
		s.Sweep()
		if _, texts, err := s.Counts(); err != nil || texts > 10 {
			t.Errorf("%d texts are left with room for fewer than 10, error %v", texts, err)
		}
	})
}

// A full disk does not damage stored records, is reported by Save, and is overcome when there is
// room again.
func TestStore_DiskFull(t *testing.T) {
	t.Parallel()
	s := open(t, boltstore.Config{Path: filepath.Join(t.TempDir(), "db")})
	now := time.Now()
	first := storetest.Rules(example(0), "first", now)
	save(t, s, first)
	s.SetMaxFile(1)
	last := storetest.Rules(example(1), "noise", now)
	noise := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	last.Body, last.SHA256 = noise, sha256.Sum256(noise)
	for range 2 {
		if err := s.Save(t.Context(), last); !errors.Is(err, robotscache.ErrUnavailable) {
			t.Errorf("saving with a full disk: got %v, want ErrUnavailable", err)
		}
		if _, err := s.Load(t.Context(), last.Key()); !errors.Is(err, robotscache.ErrNotFound) {
			t.Errorf("loading a record that was not saved: got %v, want ErrNotFound", err)
		}
		if got, err := s.Load(t.Context(), first.Key()); err != nil || !storetest.Equal(got, first) {
			t.Errorf("loading %s: %v", first.Origin, err)
		}
	}
	s.SetMaxFile(0)
	save(t, s, last)
	if got, err := s.Load(t.Context(), last.Key()); err != nil || !storetest.Equal(got, last) {
		t.Errorf("loading with room again: %v", err)
	}
}

// Records that are not saved for the retention are dropped with their texts; others stay.
func TestStore_Retention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, boltstore.Config{Path: filepath.Join(t.TempDir(), "db"), Retention: robotscache.Retention{For: 57 * day}})
		defer s.Close()
		const old, kept = 2500, 3
		for i := range old {
			save(t, s, storetest.Rules(example(i), fmt.Sprintf("old %d", i/2), time.Now()))
		}
		for days := range 62 {
			for i := range kept {
				save(t, s, storetest.Rules(example(old+i), "kept", time.Now()))
			}
			if days == 58 {
				wantCounts(t, s, old+kept, old/2+1)
			}
			time.Sleep(day)
		}
		wantCounts(t, s, kept, 1)
		for i := range kept {
			if _, err := s.Load(t.Context(), fetch.Key{Origin: example(old + i)}); err != nil {
				t.Error(err)
			}
		}
	})
}
