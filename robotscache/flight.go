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

// flight is the work in progress for one origin: first a look into the store, then perhaps a
// retrieval when its turn comes. All requests for the origin wait for it. An origin has at most one
// flight. It does not belong to any of its waiters, so none of them ends it by leaving.
type flight struct {
	key        fetch.Key
	born       time.Time
	background bool          // started without a request, to replace an entry
	known      func() *Entry // returns the entry at the time of the first call, or nil

	// Guarded by Cache.mu.
	waiters   int
	class     class
	queued    *list.Element // its place in the queue of its class, nil if it has none
	forced    bool          // an answer older than the flight is not enough
	unsaved   bool          // its result should not be stored
	discarded bool          // purged, or not to be kept: only its waiters get the result
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

// current returns the entry to use while a background flight replaces it, or nil if the request has
// to wait.
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

// promote moves a queued background flight to the queue of first requests, because a request is
// waiting for it.
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

// wait waits for the result of the flight, at most for the budget.
func (c *Cache) wait(ctx context.Context, f *flight) (*Entry, error) {
	select {
	case <-f.done:
		return f.entry, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(c.tuned.Load().Budget + waitGrace):
		return nil, ErrPending
	}
}

// lead does the first part of a new flight on the goroutine of the request that caused it: it asks
// the store and, if the store has no usable entry, queues a retrieval. It does not end early with
// that request, because others may have joined; calls of the store are bounded in time.
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

// enqueue queues the retrieval of f in a class. It returns ErrPending if the queue is full, or
// ErrClosed. c.mu is held.
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

// dispatch starts as many flights as there are free slots. c.mu is held.
func (c *Cache) dispatch(s *slots) {
	for s.inFlight < s.size && s.queue.Len() > 0 {
		f := s.queue.Remove(s.queue.Front()).(*flight) //nolint:forcetypeassert // the list has no other type
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
	abandoned := f.class == classFirst && f.waiters == 0 // flights with waiters go first
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

// complete ends a flight, once: it publishes the result and wakes the waiters. Unless the flight is
// discarded, it keeps the entry in the hot tier and, if it is new, queues it for the store.
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
	// Under the lock, so that no purge or later flight can come in between.
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

// completeIfPanicking is deferred by all work on f. Only a defect in the parsing of hostile bytes
// can cause a panic. It ends the flight without an answer, and not the whole gateway.
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

// refreshLater schedules the refresh of an origin in use: at 80 % of the TTL, or at the next retry
// of an unreachable one (docs/status-table.md). So an origin in use is refreshed in time even
// without a request in the last fifth of its TTL, and a crawler that comes back after Retry-After
// finds the retry already made. An origin that nobody uses is refreshed at most once.
//
// The latest call for an origin counts. Without room in the list, an origin is refreshed when a
// request finds it due.
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
		listed := c.due[k] == timer // it may just have been stopped
		if listed {
			delete(c.due, k)
		}
		c.mu.Unlock()
		if !listed || c.refresh(k, retry) {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.due[k] == nil { // otherwise a newer answer has set it
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

// class says what a retrieval is for. Each class has its own slots, so new origins, however many
// and however slow, cannot keep origins in use from being refreshed in time.
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

// share returns a class's part of n: three quarters for first requests, an eighth for each other
// class, and at least one.
func (cl class) share(n int) int {
	if cl == classFirst {
		return max(n*3/4, 1)
	}
	return max(n/8, 1)
}

// startsPerSecond is how many retrievals of a class may begin in a second, for each of
// Config.Parallel. So a storm of 10,000 new origins starts within 13 s, in time for all of them,
// and leaves CPU time for known origins.
const startsPerSecond = 3

// slots bounds the retrievals of one class. A retrieval that only waits for its server costs a
// connection, and 200 hosts that never answer must not hold up all others. Therefore many may be in
// flight. A retrieval whose server has started to answer will hold a file, so only a few may read.
type slots struct {
	// Guarded by Cache.mu.
	queue    list.List // of *flight, first come, first served
	size     int       // how many may be in flight
	inFlight int

	readers int // how many may read
	reading *semaphore.Weighted
	starts  *rate.Limiter
}

// resize sets the limits of a class, given those of all three together. Retrievals beyond the new
// limits continue, and those that already read are not counted against them.
func (s *slots) resize(cl class, inFlight, parallel int) {
	s.size = cl.share(inFlight)
	if readers := cl.share(parallel); readers != s.readers {
		s.readers, s.reading = readers, semaphore.NewWeighted(int64(readers))
	}
	s.starts.SetLimit(rate.Limit(startsPerSecond * parallel))
	s.starts.SetBurst(cl.share(parallel))
}
