package robotscache

import (
	"container/list"
	"context"
	"sync"

	"golang.org/x/time/rate"
)

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

	reading *limit
	starts  *rate.Limiter
}

// newSlots returns the slots of a class, given the limits of all three together.
func newSlots(cl class, inFlight, parallel int) *slots {
	return &slots{
		size:    cl.share(inFlight),
		reading: &limit{size: cl.share(parallel)},
		starts:  rate.NewLimiter(rate.Limit(startsPerSecond*parallel), cl.share(parallel)),
	}
}

// resize changes the limits. Retrievals beyond them go on.
func (s *slots) resize(cl class, inFlight, parallel int) {
	s.size = cl.share(inFlight)
	s.reading.resize(cl.share(parallel))
	s.starts.SetLimit(rate.Limit(startsPerSecond * parallel))
	s.starts.SetBurst(cl.share(parallel))
}

// limit is a semaphore whose size may change; first come, first served. (x/sync/semaphore has one
// size.) All methods are safe for concurrent use.
type limit struct {
	mu         sync.Mutex
	size, used int
	waiting    list.List // of chan struct{}, closed when the caller is let in
}

// acquire waits until the caller is let in, or ctx ends.
func (l *limit) acquire(ctx context.Context) error {
	in := make(chan struct{})
	l.mu.Lock()
	place := l.waiting.PushBack(in)
	l.admit()
	l.mu.Unlock()
	select {
	case <-in:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-in:
		l.used--
		l.admit()
	default:
		l.waiting.Remove(place)
	}
	return ctx.Err()
}

// release undoes an acquire that returned nil.
func (l *limit) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used--
	l.admit()
}

// resize changes the size. With a smaller one nobody is let in until enough have left.
func (l *limit) resize(size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.size = size
	l.admit()
}

// admit lets in as many as there is room for. l.mu is held.
func (l *limit) admit() {
	for l.used < l.size && l.waiting.Len() > 0 {
		close(l.waiting.Remove(l.waiting.Front()).(chan struct{})) //nolint:forcetypeassert // it holds nothing else
		l.used++
	}
}
