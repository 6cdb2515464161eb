package robotscache

import (
	"container/list"
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/crawlgate/crawlgate/fetch"
)

// flight is the work under way for one origin: first a look into the store, then perhaps a
// retrieval, when its turn comes. All requests for the origin wait for it. There is at most one
// flight for an origin; it belongs to none of its waiters, and none of them can end it by leaving.
type flight struct {
	key        fetch.Key
	born       time.Time
	background bool          // begun by no request, to replace an entry
	known      func() *Entry // the entry at the first call, nil without one

	// Guarded by Cache.mu.
	waiters   int
	class     class
	queued    *list.Element // its place in the queue of its class, nil if it has none
	forced    bool          // an answer older than the flight does not do
	unsaved   bool          // it says nothing that the store should have
	discarded bool          // purged, or not to be kept: the result is for its waiters alone
	completed bool

	// Set before done is closed, read after.
	done   chan struct{}
	entry  *Entry
	source Source
	err    error
}

// addFlight registers a flight for k. c.mu is held.
func (c *Cache) addFlight(k fetch.Key) *flight {
	f := &flight{
		key:   k,
		born:  time.Now(),
		known: sync.OnceValue(func() *Entry { return c.recall(k) }),
		done:  make(chan struct{}),
	}
	c.flights[k] = f
	return f
}

// join makes the caller a waiter of the flight of k. If leads is true the flight is new, and the
// caller must call lead.
func (c *Cache) join(k fetch.Key, forced bool) (f *flight, leads bool, err error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, false, ErrClosed
	}
	f = c.flights[k]
	if c.waiters >= c.cfg.Waiters || f != nil && f.waiters >= c.cfg.WaitersPerOrigin {
		c.mu.Unlock()
		c.cfg.Observer.Dropped(DropWaiter)
		return nil, false, ErrPending
	}
	if f == nil {
		f, leads = c.addFlight(k), true
		c.work.Add(1)
	}
	f.waiters++
	c.waiters++
	f.forced = f.forced || forced
	c.mu.Unlock()
	return f, leads, nil
}

// current returns the entry to answer from while a background flight is under way to replace it;
// nil if the request has to wait.
func (c *Cache) current(f *flight) *Entry {
	if !f.background {
		return nil
	}
	e := f.known()
	if e == nil || !c.policy().Fresh(e.record, time.Now()) {
		return nil
	}
	return e
}

// promote moves a queued background flight among the first requests: somebody waits for it.
func (c *Cache) promote(f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	place, from := f.queued, f.class
	if place != nil && from != classFirst && c.enqueue(f, classFirst) == nil {
		c.slots[from].queue.Remove(place)
	}
}

// leave undoes join.
func (c *Cache) leave(f *flight) {
	c.mu.Lock()
	f.waiters--
	c.waiters--
	c.mu.Unlock()
}

// wait waits for the result of the flight, for the budget at most.
func (c *Cache) wait(ctx context.Context, f *flight) (*Entry, error) {
	timer := time.NewTimer(c.tuned.Load().Budget + waitGrace)
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

// lead does the first part of a new flight on the goroutine of the request that caused it: it asks
// the store and, where that does not answer, queues for a retrieval. It does not end early if that
// request does, since others may have joined; the store is bounded in time.
func (c *Cache) lead(f *flight) {
	defer c.work.Done()
	defer c.completeIfPanicking(f)
	known := f.known()
	fresh := known != nil && c.policy().Fresh(known.record, time.Now())

	c.mu.Lock()
	fresh = fresh && !f.forced
	var err error
	if !fresh {
		err = c.enqueue(f, classFirst)
	}
	c.mu.Unlock()
	switch {
	case fresh:
		c.complete(f, known, SourceStore, nil)
	case err != nil:
		c.complete(f, nil, SourceNone, err)
		if errors.Is(err, ErrPending) {
			c.cfg.Observer.Dropped(DropQueue)
		}
	}
}

// enqueue has f retrieved when it is its turn in a class. It returns ErrPending if too many wait
// there already, and ErrClosed. c.mu is held.
func (c *Cache) enqueue(f *flight, cl class) error {
	s := c.slots[cl]
	switch {
	case c.closed:
		return ErrClosed
	case s.queue.Len() >= c.cfg.Queue:
		return ErrPending
	}
	f.class, f.queued = cl, s.queue.PushBack(f)
	c.dispatch(s)
	return nil
}

// dispatch begins as many flights as there are free slots. c.mu is held.
func (c *Cache) dispatch(s *slots) {
	for s.inFlight < s.size && s.queue.Len() > 0 {
		f := s.queue.Remove(s.queue.Front()).(*flight) //nolint:forcetypeassert // it holds nothing else
		f.queued = nil
		s.inFlight++
		c.work.Go(func() {
			c.runInSlot(f, s)
			c.mu.Lock()
			defer c.mu.Unlock()
			s.inFlight--
			c.dispatch(s)
		})
	}
}

// runInSlot makes the retrieval of a flight in its slot, unless all its waiters have left: then
// it queues the flight as a retry.
func (c *Cache) runInSlot(f *flight, s *slots) {
	err := s.starts.Wait(c.base)
	if err != nil {
		err = ErrClosed
	}
	c.mu.Lock()
	abandoned := f.class == classFirst && f.waiters == 0 // those that somebody waits for go first
	if err == nil && abandoned {
		err = c.enqueue(f, classRetry)
	}
	reading := s.reading
	c.mu.Unlock()
	switch {
	case err != nil:
		c.complete(f, nil, SourceNone, err)
		if errors.Is(err, ErrPending) {
			c.cfg.Observer.Dropped(DropRefresh)
		}
	case !abandoned:
		c.retrieve(f, reading)
	}
}

// complete ends a flight, once: it publishes the result, keeps the entry in the hot tier, and for
// the store if it is new, unless the flight is discarded, and lets the waiters go.
func (c *Cache) complete(f *flight, e *Entry, s Source, err error) (discarded bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.completed {
		return f.discarded
	}
	f.completed = true
	if c.flights[f.key] == f {
		delete(c.flights, f.key)
	}
	// Under the lock, so that no purge or later flight comes in between.
	if e != nil && !f.discarded {
		c.hot.put(e)
		if s == SourceFetch && !f.unsaved {
			c.pending.put(e)
		}
	}
	f.entry, f.source, f.err = e, s, err
	close(f.done)
	return f.discarded
}

// completeIfPanicking is deferred by all work on f. Only a defect in the reading of hostile bytes
// can cause a panic; it ends the flight without an answer, and not the gateway of all crawlers.
func (c *Cache) completeIfPanicking(f *flight) {
	if v := recover(); v != nil {
		c.cfg.Observer.Panicked(f.key, v, debug.Stack())
		c.complete(f, nil, SourceNone, ErrPending)
	}
}

// refresh queues a retrieval in the background, unless there is a flight. It returns false if the
// queue is full.
func (c *Cache) refresh(k fetch.Key, retry bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.flights[k] != nil {
		return true
	}
	f, cl := c.addFlight(k), classRefresh
	f.background = true
	if retry {
		cl = classRetry
	}
	if c.enqueue(f, cl) != nil {
		delete(c.flights, k)
		return false
	}
	return true
}

// fullPause is how long an origin waits for room in the queues.
const fullPause = 10 * time.Second

// refreshLater has an origin that is asked about refreshed when that is due: early, at 80 % of the
// TTL, or for the retry of an unreachable one (docs/status-table.md). So an origin in use need not
// be asked about in the last fifth of its TTL to be refreshed in time, and a crawler that comes
// back after Retry-After finds the retry already made. An origin that nobody asks about is
// refreshed once at most.
//
// Of an origin the latest call counts. One for which there is no room is refreshed when a request
// finds it due.
func (c *Cache) refreshLater(k fetch.Key, retry bool, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopTimer(k)
	c.startTimer(k, retry, wait)
}

// startTimer is refreshLater for an origin without a timer. c.mu is held.
func (c *Cache) startTimer(k fetch.Key, retry bool, wait time.Duration) {
	if c.closed || len(c.due) >= maxDue {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(wait, func() {
		c.mu.Lock()
		listed := c.due[k] == timer // it may have been stopped just now
		if listed {
			delete(c.due, k)
		}
		c.mu.Unlock()
		if !listed || c.refresh(k, retry) {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.due[k] == nil { // else a newer answer has set it
			c.startTimer(k, retry, fullPause)
		}
	})
	c.due[k] = timer
}

// stopTimer undoes refreshLater. c.mu is held.
func (c *Cache) stopTimer(k fetch.Key) {
	if timer := c.due[k]; timer != nil {
		timer.Stop()
		delete(c.due, k)
	}
}

// class says what a retrieval is for. Each class has slots of its own: new origins, however many
// and however slow, cannot make the origins in use run out of their time.
type class uint8

const (
	// classFirst: requests wait for it.
	classFirst class = iota
	// classRefresh: an early refresh of a good answer; nobody waits.
	classRefresh
	// classRetry: a retry of an unreachable origin, or a first request that its waiters gave up;
	// nobody waits, and it will probably hang.
	classRetry
	classes
)

// share is the part of n that a class gets: first requests three quarters, the others an eighth
// each, and each at least one.
func (cl class) share(n int) int {
	if cl == classFirst {
		return max(n*3/4, 1)
	}
	return max(n/8, 1)
}

// startsPerSecond is how many retrievals of a class may begin in a second, for each of
// Config.Parallel. A storm of 10,000 new origins so begins within 13 s, in time for all of them,
// and does not keep the CPU from the origins that are known.
const startsPerSecond = 3

// slots bounds the retrievals of one class. One that only waits for its server costs a connection,
// and 200 hosts that never answer must not keep all others waiting: many may be in flight. One
// whose server has begun to answer will hold a file: few may read.
type slots struct {
	// Guarded by Cache.mu.
	queue    list.List // of *flight, first come, first served
	size     int       // how many may be in flight
	inFlight int

	readers int // how many may read
	reading *semaphore.Weighted
	starts  *rate.Limiter
}

// newSlots returns the slots of a class, given the limits of all three together.
func newSlots(cl class, inFlight, parallel int) *slots {
	s := &slots{starts: rate.NewLimiter(0, cl.share(parallel))}
	s.resize(cl, inFlight, parallel)
	return s
}

// resize changes the limits. Retrievals beyond them go on, and those that read by the old limit are
// not counted by a new one.
func (s *slots) resize(cl class, inFlight, parallel int) {
	s.size = cl.share(inFlight)
	if readers := cl.share(parallel); readers != s.readers {
		s.readers, s.reading = readers, semaphore.NewWeighted(int64(readers))
	}
	s.starts.SetLimit(rate.Limit(startsPerSecond * parallel))
	s.starts.SetBurst(cl.share(parallel))
}
