package robotscache

import (
	"iter"
	"maps"
	"sync"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
)

// Hot tiers for tests, since the cache must work the same with any.
type (
	// HotTier is the interface of the cache's hot tier.
	HotTier = hotTier
	// DroppingTier drops every entry.
	DroppingTier struct{}
	// MapTier keeps every entry, at once.
	MapTier struct {
		mu      sync.Mutex
		entries map[fetch.Key]*Entry
	}
)

// NewWithHot is New with another hot tier.
func NewWithHot(cfg Config, hot HotTier) (*Cache, error) {
	return newCache(cfg.filled(), hot), nil
}

func (DroppingTier) get(fetch.Key) *Entry      { return nil }
func (DroppingTier) touch(fetch.Key)           {}
func (DroppingTier) put(*Entry)                {}
func (DroppingTier) drop(fetch.Key)            {}
func (DroppingTier) keys() iter.Seq[fetch.Key] { return func(func(fetch.Key) bool) {} }
func (DroppingTier) resize(int64)              {}
func (DroppingTier) close()                    {}

func (m *MapTier) get(k fetch.Key) *Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entries[k]
}

func (m *MapTier) touch(fetch.Key) {}

func (m *MapTier) put(e *Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries == nil {
		m.entries = make(map[fetch.Key]*Entry)
	}
	m.entries[e.record.Key()] = e
}

func (m *MapTier) drop(k fetch.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, k)
}

func (m *MapTier) keys() iter.Seq[fetch.Key] {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Keys(maps.Clone(m.entries))
}

func (m *MapTier) resize(int64) {}

func (m *MapTier) close() {}

// Flights returns the number of flights in progress.
func (c *Cache) Flights() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.flights)
}

// WaitHot waits until the hot tier has applied all sets.
func (c *Cache) WaitHot() {
	if t, ok := c.hot.(*ristrettoTier); ok {
		t.cache.Wait()
	}
}

// Cost returns the size of the entry in the hot tier.
func (e *Entry) Cost() int64 { return e.cost() }

// LeaseTTL is the lifetime of a lease that is not renewed, and LeaseWait the longest time that a
// cache with the default budget waits for another's.
const (
	LeaseTTL  = leaseTTL
	LeaseWait = 20*time.Second + leaseMargin
)

// Stats are counts of the content of a cache.
type Stats struct {
	Waiters, Due, Unsaved int
	Queued                [classes]int
}

// Stats returns the present counts.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Stats{Due: len(c.due), Waiters: c.waiters, Unsaved: len(c.pending.entries)}
	for cl := range classes {
		s.Queued[cl] = c.slots[cl].queue.Len()
	}
	return s
}

// Idle reports whether no retrieval has a slot.
func (c *Cache) Idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.slots {
		if s.inFlight > 0 || !s.reading.TryAcquire(int64(s.readers)) {
			return false
		}
		s.reading.Release(int64(s.readers))
	}
	return true
}

// PutHot puts an entry into the hot tier.
func (c *Cache) PutHot(e *Entry) { c.hot.put(e) }
