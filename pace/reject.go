package pace

import (
	"fmt"
	"time"
)

// Reason says why a request was refused. The set is closed.
type Reason string

const (
	// ReasonWait means that the slot lies further ahead than the request may be held.
	ReasonWait Reason = "wait"
	// ReasonBlocked means that the site asked for a pause, by 429, 430 or 503.
	ReasonBlocked Reason = "blocked"
	// ReasonConcurrency means that all places for requests in flight stayed taken.
	ReasonConcurrency Reason = "concurrency"
	// ReasonQueueFull means that the queue of the key is full, and this agent has at least its share
	// of it.
	ReasonQueueFull Reason = "queue_full"
	// ReasonWaitersFull means that the most requests that may wait in the whole Pacer are waiting.
	ReasonWaitersFull Reason = "waiters_full"
	// ReasonOverflow means that the Pacer has as many keys as it may keep, and the request is for a
	// new one.
	ReasonOverflow Reason = "overflow"
)

// Refused is the error of a request that got no slot. It used none.
//
//nolint:errname // pace.Refused reads well, and the package has no other error type
type Refused struct {
	// Key is the clock that refused.
	Key    string
	Reason Reason
	// RetryAfter is the time from now until a slot would be free for the request. It is exact if the
	// waiting requests go as planned and no other gateway takes a slot in between. If only a place in
	// flight is missing, nobody can know the time; RetryAfter is then at least a second.
	RetryAfter time.Duration
}

func (r *Refused) Error() string {
	return fmt.Sprintf("pacing %s: refused (%s), retry after %s", r.Key, r.Reason, r.RetryAfter)
}

// rejectLate refuses a newcomer that cannot be in time at the clock of the step.
func (w *waiter) rejectLate(s *step) *Refused {
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	now := w.pacer.now()
	c := w.pacer.table.clock(s.shard, s.key, w.config, now, w.config.shardKeys())
	if c == nil {
		return &Refused{Key: s.key, Reason: ReasonOverflow, RetryAfter: w.config.Idle}
	}
	c.expire(now)
	if due := c.forecast(w, s.terms, now); due > max(w.deadline, now) {
		return w.refusalAt(s, c, due, now)
	}
	return nil
}

// tooLate refuses w when another request has refused it, when it has waited too long, or when it
// knows that it would. until is when it could go, never when it does not know.
func (w *waiter) tooLate(until, now instant) *Refused {
	if refused := w.refusal.Load(); refused != nil {
		return refused
	}
	s := &w.steps[0]
	switch {
	case w.at < len(w.steps):
		s = &w.steps[w.at]
	case w.reservation != nil: // made for an instant in time
		return nil
	}
	if until <= w.end() && now < w.end() || until == never && now < w.deadline {
		return nil
	}
	until = w.forecast(until, now)
	if until <= w.end() && now < w.end() {
		return nil
	}
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	return w.refusalAt(s, s.clock, until, now)
}

// forecast is when w could go. It has advanced until the given instant; where that is never, the
// queue in which it stands may know, unless a place in flight is missing.
func (w *waiter) forecast(until, now instant) instant {
	if until != never || w.at == len(w.steps) {
		return until
	}
	s := &w.steps[w.at]
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	if w.flow == nil || s.clock.queue.first() == w {
		return never
	}
	return s.clock.forecast(w, w.terms, now)
}

// refusalAt is the refusal of w at a clock where it could go at due only, never if nobody knows,
// under the shard's lock. Where others are the cause it keeps its position among them.
func (w *waiter) refusalAt(s *step, c *clock, due, now instant) *Refused {
	if due == never || due < now {
		due = now
	}
	switch t := w.pacer.coordination().dividePlaces(s.terms); {
	case c.blockedUntil() > now:
		return &Refused{s.key, ReasonBlocked, due - now}
	case c.gcra.ready(t) <= now && w.pacer.full(s.shard, c, t, w.agent):
		// Nobody knows when a place will be free.
		return &Refused{s.key, ReasonConcurrency, max(due-now, time.Second, s.terms.cost())}
	}
	c.openQueue().keep(w, s.terms, due, due+w.config.Wait)
	return &Refused{s.key, ReasonWait, due - now}
}

// refuse tells the observer.
func (p *Pacer) refuse(r *Refused) error {
	p.config.Load().Observer.Refused(r.Reason)
	return r
}

// refuseFor refuses w on behalf of another goroutine.
func (w *waiter) refuseFor(key string, why Reason, retryAfter time.Duration) {
	w.refusal.CompareAndSwap(nil, &Refused{Key: key, Reason: why, RetryAfter: retryAfter})
	w.wakeUp()
}

// forecast is when w could go at the clock: as it waits in the queue or, with the terms t, comes
// now. All that go before it are played through, which takes some 50 µs where a thousand wait.
// Slots that other gateways reserve in between are not known.
func (c *clock) forecast(w *waiter, t terms, now instant) instant {
	on, start, g := w.pacer.coordination(), max(now, c.blockedUntil()), c.gcra
	first := true
	goes := func(t terms, at instant) {
		if first {
			g, first = c.stateFor(t, at), false
		}
		g = g.take(on.local(t), at)
	}
	if q := c.queue; q != nil {
		if q.current != nil {
			goes(q.terms, max(start, on.ready(g, q.terms, c.key, now, start), q.due))
		}
		for t := range q.ahead(w, t) {
			goes(t, max(start, on.ready(g, t, c.key, now, start)))
		}
	}
	return max(start, on.ready(g, t, c.key, now, start))
}
