package audit

import (
	"container/list"
	"slices"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
)

// sending is a request that left.
type sending struct {
	place Place
	agent string
	at    time.Time
	// delay is the Crawl-delay of its agent's group, within the operator's bounds.
	delay time.Duration
}

// Left reports whether the log says that a request left for its host, in a turn of the host's
// clock. If it does not say when, what was allowed did, and a tunnel if it was dialed.
func (e *entry) Left() bool {
	r := e.Robots
	if r.Reason == enforce.ReasonRobotsTxt || r.Reason == enforce.ReasonIntercepted || r.PathVisible && r.RobotsURL == e.Request.URI {
		return false // not paced, even if another reason comes first
	}
	return r.SentAt > 0 || r.Decision == enforce.OutcomeAllow && (r.PathVisible || r.Address != "")
}

// sentAt is when a request went out, zero where its line has no such time.
func sentAt(r *enforce.Record) time.Time {
	if r.SentAt <= 0 {
		return time.Time{}
	}
	return fromSeconds(r.SentAt)
}

// hosts remembers, of those asked last, the requests that left last.
type hosts struct {
	tolerance time.Duration
	most      int
	byName    map[string]*list.Element
	recent    *list.List // of *host, last used first
	forgotten int64
}

type host struct {
	name  string
	last  []sending // in the order of their times, at most window
	floor time.Time // the latest time that was dropped from last
}

// window is how many requests to a host are remembered: a log has them in the order of their ends,
// and so many may be under way when one began and ended.
const window = 16

func newHosts(tolerance time.Duration, most int) *hosts {
	return &hosts{tolerance: tolerance, most: most, byName: make(map[string]*list.Element), recent: list.New()}
}

// pair is the result of comparing two requests to a host, first before second.
type pair struct {
	first, second sending
	delay, gap    time.Duration
}

// add takes a request and compares it with its neighbours. It returns the pairs that were too
// close.
func (h *hosts) add(name string, s sending, t *GapTotals) (short []pair) {
	of := h.host(name)
	i, _ := slices.BinarySearchFunc(of.last, s.at, func(x sending, at time.Time) int { return x.at.Compare(at) })
	for i < len(of.last) && of.last[i].at.Equal(s.at) {
		i++ // of two with one time, the log's order counts
	}
	if i == 0 && !of.floor.IsZero() && s.delay > 0 && s.at.Before(of.floor.Add(s.delay)) {
		t.Late++
	}
	if 0 < i && i < len(of.last) { // between two that do not follow each other any more
		var old GapTotals
		if p := (pair{first: of.last[i-1], second: of.last[i]}); !h.compare(&p, &old) {
			t.Pairs, t.Kept = t.Pairs-old.Pairs, t.Kept-old.Kept
		}
	}
	of.last = slices.Insert(of.last, i, s)
	for second := max(i, 1); second <= i+1 && second < len(of.last); second++ {
		if p := (pair{first: of.last[second-1], second: of.last[second]}); h.compare(&p, t) {
			short = append(short, p)
		}
	}
	if len(of.last) > window {
		if at := of.last[0].at; at.After(of.floor) {
			of.floor = at
		}
		of.last = slices.Delete(of.last, 0, 1)
	}
	return short
}

// compare judges a pair, and reports whether it was too close.
func (h *hosts) compare(p *pair, t *GapTotals) bool {
	p.delay, p.gap = max(p.first.delay, p.second.delay), p.second.at.Sub(p.first.at)
	if p.delay <= 0 {
		return false
	}
	t.Pairs++
	if p.gap < p.delay-h.tolerance {
		t.Short++
		return true
	}
	t.Kept++
	return false
}

func (h *hosts) host(name string) *host {
	if e, ok := h.byName[name]; ok {
		h.recent.MoveToFront(e)
		return e.Value.(*host)
	}
	at := &host{name: name}
	h.byName[name] = h.recent.PushFront(at)
	if h.recent.Len() > h.most {
		delete(h.byName, h.recent.Remove(h.recent.Back()).(*host).name)
		h.forgotten++
	}
	return at
}
