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
	// booked since. It is called when a request has ended, so it takes no context.
	Release(r Reservation) error
	// Late tells all gateways that the request of the reservation begins at a
	// time that is later than they reckon with, and returns the reservation as it
	// is from then on. It does not wait for an answer: what is lost makes one gap
	// shorter.
	Late(r Reservation, at time.Time) Reservation
	// Block sets the second clock of a key for all gateways and tells them. It
	// outlives the request that brought it, so it takes no context.
	Block(key string, pause time.Duration, strikes int) error
	// Unblock ends the block of a key for all gateways and tells them. It reports
	// whether there was one.
	Unblock(key string) (found bool, err error)
	// Watch sets the functions to call when another gateway blocked a key (with a pause of 0, ended
	// the block of one), when a request of another one begins late, and when the shared clock can
	// be reached again. It is called once, first.
	Watch(blocked func(key string, pause time.Duration, strikes int), late func(key string, at time.Time), joined func())
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
	// By this gateway's clock the booked slot is not before Early, and not after
	// At, when the request goes.
	Early, At time.Time
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
	// Joined is how long ago the gateways came back to the shared clock, all at
	// once, after some of them had been on their own; a year and more if they
	// never were.
	Joined time.Duration
	// Count is the number of gateways that share the clock, at least one; the
	// last known one while it cannot be reached. Rank is this one's place among
	// them, from zero.
	Count, Rank int
	// Time is the time of the shared clock since some moment that is the same
	// for all gateways, carried on while it cannot be reached; Error is by how
	// much that may be wrong.
	Time, Error time.Duration
}

// blockedElsewhere notes that another gateway blocked the key, or ended its block.
func (p *Pacer) blockedElsewhere(key string, pause time.Duration, strikes int) {
	cfg := p.config.Load()
	if pause <= 0 {
		p.endBlock(key, cfg)
		return
	}
	if cfg.Backoff.Off {
		return
	}
	if p.restore(Block{Key: key, Until: time.Now().Add(pause), Strikes: strikes}, cfg, p.now()) {
		cfg.Observer.Blocked(strikes == 0)
	}
	p.keepSweeping()
}

// lateElsewhere notes that a request of another gateway began late. It must not
// lie ahead: a gateway that has no idea of the time could stop a host for good.
func (p *Pacer) lateElsewhere(key string, at time.Time) {
	began := min(at.Sub(p.epoch), p.now())
	s := p.table.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.clocks[key]; c != nil && began > c.meter.last {
		c.meter.last = began
	}
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
		if p.shared.Block(b.Key, pause, b.Strikes) != nil {
			return // away again: it will be back
		}
	}
}
