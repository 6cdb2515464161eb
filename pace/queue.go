package pace

import (
	"iter"
	"slices"
	"time"
)

// queue holds the requests that wait for one clock, and decides which is next by self-clocked fair
// queueing (Golestani 1994). Each agent has a flow, first in first out. The head of a flow carries
// a tag, the virtual time at which it became the head plus its cost; the least tag is next, and the
// virtual time becomes that tag. So waiting agents share the clock's time evenly. A new agent, or
// one that comes back right after it was served, starts behind all heads that are waiting. Neither
// many names nor coming and going gives an agent an advantage.
//
// A flow exists while it holds a request, and for a while after a refusal to keep its agent's
// position. Flows are few, and every operation walks them.
type queue struct {
	flows   []*flow
	head    *waiter // the first of those that wait, nil when none does
	n       int     // requests
	virtual time.Duration
	seq     uint64

	// current was first, has left the queue and is passing the other clocks of its request. Until it
	// goes or leaves, no other request overtakes it.
	current *waiter
	terms   terms   // of current at this clock; the waiter itself has moved on
	due     instant // when the slot is that current has reserved at a shared clock, if it has
}

// flow is one agent's part of a queue.
type flow struct {
	agent   string
	waiters []*waiter
	held    bool          // its agent has all places that one may have: others go first
	base    time.Duration // virtual time when its head became the head
	seq     uint64        // order of that, for equal tags
	kept    kept
}

// kept is the position of an agent whose request was refused and that has no other request waiting.
// The flow's base stays, so the agent is first when it comes back. No slot is kept for it, except
// for the moment described at deferUntil.
//
// Without it, agents that ask all the time would take every slot from agents that come back when
// they were told to, if there are more agents than slots within the time that a request may be
// held. This happens at a Crawl-delay of half that time or more (see RESULTS.md).
type kept struct {
	until instant // zero: not kept
	due   instant // when the agent was told to come back; zero if it may be held until the slot after
	cost  time.Duration
}

// maxKept is how many flows a queue may have for a position to be kept in another one.
const maxKept = 64

func (q *queue) flow(agent string) *flow {
	for _, f := range q.flows {
		if f.agent == agent {
			return f
		}
	}
	return nil
}

// open returns the agent's flow, creating it if necessary.
func (q *queue) open(agent string) *flow {
	f := q.flow(agent)
	if f == nil {
		f = &flow{agent: agent}
		q.flows = append(q.flows, f)
		q.lead(f)
	}
	return f
}

// lead stamps f as having a new head.
func (q *queue) lead(f *flow) {
	q.seq++
	f.base, f.seq = q.virtual, q.seq
}

// push adds w at the end of its agent's flow.
func (q *queue) push(w *waiter) {
	f := q.open(w.agent)
	f.waiters = append(f.waiters, w)
	w.flow = f
	q.n++
	q.elect()
}

// take makes w, which is the first, current.
func (q *queue) take(w *waiter) {
	if q.current == w {
		return
	}
	f := w.flow
	w.base = f.base
	q.current, q.terms = w, w.terms
	q.virtual = max(q.virtual, f.tag())
	q.lead(f)
	f.kept = kept{}
	q.remove(w)
}

// remove removes w from any position. Requests behind it move up: the next one of its flow takes
// over its position among the heads.
func (q *queue) remove(w *waiter) {
	f := w.flow
	i := slices.Index(f.waiters, w)
	f.waiters = slices.Delete(f.waiters, i, i+1)
	w.flow = nil
	q.n--
	if len(f.waiters) == 0 && f.kept.until == 0 {
		q.flows = slices.DeleteFunc(q.flows, func(g *flow) bool { return g == f })
	}
	q.elect()
}

// elect finds the head.
func (q *queue) elect() {
	q.head = nil
	if next := headOf(q.flows); next != nil {
		q.head = next.waiters[0]
	}
}

// first is the request that may go next.
func (q *queue) first() *waiter {
	if q.current != nil {
		return q.current
	}
	return q.head
}

// waiting is the number of requests that wait, current included.
func (q *queue) waiting() int {
	if q.current != nil {
		return q.n + 1
	}
	return q.n
}

// keep keeps the position of w's agent until the given instant. w is refused and told to come back
// when it is due. An agent that has other requests waiting needs no more.
func (q *queue) keep(w *waiter, t terms, due, until instant) {
	f := q.flow(w.agent)
	switch {
	case f == nil && len(q.flows) >= maxKept:
		return
	case f == nil:
		f = q.open(w.agent)
		if w.base > 0 { // it was current already
			f.base = w.base
		}
	case len(f.waiters) > 1 || len(f.waiters) == 1 && f.waiters[0] != w:
		return
	}
	f.kept = kept{until: until, cost: t.cost()}
	if t.cost() > w.deadline-w.since {
		f.kept.due = due
	}
}

// expire drops the positions whose time is over.
func (q *queue) expire(now instant) {
	q.flows = slices.DeleteFunc(q.flows, func(f *flow) bool {
		if f.kept.until <= now {
			f.kept = kept{}
		}
		return len(f.waiters) == 0 && f.kept.until == 0
	})
}

// deferUntil is when the head, which could go at the given instant, does go: a moment later when an
// agent that is before it was told to come back right then and could not be held until the slot
// after. That moment is a tenth of the agent's interval, but at most a second.
func (q *queue) deferUntil(at instant) instant {
	until := at
	for _, f := range q.flows {
		if len(f.waiters) > 0 || f.kept.due == 0 || !f.before(q.head.flow) {
			continue
		}
		window := min(f.kept.cost/10, time.Second)
		if f.kept.due-window <= at && at < f.kept.due+window {
			until = max(until, f.kept.due+window)
		}
	}
	return until
}

// full reports whether the agent may have no more requests here: as many as the limit wait, and it
// has its share of them.
func (q *queue) full(agent string, limit int) bool {
	agents, mine := 1, 0
	for _, f := range q.flows {
		switch {
		case f.agent == agent:
			mine = len(f.waiters)
		case len(f.waiters) > 0:
			agents++
		}
	}
	return q.n >= limit && mine >= limit/agents
}

// ahead yields, in their order, the terms of the requests that go before w: as it waits here or,
// with the terms t, comes now.
func (q *queue) ahead(w *waiter, t terms) iter.Seq[terms] {
	flows := make([]*flow, 0, len(q.flows)+1)
	var own *flow
	for _, f := range q.flows {
		played := *f
		if flows = append(flows, &played); f.agent == w.agent {
			own = &played
		}
	}
	virtual, seq := q.virtual, q.seq
	if w.flow == nil {
		if own == nil {
			seq++
			own = &flow{base: virtual, seq: seq}
			flows = append(flows, own)
		}
		w = &waiter{terms: t}
		own.waiters = append(slices.Clip(own.waiters), w)
	}
	return func(yield func(terms) bool) {
		for {
			f := headOf(flows)
			head := f.waiters[0]
			if head == w || !yield(head.terms) {
				return
			}
			virtual = max(virtual, f.tag())
			seq++
			f.waiters, f.base, f.seq = f.waiters[1:], virtual, seq
		}
	}
}

// headOf returns the flow whose head is next, nil if no request waits.
func headOf(flows []*flow) (next *flow) {
	for _, f := range flows {
		if len(f.waiters) > 0 && (next == nil || f.goesBefore(next)) {
			next = f
		}
	}
	return next
}

// tag orders the flows: the head's, or what a kept position's would be.
func (f *flow) tag() time.Duration {
	cost := f.kept.cost
	if len(f.waiters) > 0 {
		cost = f.waiters[0].terms.cost()
	}
	return f.base + cost
}

// goesBefore reports whether f's head goes before o's.
func (f *flow) goesBefore(o *flow) bool {
	if f.held != o.held {
		return o.held
	}
	return f.before(o)
}

func (f *flow) before(o *flow) bool {
	a, b := f.tag(), o.tag()
	return a < b || a == b && f.seq < o.seq
}

// openQueue returns the clock's queue, which may have to be made.
func (c *clock) openQueue() *queue {
	if c.queue == nil {
		c.queue = &queue{}
	}
	return c.queue
}

// leave removes w from the queue of c, from any position, and wakes the request that is now first.
func (s *shard) leave(c *clock, w *waiter) {
	q := c.queue
	if q == nil {
		return
	}
	before := q.first()
	switch {
	case q.current == w:
		q.current, q.due = nil, 0
	case w.flow != nil:
		q.remove(w)
	default:
		return // a block took it out
	}
	s.elect(c)
	if n := q.first(); n != nil && n != before {
		n.wakeUp()
	}
	c.dropEmptyQueue()
}
