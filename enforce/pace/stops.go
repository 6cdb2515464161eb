package pace

// tryStop puts w in line at the stop, and takes the turn there when w is next
// and the clock is ready.
func (w *waiter) tryStop(s *stop, on footing) (until instant, ok bool) {
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	now := w.pacer.now() // under the lock: never before what others charged
	if s.clock == nil && !w.join(s, now) {
		return never, false
	}
	c := s.clock
	if c == nil {
		return now, true // merged into an earlier stop
	}
	if c.next() != w {
		return never, false
	}
	until, ok = w.due(s, on, now)
	if ok {
		c.take(w)
	}
	return until, ok
}

// due is when the clock will be ready for w, who is next there.
func (w *waiter) due(s *stop, on footing, now instant) (instant, bool) {
	c := s.clock
	if w.pacer.full(s.shard, c, on.local(s.terms), w.agent) {
		return never, false
	}
	at := on.ready(w, s, now)
	if c.line.taken == nil {
		at = c.line.queue.holdBack(at)
	}
	return at, at <= now
}

// join puts w in line, under the shard's lock.
func (w *waiter) join(s *stop, now instant) bool {
	c := s.pinned
	if c == nil {
		c = w.find(s, now)
	}
	for i := range w.at {
		if o := &w.stops[i]; o.clock == c {
			o.terms = o.terms.strictest(s.terms) // both keys are in overflow
			return true
		}
	}
	if c.line != nil && c.line.queue.n >= w.config.Queue && !w.makeRoom(c, now) {
		w.refusedBy(c, ReasonQueueFull, c.forecast(w, s.terms, now)-now)
		return false
	}
	s.clock = c
	w.terms = s.terms
	c.lineUp().queue.push(w)
	s.shard.weigh(c)
	return true
}

// find looks up the stop's clock, under the shard's lock. A key that has to use
// the overflow clock goes on doing so until w is through.
func (w *waiter) find(s *stop, now instant) *clock {
	c := w.pacer.table.clock(s.shard, s.key, w.config, now)
	if c == s.shard.spill && !s.spills {
		s.spills = true
		s.shard.spilled[s.key]++
	}
	return c
}

// pin keeps the clock for w until it is through. Requests with several clocks
// need that: they take their turns in an order of the clocks, and while they do
// none may be swept and made anew as another one.
func (s *stop) pin(c *clock) {
	s.pinned = c
	c.lineUp().pins++
}

// through ends what find and pin began.
func (s *stop) through() {
	if s.pinned == nil && !s.spills {
		return
	}
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	if s.pinned != nil {
		s.pinned.line.pins--
		s.pinned.settle()
	}
	if s.spills {
		s.shard.unspill(s.key)
	}
}

// makeRoom refuses one request of an agent that has more of them than w's.
func (w *waiter) makeRoom(c *clock, now instant) bool {
	v := c.line.queue.victim(w.agent)
	if v == nil {
		return false
	}
	v.refusedBy(c, ReasonQueueFull, c.forecastOf(v, now)-now)
	c.line.queue.remove(v)
	return true
}

// back returns w to stop i: it keeps the turns up to there and gives up those
// beyond, so that it does not hold up others meanwhile.
func (w *waiter) back(i int) {
	w.unbook()
	for j := i + 1; j < len(w.stops); j++ {
		w.leaveLocking(&w.stops[j])
	}
	w.at = i
}

// withdraw takes w out of all lines where it still is.
func (w *waiter) withdraw() {
	w.unbook()
	for i := range w.stops {
		s := &w.stops[i]
		w.leaveLocking(s)
		s.through()
	}
}

func (w *waiter) leaveLocking(s *stop) {
	if s.clock == nil {
		return
	}
	s.shard.mu.Lock()
	w.leave(s)
	s.shard.mu.Unlock()
}

// leave takes w out of the line at the stop, under the shard's lock.
func (w *waiter) leave(s *stop) {
	s.shard.leave(s.clock, w)
	s.clock = nil
}
