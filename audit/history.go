package audit

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/robotscache"
)

// histories are the versions of robots.txt files that the lines read so far describe.
type histories struct {
	byKey     map[historyKey][]Version // at most `most` records
	most      int
	forgotten int64
	learned   int64         // how many versions, so far
	lost      map[int]int64 // by series: learned, when lines were missing last
	series    int           // how many there are
}

func newHistories(most int) *histories {
	return &histories{byKey: make(map[historyKey][]Version), most: most, lost: make(map[int]int64)}
}

// historyKey identifies a robots.txt. Gateways may share a log.
type historyKey struct {
	series                 int
	gateway, origin, agent string
}

// Version is the content of a robots.txt from some time on, as a line of the log says.
type Version struct {
	From, Until time.Time // it may hold longer if Until is zero
	State       string
	SHA256      string // of its text or, if it is unreachable, of the last good one
	Status      int
	// UnreachableSince is the first failure since that text, or zero.
	UnreachableSince time.Time
	at               Place
	number           int64 // of all versions, in the order of the lines
}

const (
	// keptVersions is how many versions are kept, for requests that take long.
	keptVersions = 16
	// clockSlack is by how much the times of two lines may disagree: a busy machine records an event
	// late, and clocks are adjusted.
	clockSlack = 500 * time.Millisecond
)

func (h *histories) add(k historyKey, next ...Version) {
	versions := append(h.byKey[k], next...)
	if len(versions) == len(next) && len(h.byKey) >= h.most {
		for other := range h.byKey { // drop any one
			delete(h.byKey, other)
			h.forgotten++
			break
		}
	}
	h.byKey[k] = versions[max(len(versions)-keptVersions, 0):]
}

// follows reports whether no line is missing since the one about the version.
func (h *histories) follows(series int, x *Version) bool { return x.number > h.lost[series] }

// Follows reports whether no line is missing between the one about the version and this one, as far
// as the log shows.
func (l *Line) Follows(x *Version) bool { return l.histories.follows(l.series, x) }

// learn adds the version of a valid line about a robots.txt.
func (h *histories) learn(series int, a *robotscache.Answer, at Place) {
	if a.State == "" {
		return // it changes nothing
	}
	k := historyKey{series, a.Gateway, a.Origin, a.FetchedAs}
	h.learned++
	now, before := Version{a.At, a.FreshUntil, a.State, a.SHA256, a.Status, a.UnreachableSince, at, h.learned}, h.byKey[k]
	switch n := len(before) - 1; {
	case n < 0:
		h.add(k, now)
	case a.Discarded: // the version before stays in force
		held := before[n]
		held.From = a.At
		h.add(k, now, held)
	case before[n].continues(&now) && h.follows(series, &before[n]):
		if !before[n].Until.IsZero() && (now.Until.IsZero() || now.Until.After(before[n].Until)) {
			before[n].Until = now.Until
		}
	default:
		h.add(k, now)
	}
}

// continues reports whether the next version is the same answer as x.
func (x *Version) continues(next *Version) bool {
	return x.State == next.State && x.SHA256 == next.SHA256 && x.Status == next.Status &&
		x.UnreachableSince.Equal(next.UnreachableSince) && !next.From.Before(x.From) && !next.From.After(x.Until)
}

// badAnswer says why a line about a robots.txt is invalid. It is empty for a valid one.
func badAnswer(a *robotscache.Answer) string {
	_, isSum := shaOf(a.SHA256)
	noText, hasState := a.SHA256 == "", slices.Contains([]string{"", stateRules, stateAbsent, stateUnreachable}, a.State)
	switch {
	case a.Schema != robotscache.AnswerSchema:
		return fmt.Sprintf("schema %d is not known: want %d", a.Schema, robotscache.AnswerSchema)
	case a.At.IsZero(), !hasState, !isSum && !noText, noText && a.State == stateRules, isSum && a.State == stateAbsent,
		a.Event == robotscache.EventFetched && a.Cause == "" && a.State != stateRules:
		return fmt.Sprintf("state %q cannot be at %v with the cause %q and the sha256 %q", a.State, a.At, a.Cause, a.SHA256)
	}
	return ""
}

// Then returns the versions of the origin's robots.txt that may have been in force when the line
// was decided, the newest first. They were fetched in the name of an agent or, if it is empty, of
// the gateway. Without a time of the line, it returns none. Lines about a robots.txt come before
// those that rest on it. The last version may have expired by then; all older ones have. Call it
// only in the function that [Read] calls with the line.
func (l *Line) Then(agent string) iter.Seq[*Version] {
	versions := l.histories.byKey[historyKey{l.series, l.Robots.Gateway, l.Robots.Origin, agent}]
	at := l.Robots.DecidedAt.Time()
	return func(yield func(*Version) bool) {
		for i := len(versions) - 1; i >= 0 && !at.IsZero(); i-- {
			x := &versions[i]
			if x.From.After(at.Add(clockSlack)) && !x.From.After(l.Time()) {
				continue // it is newer, unless the clock was set back
			}
			if !yield(x) || x.From.Before(at.Add(-clockSlack)) {
				return
			}
		}
	}
}

// followsByTime reports whether the line rests on the version that was in force by its time. A
// collector may have changed the order of the lines, or split a log into several.
func (l *Line) followsByTime() bool {
	r, at := l.Robots, l.Robots.DecidedAt.Time()
	for series := range l.histories.series {
		var last *Version
		for _, x := range l.histories.byKey[historyKey{series, r.Gateway, r.Origin, r.FetchedAs}] {
			if !x.From.After(at.Add(clockSlack)) && (last == nil || !x.From.Before(last.From)) {
				last = &x
			}
		}
		if last != nil && last.holds(r, at.Add(-clockSlack)) {
			return true
		}
	}
	return false
}

// checkHistory compares the answer that a line rests on with the log's lines about its origin at
// that time.
func (a *auditor) checkHistory(l *Line, v *verdict) {
	r, at := l.Robots, l.Robots.DecidedAt.Time().Add(-clockSlack)
	var newest, last *Version
	for x := range l.Then(r.FetchedAs) {
		if x.holds(r, at) {
			return
		}
		newest, last = cmp.Or(newest, x), x
	}
	if l.followsByTime() {
		return
	}
	if last == nil || !last.From.Before(at) || !l.Follows(last) {
		v.how, v.cause = unproven, CauseHistory
		return
	}
	v.add(KindHistory, &l.entry, fmt.Sprintf("lines are missing, or this line depends on a version that %s did not have then: %s", r.Origin, newest))
}

// holds reports whether a line decided at that time may rest on the version.
func (x *Version) holds(r *enforce.LogRecord, at time.Time) bool {
	switch {
	case r.Reason == enforce.ReasonUnreachableExpired: // the last fetches failed
		return !x.UnreachableSince.IsZero()
	case r.State == stateUnreachable: // the last good text may have been fresh until then
		return r.SHA256 == x.SHA256
	}
	return r.State == x.State && r.SHA256 == x.SHA256 && (x.Until.IsZero() || !at.After(x.Until))
}

// String says from when to when the version was in force, and which line says so.
func (x *Version) String() string {
	until := ""
	if !x.Until.IsZero() {
		until = " to " + x.Until.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("by %s:%d it had state %s from %s%s, text %q", x.at.File, x.at.Line, x.State, x.From.UTC().Format(time.RFC3339), until, x.SHA256)
}
