package robotscache

import "container/list"

// class says what a retrieval is for. The order is that in which they are begun.
type class uint8

const (
	// classFirst: requests wait for it.
	classFirst class = iota
	// classRefresh: an early refresh of a good answer; nobody waits.
	classRefresh
	// classRetry: a retry of an unreachable origin, or a first request that its
	// waiters gave up; nobody waits, and it will probably hang.
	classRetry
	classes
)

// schedule decides which retrieval begins next. It is plain data under the lock
// of its cache: first come, first served within a class, and an origin is in it
// at most once, so no origin can take another's turn.
//
// Each class has a share of the parallel places that it cannot exceed: first
// requests three quarters, refreshes a quarter, retries an eighth. First requests
// go first, and yet, as the shares of the other two add up to less than all, an
// eighth is left to refreshes whatever hangs: new origins, however many and
// however slow, cannot make the origins in use run out of their time.
type schedule struct {
	parallel int
	silent   int // retrievals in the lanes of silent servers, in all
	limit    int // of each queue
	share    [classes]int
	queue    [classes]list.List // of *flight, to begin
	running  [classes]int       // places that are taken
	lanes    [classes][stages]lane
	back     [classes]list.List // of *flight, in the silent lane, that want a place again
}

func newSchedule(parallel, silent, limit int) *schedule {
	s := &schedule{limit: limit}
	s.resize(parallel, silent)
	return s
}

// resize changes how many may run at once. Those beyond run on.
func (s *schedule) resize(parallel, silent int) {
	s.parallel, s.silent = parallel, silent
	s.share = [classes]int{
		classFirst:   max(parallel*3/4, 1),
		classRefresh: max(parallel/4, 1),
		classRetry:   max(parallel/8, 1),
	}
	total := 0
	for _, share := range s.share {
		total += share
	}
	for c, share := range s.share {
		s.lanes[c][stageSilent].limit = max(silent*share/total, 1)
		s.lanes[c][stageSlow].limit = share * slowPerPlace
	}
}

// push puts f at the end of the queue of class c and reports whether there was
// room. A flight that was in another queue leaves it.
func (s *schedule) push(f *flight, c class) bool {
	if s.queue[c].Len() >= s.limit {
		return false
	}
	s.remove(f)
	f.class = c
	f.queued = s.queue[c].PushBack(f)
	return true
}

// remove takes f out of its queue, if it is in one.
func (s *schedule) remove(f *flight) {
	if f.queued != nil {
		s.queue[f.class].Remove(f.queued)
		f.queued = nil
	}
}

// next takes the flight whose turn it is to begin and gives it a place. It returns
// nil if none may begin now. First requests that nobody waits for any more are
// moved behind; those for which there is no room are returned as lost.
func (s *schedule) next() (f *flight, lost []*flight) {
	lost = s.demote()
	for c := range classes {
		s.clear(c)
		s.restore(c)
		if s.queue[c].Len() == 0 || !s.free(c) {
			continue
		}
		f, _ = s.queue[c].Front().Value.(*flight)
		s.remove(f)
		s.give(f)
		return f, lost
	}
	return nil, lost
}

// free reports whether there is a place for one more of class c.
func (s *schedule) free(c class) bool {
	total := 0
	for _, n := range s.running {
		total += n
	}
	return total < s.parallel && s.running[c] < s.share[c]
}

// demote moves abandoned flights from the front of the first requests' queue to
// the retries', up to one that is waited for.
func (s *schedule) demote() []*flight {
	var lost []*flight
	for {
		front := s.queue[classFirst].Front()
		if front == nil {
			return lost
		}
		f, _ := front.Value.(*flight)
		if f.waiters > 0 {
			return lost
		}
		if !s.push(f, classRetry) {
			s.remove(f)
			lost = append(lost, f)
		}
	}
}

// done counts a flight that had begun as ended.
func (s *schedule) done(f *flight) {
	s.stay(f)
	s.giveUp(f)
	if f.spot == spotLane {
		s.laneOf(f).in--
	} else {
		s.running[f.class]--
	}
	f.spot = spotNone
}

// drain empties the queues and returns what was in them.
func (s *schedule) drain() []*flight {
	var all []*flight
	for c := range classes {
		for s.queue[c].Len() > 0 {
			f, _ := s.queue[c].Front().Value.(*flight)
			s.remove(f)
			all = append(all, f)
		}
	}
	return all
}

func (s *schedule) queuedLoad() Load {
	return Load{s.queue[classFirst].Len(), s.queue[classRefresh].Len(), s.queue[classRetry].Len()}
}

func (s *schedule) runningLoad() Load {
	return Load{s.running[classFirst], s.running[classRefresh], s.running[classRetry]}
}

func (s *schedule) silentLoad() Load { return s.laneLoad(stageSilent) }

func (s *schedule) slowLoad() Load { return s.laneLoad(stageSlow) }

func (s *schedule) laneLoad(st stage) Load {
	return Load{s.lanes[classFirst][st].in, s.lanes[classRefresh][st].in, s.lanes[classRetry][st].in}
}
