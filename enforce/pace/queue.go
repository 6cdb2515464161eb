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
// Flows exist only while they hold a request, so there are no more of them than
// requests; they are few, and every operation walks them.
type queue struct {
	flows   []*flow
	n       int
	virtual time.Duration
	seq     uint64
}

// flow is one agent's part of a queue. The sums are over its requests.
type flow struct {
	agent       string
	weight      int
	first, last *waiter
	n           int
	base        time.Duration // virtual time when its head became the head
	seq         uint64        // order of that, for equal tags
	cost        time.Duration
	interval    time.Duration
	gap         time.Duration
}

func (q *queue) flow(agent string) *flow {
	for _, f := range q.flows {
		if f.agent == agent {
			return f
		}
	}
	return nil
}

// push adds w at the end of its agent's flow.
func (q *queue) push(w *waiter) {
	f := q.flow(w.agent)
	if f == nil {
		f = &flow{agent: w.agent}
		q.flows = append(q.flows, f)
		q.lead(f)
	}
	f.weight = w.weight
	w.flow, w.prev = f, f.last
	if f.last == nil {
		f.first = w
	} else {
		f.last.next = w
	}
	f.last = w
	f.add(w.terms, 1)
	q.n++
}

// lead stamps f as having a new head.
func (q *queue) lead(f *flow) {
	q.seq++
	f.base, f.seq = q.virtual, q.seq
}

// pop removes and returns who is next, nil when nobody waits.
func (q *queue) pop() *waiter {
	var next *flow
	for _, f := range q.flows {
		if next == nil || f.before(next) {
			next = f
		}
	}
	if next == nil {
		return nil
	}
	w := next.first
	q.virtual = next.tag()
	q.lead(next)
	q.remove(w)
	return w
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
	f.add(w.terms, -1)
	q.n--
	w.flow, w.prev, w.next = nil, nil, nil
	if f.n == 0 {
		q.drop(f)
	}
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

// victim is the newest request of the longest flow, provided that flow is
// longer than an agent's would be with one more: a full queue makes room for who
// has less than the others (McKenney's buffer stealing). nil: nobody has more.
func (q *queue) victim(agent string) *waiter {
	var most *flow
	mine := 0
	for _, f := range q.flows {
		if f.agent == agent {
			mine = f.n
		}
		if most == nil || f.n > most.n {
			most = f
		}
	}
	if most == nil || most.n <= mine+1 {
		return nil
	}
	return most.last
}

// ahead adds up the intervals and gaps of those who would go before a newcomer
// of the agent.
func (q *queue) ahead(agent string, weight int, t terms) (interval, gap time.Duration) {
	own, base, seq := q.flow(agent), q.virtual, q.seq+1
	tag := t.cost() / time.Duration(weight)
	if own != nil {
		base, seq = own.base, own.seq
		tag += own.cost / time.Duration(weight)
		interval, gap = own.interval, own.gap
	}
	return q.others(own, base+tag, seq, interval, gap)
}

// aheadOf is ahead for w, which waits already.
func (q *queue) aheadOf(w *waiter) (interval, gap time.Duration) {
	f := w.flow
	cost := w.terms.cost()
	for o := w.prev; o != nil; o = o.prev {
		cost += o.terms.cost()
		interval += o.terms.interval
		gap += o.terms.gap
	}
	return q.others(f, f.base+cost/time.Duration(f.weight), f.seq, interval, gap)
}

// others adds to interval and gap those of the other flows' requests that are
// due before the tag. A flow's requests count with their average cost.
func (q *queue) others(own *flow, tag time.Duration, seq uint64, interval, gap time.Duration) (time.Duration, time.Duration) {
	for _, f := range q.flows {
		if f == own {
			continue
		}
		n := time.Duration(f.n)
		lead := tag - f.base
		if f.seq > seq {
			lead-- // on equal tags it comes later
		}
		if lead <= 0 {
			continue
		}
		each := max(f.cost/n/time.Duration(f.weight), 1)
		k := min(lead/each, n)
		interval += f.interval / n * k
		gap += f.gap / n * k
	}
	return interval, gap
}

func (f *flow) tag() time.Duration {
	return f.base + f.first.terms.cost()/time.Duration(f.weight)
}

func (f *flow) before(o *flow) bool {
	a, b := f.tag(), o.tag()
	return a < b || a == b && f.seq < o.seq
}

func (f *flow) add(t terms, sign time.Duration) {
	f.n += int(sign)
	f.cost += sign * t.cost()
	f.interval += sign * t.interval
	f.gap += sign * t.gap
}
