package pace

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/publicsuffix"
)

// Config is what all keys of a Pacer have in common. The zero value has the defaults given at each
// field.
type Config struct {
	// Wait is how long a request is held if it sets no limit itself. Default: 25 s.
	Wait time.Duration
	// Queue is how many requests may wait for one key. When it is full, each agent still gets its
	// share, so fewer than twice Queue wait in total. Default: 1000.
	Queue int
	// Waiters is how many requests may wait in total. One agent may use at most as many places as are
	// still free. Default: 65,536.
	Waiters int
	// MaxKeys is how many keys are kept. Each of 64 shards keeps at most a 64th of them, rounded up.
	// When a shard is full, requests for unknown keys are refused. A key takes about 160 bytes with
	// its name. Default: 1,000,000.
	MaxKeys int
	// Idle is the least time for which a key is kept after its last request, even if its clock is free
	// again. An agent's long Delay also applies to the requests of other agents before it, so the
	// Pacer keeps keys for the longest Delay that it was ever asked for. Once the keys reach MaxKeys,
	// it keeps them only for Idle. Default: 2 min.
	Idle time.Duration
	// Backoff is the policy for 429, 430 and 503.
	Backoff Backoff
	// Random draws from [0,1) for the jitter; safe for concurrent use. Default: math/rand/v2.
	Random func() float64
	// Observer receives events. Default: none.
	Observer Observer
	// Shared is the clock that is shared with other gateways. [New] uses it; [Pacer.Configure] does
	// not change it. Default: none.
	Shared Shared
}

func (c Config) withDefaults() *Config {
	c.Wait = cmp.Or(clip(c.Wait), 25*time.Second)
	c.Queue = cmp.Or(max(c.Queue, 0), 1000)
	c.Waiters = cmp.Or(max(c.Waiters, 0), 1<<16)
	c.MaxKeys = cmp.Or(max(c.MaxKeys, 0), 1_000_000)
	c.Idle = cmp.Or(clip(c.Idle), 2*time.Minute)
	c.Backoff = c.Backoff.withDefaults()
	if c.Random == nil {
		c.Random = rand.Float64
	}
	if c.Observer == nil {
		c.Observer = nopObserver{}
	}
	return &c
}

// shardKeys is how many keys a shard keeps.
func (c *Config) shardKeys() int { return (c.MaxKeys + shardCount - 1) / shardCount }

// wait returns how long the request may be held.
func (c *Config) wait(r *Request) time.Duration {
	if r.MaxWait == 0 {
		return c.Wait
	}
	return clip(r.MaxWait)
}

// Observer receives the events of a Pacer. Its methods are called on the request's path, but never
// under a lock of the Pacer. They must be quick and safe for concurrent use, and must not label
// anything by key or agent.
type Observer interface {
	// Granted is called for each slot, with the time that the request was held. kept says that the
	// slot demands another gap than the one before it, so that [Pacer.States] has changed.
	Granted(wait time.Duration, kept bool)
	// Refused is called for each refusal.
	Refused(reason Reason)
	// Blocked is called for each block that was set or extended, either by the site's own Retry-After
	// (explicit) or by our doubling pause.
	Blocked(explicit bool)
}

type nopObserver struct{}

func (nopObserver) Granted(time.Duration, bool) {}
func (nopObserver) Refused(Reason)              {}
func (nopObserver) Blocked(bool)                {}

// Limit is what one clock demands of a request. Limits come with each request, not with the key:
// the Crawl-delay differs from agent to agent, and a reload of the configuration changes limits
// without touching the clocks.
type Limit struct {
	// Key names the clock. See [Scope.Key] and [AgentKey].
	Key string
	// Interval is the operator's rate as the time between two requests ([ParseRate]). Zero or less: no
	// rate.
	Interval time.Duration
	// Burst is how many requests may go at once after a quiet time. Less than one counts as one. It
	// loosens Interval only, never Delay.
	Burst int
	// Delay is the least gap between this request and its neighbours on the clock, before and after:
	// the Crawl-delay after [CrawlDelay.Apply]. Between agents with different delays, the longer one
	// applies. Zero or less: none.
	Delay time.Duration
	// Concurrency is the most requests in flight, from the grant to [Slot.Done]. Zero or less: no
	// bound, and the request is not counted either. If there are two or more places, one agent gets
	// all but one of them, at the first clock of a request that has places, unless it is the only
	// agent that ever asked (see [Pacer]).
	Concurrency int
}

// Request asks for one slot.
type Request struct {
	// Limit is the clock of the host.
	Limit
	// Also names further clocks that must agree: the site's, the address's, the agent's own. The
	// strictest decides, and either all are charged or none. Repeated keys are ignored.
	Also []Limit
	// Agent is whose share of the host the request uses. Requests of one agent go in the order of
	// their arrival.
	Agent string
	// MaxWait is how long the request may be held. Zero: [Config.Wait]. Negative: not at all.
	MaxWait time.Duration
}

// The prefixes keep the kinds of key apart. No host name or IPv6 literal can begin with one of
// them, so a host is its own key, without an allocation.
const (
	agentPrefix   = "agent:"
	sitePrefix    = "site:"
	addressPrefix = "addr:"
)

// AgentKey is the agent's own clock within another one: the agent's rate at one host, when key is
// the host's.
func AgentKey(agent, key string) string { return agentPrefix + agent + "@" + key }

// rank orders the clocks of one request from the narrow to the wide. All requests pass their clocks
// in this order, so no two can wait for each other. A clock that many hosts share is asked only
// when the host's own clock is ready, so a slow host does not occupy it.
func rank(key string) int {
	switch {
	case strings.HasPrefix(key, agentPrefix):
		return 0
	case strings.HasPrefix(key, sitePrefix):
		return 2
	case strings.HasPrefix(key, addressPrefix):
		return 3
	}
	return 1
}

// Home is the site of the host that a clock is for; an address is its own. It has the form of a
// key.
func Home(key string) string {
	switch rank(key) {
	case 0:
		return Home(key[strings.LastIndexByte(key, '@')+1:])
	case 1:
		return PerSite.Key(key, netip.Addr{})
	}
	return key
}

// Scope is what one clock stands for. The zero value is [PerHost].
type Scope string

const (
	// PerHost is a clock for each host, all ports and schemes together: they are one machine, or one
	// team's machines.
	PerHost Scope = "host"
	// PerSite is a clock for each registrable domain: www.example.co.uk and img.example.co.uk share
	// the clock of example.co.uk. Private suffixes count (a.github.io and b.github.io are two sites).
	// A host without a registrable domain, such as an IP literal or localhost, is its own site.
	PerSite Scope = "site"
	// PerAddress is a clock for each resolved address. IPv4 in IPv6 counts as IPv4; a zone is left
	// out.
	PerAddress Scope = "address"
)

// Key is the key of a host under the scope. host is canonical (lower-case, punycode, an IPv6
// literal without brackets). An address that is not valid (the name did not resolve) falls back to
// the host's key.
func (c Scope) Key(host string, addr netip.Addr) string {
	switch {
	case c == PerSite:
		site, err := publicsuffix.EffectiveTLDPlusOne(host)
		if err != nil {
			site = host
		}
		return sitePrefix + site
	case c == PerAddress && addr.IsValid():
		return addressPrefix + addr.Unmap().WithZone("").String()
	}
	return host
}

// Above says what happens if a Crawl-delay exceeds the operator's maximum. Other crawlers differ:
// Heritrix clamps it, Nutch skips the page, and crawler-commons treats it as a disallow. The zero
// value is [Clamp].
type Above string

const (
	// Clamp waits for the maximum instead.
	Clamp Above = "clamp"
	// Refuse does not crawl the host.
	Refuse Above = "refuse"
	// Honor waits for as long as the site says.
	Honor Above = "honor"
)

// CrawlDelay is the operator's policy for the Crawl-delay (or Request-rate) of an agent's group.
// RFC 9309 does not define it, but many sites use it.
type CrawlDelay struct {
	// Min is the least delay. A shorter delay of a site is raised to it. It is not a default: without
	// a Crawl-delay, only the operator's rate applies.
	Min time.Duration
	// Max is the longest delay. Above says what happens to a longer one. Zero: no maximum.
	Max   time.Duration
	Above Above
}

// Apply returns the delay to keep for the delay that the group declares, and whether the host may
// be crawled at all. Zero or less means no delay. ok is false only under [Refuse].
func (c CrawlDelay) Apply(declared time.Duration) (delay time.Duration, ok bool) {
	if declared <= 0 {
		return 0, true
	}
	delay = max(declared, c.Min)
	if c.Max <= 0 || delay <= c.Max || c.Above == Honor {
		return delay, true
	}
	if c.Above == Refuse {
		return delay, false
	}
	return c.Max, true
}

// Pacer keeps the clocks of all keys. It is safe for concurrent use. Make one with [New]; it needs
// no closing: it runs a timer only while it has keys.
//
// An agent that has been the only one for at least the Pacer's first ten minutes gets all places of
// a clock. Once another agent has asked, one place is left for others.
type Pacer struct {
	epoch    time.Time
	lone     atomic.Pointer[string] // the only agent so far, or several
	shared   Shared                 // nil: this gateway is the only one
	era      atomic.Uint64          // counts how often the shared clock may have forgotten slots
	config   atomic.Pointer[Config]
	table    table
	waiters  waiterLimit
	sweeping atomic.Bool
	// announcing counts the calls of announceBlocks since the last one that is done; 0 if all are.
	announcing atomic.Int32
}

// New makes a Pacer without keys.
func New(c Config) *Pacer {
	p := &Pacer{epoch: time.Now().Add(-epochAge), shared: c.Shared}
	p.table.seed = maphash.MakeSeed()
	p.Configure(c)
	if p.shared != nil {
		p.shared.Watch(p.blockedElsewhere, p.relearn)
	}
	return p
}

// Configure replaces the configuration. It keeps the clocks and the waiting requests.
func (p *Pacer) Configure(c Config) { p.config.Store(c.withDefaults()) }

func (p *Pacer) now() instant { return time.Since(p.epoch) }

// Acquire grants the next slot, and blocks until it is due. It returns *[Refused] if the slot would
// be due too late or if too many requests wait already, and ctx's error if ctx ends first. Neither
// uses a slot. The caller must return every granted Slot with [Slot.Done].
//
// A request is held for up to MaxWait. If its slot is due soon after that, it is held up to a tenth
// longer, because a refusal so close to the slot would help nobody.
func (p *Pacer) Acquire(ctx context.Context, r Request) (Slot, error) {
	if err := ctx.Err(); err != nil {
		return Slot{}, fmt.Errorf("pacing %s: %w", r.Key, err)
	}
	cfg := p.config.Load()
	p.noteAgent(r.Agent)
	p.table.remember(&r)
	s, ok := p.acquireAtOnce(&r, cfg)
	if !ok {
		var err error
		if s, err = p.acquireInTurn(ctx, cfg, &r); err != nil {
			return Slot{}, err
		}
	}
	cfg.Observer.Granted(s.Wait, slices.ContainsFunc(s.grant.charges, func(c charge) bool { return c.before.gap != c.terms.gap }))
	return s, nil
}

// acquireAtOnce grants a slot of a single clock that is free: the usual case.
func (p *Pacer) acquireAtOnce(r *Request, cfg *Config) (Slot, bool) {
	if p.shared != nil || len(r.Also) > 0 {
		return Slot{}, false
	}
	t, s := r.terms(), p.table.shard(r.Key)
	t.shared = t.places > 1
	s.mu.Lock()
	now := p.now() // under the lock: never before a charge of others
	c := p.table.clock(s, r.Key, cfg, now, cfg.shardKeys())
	if c == nil || c.queue != nil || c.ready(t) > now || p.full(s, c, t, r.Agent) {
		s.mu.Unlock()
		return Slot{}, false
	}
	g := &grant{pacer: p, end: now + cfg.wait(r), charges: []charge{s.charge(c, t, r.Agent, now)}}
	s.mu.Unlock()
	p.keepSweeping()
	return Slot{grant: g}, true
}

// loneAfter is how long after its start a Pacer starts to treat an agent as the only one.
const loneAfter = 10 * time.Minute

// manyAgents stands for more than one agent.
var manyAgents = new(string)

// noteAgent records that the agent asks.
func (p *Pacer) noteAgent(agent string) {
	lone := p.lone.Load()
	if lone == nil {
		name := agent
		p.lone.CompareAndSwap(nil, &name)
		lone = p.lone.Load()
	}
	if lone != manyAgents && *lone != agent {
		p.lone.Store(manyAgents)
	}
}

// alone reports whether only one agent ever asked, for long enough.
func (p *Pacer) alone() bool { return p.lone.Load() != manyAgents && p.now() >= epochAge+loneAfter }
