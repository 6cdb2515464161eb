package pace

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

const (
	shardCount = 64 // a power of two
	// sweepOnInsert is how many clocks are looked at for each new one: with two,
	// the table cannot outgrow twice what is not idle.
	sweepOnInsert = 2
	// sweepOnFull is how many are looked at before a key is sent to overflow.
	sweepOnFull = 32
	// sweepEvery is the pause between two steps in the background, sweepRounds
	// how many of them go once through all keys.
	sweepEvery  = time.Second
	sweepRounds = 30
	// overflowKey names the overflow clocks in refusals. No host has that name.
	overflowKey = "overflow:"
)

// table holds the clocks, in shards with a lock each.
type table struct {
	seed   maphash.Seed
	keys   atomic.Int64
	delay  atomic.Int64 // the longest that was ever asked for
	shards [shardCount]shard
}

type shard struct {
	mu     sync.Mutex
	clocks map[string]*clock
	ring   []*clock // the same clocks in no order, for the sweep
	hand   int      // where in the ring the sweep goes on
	peak   int      // most clocks since the map was made
	number int
	// spill is the clock that keys share for which there is no room, and
	// spilled how many requests of each key it holds: such a key gets no clock of
	// its own meanwhile, else it would have two.
	spill   *clock
	spilled map[string]int
	blocked map[*clock]struct{} // clocks that have a block
	flights map[flights]int32
	_       [8]byte // keeps neighbouring locks on different cache lines
}

func (t *table) shard(key string) *shard {
	return &t.shards[maphash.String(t.seed, key)%shardCount]
}

// clock returns the key's clock under s.mu, making it if there is room, else the
// overflow clock.
func (t *table) clock(s *shard, key string, cfg *Config, now instant) *clock {
	if c := s.clocks[key]; c != nil {
		return c
	}
	if s.spilled[key] > 0 {
		return s.spill
	}
	if t.keys.Load() >= int64(cfg.MaxKeys) {
		t.sweep(s, cfg, now, cfg.Idle, sweepOnFull)
		if t.keys.Load() >= int64(cfg.MaxKeys) {
			return s.overflow()
		}
	}
	return t.insert(s, key, cfg, now)
}

func (t *table) insert(s *shard, key string, cfg *Config, now instant) *clock {
	t.sweep(s, cfg, now, t.keep(cfg), sweepOnInsert)
	if s.clocks == nil {
		s.clocks = make(map[string]*clock)
	}
	c := &clock{key: key}
	if s.spill != nil {
		// Its last request may have gone on the overflow clock.
		c.meter = s.spill.meter
	}
	s.clocks[key] = c
	s.ring = append(s.ring, c)
	s.peak = max(s.peak, len(s.ring))
	t.keys.Add(1)
	return c
}

func (s *shard) overflow() *clock {
	if s.spill == nil {
		s.spill = &clock{key: overflowKey}
		s.spilled = make(map[string]int)
	}
	return s.spill
}

// unspill takes one request of the key out of the count of those in overflow.
func (s *shard) unspill(key string) {
	if s.spilled[key]--; s.spilled[key] == 0 {
		delete(s.spilled, key)
	}
}

// remember notes the request's delays.
func (t *table) remember(r *Request) {
	t.stretch(r.Delay)
	for i := range r.Also {
		t.stretch(r.Also[i].Delay)
	}
}

func (t *table) stretch(delay time.Duration) {
	for {
		known := t.delay.Load()
		if int64(delay) <= known || t.delay.CompareAndSwap(known, int64(clip(delay))) {
			return
		}
	}
}

// keep is for how long after its last request a clock is kept: an agent that
// comes later, with the longest delay there is, may ask how long ago that was.
func (t *table) keep(cfg *Config) time.Duration {
	return max(cfg.Idle, time.Duration(t.delay.Load()))
}

// sweep looks at the next n clocks of the ring and drops those that were idle
// for the given time.
func (t *table) sweep(s *shard, cfg *Config, now instant, keep time.Duration, n int) {
	for range min(n, len(s.ring)) {
		if s.hand >= len(s.ring) {
			s.hand = 0
			s.shrink()
		}
		c := s.ring[s.hand]
		c.tidy(now)
		if !c.idle(cfg.Backoff, now, keep) {
			s.hand++
			continue
		}
		s.dropAtHand()
		t.keys.Add(-1)
	}
}

// dropAtHand drops the clock at the hand and puts the ring's last one there.
func (s *shard) dropAtHand() {
	c := s.ring[s.hand]
	delete(s.clocks, c.key)
	delete(s.blocked, c)
	end := len(s.ring) - 1
	s.ring[s.hand] = s.ring[end]
	s.ring[end] = nil
	s.ring = s.ring[:end]
}

// shrink gives back what a much larger number of clocks needed: neither maps nor
// slices do so by themselves.
func (s *shard) shrink() {
	const least, factor = 1024, 8
	if s.peak < least || len(s.ring)*factor > s.peak {
		return
	}
	s.ring = append(make([]*clock, 0, 2*len(s.ring)), s.ring...)
	s.clocks = make(map[string]*clock, len(s.ring))
	for _, c := range s.ring {
		s.clocks[c.key] = c
	}
	s.peak = len(s.ring)
}

// sweepAll is one step in the background. It reports whether keys are left.
func (t *table) sweepAll(cfg *Config, now instant) bool {
	keep := t.keep(cfg)
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		t.sweep(s, cfg, now, keep, len(s.ring)/sweepRounds+1)
		if len(s.ring) == 0 {
			s.shrink()
		}
		s.mu.Unlock()
	}
	return t.keys.Load() > 0
}
