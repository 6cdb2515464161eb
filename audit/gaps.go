package audit

import (
	"container/list"
	"math"
	"slices"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
)

// sending holds the times of a request that left, as far as a log tells them.
type sending struct {
	place Place
	agent string
	// turn is the earliest time at which it can have left: its beginning and then the time for which
	// it was held. end is the latest: the time of its line. Both are the time of its sending, where
	// the line has that.
	turn, end time.Time
	// exact says that nothing long that the log does not show lay before turn.
	exact bool
	// delay is the Crawl-delay of its agent's group, within the operator's bounds.
	delay time.Duration
}

// sent are the failures that come after a request has left.
var sent = []enforce.Reason{
	enforce.ReasonTimeout, enforce.ReasonStalled, enforce.ReasonIncomplete, enforce.ReasonTransferCoding,
	enforce.ReasonHeaderSize, enforce.ReasonListingSize, enforce.ReasonProtocol, enforce.ReasonUpgrade,
}

// Left reports whether the log says that a request left for its host, in a turn of the host's
// clock.
func (e *entry) Left() bool {
	r := e.Robots
	switch {
	case r.Decision == enforce.OutcomeDeny, r.Reason == enforce.ReasonRobotsTxt, r.Reason == enforce.ReasonIntercepted:
		return false
	case r.PathVisible && r.RobotsURL == e.Request.URI: // not paced, also where another reason goes first
		return false
	case !r.PathVisible, r.Decision == enforce.OutcomeError && slices.Contains(sent, r.Reason):
		return r.Address != "" // of a tunnel, that it was dialed: there may have been plain HTTP in it
	}
	return r.Decision == enforce.OutcomeAllow
}

// sendingOf reads the times of a request that left. It reports false where the log has none.
func sendingOf(e *entry, at Place, delay time.Duration) (s sending, ok bool) {
	r := e.Robots
	s = sending{place: at, agent: Label(r.Agent), end: e.TS.Add(e.TS.late), delay: delay}
	if at := sentAt(r); !at.IsZero() {
		s.turn, s.end, s.exact = at, at, true
		return s, true
	}
	began := e.began()
	if began.IsZero() || !e.TS.zoned() {
		return s, false
	}
	s.turn = began.Add(time.Duration(r.WaitMillis) * time.Millisecond)
	if s.turn.After(s.end) {
		s.turn = s.end
	}
	// Before its turn a request may have waited for robots.txt, a tunnel for its client.
	s.exact = r.PathVisible && (r.Source == "hot" || r.Source == "none") && e.vague() == ""
	return s, true
}

// sentAt is when a request went out, zero where its line has no such time.
func sentAt(r *enforce.Record) time.Time {
	if r.SentAt <= 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(math.Round(r.SentAt * 1e6)))
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
	last  []sending // in the order of their turns, at most window
	floor time.Time // the latest turn that was dropped from last
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
	delay, most   time.Duration
}

// add takes a request and compares it with its neighbours. It returns the pairs that were too
// close.
func (h *hosts) add(name string, s sending, t *GapTotals) (short []pair) {
	at := h.host(name)
	i, _ := slices.BinarySearchFunc(at.last, s.turn, func(x sending, turn time.Time) int { return x.turn.Compare(turn) })
	for i < len(at.last) && at.last[i].turn.Equal(s.turn) {
		i++ // of two with one turn, the log's order counts
	}
	if i == 0 && !at.floor.IsZero() && s.delay > 0 && s.turn.Before(at.floor.Add(s.delay)) {
		t.Late++
	}
	if 0 < i && i < len(at.last) { // between two that do not follow each other any more
		var old GapTotals
		if p := (pair{first: at.last[i-1], second: at.last[i]}); !h.compare(&p, &old) {
			t.Pairs, t.Kept, t.Undecided = t.Pairs-old.Pairs, t.Kept-old.Kept, t.Undecided-old.Undecided
		}
	}
	at.last = slices.Insert(at.last, i, s)
	for second := max(i, 1); second <= i+1 && second < len(at.last); second++ {
		if p := (pair{first: at.last[second-1], second: at.last[second]}); h.compare(&p, t) {
			short = append(short, p)
		}
	}
	if len(at.last) > window {
		if turn := at.last[0].turn; turn.After(at.floor) {
			at.floor = turn
		}
		at.last = slices.Delete(at.last, 0, 1)
	}
	return short
}

// compare judges a pair, and reports whether it was too close, whichever way the times are that the
// log does not show.
func (h *hosts) compare(p *pair, t *GapTotals) bool {
	a, b := p.first, p.second
	p.delay = max(a.delay, b.delay)
	if p.delay <= 0 {
		return false
	}
	t.Pairs++
	p.most = max(b.end.Sub(a.turn), a.end.Sub(b.turn))
	switch least := p.delay - h.tolerance; {
	case p.most < least:
		t.Short++
		return true
	case b.turn.Sub(a.end) >= least, a.exact && b.turn.Sub(a.turn) >= least:
		t.Kept++
	default:
		t.Undecided++
	}
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
