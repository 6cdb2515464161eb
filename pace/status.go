package pace

import (
	"slices"
	"strings"
	"time"
)

// Stats is how much a Pacer holds.
type Stats struct {
	// Keys is the number of keys, Waiting the number of requests held.
	Keys, Waiting int
	// Blocked is the number of keys whose site asked to be left alone, until a time that has not come.
	Blocked int
}

// Stats counts. It takes each shard's lock for a moment, as a scrape may.
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

// Status is how the clock of one key stands, as far as this gateway knows: where it is shared,
// other gateways may have reserved slots beyond Next.
type Status struct {
	Key string
	// Next is when the next request may go. It is in the past if one may go now.
	Next time.Time
	// BlockedUntil is the end of the block; zero without one, or if it is over and forgiven. Strikes
	// counts the site's 429s, 430s and 503s in a row that did not say for how long.
	BlockedUntil time.Time
	Strikes      int
	// InFlight is the number of requests under way that are counted, Waiting the number of those in
	// the queue.
	InFlight, Waiting int
	// Delay is the gap that the last request demands: the Crawl-delay.
	Delay time.Duration
}

// Statuses lists at most limit, which is above zero, of the clocks that are wanted, in the order of
// their keys, from the first behind after; nil wants all. Next is for a request with the given rate
// ([Limit.Interval] and [Limit.Burst]). Each shard is locked while its keys are looked through: it
// is meant for an operator, not for each request.
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
	at := func(i instant) time.Time { return wall.Add(i - now) }
	return func(c *clock) Status {
		s := Status{Key: c.key, Next: at(c.ready(t)), InFlight: int(c.inFlight), Delay: c.gcra.gap}
		if c.backoff != nil && !c.backoff.forgotten(now) {
			s.BlockedUntil, s.Strikes = at(c.backoff.until), c.backoff.failures
		}
		if c.queue != nil {
			s.Waiting = c.queue.waiting()
		}
		return s
	}
}
