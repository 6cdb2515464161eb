package pace

import "time"

// clock is all that is kept of one key. It is guarded by its shard's lock. A
// million of them is a normal day: the rare parts hang on pointers.
type clock struct {
	key    string
	meter  meter
	block  *block // nil: the site never asked to be left alone, or that is forgiven
	line   *line  // nil: nobody waits, and nobody was told to come back
	flying int32  // requests in flight that are counted
	serial uint32 // counts the requests that went
}

// line is those who wait at a clock. The head of the queue is next, until it
// takes the turn: from then on, while it stands at other clocks, nobody
// overtakes it.
type line struct {
	queue queue
	taken *waiter // who has taken the turn
	terms terms   // those of taken; the waiter itself has moved on
	pins  int     // requests that will come
	// due is when the last slot booked at a shared clock is, crowd how many times
	// its own part of the time a request seems to need there.
	due   instant
	crowd float64
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

// charge books a request that goes now and returns the state without it.
func (c *clock) charge(t terms, now instant) meter {
	before := c.rested(t, now)
	if c.block != nil {
		c.block.fresh = false
	}
	c.meter = before.take(t, now)
	c.serial++
	return before
}

// rested is the meter for the next request: right after a block it has no burst,
// as what piled up while the site wanted quiet must not burst upon it.
func (c *clock) rested(t terms, at instant) meter {
	if c.block != nil && c.block.fresh {
		return c.meter.spent(t, at)
	}
	return c.meter
}

// forecast is when a newcomer could go.
func (c *clock) forecast(w *waiter, t terms, now instant) instant {
	var l load
	if c.line != nil {
		l = c.line.queue.ahead(w.agent, w.weight, t)
	}
	return c.behind(l, t, now)
}

// forecastOf is when w, who waits in the queue, could go.
func (c *clock) forecastOf(w *waiter, now instant) instant {
	return c.behind(c.line.queue.aheadOf(w), w.terms, now)
}

// behind is when a request under t could go after those of the load, the head
// of the queue first among them, and after the one that has taken the turn.
func (c *clock) behind(l load, t terms, now instant) instant {
	start := max(now, c.blockedUntil())
	m := c.meter
	if c.line != nil && c.line.taken != nil {
		first := c.line.terms
		at := max(start, m.ready(first), c.line.due)
		m = c.rested(first, at).take(first, at)
	}
	if l.n == 0 {
		return max(start, m.ready(t))
	}
	first := c.line.queue.head.terms
	at := max(start, m.ready(first))
	if c.line.taken == nil {
		m = c.rested(first, at)
	}
	m = m.take(first, at)
	rates, gaps := l.interval-first.interval, l.gap-first.gap
	if crowd := c.line.crowd; crowd > 1 {
		rates, gaps = time.Duration(float64(rates)*crowd), time.Duration(float64(gaps)*crowd)
	}
	return max(start, m.after(rates, gaps, t))
}

// lineUp returns the clock's line, which may have to be made.
func (c *clock) lineUp() *line {
	if c.line == nil {
		c.line = &line{}
	}
	return c.line
}

// tidy drops claims that are over, and a line that is empty.
func (c *clock) tidy(now instant) {
	if c.line == nil {
		return
	}
	c.line.queue.expire(now)
	c.settle()
}

// settle drops a line that is of no use any more.
func (c *clock) settle() {
	if l := c.line; l.taken == nil && l.pins == 0 && len(l.queue.flows) == 0 {
		c.line = nil
	}
}

// next is who may go next.
func (c *clock) next() *waiter {
	if c.line.taken != nil {
		return c.line.taken
	}
	return c.line.queue.head
}

// take gives the turn for good to w, who is next.
func (c *clock) take(w *waiter) {
	l := c.line
	if l.taken == w {
		return
	}
	l.taken, l.terms = w, w.terms
	l.queue.pop()
}

// leave takes w out of the line at c, wherever it stands, and wakes who is next now.
func (s *shard) leave(c *clock, w *waiter) {
	l := c.line
	if l == nil {
		return
	}
	before := c.next()
	switch {
	case l.taken == w:
		l.taken = nil
	case w.flow != nil:
		l.queue.remove(w)
	default:
		return // somebody took it out before refusing it
	}
	s.weigh(c)
	if n := c.next(); n != nil && n != before {
		n.rouse()
	}
	c.settle()
}

// rouse lets the one that is next look again.
func (c *clock) rouse() {
	if c.line == nil {
		return
	}
	if n := c.next(); n != nil {
		n.rouse()
	}
}

// idle reports whether the clock says no more than a new one would.
func (c *clock) idle(p Backoff, now instant, keep time.Duration) bool {
	return c.line == nil && c.flying == 0 && c.meter.quiet(now, keep) &&
		(c.block == nil || c.block.forgotten(p, now))
}
