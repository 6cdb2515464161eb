package robotscache

import (
	"fmt"
	"hash/maphash"
	"iter"
	"sync"

	"github.com/dgraph-io/ristretto/v2"
	"github.com/puzpuzpuz/xsync/v4"

	"github.com/crawlgate/crawlgate/fetch"
)

// hotTier holds entries in memory, and may drop any of them at any time. It must not return an
// entry from before the last put or drop of its origin. All methods are safe for concurrent use,
// except that put and drop must not be called during close or after it.
type hotTier interface {
	get(k fetch.Key) *Entry // nil without one
	// touch records that k was requested, which makes it worth keeping. One call per second for an
	// entry in use is enough.
	touch(k fetch.Key)
	put(e *Entry)
	drop(k fetch.Key)
	keys() iter.Seq[fetch.Key]
	resize(maxSize int64)
	close()
}

// ristrettoTier is a hotTier bounded in bytes. ristretto decides which entries are worth their
// memory. Reads use a separate map.
//
// The map exists because ristretto applies a Set later, up to 32,000 Sets later. Until then a new
// key is missing, and if an entry is replaced soon after it was first set, the old one appears
// again for a while, although it was deleted in between. In the map, a put counts at once.
// ristretto's callbacks remove the entries that it drops, rejects or evicts. The map is also
// faster.
//
// ristretto identifies origins by a 64-bit hash with a random seed. Two origins that collide only
// evict each other.
type ristrettoTier struct {
	seed    maphash.Seed
	entries *xsync.Map[fetch.Key, *Entry]

	cache *ristretto.Cache[uint64, *Entry]
	// mu keeps touch out of ristretto once it is closed: its Get sends on a channel that its Close
	// closes, and answers may still be asked for while a configuration is being replaced.
	mu     sync.RWMutex
	closed bool
}

// meanEntry is the size by which the number of ristretto's counters is chosen; its advice is ten
// for each item that fits. The mean of the corpus comes to 11 KiB, but tiny files and absent ones
// are the most frequent on the web.
const meanEntry = 4 << 10

func newRistrettoTier(maxSize int64) (*ristrettoTier, error) {
	t := &ristrettoTier{seed: maphash.MakeSeed(), entries: xsync.NewMap[fetch.Key, *Entry]()}
	var err error
	t.cache, err = ristretto.NewCache(&ristretto.Config[uint64, *Entry]{
		NumCounters:        max(10*maxSize/meanEntry, 1000),
		MaxCost:            maxSize,
		BufferItems:        64,
		IgnoreInternalCost: true, // Entry.cost has it
		OnExit:             t.exited,
		// Entries expire by their record, not by a time of the cache, so its sweep has nothing to do.
		TtlTickerDurationInSec: 24 * 60 * 60,
	})
	if err != nil {
		return nil, fmt.Errorf("making the hot tier of %d bytes: %w", maxSize, err)
	}
	return t, nil
}

func (t *ristrettoTier) get(k fetch.Key) *Entry {
	e, _ := t.entries.Load(k)
	return e
}

func (t *ristrettoTier) touch(k fetch.Key) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.closed {
		t.cache.Get(t.hash(k))
	}
}

// put deletes before it sets, because ristretto keeps the first of two Sets of a new key. It does
// not delete an entry that is there, because that would remove it from the map.
func (t *ristrettoTier) put(e *Entry) {
	if old, there := t.entries.LoadAndStore(e.record.Key(), e); there && old == e {
		return
	}
	h := t.hash(e.record.Key())
	t.cache.Del(h)
	if !t.cache.Set(h, e, e.cost()) {
		t.exited(e)
	}
}

func (t *ristrettoTier) drop(k fetch.Key) {
	t.entries.Delete(k)
	t.cache.Del(t.hash(k))
}

func (t *ristrettoTier) keys() iter.Seq[fetch.Key] {
	return func(yield func(fetch.Key) bool) {
		t.entries.Range(func(k fetch.Key, _ *Entry) bool { return yield(k) })
	}
}

// exited is called for each entry that ristretto has dropped or will not accept.
func (t *ristrettoTier) exited(e *Entry) {
	if e == nil {
		return
	}
	t.entries.Compute(e.record.Key(), func(old *Entry, _ bool) (*Entry, xsync.ComputeOp) {
		if old == e {
			return nil, xsync.DeleteOp
		}
		return old, xsync.CancelOp
	})
}

// resize changes the bound. Entries beyond it go when the next entry comes. The number of counters
// stays, which only makes the choice of what to keep coarser.
func (t *ristrettoTier) resize(maxSize int64) { t.cache.UpdateMaxCost(maxSize) }

func (t *ristrettoTier) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cache.Close() // which releases every entry
}

func (t *ristrettoTier) hash(k fetch.Key) uint64 { return maphash.Comparable(t.seed, k) }
