package pace

import (
	"context"
	"time"
)

// settle is how long after the shared clock was first reached, or came back,
// requests use up the burst: it may have forgotten what went before.
const settle = 10 * time.Second

// booking is a slot that is booked at the shared clock.
type booking struct {
	reservation Reservation
	at, until   instant // between them the request goes
	last        instant // at which it may begin: until then the others are told in time
	// told is until when the others reckon with it.
	told instant
	// known is what the shared clock knew of when it gave the slot: when the last
	// request went at any of its clocks, as far as this gateway had heard.
	known instant
	// shifted says that it waits for a late request.
	shifted bool
}

// booking is the reservation of a slot under t in this gateway's time.
func (p *Pacer) booking(r Reservation, t terms, known instant) *booking {
	b := &booking{reservation: r, known: known, at: r.At.Sub(p.epoch), until: r.Early.Sub(p.epoch) + guard(t)}
	b.told, b.last = b.until, b.at+patience(t)
	return b
}

// keepApart lets the booked slot wait for one that another request took later
// than it should have: of this gateway, or of another one that told so. The
// slots behind it stay where they are; the next of them will wait in its turn.
func (b *booking) keepApart(c *clock, t terms) {
	apart := t.apart()
	if apart == 0 || c.meter.last <= b.known {
		return
	}
	if late := c.meter.last + max(c.meter.gap, apart) - b.at; late > 0 {
		b.at += late
		b.until += late
		b.shifted = true
	}
}

// book asks the shared clock for a slot, unless w has one, and reports whether
// its time has come. w has the turn at all its clocks.
func (w *waiter) book(ctx context.Context, now instant) (until instant, ok bool) {
	b, missed := w.booking(now)
	if missed {
		// It woke too late. If nobody else booked since, the slot is there still.
		_ = w.pacer.shared.Release(b.reservation)
	} else if b != nil {
		if w.keepApart(b) {
			return b.at, b.at <= now
		}
		w.slot = nil
		_ = w.pacer.shared.Release(b.reservation)
	}
	demands, known := w.demands(now)
	r, err := w.pacer.shared.Reserve(ctx, demands, max(0, w.end()-now))
	now = w.pacer.now()
	if err != nil {
		if ctx.Err() == nil {
			w.spurned, w.at = now, 0 // once more, by our own clocks
		}
		return now, false
	}
	if r.Blocked > 0 && r.Outcome != Booked { // a booked slot is after the block
		w.pacer.blockedElsewhere(r.BlockedKey, r.Blocked, 0)
	}
	switch r.Outcome {
	case Booked:
		b := w.pacer.booking(r, w.stops[0].terms, known)
		w.booked(b)
		return b.at, false // step again: it may be over already
	case NotYet:
		return now + max(r.Wait, time.Millisecond), false
	case TooLate:
	}
	w.bookedOut(r, now)
	return never, false
}

// keepApart lets w's booking wait where one of its clocks knows of a request that
// came late. It reports whether the booking is still of use.
func (w *waiter) keepApart(b *booking) bool {
	for i := range w.stops {
		s := &w.stops[i]
		if s.clock == nil {
			continue
		}
		s.shard.mu.Lock()
		b.keepApart(s.clock, s.terms)
		s.shard.mu.Unlock()
	}
	return b.at <= b.last
}

// bookedOut refuses w: the shared clock has no slot in time.
func (w *waiter) bookedOut(r Reservation, now instant) {
	s := &w.stops[0]
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	if r.Blocked > 0 {
		w.refusedBy(s.clock, ReasonBlocked, r.Wait)
		return
	}
	due := now + r.Wait
	s.clock.line.queue.keep(w, s.terms, due, due+w.config.Wait)
	w.refusedBy(s.clock, ReasonWait, r.Wait)
}

// demands is what w asks of the shared clock, and when the last request went
// that this tells.
func (w *waiter) demands(now instant) (demands []Demand, known instant) {
	peers := w.pacer.shared.Peers()
	out := make([]Demand, 0, len(w.stops))
	for i := range w.stops {
		s := &w.stops[i]
		var m meter
		if s.clock != nil { // else an earlier stop's overflow clock is this one's too
			s.shard.mu.Lock()
			m = s.clock.meter
			s.shard.mu.Unlock()
		}
		known = max(known, m.last)
		out = append(out, s.terms.demand(s.key, m, now, peers))
	}
	return out, known
}

// demand is what to book for a request under t, given this gateway's own state
// of the clock, with the guard on top. A burst has room for it already. As long
// as gateways were on their own, what others sent is not known: the moment when
// they all came back counts as a request.
func (t terms) demand(key string, m meter, now instant, peers Peers) Demand {
	late := guard(t)
	if joined := now - peers.Joined; peers.Joined < t.apart()+late {
		m.last = max(m.last, joined)
	}
	d := Demand{Key: key, Interval: t.interval, Tolerance: max(0, t.tolerance-late), Delay: t.gap, Ago: -1}
	if t.tolerance == 0 && d.Interval > 0 {
		d.Interval += late
	}
	if peers.For < settle || t.tolerance == 0 {
		d.Debt = d.Tolerance + max(0, m.tat-now) // no burst
	}
	if t.tolerance == 0 && d.Interval > 0 {
		d.Debt = max(d.Debt, m.last+d.Interval-now)
	}
	if d.Delay > 0 {
		d.Delay += late
	}
	switch {
	case m.last > now: // a turn to come, taken while on its own
		d.Ago = 0
		d.Debt = max(d.Debt, d.Tolerance+m.last+d.Delay-now)
	case m.last > 0:
		d.Ago = now - m.last
	}
	return d
}

// booking is w's booking, if it has one, perhaps from another one who left, and
// whether w has missed it. Then it has none any more.
func (w *waiter) booking(now instant) (b *booking, missed bool) {
	s := &w.stops[0]
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	b = w.slot
	if b == nil || now <= b.until {
		return b, false
	}
	w.slot = nil
	return b, true
}

// booked keeps the booking, and notes on the line when its owner will go and how
// much more than its own part of the clock others seem to use.
func (w *waiter) booked(b *booking) {
	s := &w.stops[0]
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	w.slot = b
	l := s.clock.line
	if l.due > 0 {
		seen := float64(b.at-l.due) / float64(s.terms.cost())
		l.crowd = (l.crowd + min(max(seen, 1), float64(w.footing().peers.Count))) / 2
	}
	l.due = b.at
}

// unbook passes the slot on to the next in line, or gives it back, unless its
// time is over.
func (w *waiter) unbook() {
	b := w.handOn()
	if b == nil || b.at <= w.pacer.now() {
		return
	}
	_ = w.pacer.shared.Release(b.reservation) // if it fails, one slot is lost
}

// handOn hands w's booking to the next in line if that asks for the same, else
// returns it.
func (w *waiter) handOn() *booking {
	s := &w.stops[0]
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	b := w.slot
	w.slot = nil
	if b == nil || b.at <= w.pacer.now() || len(w.stops) > 1 || s.clock == nil {
		return b
	}
	next := s.clock.line.queue.head
	if next == nil || next.slot != nil || next.terms != s.terms || len(next.stops) > 1 {
		return b
	}
	next.slot = b
	next.rouse()
	return nil
}
