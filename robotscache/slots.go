package robotscache

import (
	"container/list"

	"golang.org/x/sync/semaphore"
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
