package pace

import (
	"cmp"
	"time"
)

// Backoff is the policy for sites that answer 429, 430 or 503: how long their keys are blocked.
type Backoff struct {
	// Off ignores such answers altogether.
	Off bool
	// First is the pause after an answer without a usable Retry-After. Each further one in a row
	// doubles the pause, up to Max. Max also bounds a site's Retry-After. Defaults: 60 s and 24 h.
	First, Max time.Duration
}

const (
	// forgiveAfter is how long a key must stay quiet after a block before the doubling starts again at
	// Backoff.First.
	forgiveAfter = 30 * time.Minute
	// maxJitter is the largest fraction by which a pause of ours is lengthened at random, so that
	// gateways do not all come back at once. The site's own Retry-After is never lengthened.
	maxJitter = 0.1
)

func (b Backoff) withDefaults() Backoff {
	b.First = cmp.Or(clip(b.First), time.Minute)
	b.Max = cmp.Or(clip(b.Max), 24*time.Hour)
	return b
}

// pause is the nth pause in a row, n from 1.
func (b Backoff) pause(n int) time.Duration {
	d := b.First
	for ; n > 1 && d < b.Max; n-- {
		d *= 2
	}
	return min(d, b.Max)
}

// backoff is the state of a key's block: pure, as gcra is. The zero value blocks nothing and
// remembers nothing.
type backoff struct {
	until    instant
	failures int  // our own pauses in a row
	fresh    bool // no request was sent since it was set
}

// afterFailure is the state after a 429, 430 or 503 at the given instant. asked is the pause that
// the site asked for, zero or less when it gave nothing usable. jitter is drawn from [0,1).
//
// Answers that come before the block has ended belong to requests that were already in flight when
// it began. Their own Retry-After may move the end of the block, but they do not double it.
// Otherwise eight requests in flight would turn 60 s into two hours.
func (b backoff) afterFailure(p Backoff, now instant, asked time.Duration, jitter float64) backoff {
	if now-b.until >= forgiveAfter {
		b.failures = 0
	}
	if asked > 0 {
		b.until, b.fresh = max(b.until, now+min(asked, p.Max)), true
		return b
	}
	if now < b.until {
		return b
	}
	b.failures++
	d := p.pause(b.failures)
	d += time.Duration(float64(d) * maxJitter * jitter)
	b.until, b.fresh = now+min(d, p.Max), true
	return b
}

// forgotten reports whether the state says no more than the zero state does.
func (b backoff) forgotten(now instant) bool {
	return now-b.until >= forgiveAfter || (b.failures == 0 && now >= b.until)
}

// RecordFailure records that the site of the key answered 429, 430 or 503. retryAfter is the value
// of its Retry-After. If it is zero or less, the pause is [Backoff.First], and it doubles up to
// [Backoff.Max] with each block that follows before 30 minutes of quiet.
//
// Until the block ends, no agent can send a request to the key. Waiting requests that could not be
// in time are refused at once. After the block, requests go at the rate, without a burst.
func (p *Pacer) RecordFailure(key string, retryAfter time.Duration) {
	cfg := p.config.Load()
	if cfg.Backoff.Off {
		return
	}
	jitter := cfg.Random()
	now := p.now()
	s := p.table.shard(key)
	s.mu.Lock()
	c := p.table.clock(s, key, cfg, now, cfg.blockKeys())
	if c == nil {
		s.mu.Unlock()
		return // without a clock nothing goes to the key
	}
	var before backoff
	if c.backoff != nil {
		before = *c.backoff
	}
	b := before.afterFailure(cfg.Backoff, now, clip(retryAfter), jitter)
	s.block(c, b, now)
	s.mu.Unlock()
	p.keepSweeping()
	if b.until == before.until {
		return
	}
	cfg.Observer.Blocked(retryAfter > 0)
	if p.shared != nil {
		// After an error this gateway alone keeps the block; tellBlocks tells it later.
		_ = p.shared.Block(key, b.until-now, b.failures)
	}
}

// blockReserve is the fraction of [Config.MaxKeys] by which blocks may exceed it. A site's request
// for a pause must not be forgotten because the table is full.
const blockReserve = 8

// blockKeys is how many keys a shard keeps, including the reserve for blocks.
func (c *Config) blockKeys() int { return c.shardKeys() + c.shardKeys()/blockReserve + 1 }

// block sets the block of c, under the shard's lock. It refuses requests that can no longer be in
// time, and wakes the first of the others.
func (s *shard) block(c *clock, b backoff, now instant) {
	c.backoff = &b
	s.keep(c)
	if c.queue == nil {
		return
	}
	var late []*waiter
	for _, f := range c.queue.flows {
		for _, w := range f.waiters {
			if b.until > w.end() {
				late = append(late, w)
			}
		}
	}
	for _, w := range late {
		w.refuseFor(c.key, ReasonBlocked, b.until-now)
		c.queue.remove(w)
	}
	if w := c.queue.current; w != nil && b.until > w.end() {
		w.refuseFor(c.key, ReasonBlocked, b.until-now)
	}
	c.wakeNext()
	c.dropEmptyQueue()
}

// blockedElsewhere records that another gateway blocked the key or ended its block.
func (p *Pacer) blockedElsewhere(key string, pause time.Duration, strikes int) {
	cfg := p.config.Load()
	if pause <= 0 {
		p.endBlock(key)
		return
	}
	if p.restore(State{Key: key, Until: time.Now().Add(pause), Strikes: strikes}, cfg, p.now()) {
		cfg.Observer.Blocked(strikes == 0)
	}
	p.keepSweeping()
}

// maxAnnounced bounds how many blocks are announced to a shared clock that came back, perhaps
// without its memory.
const maxAnnounced = 10_000

// announceBlocks announces the blocks to a shared clock that came back. It does so in the
// background, so neither a heartbeat nor a reload waits for it.
func (p *Pacer) announceBlocks() {
	if p.announcing.Add(1) > 1 {
		return // a call is in progress, and announces them once more
	}
	go func() {
		for again := true; again; {
			asked := p.announcing.Load()
			p.tellBlocks()
			again = !p.announcing.CompareAndSwap(asked, 0)
		}
	}()
}

func (p *Pacer) tellBlocks() {
	for _, b := range p.States(maxAnnounced, false) {
		pause := time.Until(b.Until)
		if pause <= 0 {
			continue
		}
		if p.shared.Block(b.Key, pause, b.Strikes) != nil {
			return // away again: it will be back
		}
	}
}

// Unblock ends the block of a key by order of the operator, also at the other gateways that share
// the clock, and forgets its strikes. Requests then go at the rate, without a burst. It returns the
// block that it ended here, and reports whether there was one here or elsewhere. An error means
// that the other gateways could not be told.
func (p *Pacer) Unblock(key string) (ended State, found bool, err error) {
	elsewhere := false
	if p.shared != nil {
		elsewhere, err = p.shared.Unblock(key)
	}
	ended, found = p.endBlock(key)
	return ended, found || elsewhere, err
}

func (p *Pacer) endBlock(key string) (ended State, found bool) {
	s := p.table.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := p.now()
	c := s.clocks[key]
	if c == nil || c.backoff == nil || c.backoff.forgotten(now) {
		return State{Key: key}, false
	}
	ended = c.state(now, time.Now(), false)
	c.backoff = &backoff{until: min(c.backoff.until, now), fresh: c.backoff.fresh}
	c.wakeNext()
	return ended, true
}
