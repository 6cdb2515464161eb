package pace

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// State is the part of a key's state that survives a restart: its block and its last slot.
type State struct {
	// Key is empty in one entry of a list. That entry stands for all keys that the list does not name.
	Key string `json:"key"`
	// Until is the end of the block; zero without one, or if it is over and forgiven.
	Until   time.Time `json:"until,omitzero"`
	Strikes int       `json:"strikes,omitempty"` // pauses without Retry-After in a row
	// Last is the time of the last request. Gap is the delay that it demands after itself. Debt is how
	// far the timestamp of the rate lies behind Last.
	Last time.Time     `json:"last,omitzero"`
	Gap  time.Duration `json:"gap,omitzero"`
	Debt time.Duration `json:"debt,omitzero"`
}

// state returns the state of a clock. A slot that demands no gap matters to a list of all keys
// only.
func (c *clock) state(now instant, wall time.Time, all bool) State {
	s := State{Key: c.key}
	if b := c.backoff; b != nil && !b.forgotten(now) {
		s.Until, s.Strikes = wall.Add(b.until-now), b.failures
	}
	if g := c.gcra; g.last > 0 && (all || g.gap > 0) {
		s.Last, s.Gap, s.Debt = wall.Add(g.last-now), g.gap, max(0, g.tat-g.last)
	}
	return s
}

// keep makes States list the clock as long as it is in the table. The caller holds the shard's
// lock.
func (s *shard) keep(c *clock) {
	if s.kept == nil {
		s.kept = make(map[*clock]struct{})
	}
	s.kept[c] = struct{}{}
}

// States lists the state that must survive a crash: blocks that have not ended or are not yet
// forgiven, and the gaps that sites demand. There are at most limit entries. The longest blocks go
// first, then the longest gaps.
//
// With all set, for the end of the Pacer, it lists the last slot of every key, and marks a complete
// list by an entry without a key. That entry is missing if there are too many keys, or requests
// that may still go.
func (p *Pacer) States(limit int, all bool) []State {
	var list []State
	now, wall := p.now(), time.Now()
	all = all && int(p.table.keys.Load()) < limit
	complete := all && p.waiters.waiting() == 0
	var floor instant
	p.table.each(func(s *shard) {
		floor = s.floor
		clocks := maps.Keys(s.kept)
		if all {
			clocks = maps.Values(s.clocks)
		}
		for c := range clocks {
			complete = complete && c.inFlight == 0
			if s := c.state(now, wall, all); !s.Until.IsZero() || !s.Last.IsZero() {
				list = append(list, s)
			}
		}
	})
	slices.SortFunc(list, func(a, b State) int {
		return cmp.Or(b.Until.Compare(a.Until), cmp.Compare(b.Gap, a.Gap), cmp.Compare(a.Key, b.Key))
	})
	list = list[:min(limit, len(list))]
	if complete {
		list = append(list, State{Last: wall.Add(floor - now)})
	}
	return list
}

// Restore starts from the list that [Pacer.States] returned when the previous process ended. If the
// list is complete, keys that it does not name had no recent request. If it is incomplete or lost,
// every key counts as just used, so that no Crawl-delay is cut short.
func (p *Pacer) Restore(states []State) {
	p.Merge(states)
	floor := p.now()
	if i := slices.IndexFunc(states, func(s State) bool { return s.Key == "" }); i >= 0 {
		floor = p.past(states[i].Last)
	}
	p.table.each(func(s *shard) {
		s.floor = floor
		for _, c := range s.clocks {
			c.gcra.last = max(c.gcra.last, floor)
		}
	})
}

// past is the instant of a time. A clock of the machine that was set back must not move it ahead.
func (p *Pacer) past(t time.Time) instant { return p.now() - clip(time.Since(t)) }

// Merge adds the entries of another Pacer that still matter. It never replaces a later or longer
// state.
func (p *Pacer) Merge(states []State) {
	cfg, now := p.config.Load(), p.now()
	for _, s := range states {
		if s.Key != "" {
			p.restore(s, cfg, now)
		}
	}
	p.keepSweeping()
	if p.shared != nil && p.shared.Peers().Up {
		p.announceBlocks() // it will not be told again that the shared clock is back
	}
}

// restore adds the state of one key, and reports whether its block is new.
func (p *Pacer) restore(saved State, cfg *Config, now instant) bool {
	until := now + min(max(time.Until(saved.Until), -longest), cfg.Backoff.Max)
	b := backoff{until: until, failures: max(saved.Strikes, 0), fresh: true}
	blocks, slot, limit := !cfg.Backoff.Off && !b.forgotten(now), !saved.Last.IsZero(), cfg.shardKeys()
	switch {
	case blocks:
		limit = cfg.blockKeys()
	case !slot:
		return false
	}
	s := p.table.shard(saved.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := p.table.clock(s, saved.Key, cfg, now, limit)
	if c == nil {
		return false // without a clock nothing goes to the key
	}
	s.keep(c)
	if slot {
		g, last := &c.gcra, p.past(saved.Last)
		g.tat, g.last, g.gap = max(g.tat, last+clip(saved.Debt)), max(g.last, last), max(g.gap, clip(saved.Gap))
		c.serial = max(c.serial, 1)
	}
	if before := c.backoff; before != nil {
		blocks = blocks && until > before.until
		b.failures = max(b.failures, before.failures)
	}
	if blocks {
		s.block(c, b, now)
	}
	return blocks
}

// Stats is how much a Pacer holds.
type Stats struct {
	// Keys is the number of keys, Waiting the number of requests held.
	Keys, Waiting int
	// Blocked is the number of keys that are blocked now.
	Blocked int
}

// Stats counts. It takes each shard's lock for a moment, which is fine for a scrape.
func (p *Pacer) Stats() Stats {
	stats := Stats{Keys: int(p.table.keys.Load()), Waiting: p.waiters.waiting()}
	now := p.now()
	p.table.each(func(s *shard) {
		for c := range s.kept {
			if c.blockedUntil() > now {
				stats.Blocked++
			}
		}
	})
	return stats
}

// Status is the state of one key's clock, as far as this gateway knows. If the clock is shared,
// other gateways may have reserved slots beyond Next. The time of the last slot is missing if it
// demands no gap.
type Status struct {
	State
	// Next is when the next request may go. It is in the past if one may go now.
	Next time.Time
	// InFlight is the number of counted requests in flight. Waiting is the number of requests in the
	// queue.
	InFlight, Waiting int
}

// Statuses lists the wanted clocks in the order of their keys, starting after the key after. wanted
// may be nil for all clocks, and limit, which must be positive, bounds their number. Next is for a
// request with the given rate ([Limit.Interval] and [Limit.Burst]). Statuses locks each shard while
// it looks through its keys, so it is for an operator, not for each request.
func (p *Pacer) Statuses(after string, limit int, wanted func(Status) bool, rate Limit) []Status {
	statusOf := p.statusNow(rate)
	var page []Status
	last := "" // no key from here on is on the page
	cut := func() {
		slices.SortFunc(page, func(a, b Status) int { return strings.Compare(a.Key, b.Key) })
		if len(page) >= limit {
			page, last = page[:limit], page[limit-1].Key
		}
	}
	p.table.each(func(s *shard) {
		for key, c := range s.clocks {
			if key <= after || last != "" && key >= last {
				continue
			}
			if status := statusOf(c); wanted == nil || wanted(status) {
				page = append(page, status)
			}
			if len(page) >= 2*limit {
				cut()
			}
		}
	})
	cut()
	return page
}

// Status returns the status of one key's clock.
func (p *Pacer) Status(key string, rate Limit) (Status, bool) {
	s := p.table.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clocks[key]
	if c == nil {
		return Status{}, false
	}
	return p.statusNow(rate)(c), true
}

// statusNow returns what tells the status of clocks as they stand now, for a rate.
func (p *Pacer) statusNow(rate Limit) func(*clock) Status {
	t, now, wall := rate.terms(), p.now(), time.Now()
	return func(c *clock) Status {
		s := Status{State: c.state(now, wall, false), Next: wall.Add(c.ready(t) - now), InFlight: int(c.inFlight)}
		if c.queue != nil {
			s.Waiting = c.queue.waiting()
		}
		return s
	}
}
