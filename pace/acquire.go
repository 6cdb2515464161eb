package pace

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// waiter is a request that could not go at once. Its own goroutine takes it from clock to clock: in
// each queue it waits until it is first, sleeps until the clock is ready, becomes current there and
// moves on to the next queue. Once it is current at all clocks, it goes. Only then are the clocks
// charged, either all or none.
type waiter struct {
	pacer    *Pacer
	config   *Config
	agent    string
	steps    []step
	at       int // the current step
	since    instant
	deadline instant
	wake     chan struct{}
	refusal  atomic.Pointer[Refused] // set by others

	// These fields belong to the clock whose queue w is in; its lock guards them.
	terms terms
	flow  *flow
	base  time.Duration // the base of its flow when w became current

	reservation *reservation // nil: none at a shared clock
}

// step is one of the clocks that a request has to pass.
type step struct {
	key   string
	terms terms
	shard *shard
	clock *clock // nil until w is in its queue
}

func (p *Pacer) waiter(cfg *Config, r *Request) *waiter {
	w := &waiter{
		pacer:  p,
		config: cfg,
		agent:  r.Agent,
		since:  p.now(),
		wake:   make(chan struct{}, 1),
	}
	w.add(r.Limit)
	for _, l := range r.Also {
		w.add(l)
	}
	// All requests pass their clocks in this one order, so no two can wait for each other.
	slices.SortFunc(w.steps, func(a, b step) int { return cmp.Or(rank(a.key)-rank(b.key), cmp.Compare(a.key, b.key)) })
	// The first clock with places leaves one to other agents. If w waited at a later clock, it would
	// still be current at the earlier one and hold up others there.
	if i := slices.IndexFunc(w.steps, func(s step) bool { return s.terms.places > 0 }); i >= 0 {
		w.steps[i].terms.shared = w.steps[i].terms.places > 1
	}
	if p.shared != nil {
		// A request that needed its turn at two clocks at once would never get both.
		slowest := &w.steps[0].terms
		for i := range w.steps {
			if t := &w.steps[i].terms; cmp.Or(cmp.Compare(t.gap, slowest.gap), cmp.Compare(t.interval, slowest.interval)) > 0 {
				slowest = t
			}
		}
		slowest.turns = slowest.cost() >= turnsFrom
	}
	w.deadline = w.since + cfg.wait(r)
	return w
}

func (w *waiter) add(l Limit) {
	if !slices.ContainsFunc(w.steps, func(s step) bool { return s.key == l.Key }) {
		w.steps = append(w.steps, step{key: l.Key, terms: l.terms(), shard: w.pacer.table.shard(l.Key)})
	}
}

// end is the latest instant until which w is held: a tenth longer than requested if its slot is
// that close.
func (w *waiter) end() instant { return w.deadline + (w.deadline-w.since)/10 }

// wakeUp makes w look again. It never blocks.
func (w *waiter) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// acquireInTurn is Acquire for a request that cannot go at once, has several clocks, or needs a
// slot of the shared clock.
func (p *Pacer) acquireInTurn(ctx context.Context, cfg *Config, r *Request) (Slot, error) {
	w := p.waiter(cfg, r)
	defer w.leaveFrom(0)
	for i := range w.steps {
		if refused := w.rejectLate(&w.steps[i]); refused != nil {
			return Slot{}, w.pacer.refuse(refused)
		}
	}
	slot, until := w.advance(ctx)
	if slot.grant != nil {
		return slot, nil
	}
	now := p.now()
	refused := w.tooLate(until, now)
	if refused == nil && !p.waiters.enter(w.agent, cfg.Waiters) {
		refused = &Refused{Key: r.Key, Reason: ReasonWaitersFull}
		if due := w.forecast(until, now); due != never {
			refused.RetryAfter = max(0, due-now)
		}
	}
	if refused != nil {
		return Slot{}, w.pacer.refuse(refused)
	}
	defer p.waiters.leave(w.agent)
	return w.wait(ctx, until)
}

// wait holds w until it may go or is refused. It checks again at the given instant, or earlier if
// something wakes it.
func (w *waiter) wait(ctx context.Context, until instant) (Slot, error) {
	timer := time.NewTimer(never)
	defer timer.Stop()
	for {
		now := w.pacer.now()
		limit := w.deadline
		if now >= limit {
			limit = w.end()
		}
		timer.Reset(min(until, limit) - now)
		select {
		case <-w.wake:
		case <-timer.C:
		case <-ctx.Done():
			return Slot{}, fmt.Errorf("pacing %s: waiting for a slot: %w", w.steps[0].key, ctx.Err())
		}
		var slot Slot
		if slot, until = w.advance(ctx); slot.grant != nil {
			return slot, nil
		}
		if refused := w.tooLate(until, w.pacer.now()); refused != nil {
			return Slot{}, w.pacer.refuse(refused)
		}
	}
}

// advance moves w as far as it can go now. It returns the slot, or the instant at which to advance
// again unless something wakes w earlier.
func (w *waiter) advance(ctx context.Context) (Slot, instant) {
	if w.refusal.Load() != nil {
		return Slot{}, never // tooLate tells
	}
	on := w.pacer.coordination()
	if r := w.reservation; r != nil && on.away && w.pacer.holds(r, w.pacer.now()) {
		on = coordination{shared: true, count: on.count, age: longest} // nobody else has that slot
	}
	for w.at < len(w.steps) {
		until, ok := w.pass(&w.steps[w.at], on)
		if !ok {
			return Slot{}, until
		}
		w.at++
	}
	if !on.shared {
		w.giveBack() // it is useless now
	} else if until, ok := w.reserve(ctx, on); !ok {
		return Slot{}, until
	}
	return w.depart(on)
}

// pass queues w at the step's clock, and makes it current there when it is first and the clock is
// ready.
func (w *waiter) pass(s *step, on coordination) (until instant, ok bool) {
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	now := w.pacer.now() // under the lock, so it is never before a charge by others
	if s.clock == nil && !w.join(s, now) {
		return never, false
	}
	c := s.clock
	if c.queue == nil || c.queue.first() != w { // a block may have refused w since
		return never, false
	}
	until, ok = w.due(s, on, now)
	if ok {
		c.queue.take(w)
	}
	return until, ok
}

// undividedPause is how often a request looks whether places are still divided.
const undividedPause = 500 * time.Millisecond

// due is when the clock will be ready for w, which is first there.
func (w *waiter) due(s *step, on coordination, now instant) (instant, bool) {
	c := s.clock
	if w.pacer.full(s.shard, c, on.local(s.terms), w.agent) {
		if on.divides(s.terms) && !w.pacer.full(s.shard, c, s.terms, w.agent) {
			return now + undividedPause, false // nothing announces when all places can be used again
		}
		return never, false
	}
	from := max(now, c.blockedUntil(), on.behind(c.reserved, s.terms))
	at := max(from, on.ready(c.gcra, s.terms, s.key, now, from))
	if c.queue.current == nil && !on.takesTurns(s.terms) { // a turn does not wait
		at = c.queue.deferUntil(at)
	}
	return at, at <= now
}

// join puts w into the queue, under the shard's lock.
func (w *waiter) join(s *step, now instant) bool {
	c := w.pacer.table.clock(s.shard, s.key, w.config, now, w.config.shardKeys())
	if c == nil {
		w.refuseFor(s.key, ReasonOverflow, w.config.Idle)
		return false
	}
	if c.queue != nil && c.queue.full(w.agent, w.config.Queue) {
		w.refuseFor(c.key, ReasonQueueFull, c.forecast(w, s.terms, now)-now)
		return false
	}
	s.clock = c
	w.terms = s.terms
	c.openQueue().push(w)
	s.shard.elect(c)
	return true
}

// depart charges all clocks, unless one of them is no longer ready: a block may have begun after w
// passed it. No other request can have charged them, because w is current everywhere.
func (w *waiter) depart(on coordination) (Slot, instant) {
	now := w.pacer.now()
	for i := range w.steps {
		s := &w.steps[i]
		s.shard.mu.Lock()
		until, ok := w.due(s, on, now)
		s.shard.mu.Unlock()
		if !ok {
			w.leaveFrom(i + 1)
			w.at = i
			return Slot{}, until
		}
	}
	g := &grant{pacer: w.pacer, end: w.end(), reservation: w.reservation, charges: make([]charge, 0, len(w.steps))}
	w.reservation = nil
	if on.away {
		g.held = new(w.pacer.shared.Hold(w.demands(on)))
	}
	for i := range w.steps {
		s := &w.steps[i]
		s.shard.mu.Lock()
		u := on.turnAt(s.clock.gcra, s.terms, s.key, now, now)
		c := s.shard.charge(s.clock, on.local(s.terms), w.agent, now)
		c.turn, c.until = u, u.at+u.late
		g.charges = append(g.charges, c)
		s.shard.mu.Unlock()
		w.leave(s)
	}
	w.pacer.keepSweeping()
	return Slot{Wait: now - w.since, grant: g}, 0
}

// leaveFrom removes w from the queues of step i and later ones, where it would hold up others.
func (w *waiter) leaveFrom(i int) {
	w.giveBack()
	for ; i < len(w.steps); i++ {
		w.leave(&w.steps[i])
	}
}

// leave removes w from the queue at the step, if it is in one.
func (w *waiter) leave(s *step) {
	if s.clock == nil {
		return
	}
	s.shard.mu.Lock()
	s.shard.leave(s.clock, w)
	s.shard.mu.Unlock()
	s.clock = nil
}

// waiterLimit bounds how many requests wait in the whole Pacer. An agent may use at most as many
// places as are still free (the dynamic threshold of Choudhury and Hahne). Alone it gets half of
// them, so some are always left for others.
type waiterLimit struct {
	mu     sync.Mutex
	total  int
	agents map[string]int
}

func (l *waiterLimit) enter(agent string, limit int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.agents[agent] >= limit-l.total {
		return false
	}
	if l.agents == nil {
		l.agents = make(map[string]int)
	}
	l.total++
	l.agents[agent]++
	return true
}

func (l *waiterLimit) leave(agent string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.agents[agent]--; l.agents[agent] == 0 {
		delete(l.agents, agent)
	}
}

func (l *waiterLimit) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}
