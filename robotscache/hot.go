package robotscache

import (
	"fmt"
	"hash/maphash"
	"sync"
	"unsafe"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/crawlgate/crawlgate/origin"
)

// hotTier holds entries in memory, or not, as it pleases: it may drop each one at
// any time, and a put may take effect late or never. It must not return an entry
// that was put before the last drop or put of its origin. Implementations are
// safe for concurrent use, before and after close.
type hotTier interface {
	get(o origin.Origin) *Entry // nil if there is none
	put(e *Entry)
	drop(o origin.Origin)
	close()
}

// ristrettoTier is a hotTier bounded in bytes.
//
// Origins are hashed to 64 bits with a random seed. Two that collide only push
// each other out: get compares the whole origin.
type ristrettoTier struct {
	cache *ristretto.Cache[uint64, *Entry]
	seed  maphash.Seed
	gates [64]gate
}

// gate keeps calls out of ristretto once it is closed: its Get sends on a channel
// that its Close closes, and answers may still be asked for while a configuration
// is being replaced. Gates are many so that readers do not share a cache line.
type gate struct {
	mu     sync.RWMutex
	closed bool
	_      [32]byte
}

// meanEntry is the size by which the number of ristretto's counters is chosen;
// its advice is ten for each item that fits. The median file of the corpus comes
// to 7 KiB, but tiny files and absent ones are the most frequent on the web.
const meanEntry = 4 << 10

func newRistrettoTier(maxSize int64) (*ristrettoTier, error) {
	cache, err := ristretto.NewCache(&ristretto.Config[uint64, *Entry]{
		NumCounters:        max(10*maxSize/meanEntry, 1000),
		MaxCost:            maxSize,
		BufferItems:        64,
		IgnoreInternalCost: true, // Entry.cost has it
		// Entries end by their record, not by a time of the cache's, so there is
		// nothing for its sweep to do.
		TtlTickerDurationInSec: 24 * 60 * 60,
	})
	if err != nil {
		return nil, fmt.Errorf("making the hot tier of %d bytes: %w", maxSize, err)
	}
	return &ristrettoTier{cache: cache, seed: maphash.MakeSeed()}, nil
}

func (t *ristrettoTier) get(o origin.Origin) *Entry {
	h := t.hash(o)
	g := &t.gates[h%uint64(len(t.gates))]
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return nil
	}
	e, _ := t.cache.Get(h)
	if e == nil || e.record.Origin != o {
		return nil
	}
	return e
}

// put deletes before it sets: of two Sets of a key that is new, ristretto may
// keep the first.
func (t *ristrettoTier) put(e *Entry) {
	t.change(e.record.Origin, func(h uint64) {
		t.cache.Del(h)
		t.cache.Set(h, e, e.cost())
	})
}

func (t *ristrettoTier) drop(o origin.Origin) {
	t.change(o, func(h uint64) { t.cache.Del(h) })
}

func (t *ristrettoTier) change(o origin.Origin, do func(h uint64)) {
	h := t.hash(o)
	g := &t.gates[h%uint64(len(t.gates))]
	g.mu.RLock()
	defer g.mu.RUnlock()
	if !g.closed {
		do(h)
	}
}

func (t *ristrettoTier) close() {
	for i := range t.gates {
		t.gates[i].mu.Lock()
		t.gates[i].closed = true
		t.gates[i].mu.Unlock()
	}
	t.cache.Close()
}

func (t *ristrettoTier) hash(o origin.Origin) uint64 {
	return maphash.Comparable(t.seed, o)
}

// entryOverhead is what an entry takes besides the memory that its slices and
// strings refer to: itself, the closure and state for its ruleset, and what
// ristretto keeps of each item (131 bytes, measured).
const entryOverhead = int64(unsafe.Sizeof(Entry{})) + 96 + 131

// cost returns the bytes that e keeps in memory. A last good copy that is not
// compiled yet is counted as if it were.
func (e *Entry) cost() int64 {
	r := &e.record
	n := entryOverhead + int64(cap(e.text.Body))
	n += int64(len(r.Origin.Host) + len(r.Detail) + len(r.LastFailure.Detail))
	for _, hops := range [][]string{r.Hops, r.LastFailure.Hops} {
		for _, h := range hops {
			n += int64(unsafe.Sizeof(h)) + int64(len(h))
		}
	}
	return n + int64(e.size)
}
