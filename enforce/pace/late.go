package pace

import "time"

// hopeless refuses a newcomer that cannot be in time at one of its clocks.
func (w *waiter) hopeless() *Refused {
	for i := range w.stops {
		s := &w.stops[i]
		s.shard.mu.Lock()
		now := w.pacer.now()
		c := w.find(s, now)
		c.tidy(now)
		if len(w.stops) > 1 {
			s.pin(c)
		}
		due := c.forecast(w, s.terms, now)
		if due <= max(w.deadline, now) {
			s.shard.mu.Unlock()
			continue
		}
		refused := w.tooLate(s, c, due, now)
		s.shard.mu.Unlock()
		return refused
	}
	return nil
}

// late refuses w when it has waited too long, or knows that it would. until is
// when it could go, never when it does not know.
func (w *waiter) late(until, now instant) *Refused {
	if w.refusal.Load() != nil {
		return nil // run sees it next, with the reason and the time of who knew better
	}
	s := &w.stops[0]
	switch {
	case w.at < len(w.stops):
		s = &w.stops[w.at]
	case w.slot != nil && (!w.slot.shifted || w.slot.at <= w.end()): // booked at the shared clock, in time
		return nil
	}
	if s.clock == nil {
		return nil // refused by the line: run sees it next
	}
	if until <= w.end() && now < w.end() || until == never && now < w.deadline {
		return nil
	}
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	c := s.clock
	if until == never && w.flow != nil && c.next() != w {
		until = c.forecastOf(w, now)
		if until <= w.end() && now < w.end() {
			return nil
		}
	}
	if until == never {
		until = now // a place in flight is missing
	}
	return w.tooLate(s, c, until, now)
}

// tooLate is the refusal of w at a clock where it could go at due only, under
// the shard's lock. Where others are the cause it keeps its place among them.
func (w *waiter) tooLate(s *stop, c *clock, due, now instant) *Refused {
	due = max(due, now)
	why := w.reason(s, c, now)
	switch why {
	case ReasonConcurrency:
		// Nobody knows when a place will be free.
		due = max(due, now+time.Second, now+s.terms.cost())
	case ReasonWait:
		c.lineUp().queue.keep(w, s.terms, due, due+w.config.Wait)
	default: // the block, or the clocks of many, decide: no place to keep
	}
	return &Refused{Key: s.key, Reason: why, RetryAfter: due - now}
}

// reason says why a request must wait at the clock, under the shard's lock.
func (w *waiter) reason(s *stop, c *clock, now instant) Reason {
	switch {
	case c == s.shard.spill:
		return ReasonOverflow
	case c.blockedUntil() > now:
		return ReasonBlocked
	case w.pacer.full(s.shard, c, w.footing().local(s.terms), w.agent) && c.meter.ready(s.terms) <= now:
		return ReasonConcurrency
	}
	return ReasonWait
}

// retryAfter is when a newcomer like w could go, from now.
func (w *waiter) retryAfter(now instant) time.Duration {
	due := now
	for i := range w.stops {
		s := &w.stops[i]
		s.shard.mu.Lock()
		if c := s.shard.clocks[s.key]; c != nil {
			due = max(due, c.forecast(w, s.terms, now))
		}
		s.shard.mu.Unlock()
	}
	return due - now
}

// refuse tells the observer.
func (w *waiter) refuse(r *Refused) error {
	w.config.Observer.Refused(r.Reason)
	return r
}

// refusedBy refuses w on behalf of another goroutine.
func (w *waiter) refusedBy(c *clock, why Reason, retryAfter time.Duration) {
	w.refusal.CompareAndSwap(nil, &Refused{Key: c.key, Reason: why, RetryAfter: retryAfter})
	w.rouse()
}
