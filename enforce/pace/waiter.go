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
// clock to clock: in each line it waits to be next, sleeps until the clock is
// ready, takes the turn and goes on to the next line. With all turns taken it
// goes, and only then are the clocks charged: all of them or none.
type waiter struct {
	pacer    *Pacer
	config   *Config
	agent    string
	weight   time.Duration
	stops    []stop
	at       int // the stop where it stands
	since    instant
	deadline instant
	spurned  instant // when the shared clock failed it, zero if it did not
	wake     chan struct{}
	refusal  atomic.Pointer[Refused] // set by others

	// These belong to the clock in whose queue it stands, under its lock.
	terms      terms
	flow       *flow
	prev, next *waiter
	base       time.Duration // its flow's, when it took the turn

	slot *booking // belongs to the first stop's clock

	one [1]stop // room for the usual case
}

// maxWeight keeps a share from becoming all.
const maxWeight = 1000

// stop is one clock on the way.
type stop struct {
	key    string
	terms  terms
	shard  *shard
	clock  *clock  // nil until it stands in line there
	pinned *clock  // known before that, and kept from being swept
	spills bool    // it is an overflow clock
	dealt  instant // its turn while gateways are on their own
}

func (p *Pacer) waiter(cfg *Config, r *Request) *waiter {
	w := &waiter{
		pacer:  p,
		config: cfg,
		agent:  r.Agent,
		weight: time.Duration(min(max(r.Weight, 1), maxWeight)),
		since:  p.now(),
		wake:   make(chan struct{}, 1),
	}
	w.stops = w.one[:0]
	shared := r.sharedKey()
	w.add(r.Limit, shared)
	for _, l := range r.Also {
		w.add(l, shared)
	}
	w.deadline = w.since + cfg.wait(r)
	return w
}

func (w *waiter) add(l Limit, shared string) {
	t := l.terms()
	t.shared = l.Key == shared
	for i := range w.stops {
		if w.stops[i].key == l.Key {
			w.stops[i].terms = w.stops[i].terms.strictest(t)
			return
		}
	}
	w.stops = append(w.stops, stop{key: l.Key, terms: t, shard: w.pacer.table.shard(l.Key)})
}

// end is how long w is held at most: a tenth longer than asked, when its slot is
// that near.
func (w *waiter) end() instant { return w.deadline + (w.deadline-w.since)/10 }

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
	defer w.withdraw()
	if refused := w.hopeless(); refused != nil {
		return Slot{}, w.refuse(refused)
	}
	if !p.room.enter(w.agent, cfg.Waiters) {
		return Slot{}, w.refuse(&Refused{Key: r.Key, Reason: ReasonWaitersFull, RetryAfter: w.retryAfter(p.now())})
	}
	defer p.room.leave(w.agent)
	w.order()
	return w.run(ctx)
}

// order sorts the stops, from the narrow clocks to the wide ones and then those
// in overflow. All requests take their turns in the one order of all clocks, so
// no two can wait for each other.
func (w *waiter) order() {
	if len(w.stops) == 1 {
		return
	}
	slices.SortFunc(w.stops, func(a, b stop) int {
		switch {
		case a.spills && b.spills:
			return cmp.Compare(a.shard.number, b.shard.number)
		case a.spills:
			return 1
		case b.spills:
			return -1
		}
		return inOrder(a.key, b.key)
	})
}

// run waits until w may go.
func (w *waiter) run(ctx context.Context) (Slot, error) {
	var timer *time.Timer // made once w has to sleep
	defer func() {
		if timer != nil {
			timer.Stop()
		}
	}()
	for {
		if refused := w.refusal.Load(); refused != nil {
			return Slot{}, w.refuse(refused)
		}
		slot, until := w.step(ctx)
		if slot.ticket != nil {
			return slot, nil
		}
		now := w.pacer.now()
		if refused := w.late(until, now); refused != nil {
			return Slot{}, w.refuse(refused)
		}
		if pause := min(until, w.limit(now)) - now; timer == nil {
			timer = time.NewTimer(pause)
		} else {
			timer.Reset(pause)
		}
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
	return w.end()
}

// step takes w as far as it gets now. It returns the slot, or the instant at
// which to step again unless something rouses w before.
func (w *waiter) step(ctx context.Context) (Slot, instant) {
	on := w.footing()
	for w.at < len(w.stops) {
		until, ok := w.tryStop(&w.stops[w.at], on)
		if !ok {
			return Slot{}, until
		}
		w.at++
	}
	now := w.pacer.now()
	if on.shared {
		until, ok := w.book(ctx, now)
		if !ok {
			return Slot{}, until
		}
	}
	return w.depart(on, now)
}

// depart charges all clocks, once none of them has become unready since w
// passed it: a block may have begun meanwhile. Nobody else can have charged
// them, as w has the turn everywhere.
func (w *waiter) depart(on footing, now instant) (Slot, instant) {
	for i := range w.stops {
		s := &w.stops[i]
		if s.clock == nil {
			continue
		}
		s.shard.mu.Lock()
		until, ok := w.due(s, on, now)
		s.shard.mu.Unlock()
		if !ok {
			w.back(i)
			return Slot{}, until
		}
	}
	k := w.pacer.ticket()
	k.holds, k.booking, k.end = k.room[:0], w.slot, w.end()
	k.dealt = on.alone && w.stops[0].dealt > 0
	w.slot = nil
	for i := range w.stops {
		if s := &w.stops[i]; s.clock != nil {
			k.holds = append(k.holds, w.charge(s, on, now))
		}
	}
	w.pacer.keepSweeping()
	return Slot{Wait: now - w.since, ticket: k, number: k.number}, 0
}

// charge books w at the stop and leaves the line there.
func (w *waiter) charge(s *stop, on footing, now instant) hold {
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	h := hold{shard: s.shard, clock: s.clock, agent: w.agent, asked: s.terms, terms: on.local(s.terms), at: now}
	if s.dealt > 0 && on.alone {
		h.at = s.dealt // its turn, not the moment of waking, is what comes round
	}
	h.before = s.shard.charge(s.clock, h.terms, w.agent, h.at)
	h.serial = s.clock.serial
	w.leave(s)
	return h
}
