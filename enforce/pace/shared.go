package pace

import (
	"context"
	"time"
)

// Shared is the clock that several gateways keep together: redisclock.Clock, or
// anything else that books slots in one place. A Pacer that has one keeps its
// lines, and so the fairness between its agents, to itself; who is next there
// books the slot here, one at a time for each key.
//
// Implementations are safe for concurrent use. Every call returns within a
// bounded time, and at once while Peers().Up is false.
type Shared interface {
	// Reserve books, at all clocks of the demands or none, the first slot that
	// all of them allow, and says how long until then. Where that is longer than
	// maxWait it books nothing. An error means that the shared clock cannot be
	// reached, or did not answer in time.
	Reserve(ctx context.Context, demands []Demand, maxWait time.Duration) (Reservation, error)
	// Release gives a booked slot back, at each clock where no later one was
	// booked since.
	Release(ctx context.Context, r Reservation) error
	// Block sets the second clock of a key for all gateways and tells them.
	Block(ctx context.Context, key string, pause time.Duration, strikes int) error
	// Watch sets the functions to call when another gateway blocked a key, and
	// when the shared clock can be reached again. It is called once, first.
	Watch(blocked func(key string, pause time.Duration, strikes int), joined func())
	// Peers tells about the gateways, without asking anybody.
	Peers() Peers
}

// Demand is what a request wants of one shared clock. All times are relative, as
// the gateways' own clocks need not agree.
type Demand struct {
	Key       string
	Interval  time.Duration
	Tolerance time.Duration // (burst-1) intervals
	Delay     time.Duration
	// Debt is how far ahead this gateway's own rate timestamp lies, Ago how long
	// ago its last request went (less than zero: unknown). They tell a shared
	// clock what it has not seen: requests sent while it was away, or later than
	// their slots.
	Debt, Ago time.Duration
}

// Reservation is the answer to Reserve.
type Reservation struct {
	Outcome Outcome
	// At is when the booked slot is, by this gateway's own clock as well as that
	// can be told, and never earlier than it is.
	At time.Time
	// Wait is the time until the first slot there was, booked or not.
	Wait time.Duration
	// Blocked is how long the first blocked key of the demands still is.
	Blocked    time.Duration
	BlockedKey string
	// Token is for Release.
	Token any
}

// Outcome is what became of a wish to book.
type Outcome uint8

const (
	// TooLate booked nothing: the slot lies beyond maxWait.
	TooLate Outcome = iota
	// Booked booked the slot.
	Booked
	// NotYet booked nothing: a clock that only few share is not ready, and to
	// book now would keep the others, which many share, from being used until
	// then. Ask again after Wait.
	NotYet
)

// Peers is what a gateway knows of the others.
type Peers struct {
	// Up says whether the shared clock can be reached, For since when that is so.
	Up  bool
	For time.Duration
	// Count is the number of gateways that share the clock, at least one; the
	// last known one while it cannot be reached. Rank is this one's place among
	// them, from zero.
	Count, Rank int
	// Time is the time of the shared clock since some moment that is the same
	// for all gateways, carried on while it cannot be reached.
	Time time.Duration
}

// settle is how long after the shared clock was first reached, or came back, no
// burst is booked: it may have forgotten what went before.
const settle = 10 * time.Second

// footing is on what ground a request goes now.
type footing struct {
	peers  Peers
	shared bool // the shared clock decides about rates and gaps
	alone  bool // there is one, but it cannot be asked
}

func (w *waiter) footing() footing {
	if w.pacer.shared == nil {
		return footing{}
	}
	p := w.pacer.shared.Peers()
	p.Count = max(p.Count, 1)
	up := p.Up && !w.spurned
	return footing{peers: p, shared: up, alone: !up}
}

// local is what this gateway holds a request to. Places in flight are divided
// between the gateways. So are rate and gap while they cannot ask each other;
// otherwise these are left to the shared clock.
func (f footing) local(t terms) terms {
	n := f.peers.Count
	if n > 1 && t.places > 0 {
		t.places = max(1, t.places/n)
	}
	if f.alone {
		t.interval, t.gap, t.tolerance = times(t.interval, n), times(t.gap, n), 0
	}
	return t
}

// ready is when the stop's clock is ready for w on this footing.
func (f footing) ready(w *waiter, s *stop, now instant) instant {
	c := s.clock
	switch {
	case f.shared:
		return max(now, c.blockedUntil())
	case !f.alone:
		return max(now, c.ready(s.terms))
	}
	// Slots booked before may still be used; they lie within one round.
	round := f.local(s.terms).cost()
	at := max(now, c.ready(f.local(s.terms)), now-f.peers.For+round)
	if len(w.stops) > 1 || f.peers.Count == 1 {
		return at
	}
	return f.deal(s, at, now)
}

// guard is how late after its slot a request may still go, so that others can
// rely on the slots being apart. It is added to what is booked: a twentieth of
// the time between two requests, between 1 and 50 ms.
func guard(t terms) time.Duration {
	return min(max(t.cost()/20, min(t.cost()/2, time.Millisecond)), 50*time.Millisecond)
}

// maxMissed is how often a request may sleep past its slot and book another one.
// On a machine so busy, progress counts for more than punctuality.
const maxMissed = 2

// deal gives each gateway that is on its own every Count-th turn of the time
// they have in common, so that also together they keep the gap.
func (f footing) deal(s *stop, at, now instant) instant {
	late := guard(s.terms)
	if s.dealt > 0 && at <= now && s.dealt <= now && now <= s.dealt+late {
		return now
	}
	offset := f.peers.Time - now
	s.dealt = dealt(at+offset, s.terms.cost()+late, f.peers.Count, f.peers.Rank) - offset
	return s.dealt
}

// dealt is the first turn at or after the given time of the gateway with the
// rank, when turns of the given length go round.
func dealt(at, each time.Duration, count, rank int) time.Duration {
	round, phase := times(each, count), times(each, rank)
	turns := (at - phase + round - 1) / round
	return phase + times(round, int(turns))
}

// times is d taken n times.
func times(d time.Duration, n int) time.Duration { return time.Duration(int64(d) * int64(n)) }

// booking is a slot that is booked at the shared clock.
type booking struct {
	reservation Reservation
	at          instant
}

// unpaced reports whether none of w's clocks has a rate or a gap: then there is
// nothing to book.
func (w *waiter) unpaced() bool {
	for i := range w.stops {
		if t := w.stops[i].terms; t.interval > 0 || t.gap > 0 {
			return false
		}
	}
	return true
}

// book asks the shared clock for a slot, unless w has one, and reports whether
// its time has come. w has the turn at all its clocks.
func (w *waiter) book(ctx context.Context, now instant) (until instant, ok bool) {
	if b := w.booking(now); b != nil {
		return b.at, b.at <= now
	}
	r, err := w.pacer.shared.Reserve(ctx, w.demands(now), max(0, w.end()-now))
	now = w.pacer.now()
	if err != nil {
		if ctx.Err() == nil {
			w.spurned, w.at = true, 0 // once more, by our own clocks
		}
		return now, false
	}
	if r.Blocked > 0 {
		w.pacer.blockedElsewhere(r.BlockedKey, r.Blocked, 0)
	}
	switch r.Outcome {
	case Booked:
		b := &booking{reservation: r, at: r.At.Sub(w.pacer.epoch)}
		w.booked(b)
		return b.at, false // step again: it may be over already
	case NotYet:
		return now + max(r.Wait, time.Millisecond), false
	case TooLate:
	}
	w.bookedOut(r, now)
	return never, false
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

func (w *waiter) demands(now instant) []Demand {
	settling := w.pacer.shared.Peers().For < settle
	out := make([]Demand, 0, len(w.stops))
	for i := range w.stops {
		s := &w.stops[i]
		if s.clock == nil {
			continue
		}
		s.shard.mu.Lock()
		m := s.clock.meter
		s.shard.mu.Unlock()
		out = append(out, s.terms.demand(s.key, m, now, settling))
	}
	return out
}

// demand is what to book for a request under t, given this gateway's own state
// of the clock, with the guard on top. A burst has room for it already.
func (t terms) demand(key string, m meter, now instant, settling bool) Demand {
	d := Demand{Key: key, Interval: t.interval, Tolerance: t.tolerance, Delay: t.gap, Ago: -1}
	if settling {
		d.Tolerance = 0
	}
	late := guard(t)
	if d.Tolerance > 0 {
		d.Tolerance = max(0, d.Tolerance-late)
	} else {
		d.Debt = max(0, m.tat-now)
		if d.Interval > 0 {
			d.Interval += late
		}
	}
	if d.Delay > 0 {
		d.Delay += late
	}
	if m.last > 0 {
		d.Ago = now - m.last
	}
	return d
}

// booking is w's booking, unless w has slept past it.
func (w *waiter) booking(now instant) *booking {
	s := &w.stops[0]
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	if w.slot != nil && now > w.slot.at+guard(s.terms) && w.missed < maxMissed {
		w.slot = nil
		w.missed++
	}
	return w.slot
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
func (w *waiter) unbook(ctx context.Context) {
	b := w.handOn()
	if b == nil || b.at <= w.pacer.now() {
		return
	}
	// Its client has left, but others want the slot still. The shared clock
	// bounds the call; if it fails the slot is lost, for one interval.
	_ = w.pacer.shared.Release(context.WithoutCancel(ctx), b.reservation)
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

// blockedElsewhere notes that another gateway blocked the key.
func (p *Pacer) blockedElsewhere(key string, pause time.Duration, strikes int) {
	cfg := p.config.Load()
	if cfg.Backoff.Off {
		return
	}
	if p.restore(Block{Key: key, Until: time.Now().Add(pause), Strikes: strikes}, cfg, p.now()) {
		cfg.Observer.Blocked(strikes == 0)
	}
	p.keepSweeping()
}

// maxRetold bounds how many blocks are told again to a shared clock that came
// back, perhaps without its memory.
const maxRetold = 10_000

func (p *Pacer) joined() {
	for _, b := range p.Blocks(maxRetold) {
		pause := time.Until(b.Until)
		if pause <= 0 {
			continue
		}
		if p.shared.Block(context.Background(), b.Key, pause, b.Strikes) != nil {
			return // away again: it will be back
		}
	}
}
