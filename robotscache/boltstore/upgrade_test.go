package boltstore_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/boltstore"
	"github.com/crawlgate/crawlgate/robotscache/storetest"
)

// format2 makes a copy of a file that the release before format 3 wrote, all of it on 23 November
// 2026. Its origins:
//
//	n1  "zero" on 1 and 5 November 2026, "one" on the 6th and the 10th, "two" on the 11th and the 20th
//	n2  "one" on the 15th
//	n3  "three" on the 2nd, a timeout on the 4th
//	n4  404 on the 5th
func format2(t *testing.T) (path string) {
	t.Helper()
	packed, err := os.ReadFile("testdata/format2.db.gz")
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "robots.db")
	write(t, path, data)
	return path
}

func november(day int) time.Time { return time.Date(2026, 11, day, 12, 0, 0, 0, time.UTC) }

// wantFormat2 checks what a store has of such a file. A text is kept for so long after the latest
// fetch that gave it.
func wantFormat2(t *testing.T, s *boltstore.Store, keep time.Duration) {
	t.Helper()
	for i, want := range map[int][]struct {
		text        string
		first, last int
	}{
		1: {{"two", 11, 20}, {"one", 6, 10}, {"zero", 1, 5}},
		2: {{"one", 15, 15}},
		3: {{"", 4, 4}, {"three", 2, 2}},
		4: {{"", 5, 5}},
	} {
		if _, err := s.Load(t.Context(), fetch.Key{Origin: example(i)}); err != nil {
			t.Errorf("loading %d: %v", i, err)
		}
		history, err := s.History(t.Context(), fetch.Key{Origin: example(i)})
		if err != nil || len(history) != len(want) {
			t.Errorf("history of %d: %+v, %v", i, history, err)
			continue
		}
		for j, v := range history {
			w := want[j]
			if !v.FirstSeen.Equal(november(w.first)) || !v.LastSeen.Equal(november(w.last)) || v.KeptUntil.IsZero() != (w.text == "") {
				t.Errorf("version %d of %d: %+v", j, i, v)
			}
			if w.text == "" {
				continue
			}
			if body, err := s.Body(t.Context(), v.SHA256); err != nil || string(body) != w.text {
				t.Errorf("text %q: %q, %v", w.text, body, err)
			}
			if least := november(w.last).Add(keep); v.KeptUntil.Before(least) {
				t.Errorf("%q is kept until %s, want %s at the least", w.text, v.KeptUntil, least)
			}
		}
	}
}

// A file of format 2 is read as it is, and upgraded without loss when it is written.
func TestOpen_Format2(t *testing.T) {
	t.Parallel()
	path := format2(t)
	const keep = 400 * day
	for _, cfg := range []boltstore.Config{
		{Path: path, ReadOnly: true},
		{Path: path},
		{Path: path, ReadOnly: true}, // upgraded by the one before, in part
	} {
		s := open(t, cfg)
		wantFormat2(t, s, keep)
		if !cfg.ReadOnly {
			wantCounts(t, s, 4, 4)
			s.Sweep()
			wantFormat2(t, s, keep)
			wantCounts(t, s, 4, 4)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The dates in a file of format 2 are the last uses of its texts.
func TestOpen_Format2TextsGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(november(25)))
		s := open(t, boltstore.Config{Path: format2(t), Retention: robotscache.Retention{For: 100 * day}})
		defer s.Close()
		// An origin that is deleted or saved before the sweeper comes to it leaves its texts too.
		if err := s.Delete(t.Context(), fetch.Key{Origin: example(2)}); err != nil {
			t.Fatal(err)
		}
		save(t, s, storetest.Rules(example(1), "four", time.Now()))
		if h, err := s.History(t.Context(), fetch.Key{Origin: example(1)}); err != nil || len(h) != 4 {
			t.Errorf("history %+v, %v", h, err)
		}
		const time3 = 103 // days: the retention, the use of a record, and the notes of uses
		for _, step := range []struct {
			day  int
			gone []string
		}{
			{5 + time3 - 1, nil},
			{5 + time3 + 1, []string{"zero"}}, // by its last fetch
			{23 + time3 - 1, []string{"zero"}},
			{24 + time3, []string{"zero", "one", "two", "three"}}, // by the last save of the records
		} {
			time.Sleep(time.Until(november(step.day)))
			s.Sweep()
			for _, text := range []string{"zero", "one", "two", "three", "four"} {
				_, err := s.Body(t.Context(), sha256.Sum256([]byte(text)))
				if gone := slices.Contains(step.gone, text); gone != errors.Is(err, robotscache.ErrNotFound) || !gone && err != nil {
					t.Errorf("%q on day %d: %v", text, step.day, err)
				}
			}
		}
	})
}

// Damage to a file of format 2 gives an error, or what was there; never something else, and never a
// crash, be it read, written or swept.
func TestOpen_Format2Damaged(t *testing.T) {
	t.Parallel()
	whole, err := os.ReadFile(format2(t))
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(5, 6))
	opened, lost := 0, 0
	for range 100 {
		damaged := bytes.Clone(whole)
		for range 1 + rnd.IntN(20) {
			damaged[rnd.IntN(len(damaged))] ^= byte(1 + rnd.IntN(255))
		}
		path := filepath.Join(t.TempDir(), "damaged.db")
		write(t, path, damaged)
		s, err := boltstore.Open(boltstore.Config{Path: path})
		if err != nil {
			continue
		}
		opened++
		for _, sweep := range []bool{false, true} {
			if sweep {
				_ = s.Save(t.Context(), storetest.Rules(example(9), "new", time.Now()))
				s.Sweep()
			}
			for _, text := range []string{"zero", "one", "two", "three"} {
				body, err := s.Body(t.Context(), sha256.Sum256([]byte(text)))
				if err != nil {
					lost++
				} else if string(body) != text {
					t.Fatalf("%q became %q", text, body)
				}
			}
			for i := 1; i <= 4; i++ {
				if r, err := s.Load(t.Context(), fetch.Key{Origin: example(i)}); err == nil && r.Origin != example(i) {
					t.Fatalf("a wrong record: %+v", r)
				}
				_, _ = s.History(t.Context(), fetch.Key{Origin: example(i)})
			}
		}
		_ = s.Close()
	}
	if opened == 0 || lost == 0 {
		t.Errorf("%d damaged files opened, %d texts lost: the test shows nothing", opened, lost)
	}
}
