package pace

import (
	"cmp"
	"slices"
	"time"
)

// blockReserve is how many keys beyond [Config.MaxKeys], as a part of it, may be
// made for the sake of a block: a site's wish to be left alone is not forgotten
// because the table is full.
const blockReserve = 8

// Blocked tells that the site of the key answered 429 or 503. retryAfter is what
// it asked for ([ParseRetryAfter]); explicit says that it asked at all. Without a
// usable Retry-After the pause is [Backoff.First], doubling up to [Backoff.Max]
// with each block that follows before [Backoff.Forgive] of quiet.
//
// No request of any agent goes to the key before the block ends. Those that wait
// already and could not be in time are refused at once. When it ends, requests
// go at the rate, without a burst.
func (p *Pacer) Blocked(key string, retryAfter time.Duration, explicit bool) {
	cfg := p.config.Load()
	if cfg.Backoff.Off {
		return
	}
	if !explicit {
		retryAfter = 0
	}
	jitter := cfg.Random()
	now := p.now()
	s := p.table.shard(key)
	s.mu.Lock()
	c := p.table.clockToBlock(s, key, cfg, now)
	set := c.strike(s, cfg.Backoff, now, clip(retryAfter), jitter)
	b := *c.block
	s.mu.Unlock()
	p.keepSweeping()
	if !set {
		return
	}
	cfg.Observer.Blocked(retryAfter > 0)
	if p.shared != nil {
		// An error leaves it to this gateway, which tells it again on joining.
		_ = p.shared.Block(key, b.until-now, b.strikes)
	}
}

// clockToBlock is clock with room for some more.
func (t *table) clockToBlock(s *shard, key string, cfg *Config, now instant) *clock {
	c := t.clock(s, key, cfg, now)
	limit := int64(cfg.MaxKeys + cfg.MaxKeys/blockReserve + 1)
	if c == s.spill && s.spilled[key] == 0 && t.keys.Load() < limit {
		return t.insert(s, key, cfg, now)
	}
	return c
}

// strike sets the block and reports whether it lasts longer than before. An
// overflow clock stands for many sites: it is blocked, but never for longer than
// a first pause.
func (c *clock) strike(s *shard, policy Backoff, now instant, retryAfter time.Duration, jitter float64) bool {
	if c == s.spill {
		policy.Max = policy.First
	}
	if c.block == nil {
		c.block = &block{}
	}
	before := c.block.until
	*c.block = c.block.struck(policy, now, retryAfter, jitter)
	if s.blocked == nil {
		s.blocked = make(map[*clock]struct{})
	}
	s.blocked[c] = struct{}{}
	if c.block.until == before {
		return false
	}
	c.dismiss(now)
	return true
}

// dismiss refuses those in line that could not be in time any more, and makes
// the next one look again.
func (c *clock) dismiss(now instant) {
	l := c.line
	if l == nil {
		return
	}
	var late []*waiter
	for _, f := range l.queue.flows {
		for w := f.first; w != nil; w = w.next {
			if c.block.until > w.end() {
				late = append(late, w)
			}
		}
	}
	for _, w := range late {
		w.refusedBy(c, ReasonBlocked, c.block.until-now)
		l.queue.remove(w)
	}
	if w := l.taken; w != nil && c.block.until > w.end() {
		w.refusedBy(c, ReasonBlocked, c.block.until-now)
	}
	c.rouse()
	c.settle()
}

// Unblock ends the block of a key, as the operator orders, also at the other
// gateways that share the clock, and forgets its strikes. Requests then go at the
// rate, without a burst. It returns what it has ended and reports whether there
// was anything, here or elsewhere. With an error, the other gateways could not be
// told.
func (p *Pacer) Unblock(key string) (ended Block, found bool, err error) {
	elsewhere := false
	if p.shared != nil {
		elsewhere, err = p.shared.Unblock(key)
	}
	ended, found = p.endBlock(key, p.config.Load())
	return ended, found || elsewhere, err
}

func (p *Pacer) endBlock(key string, cfg *Config) (ended Block, found bool) {
	s := p.table.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := p.now()
	c := s.clocks[key]
	if c == nil || c.block == nil || c.block.forgotten(cfg.Backoff, now) {
		return Block{Key: key}, false
	}
	ended = Block{Key: key, Until: time.Now().Add(c.block.until - now), Strikes: c.block.strikes}
	c.block = &block{until: min(c.block.until, now), fresh: c.block.fresh}
	c.rouse()
	return ended, true
}

func (s *shard) countBlocked(now instant) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for c := range s.blocked {
		if c.blockedUntil() > now {
			n++
		}
	}
	return n
}

// Block is the second clock of a key, to be kept over a restart.
type Block struct {
	Key     string    `json:"key"`
	Until   time.Time `json:"until"`
	Strikes int       `json:"strikes,omitempty"` // pauses without Retry-After in a row
}

// Blocks lists the blocks in force and those not yet forgiven, at most limit of
// them: the ones that last longest.
func (p *Pacer) Blocks(limit int) []Block {
	cfg, now, wall := p.config.Load(), p.now(), time.Now()
	var all []Block
	for i := range p.table.shards {
		s := &p.table.shards[i]
		s.mu.Lock()
		for c := range s.blocked {
			if c != s.spill && !c.block.forgotten(cfg.Backoff, now) {
				all = append(all, Block{Key: c.key, Until: wall.Add(c.block.until - now), Strikes: c.block.strikes})
			}
		}
		s.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b Block) int {
		return cmp.Or(b.Until.Compare(a.Until), cmp.Compare(a.Key, b.Key))
	})
	return all[:min(limit, len(all))]
}

// Restore sets blocks that [Pacer.Blocks] listed, as far as they are still of
// use. A block that is longer already stays.
func (p *Pacer) Restore(blocks []Block) {
	cfg, now := p.config.Load(), p.now()
	if cfg.Backoff.Off {
		return
	}
	for _, b := range blocks {
		p.restore(b, cfg, now)
	}
	p.keepSweeping()
}

// restore reports whether the block is new.
func (p *Pacer) restore(b Block, cfg *Config, now instant) bool {
	until := now + min(max(time.Until(b.Until), -longest), cfg.Backoff.Max)
	saved := block{until: until, strikes: max(b.Strikes, 0), fresh: true}
	if saved.forgotten(cfg.Backoff, now) {
		return false
	}
	s := p.table.shard(b.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := p.table.clockToBlock(s, b.Key, cfg, now)
	if c == s.spill {
		return false
	}
	if c.block != nil {
		if c.block.until >= until {
			return false
		}
		saved.strikes = max(saved.strikes, c.block.strikes)
	}
	c.block = &saved
	if s.blocked == nil {
		s.blocked = make(map[*clock]struct{})
	}
	s.blocked[c] = struct{}{}
	c.dismiss(now)
	return true
}
