package memstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/memstore"
	"github.com/crawlgate/crawlgate/robotscache/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(testing.TB) storetest.Medium {
		return storetest.Medium{
			Open: func(testing.TB) robotscache.Store {
				return memstore.New(0)
			},
			Volatile: true,
			Versions: 10,
		}
	})
}

// The least recently used record is dropped first, and the limit is kept.
func TestStore_Bounded(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	s := memstore.New(size)
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
			t.Fatalf("loading a used record after %d others: %v", i, err)
		}
	}
	records, err := s.List(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(records); n < size/8000 || n > size/5000 {
		t.Errorf("%d records of 5 kB are kept in 1 MiB", n)
	}
	if _, err := s.Load(t.Context(), fetch.Key{Origin: storetest.Origin(t, "https://n0.example")}); !errors.Is(err, robotscache.ErrNotFound) {
		t.Errorf("loading the oldest record: got %v, want ErrNotFound", err)
	}
	first := storetest.Rules(kept, fmt.Sprintf("0 %s", strings.Repeat("x", 5000)), now)
	if _, err := s.Body(t.Context(), first.SHA256); !errors.Is(err, robotscache.ErrNotFound) {
		t.Errorf("reading the oldest body: got %v, want ErrNotFound", err)
	}
}
