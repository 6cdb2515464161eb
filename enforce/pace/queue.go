package pace

import "time"

// queue holds those who wait for the turn on one clock, and says who is next:
// self-clocked fair queueing (Golestani 1994). Each agent has a flow, first in
// first out. The head of a flow carries a tag, the virtual time at which it
// became the head plus its cost divided by the agent's weight; the least tag is
// next, and the virtual time becomes that tag. So agents that wait share the
// clock's time by weight. A newcomer, or an agent that comes back right after it
// was served, starts behind all heads now waiting: neither many names nor coming
// and going gains anything over them.
//
// A flow exists while it holds a request, and for a while after a refusal as a
// claim: without that, agents that ask again all the time would take every slot
// from those that come back when they were told to, wherever fewer requests fit
// into the time one may be held than there are agents. Flows are few, and every
// operation walks them.
type queue struct {
	flows   []*flow
	head    *waiter // who is next, nil when nobody waits
	n       int     // requests
	virtual time.Duration
	seq     uint64
}

// flow is one agent's part of a queue.
type flow struct {
	agent       string
	weight      time.Duration
	first, last *waiter
	load        load
	held        bool          // its agent has all places that one may have: others go first
	base        time.Duration // virtual time when its head became the head
	seq         uint64        // order of that, for equal tags
	claim       claim
}

// load is what a number of requests take of the clock, added up.
type load struct {
	n        int
	cost     time.Duration
	interval time.Duration
	gap      time.Duration
}

func (l *load) add(t terms, sign int) {
	l.n += sign
	l.cost += time.Duration(sign) * t.cost()
	l.interval += time.Duration(sign) * t.interval
	l.gap += time.Duration(sign) * t.gap
}

// claim keeps the place of an agent whose request was refused, and who has none
// waiting: the flow's base stays, so that the agent is next of all when it comes
// back. It keeps no slot; see holdBack for the one exception.
type claim struct {
	told     instant // when it was told to come back
	expires  instant // zero: no claim
	patience time.Duration
	cost     time.Duration
}

// maxClaims bounds the claims on one clock.
const maxClaims = 64

func (q *queue) flow(agent string) *flow {
	for _, f := range q.flows {
		if f.agent == agent {
			return f
		}
	}
	return nil
}

// open returns the agent's flow, making it if there is none.
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
	f.weight = w.weight
	w.flow, w.prev = f, f.last
	if f.last == nil {
		f.first = w
	} else {
		f.last.next = w
	}
	f.last = w
	f.load.add(w.terms, 1)
	q.n++
	q.elect()
}

// pop removes the head, which goes.
func (q *queue) pop() {
	w := q.head
	f := w.flow
	w.base = f.base
	q.virtual = max(q.virtual, f.tag())
	q.lead(f)
	f.claim = claim{}
	q.remove(w)
}

// remove takes w out, wherever it stands. Those behind it move up: the next of
// its flow takes over the place that it had among the heads.
func (q *queue) remove(w *waiter) {
	f := w.flow
	if w.prev == nil {
		f.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		f.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	f.load.add(w.terms, -1)
	q.n--
	w.flow, w.prev, w.next = nil, nil, nil
	if f.load.n == 0 && f.claim.expires == 0 {
		q.drop(f)
	}
	q.elect()
}

func (q *queue) drop(f *flow) {
	for i, g := range q.flows {
		if g == f {
			end := len(q.flows) - 1
			q.flows[i] = q.flows[end]
			q.flows[end] = nil
			q.flows = q.flows[:end]
			return
		}
	}
}

// elect finds the head.
func (q *queue) elect() {
	var next *flow
	for _, f := range q.flows {
		if f.load.n > 0 && (next == nil || f.goes(next)) {
			next = f
		}
	}
	q.head = nil
	if next != nil {
		q.head = next.first
	}
}

// keep makes a claim for w, which is refused and told to come back at the given
// instant. An agent that has other requests waiting needs none.
func (q *queue) keep(w *waiter, t terms, told, expires instant) {
	f := q.flow(w.agent)
	switch {
	case f == nil && q.claims() >= maxClaims:
		return
	case f == nil:
		f = q.open(w.agent)
		if w.base > 0 { // it had the turn already
			f.base = w.base
		}
	case f.load.n > 1 || f.load.n == 1 && f.first != w:
		return
	}
	f.weight = w.weight
	f.claim = claim{told: told, expires: expires, patience: w.deadline - w.since, cost: t.cost()}
}

func (q *queue) claims() int {
	n := 0
	for _, f := range q.flows {
		if f.load.n == 0 {
			n++
		}
	}
	return n
}

// expire drops the claims whose time is over.
func (q *queue) expire(now instant) {
	kept := q.flows[:0]
	for _, f := range q.flows {
		if f.claim.expires <= now {
			f.claim = claim{}
		}
		if f.load.n > 0 || f.claim.expires > 0 {
			kept = append(kept, f)
		}
	}
	clear(q.flows[len(kept):])
	q.flows = kept
}

// holdBack is when the head, which could go at the given instant, does go: a
// moment later when an agent that is before it was told to come back right then
// and could not be held until the slot after. That moment is a tenth of the
// agent's interval, a second at most.
func (q *queue) holdBack(at instant) instant {
	until := at
	for _, f := range q.flows {
		c := &f.claim
		if f.load.n > 0 || c.cost <= c.patience || !f.before(q.head.flow) {
			continue
		}
		window := min(c.cost/10, time.Second)
		if c.told-window <= at && at < c.told+window {
			until = max(until, c.told+window)
		}
	}
	return until
}

// victim is the newest request of the longest flow, provided that flow is
// longer than the agent's would be with one more: a full queue makes room for
// who has less than the others (McKenney's buffer stealing). nil: nobody has
// more.
func (q *queue) victim(agent string) *waiter {
	var most *flow
	mine := 0
	for _, f := range q.flows {
		if f.agent == agent {
			mine = f.load.n
		}
		if most == nil || f.load.n > most.load.n {
			most = f
		}
	}
	if most == nil || most.load.n <= mine+1 {
		return nil
	}
	return most.last
}

// ahead adds up those who would go before a newcomer of the agent.
func (q *queue) ahead(agent string, weight time.Duration, t terms) load {
	f := q.flow(agent)
	if f == nil {
		return q.others(load{}, nil, q.virtual+t.cost()/weight, q.seq+1)
	}
	l := f.load
	if l.n == 0 {
		return q.others(l, f, f.base+t.cost()/weight, f.seq)
	}
	rest := l.cost - f.first.terms.cost() + t.cost()
	return q.others(l, f, q.second(f)+rest/weight, f.seq)
}

// aheadOf is ahead for w, which waits already.
func (q *queue) aheadOf(w *waiter) load {
	f := w.flow
	var l load
	for o := w.prev; o != nil; o = o.prev {
		l.add(o.terms, 1)
	}
	if l.n == 0 {
		return q.others(l, f, f.tag(), f.seq)
	}
	rest := l.cost - f.first.terms.cost() + w.terms.cost()
	return q.others(l, f, q.second(f)+rest/f.weight, f.seq)
}

// second is the base of a flow's second request: the virtual time when its head
// has gone.
func (q *queue) second(f *flow) time.Duration { return max(f.tag(), q.virtual) }

// others adds to l, the load before a request in its own flow, those of other
// flows' requests that are due before its tag. Past its head, a flow's requests
// count with their average cost.
//
// On equal tags the order is that in which the requests become heads. For two
// heads seq tells; else the one that stands nearer to its flow's head is first.
func (q *queue) others(l load, own *flow, tag time.Duration, seq uint64) load {
	place := l.n + 1
	for _, f := range q.flows {
		if f == own || f.load.n == 0 || f.held || f.tag() > tag {
			continue
		}
		n := f.load.n
		each := max(f.load.cost/time.Duration(n)/f.weight, 1)
		lead := tag - q.second(f)
		k := 1 + int(min(max(lead, 0)/each, time.Duration(n)))
		tied := lead >= 0 && lead%each == 0 && (k > 1 || f.tag() == tag)
		if tied && (k > place || k == place && f.seq > seq) {
			k--
		}
		k = min(k, n)
		l.n += k
		l.cost += f.load.cost / time.Duration(n) * time.Duration(k)
		l.interval += f.load.interval / time.Duration(n) * time.Duration(k)
		l.gap += f.load.gap / time.Duration(n) * time.Duration(k)
	}
	return l
}

// tag orders the flows: that of the head, or what a claim's would be.
func (f *flow) tag() time.Duration {
	cost := f.claim.cost
	if f.first != nil {
		cost = f.first.terms.cost()
	}
	return f.base + cost/f.weight
}

// goes reports whether f is next rather than o.
func (f *flow) goes(o *flow) bool {
	if f.held != o.held {
		return o.held
	}
	return f.before(o)
}

func (f *flow) before(o *flow) bool {
	a, b := f.tag(), o.tag()
	return a < b || a == b && f.seq < o.seq
}
