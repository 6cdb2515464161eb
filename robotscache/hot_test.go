package robotscache

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
)

func newTier(t *testing.T, size int64) *ristrettoTier {
	t.Helper()
	tier, err := newRistrettoTier(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tier.close)
	return tier
}

func numbered(o origin.Origin, n int) *Entry {
	return NewEntry(fetch.Record{Origin: o, Attempts: n}, Interpretation{})
}

// Once an entry is replaced or dropped, get does not return it any more: ristretto alone would keep
// the first of two entries that are set at once.
func TestRistrettoTier_NeverReturnsWhatWasReplaced(t *testing.T) {
	t.Parallel()
	tier := newTier(t, 1<<20)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			o := origin.Origin{Scheme: "http", Host: "replaced.example", Port: uint16(g + 1)}
			var least atomic.Int64
			done := make(chan struct{})
			var readers sync.WaitGroup
			for range 2 {
				readers.Go(func() {
					for {
						select {
						case <-done:
							return
						default:
						}
						before := least.Load()
						if e := tier.get(fetch.Key{Origin: o}); e != nil && int64(e.record.Attempts) < before {
							t.Errorf("got entry %d after entry %d was put", e.record.Attempts, before)
							return
						}
					}
				})
			}
			for n := range 20000 {
				tier.put(numbered(o, n))
				least.Store(int64(n))
				if n%100 == 0 {
					tier.drop(fetch.Key{Origin: o})
					if e := tier.get(fetch.Key{Origin: o}); e != nil {
						t.Errorf("got entry %d after it was dropped", e.record.Attempts)
					}
				}
			}
			close(done)
			readers.Wait()
			tier.cache.Wait()
			if e := tier.get(fetch.Key{Origin: o}); e == nil || e.record.Attempts != 19999 {
				t.Errorf("entry %d is left, want 19999", e.record.Attempts)
			}
		})
	}
	wg.Wait()
}

// An entry that is put again stays, for example when an unavailable store has finally saved it.
func TestRistrettoTier_KeepsWhatIsPutAgain(t *testing.T) {
	t.Parallel()
	tier := newTier(t, 1<<20)
	e := numbered(origin.Origin{Scheme: "http", Host: "again.example", Port: 80}, 1)
	for range 3 {
		tier.put(e)
		tier.cache.Wait()
		if got := tier.get(fetch.Key{Origin: e.record.Origin}); got != e {
			t.Fatalf("got %p, want the entry that was put, %p", got, e)
		}
	}
}

// Sets that ristretto drops or rejects leave nothing behind.
func TestRistrettoTier_FollowsRistretto(t *testing.T) {
	t.Parallel()
	tier := newTier(t, 200<<10)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 50000 {
				o := origin.Origin{Scheme: "http", Host: "many.example", Port: uint16(i)}
				if g%2 == 0 {
					o.Scheme = "https"
				}
				tier.put(numbered(o, i))
				tier.touch(fetch.Key{Origin: o})
			}
		})
	}
	wg.Wait()
	tier.cache.Wait()
	held := make(map[*Entry]bool)
	tier.cache.IterValues(func(e *Entry) bool {
		held[e] = true
		return false
	})
	for _, e := range tier.entries.Range {
		if !held[e] {
			t.Errorf("%v is in the map but not in ristretto", e.record.Origin)
		}
	}
}

// The limit is one of bytes.
func TestRistrettoTier_Bounded(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	tier := newTier(t, size)
	text := make([]byte, 10000)
	now := time.Now()
	for i := range 1000 {
		o := origin.Origin{Scheme: "http", Host: "bounded.example", Port: uint16(i + 1)}
		out := fetch.Outcome{Kind: fetch.KindRules, Status: 200, Body: text}
		tier.put(NewEntry(fetch.Policy{}.Next(fetch.Record{Origin: o}, out, now), Interpretation{}))
	}
	tier.cache.Wait()
	var held int64
	n := 0
	tier.cache.IterValues(func(e *Entry) bool {
		held += e.cost()
		n++
		return false
	})
	if held > size || n < 50 {
		t.Errorf("%d entries take %d bytes, want at least 50 within %d", n, held, size)
	}
	inMap := 0
	for range tier.entries.Range {
		inMap++
	}
	if inMap != n {
		t.Errorf("%d entries are in the map and %d in ristretto, want the same", inMap, n)
	}
}

func TestRistrettoTier_AfterClose(t *testing.T) {
	t.Parallel()
	tier, err := newRistrettoTier(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	o := origin.Origin{Scheme: "http", Host: "closed.example", Port: 80}
	tier.put(numbered(o, 1))
	tier.close()
	tier.touch(fetch.Key{Origin: o})
	if e := tier.get(fetch.Key{Origin: o}); e != nil {
		t.Errorf("got %+v", e.record)
	}
}
