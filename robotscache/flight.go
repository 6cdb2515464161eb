package robotscache

import (
	"container/list"
	"context"
	"runtime/debug"
	"time"

	"github.com/crawlgate/crawlgate/origin"
)

// flight is the work under way for one origin: first a look into the store, then
// perhaps a turn in the schedule and a retrieval. All who ask for the origin
// meanwhile wait for it. There is at most one flight for an origin; it belongs to
// none of its waiters, and none of them can end it by leaving.
type flight struct {
	origin origin.Origin
	born   time.Time

	// Guarded by Cache.mu.
	waiters int
	class   class
	queued  *list.Element // its place in a queue of the schedule, nil if it has none
	spot    spot          // where it is once it has begun; see lane.go
	stage   stage
	since   time.Time     // of its place and stage
	ripe    *list.Element // its place among those that wait for room in a lane
	back    *list.Element // its place among those that come back from one
	placed  chan struct{} // closed when it has come back
	forced  bool          // an answer older than the flight does not do
	void    bool          // purged, or for want of means: what it brings is for its waiters alone
	landed  bool
	known   *Entry // the newest that was known when somebody looked
	looked  bool   // somebody did

	behind bool // begun by no request, to replace what is known: never changes

	// Set before done is closed, read after.
	done   chan struct{}
	entry  *Entry
	source Source
	err    error
}

// addFlight registers a flight for o. c.mu is held.
func (c *Cache) addFlight(o origin.Origin) *flight {
	f := &flight{
		origin: o,
		born:   time.Now(),
		done:   make(chan struct{}),
	}
	c.flights[o] = f
	return f
}

// join makes the caller a waiter of the flight of o. If leads is true the flight
// is new, and the caller must call lead.
func (c *Cache) join(o origin.Origin, forced bool) (f *flight, leads bool, err error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, false, ErrClosed
	}
	f = c.flights[o]
	if c.waiters >= c.cfg.Waiters || f != nil && f.waiters >= c.cfg.WaitersPerOrigin {
		c.mu.Unlock()
		c.cfg.Observer.Dropped(DropWaiter)
		return nil, false, ErrPending
	}
	if f == nil {
		f, leads = c.addFlight(o), true
		c.work.Add(1)
	}
	f.waiters++
	c.waiters++
	f.forced = f.forced || forced
	c.mu.Unlock()
	return f, leads, nil
}

// inForce returns the entry to answer from while a flight is under way that was
// begun behind the answers, to replace it; nil if the request has to wait.
func (c *Cache) inForce(f *flight) *Entry {
	if !f.behind {
		return nil
	}
	e := c.look(f)
	if e == nil || !c.policy().Fresh(e.record, time.Now()) {
		return nil
	}
	return e
}

// look returns what was known of the flight's origin when it began.
func (c *Cache) look(f *flight) *Entry {
	c.mu.Lock()
	known, looked := f.known, f.looked
	c.mu.Unlock()
	if looked {
		return known
	}
	known = c.recall(f.origin)
	c.mu.Lock()
	f.known, f.looked = known, true
	c.mu.Unlock()
	return known
}

// hurry moves a flight that somebody waits for now among the first requests.
func (c *Cache) hurry(f *flight) {
	c.mu.Lock()
	if f.queued != nil && f.class != classFirst {
		c.schedule.push(f, classFirst) // where there is no room, the turn it has will do
	}
	c.dispatchAndUnlock()
}

// leave undoes join.
func (c *Cache) leave(f *flight) {
	c.mu.Lock()
	f.waiters--
	c.waiters--
	c.mu.Unlock()
}

// wait waits for the flight to land, for the budget at most.
func (c *Cache) wait(ctx context.Context, f *flight) (*Entry, error) {
	timer := time.NewTimer(c.budget() + waitGrace)
	defer timer.Stop()
	select {
	case <-f.done:
		return f.entry, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return nil, ErrPending
	}
}

// lead does the first part of a new flight on the goroutine of the request that
// caused it: it asks the store and, where that does not answer, gets in line for
// a retrieval. It does not end early if that request does, since others may have
// joined; the store is bounded in time.
func (c *Cache) lead(f *flight) {
	defer c.work.Done()
	defer c.landIfPanicking(f)
	known := c.look(f)
	fresh := known != nil && c.policy().Fresh(known.record, time.Now())

	c.mu.Lock()
	switch {
	case fresh && !f.forced:
		c.mu.Unlock()
		c.land(f, known, SourceStore, nil)
	case c.closed:
		c.mu.Unlock()
		c.land(f, nil, SourceNone, ErrClosed)
	case c.schedule.push(f, classFirst):
		c.dispatchAndUnlock()
	default:
		c.mu.Unlock()
		c.land(f, nil, SourceNone, ErrPending)
		c.cfg.Observer.Dropped(DropQueue)
	}
}

// land ends a flight, once: it publishes the result, keeps the entry in the hot
// tier, and for the store if it is new, unless the flight is void, and lets the
// waiters go.
func (c *Cache) land(f *flight, e *Entry, s Source, err error) (void bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.landed {
		return f.void
	}
	f.landed = true
	if c.flights[f.origin] == f {
		delete(c.flights, f.origin)
	}
	// Under the lock, so that no purge or later flight comes in between.
	if e != nil && !f.void {
		c.hot.put(e)
		if s == SourceFetch {
			c.pending.put(e)
		}
	}
	f.entry, f.source, f.err = e, s, err
	close(f.done)
	return f.void
}

// landUnkept ends a flight whose result is for its waiters alone.
func (c *Cache) landUnkept(f *flight, e *Entry, err error) {
	c.mu.Lock()
	f.void = true
	c.mu.Unlock()
	s := SourceNone
	if err == nil {
		s = SourceFetch
	}
	c.land(f, e, s, err)
}

// landIfPanicking is deferred by who works on f. Only a defect in the reading of
// hostile bytes can cause a panic; it ends the flight without an answer, and not
// the gateway of all crawlers.
func (c *Cache) landIfPanicking(f *flight) {
	if v := recover(); v != nil {
		c.cfg.Observer.Panicked(f.origin, v, debug.Stack())
		c.land(f, nil, SourceNone, ErrPending)
	}
}

// dispatchAndUnlock starts workers for the flights whose turn it is, and releases
// c.mu before it tells anybody.
func (c *Cache) dispatchAndUnlock() {
	var lost []*flight
	for {
		f, l := c.schedule.next()
		lost = append(lost, l...)
		if f == nil {
			break
		}
		c.work.Add(1)
		go c.worker(f)
	}
	c.mu.Unlock()
	c.lose(lost)
}

// lose ends flights that nobody waits for and for which there is no room.
func (c *Cache) lose(lost []*flight) {
	for _, f := range lost {
		c.land(f, nil, SourceNone, ErrPending)
		c.cfg.Observer.Dropped(DropRefresh)
	}
}

// worker flies f, and then whatever is next, until there is nothing to do. There
// is one for each place and each retrieval in a lane, and none without work.
func (c *Cache) worker(f *flight) {
	defer c.work.Done()
	for f != nil {
		c.fly(f)
		var lost []*flight
		c.mu.Lock()
		c.schedule.done(f)
		f, lost = c.schedule.next()
		c.mu.Unlock()
		c.lose(lost)
	}
}
