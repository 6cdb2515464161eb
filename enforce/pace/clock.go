package pace

import "time"

// clock is all that is kept of one key. It is guarded by its shard's lock. A
// million of them is a normal day: the rare parts hang on pointers.
type clock struct {
	key    string
	meter  meter
	block  *block // nil: the site never asked to be left alone, or that is forgiven
	line   *line  // nil: nobody waits
	flying int32  // requests in flight that are counted
	serial uint32 // counts the requests that went
}

// line is those who wait at a clock: the one that has the turn, and the queue
// behind it.
type line struct {
	turn *waiter
	// terms are those of the one that has the turn, due is when it expects to
	// go. They stand here because the waiter itself moves on to other clocks.
	terms terms
	due   instant
	queue queue
}

// never is the time of something that only another event can bring about.
const never = instant(1<<63 - 1)

// blockedUntil is the end of the block, in the past when there is none.
func (c *clock) blockedUntil() instant {
	if c.block == nil {
		return 0
	}
	return c.block.until
}

// ready is the instant from which a request under t may go, as far as time
// decides.
func (c *clock) ready(t terms) instant {
	return max(c.meter.ready(t), c.blockedUntil())
}

// full reports whether no place in flight is left under t.
func (c *clock) full(t terms) bool {
	return t.places > 0 && c.flying >= t.places
}

// free reports whether a request under t may go at once, overtaking nobody.
func (c *clock) free(t terms, now instant) bool {
	return c.line == nil && !c.full(t) && c.ready(t) <= now
}

// charge books a request that goes now and returns the state without it.
func (c *clock) charge(t terms, now instant) meter {
	if c.block != nil && c.block.fresh {
		// What piled up while the site wanted quiet must not burst upon it.
		c.meter = c.meter.spent(t, now)
		c.block.fresh = false
	}
	before := c.meter
	c.meter = c.meter.take(t, now)
	c.serial++
	if t.places > 0 {
		c.flying++
	}
	return before
}

// forecast is when a newcomer could go.
func (c *clock) forecast(agent string, weight int, t terms, now instant) instant {
	l := c.line
	if l == nil || l.turn == nil {
		return max(now, c.ready(t))
	}
	rates, gaps := l.queue.ahead(agent, weight, t)
	return c.behind(rates, gaps, t, now)
}

// forecastOf is when w, who waits in the queue, could go.
func (c *clock) forecastOf(w *waiter, now instant) instant {
	rates, gaps := c.line.queue.aheadOf(w)
	return c.behind(rates, gaps, w.terms, now)
}

// behind is when a request under t could go after the one that has the turn and
// others that need rates and gaps.
func (c *clock) behind(rates, gaps time.Duration, t terms, now instant) instant {
	l := c.line
	due := max(now, l.due, c.blockedUntil())
	return max(due, c.meter.take(l.terms, due).after(rates, gaps, t))
}

// join puts w in line: it gets the turn when nobody has it.
func (c *clock) join(w *waiter, now instant) {
	if c.line == nil {
		c.line = &line{}
	}
	if c.line.turn == nil {
		c.give(w, now)
		return
	}
	c.line.queue.push(w)
}

// give gives w the turn.
func (c *clock) give(w *waiter, now instant) {
	l := c.line
	l.turn, l.terms = w, w.terms
	l.due = max(now, c.ready(w.terms))
}

// pass takes the turn from who has it and gives it to the next in line.
func (c *clock) pass(now instant) {
	w := c.line.queue.pop()
	if w == nil {
		c.line = nil
		return
	}
	c.give(w, now)
	w.rouse()
}

// leave takes w out of the line, wherever it stands.
func (c *clock) leave(w *waiter, now instant) {
	switch {
	case c.line == nil:
	case c.line.turn == w:
		c.pass(now)
	case w.flow != nil:
		c.line.queue.remove(w)
	}
}

// land gives back a place in flight.
func (c *clock) land() {
	c.flying--
	c.rouse()
}

// rouse lets the one that has the turn look again.
func (c *clock) rouse() {
	if c.line != nil && c.line.turn != nil {
		c.line.turn.rouse()
	}
}

// idle reports whether the clock says no more than a new one would.
func (c *clock) idle(p Backoff, now instant, keep time.Duration) bool {
	return c.line == nil && c.flying == 0 && c.meter.quiet(now, keep) &&
		(c.block == nil || c.block.forgotten(p, now))
}
