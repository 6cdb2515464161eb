package pace

import (
	"context"
	"fmt"
	"time"
)

// Begin is the last look at the clocks. Call it when all is ready for the
// request but its first octet has not been sent: the connection may have taken
// longer to make than the time to the next slot. A request that is in time goes
// at once. One that is not waits for another slot, within what is left of the
// time that it may be held; else, and where the site was blocked meanwhile, the
// error is *[Refused]. When ctx ends it is ctx's. After an error nothing may be
// sent.
func (s Slot) Begin(ctx context.Context) error {
	t := s.ticket
	if t == nil {
		return nil
	}
	var timer *time.Timer
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("pacing: waiting for another slot: %w", err)
		}
		until, err := t.begin(ctx, s.number)
		if err != nil {
			return err
		}
		if until == 0 {
			return nil
		}
		pause := until - t.pacer.now()
		if timer == nil {
			timer = time.NewTimer(pause)
			defer timer.Stop()
		} else {
			timer.Reset(pause)
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// begin returns zero if the request may go now, else when to ask again.
func (t *ticket) begin(ctx context.Context, number uint64) (instant, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.number != number {
		return 0, nil // its time is over
	}
	now := t.pacer.now()
	for i := range t.holds {
		if refused := t.holds[i].blocked(now); refused != nil {
			return 0, t.refuse(refused)
		}
	}
	if t.missed(now) {
		return t.again(ctx, now)
	}
	var until instant
	for i := range t.holds {
		at := t.holds[i].begin(now, t.end, t.booking)
		if at > t.end {
			return 0, t.refuse(&Refused{Key: t.holds[i].clock.key, Reason: ReasonWait, RetryAfter: at - now})
		}
		until = max(until, at)
	}
	if until == 0 {
		t.tell(now)
		return 0, nil
	}
	if t.booking != nil {
		t.booking.at = until
		if until > t.booking.last {
			return t.again(ctx, now)
		}
	}
	return until, nil
}

func (t *ticket) refuse(r *Refused) error {
	t.pacer.config.Load().Observer.Refused(r.Reason)
	return r
}

// blocked refuses the request where the site asked to be left alone after the
// slot had been granted.
func (h *hold) blocked(now instant) *Refused {
	h.shard.mu.Lock()
	defer h.shard.mu.Unlock()
	if until := h.clock.blockedUntil(); until > now {
		return &Refused{Key: h.clock.key, Reason: ReasonBlocked, RetryAfter: until - now}
	}
	return nil
}

// begin returns zero if the request may go now, as far as this gateway's own
// clock knows. Where another one went since the slot was granted, and the slot
// is over, it takes the next one and returns when that is.
func (h *hold) begin(now, end instant, b *booking) instant {
	h.shard.mu.Lock()
	defer h.shard.mu.Unlock()
	apart := h.terms.apart()
	if b != nil && apart > 0 {
		m := h.latestOther()
		if at := m.last + max(m.gap, apart); at > now && m.last > b.known {
			return at
		}
		h.makeLatest()
	}
	if h.latest() {
		h.move(now)
		return 0
	}
	if apart == 0 || now <= h.until {
		return 0
	}
	m, late := &h.clock.meter, guard(h.terms)
	at := m.last + max(m.gap, apart)
	if h.terms.tolerance == 0 {
		at = max(at, m.tat)
	}
	if at > end {
		return at // too late: nothing is charged for a request that is not sent
	}
	h.makeLatest()
	h.at, h.until = max(at, now), max(at, now)+late
	m.last, m.gap = h.until, h.terms.gap
	if h.terms.tolerance == 0 {
		m.tat = h.until + h.terms.interval
	}
	if h.at <= now {
		return 0
	}
	return h.at
}

// apart is the least time between two requests: a rate with a burst asks for none.
func (t terms) apart() time.Duration {
	if t.tolerance > 0 {
		return t.gap
	}
	return max(t.gap, t.interval)
}

// patience is how late after its slot, booked at the shared clock, a request may
// begin: the next slot is no earlier than apart, and until then its owner must
// have been told to wait.
func patience(t terms) time.Duration { return max(guard(t), t.apart()*3/4) }

// missed reports whether the slot was one among those of several gateways and
// is over.
func (t *ticket) missed(now instant) bool {
	switch {
	case t.booking != nil:
		all, last := t.strictest(), t.booking.last
		if on := t.pacer.footing(); !on.shared { // nobody can be told any more
			last = min(t.booking.until, on.bookedUntil(all, now)+guard(all))
		}
		return now > last && all.apart() > 0
	case t.dealt:
		return t.pacer.shared.Peers().Up || now > t.holds[0].at+guard(t.holds[0].asked)
	}
	return false
}

// strictest is what all clocks of the slot ask for together, for a single gateway.
func (t *ticket) strictest() terms {
	all := t.holds[0].asked
	for i := range t.holds[1:] {
		all = all.strictest(t.holds[1+i].asked)
	}
	return all
}

// again takes another slot among those of several gateways, and returns when it is.
func (t *ticket) again(ctx context.Context, now instant) (instant, error) {
	on := t.pacer.footing()
	key := t.holds[0].clock.key
	if on.shared {
		at, err := t.rebook(ctx, on, now)
		if err == nil || ctx.Err() != nil {
			return at, err
		}
		if refused, ok := err.(*Refused); ok { //nolint:errorlint // rebook's own error, not wrapped
			return 0, t.refuse(refused)
		}
		on = t.pacer.footing()
		on.shared, on.alone = false, true
	}
	h := &t.holds[0]
	s := stop{key: key, terms: h.asked}
	m, round := h.others(), on.local(h.asked)
	at := on.deal(&s, max(now, m.ready(round), on.alonesFrom(h.asked, now)), now)
	if at > t.end {
		return 0, t.refuse(&Refused{Key: key, Reason: ReasonWait, RetryAfter: at - now})
	}
	t.booking, t.dealt = nil, true
	for i := range t.holds {
		t.holds[i].moveTo(at)
	}
	return at, nil
}

// rebook asks the shared clock for another slot.
func (t *ticket) rebook(ctx context.Context, on footing, now instant) (instant, error) {
	demands := make([]Demand, len(t.holds))
	var known instant
	for i := range t.holds {
		h := &t.holds[i]
		m := h.others()
		known = max(known, m.last)
		demands[i] = h.asked.demand(h.clock.key, m, now, on.peers)
	}
	p := t.pacer
	r, err := p.shared.Reserve(ctx, demands, max(0, t.end-now))
	if err != nil {
		return 0, err
	}
	now = p.now()
	switch r.Outcome {
	case Booked:
		// The old slot is not given back: what it kept apart may go by it still.
		t.booking, t.dealt = p.booking(r, t.strictest(), known), false
		return t.booking.at, nil
	case NotYet:
		return now + max(r.Wait, time.Millisecond), nil
	case TooLate:
	}
	why := ReasonWait
	if r.Blocked > 0 {
		why = ReasonBlocked
	}
	return 0, &Refused{Key: t.holds[0].clock.key, Reason: why, RetryAfter: r.Wait}
}

// moveTo makes the hold the latest at its clock, at an instant to come.
func (h *hold) moveTo(at instant) {
	h.shard.mu.Lock()
	defer h.shard.mu.Unlock()
	h.makeLatest()
	h.move(at)
	h.until = at + guard(h.asked)
}

// makeLatest puts the hold behind all others at its clock.
func (h *hold) makeLatest() {
	if h.latest() {
		return
	}
	h.before = h.clock.meter
	h.clock.serial++
	h.serial = h.clock.serial
}

// others is the clock's state without the request.
func (h *hold) others() meter {
	h.shard.mu.Lock()
	defer h.shard.mu.Unlock()
	return h.latestOther()
}

// latestOther is others under the shard's lock. What another gateway told since
// the slot was granted counts.
func (h *hold) latestOther() meter {
	m := h.clock.meter
	if !h.latest() {
		return m
	}
	last := m.last
	m = h.before
	if last > max(h.at, h.until) {
		m.last = last
	}
	return m
}

// tell tells the other gateways that the request goes now, if that is later than
// they must reckon with.
func (t *ticket) tell(now instant) {
	b := t.booking
	if b == nil || now <= b.told || t.strictest().apart() == 0 {
		return
	}
	// What is off by less than timers are is not worth a word.
	b.told = now + guard(terms{})
	b.reservation = t.pacer.shared.Late(b.reservation, t.pacer.epoch.Add(now))
}
