package pace

import (
	"container/heap"
	"slices"
	"strings"
	"time"
)

// Clock is how the clock of one key stands, as far as this gateway knows: where
// it is shared, others may have booked slots beyond Next.
type Clock struct {
	Key string
	// Next is when the next request may go. It is in the past where one may go now.
	Next time.Time
	// BlockedUntil is the end of the block; zero if there is none, or it is over
	// and forgiven. Strikes counts the site's 429s and 503s in a row that did not
	// say for how long.
	BlockedUntil time.Time
	Strikes      int
	// InFlight is the number of requests under way that are counted, Waiting that
	// of those in line.
	InFlight, Waiting int
	// Delay is the gap that the last request demands: the Crawl-delay.
	Delay time.Duration
}

// Filter chooses among clocks.
type Filter uint8

const (
	// AllClocks are all.
	AllClocks Filter = iota
	// BlockedClocks are those whose block has not ended.
	BlockedClocks
	// WaitingClocks are those at which requests wait.
	WaitingClocks
	// BusyClocks are those with requests in flight that are counted.
	BusyClocks
)

// Clocks lists at most limit clocks in the order of their keys, from the first
// behind after. Next is that of a request with the given rate ([Limit.Interval]
// and [Limit.Burst]). Each shard is locked while its keys are looked through:
// it is meant for people, not for each request.
func (p *Pacer) Clocks(after string, limit int, filter Filter, rate Limit) []Clock {
	if limit <= 0 {
		return nil
	}
	l := lister{
		after: after, limit: limit, filter: filter, terms: rate.terms(),
		backoff: p.config.Load().Backoff, now: p.now(), wall: time.Now(),
	}
	for i := range p.table.shards {
		s := &p.table.shards[i]
		s.mu.Lock()
		for key, c := range s.clocks {
			l.look(key, c)
		}
		s.mu.Unlock()
	}
	slices.SortFunc(l.page, func(a, b Clock) int { return strings.Compare(a.Key, b.Key) })
	return l.page
}

// Clock returns the clock of one key.
func (p *Pacer) Clock(key string, rate Limit) (Clock, bool) {
	l := lister{terms: rate.terms(), backoff: p.config.Load().Backoff, now: p.now(), wall: time.Now()}
	s := p.table.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clocks[key]
	if c == nil {
		return Clock{}, false
	}
	return l.describe(c), true
}

// lister collects one page. Of the keys that it has seen it keeps the first ones.
type lister struct {
	after   string
	limit   int
	filter  Filter
	terms   terms
	backoff Backoff
	now     instant
	wall    time.Time
	page    lastFirst
}

func (l *lister) look(key string, c *clock) {
	switch {
	case key <= l.after, len(l.page) == l.limit && key >= l.page[0].Key, !l.wants(c):
		return
	case len(l.page) == l.limit:
		l.page[0] = l.describe(c)
		heap.Fix(&l.page, 0)
	default:
		heap.Push(&l.page, l.describe(c))
	}
}

func (l *lister) wants(c *clock) bool {
	switch l.filter {
	case BlockedClocks:
		return c.blockedUntil() > l.now
	case WaitingClocks:
		return c.line != nil && c.line.waiting() > 0
	case BusyClocks:
		return c.flying > 0
	case AllClocks:
	}
	return true
}

func (l *lister) describe(c *clock) Clock {
	d := Clock{Key: c.key, Next: l.at(c.ready(l.terms)), InFlight: int(c.flying), Delay: c.meter.gap}
	if c.block != nil && !c.block.forgotten(l.backoff, l.now) {
		d.BlockedUntil, d.Strikes = l.at(c.block.until), c.block.strikes
	}
	if c.line != nil {
		d.Waiting = c.line.waiting()
	}
	return d
}

func (l *lister) at(i instant) time.Time { return l.wall.Add(i - l.now) }

// waiting is the number of requests in line, the one that has the turn included.
func (l *line) waiting() int {
	if l.taken != nil {
		return l.queue.n + 1
	}
	return l.queue.n
}

// lastFirst is a heap with the last key on top.
type lastFirst []Clock

func (h lastFirst) Len() int           { return len(h) }
func (h lastFirst) Less(i, j int) bool { return h[i].Key > h[j].Key }
func (h lastFirst) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *lastFirst) Push(x any) { *h = append(*h, x.(Clock)) }

// Pop implements heap.Interface.
func (h *lastFirst) Pop() any {
	end := len(*h) - 1
	last := (*h)[end]
	*h = (*h)[:end]
	return last
}
