package pace

import (
	"context"
	"hash/fnv"
	"slices"
	"time"
)

// Shared is a clock that several gateways share: redisclock.Clock, or anything else that reserves
// slots in one place. A Pacer with a Shared clock still keeps its own queues, and so the fairness
// between its agents. Only the first request of a queue reserves its slot here, one at a time per
// key.
//
// Implementations are safe for concurrent use. Every call returns within a bounded time, and at
// once while Peers().Up is false.
type Shared interface {
	// Reserve reserves the first slot that all clocks of the demands allow, at all of them or none,
	// and returns the time until then. If that is longer than maxWait, it reserves nothing. An error
	// means that the shared clock cannot be reached. Unless ctx has ended, Peers().Up is then false.
	Reserve(ctx context.Context, demands []Demand, maxWait time.Duration) (Reservation, error)
	// Release returns a reserved slot at each clock where no later one has been reserved since. It is
	// called when a request has ended, so it takes no context.
	Release(r Reservation) error
	// Done returns the places of a reservation whose request has ended, and then calls after. It does
	// this in the background. A place that cannot be returned becomes free after some time.
	Done(r Reservation, after func())
	// Hold records the places of a request that begins while the shared clock is unreachable, so that
	// they count once it is back. Pass the result to Done. Hold makes no call.
	Hold(demands []Demand) Reservation
	// Block sets the block of a key for all gateways and tells them. The block outlives the request
	// that caused it, so Block takes no context.
	Block(key string, pause time.Duration, strikes int) error
	// Unblock ends the block of a key for all gateways and tells them. It reports whether there was
	// one.
	Unblock(key string) (found bool, err error)
	// Watch sets two functions. The first is called when another gateway blocks a key; a pause of 0
	// ends the block. The second is called when the shared clock is reachable again or may have lost
	// its memory: then slots that were reserved before no longer count. Watch is called once, before
	// everything else.
	Watch(blocked func(key string, pause time.Duration, strikes int), back func())
	// Peers describes the other gateways, without a call.
	Peers() Peers
}

// Demand is what a request requires of one shared clock. All times are relative, as the gateways'
// own clocks need not agree.
type Demand struct {
	Key       string
	Interval  time.Duration
	Tolerance time.Duration // (burst-1) intervals
	Delay     time.Duration
	Places    int // in flight at all gateways together; 0: no bound
	// Spent says that there is no burst, because the shared clock may have forgotten earlier requests.
	Spent bool
}

// Reservation is the answer to Reserve.
type Reservation struct {
	Outcome ReserveOutcome
	// The request may go from At until Until, by this gateway's clock. Anywhere between the two, it
	// keeps the demanded distance from the slots of other gateways.
	At, Until time.Time
	// Wait is the time until the first possible slot, whether it was reserved or not.
	Wait time.Duration
	// Blocked is how long the first blocked key of the demands still is.
	Blocked    time.Duration
	BlockedKey string
	// Token is for Release.
	Token any
}

// ReserveOutcome is the result of an attempt to reserve. Only Reserved permits a request. The
// numbers are those of redisclock's reserve.lua.
type ReserveOutcome int64

const (
	// TooLate reserved nothing: the slot lies beyond maxWait.
	TooLate ReserveOutcome = iota
	// Reserved reserved the slot.
	Reserved
	// NotYet reserved nothing: a clock that few requests share is not ready, and a reservation now
	// would block the clocks that many share until then. Ask again after Wait.
	NotYet
	// Full reserved nothing: all places of a clock are taken. Ask again after about Wait.
	Full
)

// Peers is what a gateway knows of the others.
type Peers struct {
	// Up says whether the shared clock can be reached. For says how long that has been true.
	Up  bool
	For time.Duration
	// Count is the number of gateways that share the clock, at least one; the last known number while
	// the clock cannot be reached.
	Count int
	// Turn is the position of this gateway, from 0, among the gateways that take turns while the clock
	// is unreachable and for some time after. Turns is the number of these gateways. It is 0 if
	// unknown, and until the clock has been unreachable once. Time is the shared clock's time since
	// 1970. All gateways use the same values, from before the clock became unreachable.
	Turn, Turns int
	Time        time.Duration
}

// coordination is how this gateway shares the rate of a host with others now. The zero value is for
// a single gateway.
//
// While the shared clock is unreachable, each of N gateways sends one request in every N intervals,
// without a burst. So N gateways send at most N requests more than a single one would in any
// period, and no more than the rate in the long run. They take turns by the shared clock's time,
// see [turn]. A gateway that does not know its turn does not know of the others either, and may
// send at the same time as one of them. After the shared clock is back, a gateway keeps its turns
// for settleTime and the gap, in addition to reserving slots: others may not have noticed yet, and
// the shared clock may have lost its memory. Without turns it keeps to its part for a round, but at
// least for settleTime.
type coordination struct {
	shared bool // slots are reserved at the shared clock
	away   bool // there is one, but it cannot be reached
	count  int
	age    time.Duration // how long this has been true

	turn, turns int           // as in Peers
	ahead       time.Duration // the shared clock's time less this gateway's
}

// settleTime is long enough for all gateways to notice that the shared clock is back: some
// heartbeats.
const settleTime = 5 * time.Second

func (p *Pacer) coordination() coordination {
	if p.shared == nil {
		return coordination{count: 1}
	}
	peers := p.shared.Peers()
	return coordination{
		shared: peers.Up, away: !peers.Up, count: max(peers.Count, 1), age: peers.For,
		turn: peers.Turn, turns: peers.Turns, ahead: peers.Time - p.now(),
	}
}

// dividePlaces gives this gateway its part of the places in flight, if the shared clock does not
// count them, or may have forgotten some.
func (on coordination) dividePlaces(t terms) terms {
	if t.places > 0 && on.divides(t) {
		t.places = max(1, t.places/on.count)
	}
	return t
}

// divides reports whether each gateway keeps to its part of rate and gap.
func (on coordination) divides(t terms) bool {
	return on.away || on.count > 1 && on.settling(t)
}

// settling reports whether the shared clock has just been reached, for the first time or again.
func (on coordination) settling(t terms) bool {
	if on.turns > 1 && t.turns {
		return on.settlingIn(settleTime + t.cost()) // then the last turns are long over
	}
	return on.settlingIn(max(settleTime, on.round(t)))
}

func (on coordination) settlingIn(time time.Duration) bool { return on.shared && on.age < time }

// takesTurns reports whether gateways take turns at a clock now.
func (on coordination) takesTurns(t terms) bool { return on.turns > 1 && t.turns && on.divides(t) }

// round is the time in which each gateway sends one request while the rate is divided.
func (on coordination) round(t terms) time.Duration {
	cost := t.cost()
	switch {
	case on.turns > 1:
		cost += lateness(t)
	case on.count > 1:
		cost += slack(t)
	}
	return times(cost, on.count)
}

func times(d time.Duration, n int) time.Duration {
	return min(d, longest/time.Duration(n)) * time.Duration(n)
}

// local returns the terms that this gateway itself applies: its part of the places and, while they
// are divided, its part of rate and gap.
func (on coordination) local(t terms) terms {
	t = on.dividePlaces(t)
	if on.divides(t) {
		t.interval, t.gap, t.tolerance = times(t.interval, on.count), times(t.gap, on.count), 0
	}
	return t
}

// ready is the instant from which a request under t may go by this gateway's own state of the clock
// of a key, if it may not go before from for another reason.
func (on coordination) ready(g gcra, t terms, key string, now, from instant) instant {
	if t.unpaced() || !on.divides(t) {
		return g.ready(t)
	}
	if u := on.turnAt(g, t, key, now, from); u.round > 0 {
		return max(u.at, g.readyAlone(t))
	}
	round, changed := on.round(t), now-on.age
	at := max(g.ready(on.local(t)), g.last+round)
	if on.away && on.count > 1 && g.last+round < changed {
		at = max(at, changed+round) // others may have used the clock lately
	}
	return at
}

// turnsFrom is the least time between two requests at which gateways take turns. With less, too
// many requests would be late.
const turnsFrom = 150 * time.Millisecond

// lateness is what a turn is longer than the time between two requests. A request may go in the
// first three quarters of it. The rest is for its way to the site. A request that is later has to
// wait for the next round. A busy machine may be late by more than a short slot.
func lateness(t terms) time.Duration {
	return min(max(min(t.cost()/8, 125*time.Millisecond), t.cost()/16), 2*time.Second)
}

// turnAt returns the next turn at the clock of a key. It comes after all slots that others may have
// reserved before the shared clock became unreachable.
func (on coordination) turnAt(g gcra, t terms, key string, now, from instant) turn {
	if !on.takesTurns(t) {
		return turn{}
	}
	part := min(t.cost()+lateness(t), longest/time.Duration(on.turns))
	u := turn{since: now - on.age, settled: settleTime + t.cost(), round: part * time.Duration(on.turns), late: lateness(t) * 3 / 4}
	from = max(now, from, g.readyAlone(t))
	if on.away {
		from = max(from, now-on.age+on.round(t)+part)
	}
	name := fnv.New64a()
	_, _ = name.Write([]byte(key)) // not all hosts at once
	u.at = part*time.Duration(on.turn) + time.Duration(name.Sum64()%uint64(u.round)) - on.ahead
	u.at = u.next(from)
	return u
}

// behind is the instant from which a request may go for a slot that this gateway has reserved at
// the shared clock, which may have forgotten it; zero if none is reserved.
func (on coordination) behind(reserved instant, t terms) instant {
	switch {
	case reserved == 0 || t.unpaced():
		return 0
	case on.divides(t):
		return reserved + on.round(t)
	}
	return reserved + t.spacing()
}

// reservation is a slot that is reserved at the shared clock, in this gateway's time.
type reservation struct {
	slot      Reservation
	demands   []Demand
	at, until instant // the request may go between them
	era       uint64  // the Pacer's when it asked
}

// holds reports whether a request may go for r now or later: it is not too late, the shared clock
// has not forgotten it, and the gateways do not take turns by then.
func (p *Pacer) holds(r *reservation, now instant) bool {
	on := p.coordination()
	return now <= r.until && r.era == p.era.Load() && !(on.away && slices.ContainsFunc(r.demands, func(d Demand) bool {
		t := terms{interval: d.Interval, gap: d.Delay}
		return !t.unpaced() && r.at > now-on.age+on.round(t)
	}))
}

// relearn begins a new era of the shared clock, and announces the blocks to it.
func (p *Pacer) relearn() {
	p.era.Add(1)
	p.announceBlocks()
}

// reserve asks the shared clock for a slot. Without a slot it returns the error of Reserve, or when
// to ask again, or the reason not to.
func (p *Pacer) reserve(
	ctx context.Context, demands []Demand, end instant,
) (*reservation, Reservation, error) {
	era := p.era.Load()
	r, err := p.shared.Reserve(ctx, demands, max(0, end-p.now()))
	if err != nil || r.Outcome != Reserved {
		return nil, r, err
	}
	at, until := r.At.Sub(p.epoch), r.Until.Sub(p.epoch)
	return &reservation{slot: r, demands: demands, at: at, until: until, era: era}, r, nil
}

// release gives the slot back; if that fails, one slot is lost.
func (p *Pacer) release(r *reservation) {
	if r != nil {
		_ = p.shared.Release(r.slot)
	}
}

// reserve gets w a slot at the shared clock, unless it has one, and reports whether its time has
// come. w is current at all its clocks.
func (w *waiter) reserve(ctx context.Context, on coordination) (until instant, ok bool) {
	now := w.pacer.now()
	if r := w.reservation; r != nil && w.pacer.holds(r, now) {
		return r.at, r.at <= now
	}
	w.giveBack() // it woke too late, or the slot is forgotten
	r, answer, err := w.pacer.reserve(ctx, w.demands(on), w.end())
	now = w.pacer.now()
	if err != nil {
		w.leaveFrom(1)
		w.at = 0 // once more, by this gateway's own clocks
		return now, false
	}
	if r != nil {
		if next := w.missesTurn(on, r.at, now); next > 0 {
			w.pacer.release(r)
			return next, false
		}
		w.reservation = r
		s := &w.steps[0]
		s.shard.mu.Lock()
		s.clock.queue.due = r.at
		s.shard.mu.Unlock()
		return r.at, r.at <= now
	}
	if answer.Blocked > 0 {
		w.pacer.blockedElsewhere(answer.BlockedKey, answer.Blocked, 0)
	}
	if answer.Outcome == Full {
		return w.awaitPlace(answer.Wait, now)
	}
	if answer.Outcome == NotYet {
		return now + max(answer.Wait, time.Millisecond), false
	}
	w.refuseShared(answer, now)
	return never, false
}

// missesTurn returns the next turn of w if a slot is not in the one that it has now, else zero.
func (w *waiter) missesTurn(on coordination, slot, now instant) (next instant) {
	for i := range w.steps {
		if s := &w.steps[i]; on.takesTurns(s.terms) {
			s.shard.mu.Lock()
			u := on.turnAt(s.clock.gcra, s.terms, s.key, now, now)
			s.shard.mu.Unlock()
			if slot > u.at+u.late {
				return u.next(slot)
			}
		}
	}
	return 0
}

// awaitPlace makes w ask again soon, at a random time. Until then it holds up nobody at the clocks
// behind its first one.
func (w *waiter) awaitPlace(wait time.Duration, now instant) (until instant, ok bool) {
	until = now + time.Duration((0.5+w.config.Random())*float64(wait))
	if until > w.end() {
		s := &w.steps[0]
		w.refuseFor(s.key, ReasonConcurrency, max(time.Second, s.terms.cost()))
		return never, false
	}
	w.leaveFrom(1)
	w.at = 0
	return until, false
}

// refuseShared refuses w: the shared clock has no slot in time.
func (w *waiter) refuseShared(answer Reservation, now instant) {
	s := &w.steps[0]
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	if answer.Blocked > 0 {
		w.refuseFor(s.key, ReasonBlocked, answer.Wait)
		return
	}
	due := now + answer.Wait
	s.clock.queue.keep(w, s.terms, due, due+w.config.Wait)
	w.refuseFor(s.key, ReasonWait, answer.Wait)
}

// demands is what w asks of the shared clock.
func (w *waiter) demands(on coordination) []Demand {
	out := make([]Demand, len(w.steps))
	for i, s := range w.steps {
		t := s.terms
		out[i] = Demand{
			Key: s.key, Interval: t.interval, Tolerance: t.tolerance, Delay: t.gap, Places: t.places, Spent: on.settling(t),
		}
	}
	return out
}

// giveBack returns w's slot to the shared clock.
func (w *waiter) giveBack() {
	w.pacer.release(w.reservation)
	w.reservation = nil
}
