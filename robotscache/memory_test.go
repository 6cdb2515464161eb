package robotscache_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/storetest"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(testing.TB) storetest.Medium {
		return storetest.Medium{
			Open: func(testing.TB) robotscache.Store {
				return robotscache.NewMemory(0)
			},
			Volatile: true,
			Versions: 10,
		}
	})
}

// The record that was used least recently goes first, and the bound holds.
func TestMemory_Bounded(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	s := robotscache.NewMemory(size)
	now := time.Now()
	kept := storetest.Origin(t, "https://kept.example")
	if err := s.Save(t.Context(), storetest.Rules(kept, "kept", now)); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		o := storetest.Origin(t, fmt.Sprintf("https://n%d.example", i))
		text := fmt.Sprintf("%d %s", i, strings.Repeat("x", 5000))
		if err := s.Save(t.Context(), storetest.Rules(o, text, now)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Load(t.Context(), fetch.Key{Origin: kept}); err != nil {
			t.Fatalf("after %d others: %v", i, err)
		}
	}
	records, err := s.List(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(records); n < size/8000 || n > size/5000 {
		t.Errorf("%d records of 5 kB in 1 MiB", n)
	}
	if _, err := s.Load(t.Context(), fetch.Key{Origin: storetest.Origin(t, "https://n0.example")}); !errors.Is(err, robotscache.ErrNotFound) {
		t.Errorf("the oldest: %v", err)
	}
	first := storetest.Rules(kept, fmt.Sprintf("0 %s", strings.Repeat("x", 5000)), now)
	if _, err := s.Body(t.Context(), first.SHA256); !errors.Is(err, robotscache.ErrNotFound) {
		t.Errorf("the oldest body: %v", err)
	}
}

// The texts that a record and its history refer to are there, and no others.
func TestMemory_Texts(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a, b := storetest.Rules(example(1), "a", now), storetest.Rules(example(1), "b", now)
	failed := storetest.Fail(a, now.Add(25*time.Hour))
	for name, test := range map[string]struct {
		saved []fetch.Record
		a, b  bool
	}{
		"its own is in the history":              {[]fetch.Record{a, failed, b}, true, true},
		"a last good copy":                       {[]fetch.Record{b, failed}, true, true},
		"a last good copy that is in no history": {[]fetch.Record{failed}, true, false},
		"of nothing":                             {[]fetch.Record{{Origin: example(1), State: fetch.StateAbsent}}, false, false},
	} {
		s := robotscache.NewMemory(0)
		if err := s.Save(t.Context(), test.saved...); err != nil {
			t.Fatal(err)
		}
		for sum, want := range map[fetch.Sum]bool{a.SHA256: test.a, b.SHA256: test.b, {}: false} {
			if text, err := s.Body(t.Context(), sum); (err == nil) != want || want && sha256.Sum256(text) != sum {
				t.Errorf("%s: %x: %q, %v", name, sum, text, err)
			}
		}
	}
}
