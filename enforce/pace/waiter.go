package pace

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// waiter is a request that could not go at once. Its own goroutine leads it from
// clock to clock: in each line it waits for the turn, sleeps until the clock is
// ready, keeps the turn and goes on to the next line. With all turns in hand it
// goes, and only then are the clocks charged: all of them or none.
type waiter struct {
	pacer    *Pacer
	config   *Config
	agent    string
	weight   int
	stops    []stop
	at       int // the stop where it stands
	since    instant
	deadline instant
	wake     chan struct{}
	refusal  atomic.Pointer[Refused] // set by others

	// The rest belongs to the clock in whose line it stands, under its lock.
	terms      terms
	flow       *flow
	prev, next *waiter
}

// stop is one clock on the way.
type stop struct {
	key    string
	terms  terms
	shard  *shard
	clock  *clock // nil until it stands in line there
	spills bool   // the clock is an overflow clock
}

func (p *Pacer) waiter(cfg *Config, r *Request) *waiter {
	w := &waiter{
		pacer:  p,
		config: cfg,
		agent:  r.Agent,
		weight: max(r.Weight, 1),
		stops:  make([]stop, 0, 1+len(r.Also)),
		since:  p.now(),
		wake:   make(chan struct{}, 1),
	}
	w.add(r.Limit)
	for _, l := range r.Also {
		w.add(l)
	}
	slices.SortStableFunc(w.stops, func(a, b stop) int {
		return cmp.Or(cmp.Compare(rank(a.key), rank(b.key)), cmp.Compare(a.key, b.key))
	})
	wait := r.MaxWait
	if wait == 0 {
		wait = cfg.Wait
	}
	w.deadline = w.since + clip(wait)
	return w
}

func (w *waiter) add(l Limit) {
	for i := range w.stops {
		if w.stops[i].key == l.Key {
			w.stops[i].terms = w.stops[i].terms.strictest(l.terms())
			return
		}
	}
	w.stops = append(w.stops, stop{key: l.Key, terms: l.terms(), shard: w.pacer.table.shard(l.Key)})
}

// grace is how much longer than asked a request is held when its slot is near.
func (w *waiter) grace() time.Duration { return (w.deadline - w.since) / 10 }

// rouse makes w look again. It never blocks.
func (w *waiter) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// hold is Acquire for a request that cannot go at once, or has several clocks.
func (p *Pacer) hold(ctx context.Context, cfg *Config, r *Request) (Slot, error) {
	w := p.waiter(cfg, r)
	if refused := w.hopeless(); refused != nil {
		return Slot{}, w.refuse(refused)
	}
	if !p.room.enter(w.agent, cfg.Waiters) {
		return Slot{}, w.refuse(&Refused{Key: r.Key, Reason: ReasonWaitersFull, RetryAfter: w.retryAfter(p.now())})
	}
	defer p.room.leave(w.agent)
	slot, err := w.run(ctx)
	if err != nil {
		w.withdraw()
	}
	return slot, err
}

func (w *waiter) refuse(r *Refused) error {
	w.config.Observer.Refused(r.Reason)
	return r
}

// hopeless refuses a newcomer that cannot be in time at one of its clocks.
func (w *waiter) hopeless() *Refused {
	for i := range w.stops {
		s := &w.stops[i]
		s.shard.mu.Lock()
		c := w.pacer.table.clock(s.shard, s.key, w.config, w.since)
		due := c.forecast(w.agent, w.weight, s.terms, w.since)
		reason := w.reason(s, c, w.since)
		s.shard.mu.Unlock()
		if due > w.deadline {
			return &Refused{Key: s.key, Reason: reason, RetryAfter: due - w.since}
		}
	}
	return nil
}

// retryAfter is when a newcomer like w could go, from now.
func (w *waiter) retryAfter(now instant) time.Duration {
	due := now
	for i := range w.stops {
		s := &w.stops[i]
		s.shard.mu.Lock()
		if c := s.shard.clocks[s.key]; c != nil {
			due = max(due, c.forecast(w.agent, w.weight, s.terms, now))
		}
		s.shard.mu.Unlock()
	}
	return due - now
}

// reason says why a request must wait at the clock, under the shard's lock.
func (w *waiter) reason(s *stop, c *clock, now instant) Reason {
	switch {
	case c == s.shard.spill:
		return ReasonOverflow
	case c.blockedUntil() > now:
		return ReasonBlocked
	case c.full(s.terms) && c.meter.ready(s.terms) <= now:
		return ReasonConcurrency
	}
	return ReasonWait
}

// run waits until w may go.
func (w *waiter) run(ctx context.Context) (Slot, error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := w.pacer.now()
		if refused := w.refusal.Load(); refused != nil {
			return Slot{}, w.refuse(refused)
		}
		slot, until := w.step(now)
		if slot.ticket != nil {
			return slot, nil
		}
		if refused := w.late(until, now); refused != nil {
			return Slot{}, w.refuse(refused)
		}
		timer.Reset(min(until, w.limit(now)) - now)
		select {
		case <-w.wake:
		case <-timer.C:
		case <-ctx.Done():
			return Slot{}, fmt.Errorf("pacing %s: waiting for a slot: %w", w.stops[0].key, ctx.Err())
		}
	}
}

// limit is when w must next ask itself whether it has waited too long.
func (w *waiter) limit(now instant) instant {
	if now < w.deadline {
		return w.deadline
	}
	return w.deadline + w.grace()
}

// step takes w as far as it gets now. It returns the slot, or the instant at
// which to step again unless something rouses w before.
func (w *waiter) step(now instant) (Slot, instant) {
	for w.at < len(w.stops) {
		until, ok := w.tryStop(&w.stops[w.at], now)
		if !ok {
			return Slot{}, until
		}
		w.at++
	}
	return w.depart(now)
}

// tryStop puts w in line at the stop and reports whether it has the turn there
// and the clock is ready.
func (w *waiter) tryStop(s *stop, now instant) (until instant, ok bool) {
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	if s.clock == nil && !w.join(s, now) {
		return never, false
	}
	c := s.clock
	if c == nil {
		return now, true // merged into an earlier stop
	}
	if c.line.turn != w {
		return never, false
	}
	return w.due(s, now)
}

// due is when the clock will be ready for w, who has the turn.
func (w *waiter) due(s *stop, now instant) (instant, bool) {
	c := s.clock
	at := c.ready(s.terms)
	c.line.due = max(at, now)
	switch {
	case at > now:
		return at, false
	case c.full(s.terms):
		return never, false
	}
	return now, true
}

// join puts w in line, under the shard's lock. Its clock is looked up only here,
// as a clock with nobody in line may be swept.
func (w *waiter) join(s *stop, now instant) bool {
	c := w.pacer.table.clock(s.shard, s.key, w.config, now)
	for i := range w.at {
		if o := &w.stops[i]; o.clock == c {
			o.terms = o.terms.strictest(s.terms) // both keys are in overflow
			return true
		}
	}
	if c.line != nil && c.line.queue.n >= w.config.Queue && !w.makeRoom(c, now) {
		due := c.forecast(w.agent, w.weight, s.terms, now)
		w.refusal.CompareAndSwap(nil, &Refused{Key: s.key, Reason: ReasonQueueFull, RetryAfter: due - now})
		w.rouse()
		return false
	}
	s.clock, s.spills = c, c == s.shard.spill
	if s.spills {
		s.shard.wait(s.key)
	}
	w.terms = s.terms
	c.join(w, now)
	return true
}

// makeRoom refuses one request of an agent that has more of them than w's.
func (w *waiter) makeRoom(c *clock, now instant) bool {
	v := c.line.queue.victim(w.agent)
	if v == nil {
		return false
	}
	due := c.forecastOf(v, now)
	c.line.queue.remove(v)
	v.refusal.CompareAndSwap(nil, &Refused{Key: c.key, Reason: ReasonQueueFull, RetryAfter: due - now})
	v.rouse()
	return true
}

// late refuses w when it has waited too long, or knows that it would.
func (w *waiter) late(until, now instant) *Refused {
	s := &w.stops[w.at]
	if s.clock == nil {
		return nil // refused by the line; run sees it next
	}
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	c := s.clock
	due := until
	if c.line.turn != w {
		if now < w.deadline || w.flow == nil {
			return nil
		}
		due = c.forecastOf(w, now)
	}
	end := w.deadline + w.grace()
	if due <= end && now < end || due == never && now < w.deadline {
		return nil
	}
	retry := due - now
	if due == never {
		retry = max(time.Second, s.terms.interval, s.terms.gap)
	}
	return &Refused{Key: s.key, Reason: w.reason(s, c, now), RetryAfter: retry}
}

// depart charges all clocks, once none of them has become unready since w
// passed it: a block may have begun meanwhile. Nobody else can have charged
// them, as w has the turn everywhere.
func (w *waiter) depart(now instant) (Slot, instant) {
	for i := range w.stops {
		s := &w.stops[i]
		if s.clock == nil {
			continue
		}
		s.shard.mu.Lock()
		until, ok := w.due(s, now)
		s.shard.mu.Unlock()
		if !ok {
			w.back(i)
			return Slot{}, until
		}
	}
	k := w.pacer.ticket()
	k.holds = k.one[:0]
	for i := range w.stops {
		s := &w.stops[i]
		if s.clock == nil {
			continue
		}
		s.shard.mu.Lock()
		h := hold{shard: s.shard, clock: s.clock, terms: s.terms, at: now}
		h.before = s.clock.charge(s.terms, now)
		h.serial = s.clock.serial
		w.leave(s, now)
		s.shard.mu.Unlock()
		k.holds = append(k.holds, h)
	}
	w.pacer.keepSweeping()
	return Slot{Wait: now - w.since, ticket: k, number: k.number}, 0
}

// back returns w to stop i: it keeps the turns up to there and gives up those
// beyond, so that it does not hold up others meanwhile.
func (w *waiter) back(i int) {
	now := w.pacer.now()
	for j := i + 1; j < len(w.stops); j++ {
		w.leaveLocking(&w.stops[j], now)
	}
	w.at = i
}

// withdraw takes w out of all lines.
func (w *waiter) withdraw() {
	now := w.pacer.now()
	for i := range w.stops {
		w.leaveLocking(&w.stops[i], now)
	}
}

func (w *waiter) leaveLocking(s *stop, now instant) {
	if s.clock == nil {
		return
	}
	s.shard.mu.Lock()
	w.leave(s, now)
	s.shard.mu.Unlock()
}

func (w *waiter) leave(s *stop, now instant) {
	s.clock.leave(w, now)
	if s.spills {
		s.shard.unwait(s.key)
	}
	s.clock, s.spills = nil, false
}
