package boltstore_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
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

// A full disk costs nothing that was there, is told to those who save, and is
// overcome when there is room again.
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
			t.Errorf("saving with a full disk: %v", err)
		}
		if _, err := s.Load(t.Context(), last.Origin); !errors.Is(err, robotscache.ErrNotFound) {
			t.Errorf("loading what was not saved: %v", err)
		}
		if got, err := s.Load(t.Context(), first.Origin); err != nil || !storetest.Equal(got, first) {
			t.Errorf("loading %s: %v", first.Origin, err)
		}
	}
	s.SetMaxFile(0)
	save(t, s, last)
	if got, err := s.Load(t.Context(), last.Origin); err != nil || !storetest.Equal(got, last) {
		t.Errorf("loading with room again: %v", err)
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
