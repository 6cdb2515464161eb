package audit

import (
	"container/list"
	"slices"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
)

// Sending is a request that left, in a turn of its host's clock.
type Sending struct {
	Place Place
	Agent string
	// At is zero where the line does not say it.
	At time.Time
	// Delay is the Crawl-delay of its agent's group.
	Delay time.Duration
}

// Sending is what the line says of the sending of its request; false if that did not leave, or in
// no turn. If the line does not say when, an allowed request did leave, and a tunnel if it was
// dialed.
func (l *Line) Sending() (Sending, bool) {
	r := l.Robots
	s := Sending{l.Place, Label(r.Agent), r.SentAt.Time(), toDuration(r.CrawlDelay)}
	if r.Reason == enforce.ReasonRobotsTxt || r.Reason == enforce.ReasonIntercepted ||
		r.RobotsURL == l.Request.URI && enforce.FetchesRobotsTxt(l.Request.Method, "/robots.txt") {
		return s, false // it is answered here, even if another reason comes first
	}
	return s, !s.At.IsZero() || r.Decision == enforce.OutcomeAllow && (r.PathVisible || r.Address != "")
}

// Gaps compares requests that left with those before and after them to their hosts. It remembers
// the last ones of the hosts that were asked last.
type Gaps struct {
	// Forgotten is how many hosts were too many: a gap to them may not be seen.
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

// window is how many requests to a host are remembered: a log has them in the order of their ends,
// and so many may be under way when one began and ended.
const window = 16

// NewGaps returns a Gaps that remembers at most the given number of hosts.
func NewGaps(most int) *Gaps {
	return &Gaps{most: most, byName: make(map[string]*list.Element), recent: list.New()}
}

// Pair is two requests to a host that follow each other under a Crawl-delay. Of two delays the
// longer one counts.
type Pair struct {
	First, Second Sending
	Delay, Gap    time.Duration
}

// Add takes a request that left then. It calls pair for each pair that it makes, with 1, and for
// one that it comes between, with -1. Late says that its neighbours may be forgotten.
func (g *Gaps) Add(name string, s Sending, pair func(p Pair, n int64)) (late bool) {
	of := g.host(name)
	i, _ := slices.BinarySearchFunc(of.last, s.At, func(x Sending, at time.Time) int { return x.At.Compare(at) })
	for i < len(of.last) && of.last[i].At.Equal(s.At) {
		i++ // of two with one time, the log's order counts
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
