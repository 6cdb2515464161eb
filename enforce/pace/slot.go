package pace

import (
	"sync"
	"time"
)

// Slot is leave to send one request now. It is a small value; copies are the
// same slot. Its methods are safe for concurrent use, and do nothing on the
// zero Slot.
//
// Call [Slot.Done] exactly when the request is over, on every path: a slot that
// is never given back keeps its place in flight for good, and with all places
// gone the host is never asked again. That leak is the caller's.
type Slot struct {
	// Wait is how long the request was held.
	Wait time.Duration

	ticket *ticket
	number uint64
}

// ticket is what a Slot stands for. Tickets are used again; the number tells a
// Slot whose time is over from the one that has the ticket now.
type ticket struct {
	mu     sync.Mutex
	pacer  *Pacer
	number uint64
	holds  []hold
	room   [maxAtOnce]hold // for the usual case
	// booking is the slot at the shared clock, if that is where it came from;
	// dealt says that it is one of those which gateways on their own deal out.
	booking *booking
	dealt   bool
	end     instant // no later may the request begin
}

// hold is the slot's part at one clock.
type hold struct {
	shard  *shard
	clock  *clock
	agent  string
	asked  terms // those of the request
	terms  terms // those that this gateway holds it to
	before meter // the clock's state without this request
	at     instant
	until  instant // it may begin until then, though others went
	serial uint32  // the clock's, right after this request
}

// Done gives the request's places in flight back: its answer has been read to
// the end, or was given up. Later calls do nothing.
func (s Slot) Done() { s.end(func(*hold) {}) }

// Cancel is Done for a request that was not sent after all. Where no other one
// went since, its slot is free again.
func (s Slot) Cancel() {
	b := s.end((*hold).undo)
	if b == nil {
		return
	}
	_ = s.ticket.pacer.shared.Release(b.reservation) // if it fails, one slot is lost
}

// Sent counts the gap to the next request from now instead of from the grant.
// Call it when the request has been written: what counts for the site is when
// requests reach it. It moves the clock forward only, and does nothing once
// another request went.
func (s Slot) Sent() { s.reached(true) }

// Answered is Sent for the first octet of the answer: proof that the request has
// arrived. Only this gateway reckons with it, as it tells no less of how long
// the site took to answer than of when it was asked.
func (s Slot) Answered() { s.reached(false) }

func (s Slot) reached(tell bool) {
	t := s.ticket
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.number != s.number {
		return
	}
	now := t.pacer.now()
	for i := range t.holds {
		t.holds[i].sent(now)
	}
	if tell {
		t.tell(now)
	}
}

func (s Slot) end(also func(*hold)) *booking {
	t := s.ticket
	if t == nil {
		return nil
	}
	t.mu.Lock()
	if t.number != s.number {
		t.mu.Unlock()
		return nil
	}
	t.number++
	for i := range t.holds {
		h := &t.holds[i]
		h.shard.mu.Lock()
		also(h)
		h.shard.land(h.clock, h.terms, h.agent)
		h.shard.mu.Unlock()
		*h = hold{}
	}
	b := t.booking
	t.holds, t.booking, t.dealt = nil, nil, false
	t.mu.Unlock()
	t.pacer.tickets.Put(t)
	return b
}

// latest reports whether no other request went on the clock since this one.
func (h *hold) latest() bool { return h.clock.serial == h.serial }

// undo restores the clock under the shard's lock.
func (h *hold) undo() {
	if h.latest() {
		h.clock.meter = h.latestOther()
		h.clock.rouse()
	}
}

// sent moves the clock on, unless another request went since.
func (h *hold) sent(now instant) {
	h.shard.mu.Lock()
	defer h.shard.mu.Unlock()
	if h.latest() {
		h.move(now)
	}
}

// move moves the clock on under the shard's lock. A rate with a burst is left
// alone: it has room for requests that come closer together than its interval.
func (h *hold) move(now instant) {
	if now <= h.at {
		return
	}
	h.at = now
	h.clock.meter.last = now
	if h.terms.tolerance == 0 {
		h.clock.meter.tat = max(h.clock.meter.tat, now+h.terms.interval)
	}
}
