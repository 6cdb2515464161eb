package pace

import "time"

const (
	// sweepOnInsert is how many clocks are looked at for each new one: with two, the table cannot
	// outgrow twice what is not idle.
	sweepOnInsert = 2
	// sweepOnFull is how many are looked at before a key is sent to overflow.
	sweepOnFull = 32
	// sweepEvery is the pause between two steps in the background, sweepRounds how many of them go
	// once through all keys.
	sweepEvery  = time.Second
	sweepRounds = 30
)

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

// remember notes the request's longest delay.
func (t *table) remember(r *Request) {
	delay := r.Delay
	for i := range r.Also {
		delay = max(delay, r.Also[i].Delay)
	}
	for known := t.delay.Load(); int64(clip(delay)) > known; known = t.delay.Load() {
		t.delay.CompareAndSwap(known, int64(clip(delay)))
	}
}

// keep is how long a clock is kept after its last request: an agent that comes later, with the
// longest delay there is, may ask how long ago that was.
func (t *table) keep(cfg *Config) time.Duration {
	return max(cfg.Idle, time.Duration(t.delay.Load()))
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

// sweep looks at the next n clocks of the ring and drops those that were idle for the given time.
func (t *table) sweep(s *shard, cfg *Config, now instant, keep time.Duration, n int) {
	for range min(n, len(s.ring)) {
		if s.hand >= len(s.ring) {
			s.hand = 0
			s.shrink()
		}
		c := s.ring[s.hand]
		c.expire(now)
		if !c.idle(now, keep) {
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

// shrink gives back what a much larger number of clocks needed: neither maps nor slices do so by
// themselves.
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
