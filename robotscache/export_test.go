package robotscache

// HotTier changes the hot tier of a new cache: nothing may depend on what it holds. A nil one does
// not.
type HotTier func(*Cache)

// DroppingTier has the cache drop every entry.
func DroppingTier(c *Cache) { c.hot.resize(0) }

// Flights returns the number of flights under way.
func (c *Cache) Flights() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.flights)
}

// Cost returns what the entry counts for in the hot tier.
func (e *Entry) Cost() int64 { return e.cost() }

// LeaseTTL is how long a lease lasts that is not renewed, LeaseWait how long a cache
// with the default budget waits for another's.
const (
	LeaseTTL  = leaseTTL
	LeaseWait = defaultBudget + leaseMargin
)

// Stats are counts of what a cache holds.
type Stats struct {
	Waiters, Due, Unsaved int
	Queued                [classes]int
}

// Stats returns the counts as they are.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Stats{Due: len(c.due), Waiters: c.waiters, Unsaved: len(c.pending.entries)}
	for cl := range classes {
		s.Queued[cl] = c.slots[cl].queue.Len()
	}
	return s
}

// Idle reports whether no retrieval holds a slot.
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
func (c *Cache) PutHot(e *Entry) { c.hot.put(e.record.Key(), e, e.cost()) }
