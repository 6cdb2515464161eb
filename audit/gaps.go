package audit

import (
	"container/list"
	"slices"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
)

// Sending is a request that was sent at the pace of its host.
type Sending struct {
	Place Place
	Agent string
	// At is zero if the line does not have it.
	At time.Time
	// Delay is the Crawl-delay of its agent's group.
	Delay time.Duration
}

// Sending returns when the request of the line was sent. It returns false if it was not sent, or
// not paced. A line without a time counts as sent if it was allowed, and a tunnel if it was dialed.
func (l *Line) Sending() (Sending, bool) {
	r := l.Robots
	s := Sending{l.Place, Label(r.Agent), r.SentAt.Time(), toDuration(r.CrawlDelay)}
	if r.Reason == enforce.ReasonRobotsTxt || r.Reason == enforce.ReasonIntercepted ||
		r.RobotsURL == l.Request.URI && enforce.FetchesRobotsTxt(l.Request.Method, "/robots.txt") {
		return s, false // the gateway answers it itself, even if another reason comes first
	}
	return s, !s.At.IsZero() || r.Decision == enforce.OutcomeAllow && (r.PathVisible || r.Address != "")
}

// Gaps compares each request with the ones sent to the same host before and after it. It remembers
// the last requests to the hosts that were used most recently.
type Gaps struct {
	// Forgotten counts the hosts that were dropped to make room. A gap to one of them may be missed.
	Forgotten int64

	most   int
	byName map[string]*list.Element
	recent *list.List // of *host, last used first
}

type host struct {
	name  string
	last  []Sending // in the order of their times, at most window
	floor time.Time // the latest time that was dropped from last
}

// window is how many requests to a host are remembered. A log lists requests in the order in which
// they end, so others may have been sent in between.
const window = 16

// NewGaps returns a Gaps that remembers at most the given number of hosts.
func NewGaps(most int) *Gaps {
	return &Gaps{most: most, byName: make(map[string]*list.Element), recent: list.New()}
}

// Pair is two consecutive requests to a host under a Crawl-delay. If their delays differ, the
// longer one counts.
type Pair struct {
	First, Second Sending
	Delay, Gap    time.Duration
}

// Add adds a request. It calls pair with n = 1 for each pair that the request completes, and with
// n = -1 for a pair that it comes between. It returns true if the request's neighbours may already
// be forgotten.
func (g *Gaps) Add(name string, s Sending, pair func(p Pair, n int64)) (late bool) {
	of := g.host(name)
	i, _ := slices.BinarySearchFunc(of.last, s.At, func(x Sending, at time.Time) int { return x.At.Compare(at) })
	for i < len(of.last) && of.last[i].At.Equal(s.At) {
		i++ // if the times are equal, the log's order counts
	}
	late = i == 0 && !of.floor.IsZero() && s.Delay > 0 && s.At.Before(of.floor.Add(s.Delay))
	compare := func(second int, n int64) {
		if second <= 0 || second >= len(of.last) {
			return
		}
		a, b := of.last[second-1], of.last[second]
		if delay := max(a.Delay, b.Delay); delay > 0 {
			pair(Pair{a, b, delay, b.At.Sub(a.At)}, n)
		}
	}
	compare(i, -1)
	of.last = slices.Insert(of.last, i, s)
	compare(i, 1)
	compare(i+1, 1)
	if len(of.last) > window {
		if at := of.last[0].At; at.After(of.floor) {
			of.floor = at
		}
		of.last = slices.Delete(of.last, 0, 1)
	}
	return late
}

func (g *Gaps) host(name string) *host {
	if e, ok := g.byName[name]; ok {
		g.recent.MoveToFront(e)
		return e.Value.(*host)
	}
	at := &host{name: name}
	g.byName[name] = g.recent.PushFront(at)
	if g.recent.Len() > g.most {
		delete(g.byName, g.recent.Remove(g.recent.Back()).(*host).name)
		g.Forgotten++
	}
	return at
}
