package pace

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Config is what all keys of a Pacer have in common. The zero value has the
// defaults given at each field.
type Config struct {
	// Wait is how long a request is held when it does not say. Default: 10 s.
	Wait time.Duration
	// Queue is how many requests may wait for one key. A full queue makes room
	// for an agent that has fewer there than another. Default: 1000.
	Queue int
	// Waiters is how many requests may wait in all. One agent may have at most
	// as many as it leaves free. Default: 65,536.
	Waiters int
	// MaxKeys is how many keys are kept. Beyond it unknown keys share overflow
	// clocks. A key takes some 160 bytes with its name. Default: 1,000,000.
	MaxKeys int
	// Idle is how long after its last request a key is kept although its clock
	// is free again, at the least: an agent with a long Delay keeps it also
	// towards requests of agents with a short one, so the Pacer keeps keys for
	// the longest Delay that it was ever asked for. Only where the keys reach
	// MaxKeys it goes back to Idle. Default: 2 min.
	Idle time.Duration
	// Backoff is the policy for 429 and 503.
	Backoff Backoff
	// Random draws from [0,1) for the jitter; safe for concurrent use.
	// Default: math/rand/v2.
	Random func() float64
	// Observer is told what happens. Default: nobody.
	Observer Observer
	// Shared is the clock in common with other gateways. [New] takes it;
	// [Pacer.Configure] does not change it. Default: none.
	Shared Shared
}

func (c Config) withDefaults() *Config {
	if c.Wait <= 0 {
		c.Wait = 10 * time.Second
	}
	if c.Queue <= 0 {
		c.Queue = 1000
	}
	if c.Waiters <= 0 {
		c.Waiters = 1 << 16
	}
	if c.MaxKeys <= 0 {
		c.MaxKeys = 1_000_000
	}
	if c.Idle <= 0 {
		c.Idle = 2 * time.Minute
	}
	c.Wait, c.Idle = clip(c.Wait), clip(c.Idle)
	c.Backoff = c.Backoff.withDefaults()
	if c.Random == nil {
		c.Random = rand.Float64
	}
	if c.Observer == nil {
		c.Observer = NopObserver{}
	}
	return &c
}

// wait is how long the request may be held.
func (c *Config) wait(r *Request) time.Duration {
	if r.MaxWait == 0 {
		return c.Wait
	}
	return clip(r.MaxWait)
}

// loneAfter is how long after its start a Pacer takes an agent for the only one.
const loneAfter = 10 * time.Minute

// Pacer keeps the clocks of all keys. It is safe for concurrent use. Make one
// with [New]; it needs no closing: it runs a timer only while it has keys.
//
// An agent that has been the only one for the Pacer's first ten minutes or longer
// gets all places of a clock. Once another one has asked, one is left for others.
type Pacer struct {
	epoch    time.Time
	first    atomic.Pointer[string] // the agent that asked first
	several  atomic.Bool            // another one has asked
	shared   Shared                 // nil: this gateway is the only one
	config   atomic.Pointer[Config]
	table    table
	room     room
	tickets  sync.Pool
	sweeping atomic.Bool
}

// New makes a Pacer without keys.
func New(c Config) *Pacer {
	p := &Pacer{epoch: time.Now().Add(-epochAge), shared: c.Shared}
	p.table.seed = maphash.MakeSeed()
	for i := range p.table.shards {
		p.table.shards[i].number = i
	}
	p.tickets.New = func() any { return &ticket{pacer: p} }
	p.Configure(c)
	if p.shared != nil {
		p.shared.Watch(p.blockedElsewhere, p.lateElsewhere, p.joined)
	}
	return p
}

// Configure replaces the configuration. The clocks, and those who wait, stay.
func (p *Pacer) Configure(c Config) { p.config.Store(c.withDefaults()) }

func (p *Pacer) now() instant { return time.Since(p.epoch) }

// Acquire grants the next slot, holding the caller until it is due. The errors
// are *[Refused], when it would be due too late or there is no room to wait, and
// ctx's error, when ctx ends first; neither uses a slot. Every granted Slot must
// be given back by [Slot.Done].
//
// A request is held for MaxWait. One whose slot is due soon after that is held
// up to a tenth longer, as a refusal in sight of the slot would help nobody.
func (p *Pacer) Acquire(ctx context.Context, r Request) (Slot, error) {
	if err := ctx.Err(); err != nil {
		return Slot{}, fmt.Errorf("pacing %s: %w", r.Key, err)
	}
	cfg := p.config.Load()
	p.meet(r.Agent)
	p.table.remember(&r)
	if p.shared == nil {
		if s, ok := p.atOnce(&r, cfg); ok {
			cfg.Observer.Granted(0)
			return s, nil
		}
	}
	s, err := p.hold(ctx, cfg, &r)
	if err != nil {
		return Slot{}, err
	}
	cfg.Observer.Granted(s.Wait)
	return s, nil
}

// atOnce grants a slot of clocks that are free: the usual case, without an
// allocation.
func (p *Pacer) atOnce(r *Request, cfg *Config) (Slot, bool) {
	if len(r.Also) == 0 {
		return p.oneAtOnce(r, cfg)
	}
	return p.allAtOnce(r, cfg)
}

func (p *Pacer) oneAtOnce(r *Request, cfg *Config) (Slot, bool) {
	t, s := r.terms(), p.table.shard(r.Key)
	t.shared = t.places > 1
	s.mu.Lock()
	now := p.now() // under the lock: never before what others charged
	c := p.table.clock(s, r.Key, cfg, now)
	if !p.free(s, c, t, r.Agent, now) {
		s.mu.Unlock()
		return Slot{}, false
	}
	h := hold{shard: s, clock: c, agent: r.Agent, asked: t, terms: t, at: now}
	h.before = s.charge(c, t, r.Agent, now)
	h.serial = c.serial
	s.mu.Unlock()
	p.keepSweeping()

	k := p.ticket()
	k.room[0] = h
	k.holds, k.end = k.room[:1], now+cfg.wait(r)
	return Slot{ticket: k, number: k.number}, true
}

func (p *Pacer) ticket() *ticket { return p.tickets.Get().(*ticket) }

// keepSweeping starts the sweep when it does not run.
func (p *Pacer) keepSweeping() {
	if p.sweeping.Load() || !p.sweeping.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(sweepEvery, p.sweep)
}

// sweep is one step of the sweep. It runs as long as there are keys.
func (p *Pacer) sweep() {
	if p.table.sweepAll(p.config.Load(), p.now()) {
		time.AfterFunc(sweepEvery, p.sweep)
		return
	}
	p.sweeping.Store(false)
	if p.table.keys.Load() > 0 {
		p.keepSweeping() // a key came in between
	}
}

// Stats is how much a Pacer holds.
type Stats struct {
	// Keys is the number of keys, Waiting that of requests held.
	Keys, Waiting int
	// Blocked is the number of keys whose site asked to be left alone, until a
	// time that has not come.
	Blocked int
}

// Stats counts. It takes each shard's lock for a moment, as a scrape may.
func (p *Pacer) Stats() Stats {
	s := Stats{Keys: int(p.table.keys.Load()), Waiting: p.room.waiting()}
	now := p.now()
	for i := range p.table.shards {
		s.Blocked += p.table.shards[i].countBlocked(now)
	}
	return s
}
