package pace

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Slot is permission to send one request now. It is a small value; copies are the same slot. Its
// methods are safe for concurrent use, and do nothing on the zero Slot.
//
// Call [Slot.Done] when the request is over, on every path. A slot that is never returned keeps its
// place in flight forever, and once all places are taken, no request to the host is granted any
// more.
type Slot struct {
	// Wait is how long the request was held.
	Wait time.Duration

	grant *grant
}

// grant is the data behind a Slot. It has no charges once the slot has been returned.
type grant struct {
	mu          sync.Mutex
	pacer       *Pacer
	charges     []charge
	reservation *reservation // nil: the slot is not from a shared clock
	held        *Reservation // its places, if the shared clock could not be reached; nil if it could
	end         instant      // no later may the request begin
}

// charge is the slot's part at one clock. Its methods are called under the lock of the shard.
type charge struct {
	shard  *shard
	clock  *clock
	agent  string
	terms  terms // this gateway's part of what the request asked for
	before gcra  // the clock's state without this request
	at     instant
	until  instant // the request may begin until then, though others went
	turn   turn    // that the request has while the shared clock is away
	serial uint32  // the clock's, right after this request
}

// Confirm checks the clocks one last time. Call it when everything is ready for the request and
// before its first byte is sent, because connecting may have taken longer than the time to the next
// slot. A request that is in time goes at once. A late one waits for another slot, within the rest
// of the time that it may be held. If there is no such slot, or if the site has been blocked since,
// the error is *[Refused]. If ctx ends, it is ctx's error. After an error, nothing may be sent.
func (s Slot) Confirm(ctx context.Context) error {
	g := s.grant
	if g == nil {
		return nil
	}
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("pacing: waiting for another slot: %w", err)
		}
		until, err := g.confirm(ctx)
		if err != nil || until == 0 {
			return err
		}
		select {
		case <-time.After(until - g.pacer.now()):
		case <-ctx.Done():
		}
	}
}

// confirm returns zero if the request may go now, otherwise the instant at which to ask again. It
// refuses the request if the site asked for a pause after the slot was granted.
func (g *grant) confirm(ctx context.Context) (until instant, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.pacer.now()
	var refused *Refused
	each(g.charges, func(c *charge) {
		if until := c.clock.blockedUntil(); until > now && refused == nil {
			refused = &Refused{c.clock.key, ReasonBlocked, until - now}
		}
	})
	late := false
	if g.pacer.shared != nil {
		on := g.pacer.coordination()
		late = g.reservation != nil && !g.pacer.holds(g.reservation, now)
		each(g.charges, func(c *charge) {
			if refused == nil && c.outOfTurn(on, now, g.reservation != nil, late) {
				refused = &Refused{c.clock.key, ReasonWait, max(c.turn.round, c.terms.cost())}
			}
		})
	}
	if refused == nil && late {
		return g.reserveAgain(ctx)
	}
	each(g.charges, func(c *charge) {
		if refused != nil {
			return
		}
		at := c.confirm(now, g.end, g.reservation != nil)
		if at > g.end {
			refused = &Refused{c.clock.key, ReasonWait, at - now}
		}
		until = max(until, at)
	})
	if refused != nil {
		return 0, g.pacer.refuse(refused)
	}
	return until, nil
}

// reserveAgain asks the shared clock for another slot and returns its time. If the shared clock
// cannot be reached, the request is refused, because other gateways may be using the host.
func (g *grant) reserveAgain(ctx context.Context) (instant, error) {
	p, old := g.pacer, g.reservation
	p.release(old) // if no other gateway has reserved since, the slot is there still
	r, answer, err := p.reserve(ctx, old.demands, g.end)
	now := p.now()
	switch {
	case ctx.Err() != nil:
		p.release(r)
		return 0, fmt.Errorf("pacing: waiting for another slot: %w", ctx.Err())
	case err != nil:
		round := p.coordination().round(g.charges[0].terms)
		return 0, p.refuse(&Refused{g.charges[0].clock.key, ReasonWait, round})
	case r != nil:
		g.reservation = r
		// Should the shared clock be lost before the request goes, the next one of this gateway has to
		// come behind it.
		each(g.charges, func(c *charge) { c.clock.reserved = max(c.clock.reserved, r.at) })
		return r.at, nil
	case (answer.Outcome == NotYet || answer.Outcome == Full) && now+answer.Wait <= g.end:
		return now + max(answer.Wait, time.Millisecond), nil
	case answer.Outcome == Full:
		return 0, p.refuse(&Refused{g.charges[0].clock.key, ReasonConcurrency, time.Second})
	case answer.Blocked > 0:
		return 0, p.refuse(&Refused{answer.BlockedKey, ReasonBlocked, answer.Wait})
	}
	return 0, p.refuse(&Refused{g.charges[0].clock.key, ReasonWait, answer.Wait})
}

// Sent makes the gap to the next request count from now instead of from the grant. Call it when the
// request has been written, because the site counts the time between the requests that reach it.
// Sent only moves the clock forward, and does nothing if another request has gone since.
func (s Slot) Sent() {
	g := s.grant
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.pacer.now()
	each(g.charges, func(c *charge) {
		if c.latest() {
			c.move(now)
		}
	})
}

// Done returns the request's places in flight. Call it when the answer has been read to the end or
// abandoned. Later calls do nothing.
func (s Slot) Done() { s.finish(false) }

// Cancel is Done for a request that was not sent after all. Its slot is free again, unless another
// request has gone since.
func (s Slot) Cancel() { s.finish(true) }

func (s Slot) finish(undo bool) {
	g := s.grant
	if g == nil {
		return
	}
	g.mu.Lock()
	charges, r := g.charges, g.reservation
	g.charges, g.reservation = nil, nil
	g.mu.Unlock()
	if charges == nil {
		return
	}
	give := func() { each(charges, func(c *charge) { c.release(undo) }) }
	if r == nil && g.held != nil {
		g.pacer.shared.Done(*g.held, give)
		return
	}
	if r != nil && !undo {
		g.pacer.shared.Done(r.slot, give) // waiting requests here then find the place free there
		return
	}
	give()
	if undo {
		g.pacer.release(r)
	}
}

// each calls f for each charge, under the lock of its shard.
func each(charges []charge, f func(*charge)) {
	for i := range charges {
		c := &charges[i]
		c.shard.mu.Lock()
		f(c)
		c.shard.mu.Unlock()
	}
}

// release gives back the place in flight and, to undo the charge, the slot.
func (c *charge) release(undo bool) {
	if undo && c.latest() {
		c.clock.gcra = c.before
		c.clock.wakeNext()
	}
	c.shard.release(c.clock, c.terms, c.agent)
}

// confirm returns zero if the request may go now. A reserved slot is in time. Else, where another
// request went since the slot was granted, and the slot is over, it takes the next one and returns
// when that is.
func (c *charge) confirm(now, end instant, reserved bool) instant {
	if reserved {
		c.makeLatest()
	} else if c.turn.next(now) != c.turn.at { // it is over
		return c.takeTurn(now, end)
	}
	if c.latest() {
		c.move(now)
		return 0
	}
	spacing, others := c.terms.spacing(), c.clock.gcra
	if spacing == 0 || now <= c.until {
		return 0
	}
	at := others.last + max(others.gap, spacing)
	if c.terms.tolerance == 0 {
		at = max(at, others.tat)
	}
	if at > end {
		return at // too late: nothing is charged for a request that is not sent
	}
	c.makeLatest()
	c.at, c.until = max(at, now), max(at, now)+slack(c.terms)
	c.clock.gcra.last, c.clock.gcra.gap = c.until, c.terms.gap
	if c.terms.tolerance == 0 {
		c.clock.gcra.tat = c.until + c.terms.interval
	}
	if c.at <= now {
		return 0
	}
	return c.at
}

// outOfTurn reports whether the request can have no other slot: others still take turns, or do no
// more.
func (c *charge) outOfTurn(on coordination, now instant, reserved, late bool) bool {
	switch {
	case on.away: // again
		return !reserved && c.turn.round > 0 && c.turn.since < now-on.age-time.Millisecond
	case reserved:
		return late && on.turns > 1 && on.settlingIn(max(c.turn.settled, settleTime+c.terms.cost()))
	}
	return c.turn.round > 0 && (c.turn.next(now) != c.turn.at || !on.settlingIn(c.turn.settled))
}

// takeTurn takes the next turn in place of one that is over, and returns when that is, or zero if
// it is now.
func (c *charge) takeTurn(now, end instant) instant {
	u, ready := c.turn, now
	if !c.latest() {
		ready = max(now, c.clock.gcra.readyAlone(c.terms)) // other requests have had turns since
	}
	u.at = u.next(ready)
	at := max(u.at, ready)
	if at > end {
		return at
	}
	c.makeLatest()
	c.turn, c.until = u, u.at+u.late
	c.move(at)
	if at <= now {
		return 0
	}
	return at
}

// slack is how late after its slot a request may still go, so that others can rely on slots being
// spaced: a twentieth of the time between two requests, but no less than timers are off, and 50 ms
// at most.
func slack(t terms) time.Duration {
	return min(max(t.cost()/20, 2*time.Millisecond), 50*time.Millisecond)
}

// latest reports whether no other request went on the clock since this one.
func (c *charge) latest() bool { return c.clock.serial == c.serial }

// makeLatest puts the charge behind all others at its clock.
func (c *charge) makeLatest() {
	if c.latest() {
		return
	}
	c.before = c.clock.gcra
	c.clock.serial++
	c.serial = c.clock.serial
}

// move moves the clock on. A rate with a burst is left alone: it has room
// for requests that come closer together than its interval.
func (c *charge) move(now instant) {
	if c.turn.round > 0 {
		now = min(now, c.turn.at+c.turn.late) // so that the next turn is not missed
	}
	if now <= c.at {
		return
	}
	c.at = now
	c.clock.gcra.last = now
	if c.terms.tolerance == 0 {
		c.clock.gcra.tat = max(c.clock.gcra.tat, now+c.terms.interval)
	}
}
