package audit

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/robotscache"
)

// histories has what logs say of the robots.txt of origins, as far as they were read.
type histories struct {
	byKey     map[historyKey][]Version // at most `most` records
	most      int
	forgotten int64
}

func newHistories(most int) *histories {
	return &histories{byKey: make(map[historyKey][]Version), most: most}
}

// historyKey tells apart the records that logs tell of. Gateways may share a log.
type historyKey struct {
	series                 int
	gateway, origin, agent string
}

// Version is what a line of the log says of a robots.txt: what holds from then on.
type Version struct {
	From, Until time.Time // it may hold longer if Until is zero
	State       string
	SHA256      string // of its text or, where it is unreachable, of the last good one
	Status      int
	// UnreachableSince is the first failure since that text; zero without one.
	UnreachableSince time.Time
	at               Place
}

const (
	// keptVersions is how many versions of a record are kept, for requests that take long.
	keptVersions = 16
	// clockSlack is by how much the times of two lines may disagree: a busy machine notes one later
	// than it happened, and a clock may be set.
	clockSlack = 500 * time.Millisecond
)

// add puts versions behind those before them.
func (h *histories) add(k historyKey, next ...Version) {
	versions := append(h.byKey[k], next...)
	if len(versions) == len(next) && len(h.byKey) >= h.most {
		for other := range h.byKey { // any one
			delete(h.byKey, other)
			h.forgotten++
			break
		}
	}
	h.byKey[k] = versions[max(len(versions)-keptVersions, 0):]
}

// forget is for a log that has not all lines about robots.txt.
func (h *histories) forget(series int) {
	maps.DeleteFunc(h.byKey, func(k historyKey, _ []Version) bool { return k.series == series })
}

// learn notes a line about a robots.txt that makes sense.
func (h *histories) learn(series int, a *robotscache.Answer, at Place) {
	if a.State == "" {
		return // nothing new holds
	}
	k := historyKey{series, a.Gateway, a.Origin, a.FetchedAs}
	now, before := Version{a.At, a.FreshUntil, a.State, a.SHA256, a.Status, a.UnreachableSince, at}, h.byKey[k]
	switch n := len(before) - 1; {
	case n < 0:
		h.add(k, now)
	case a.Discarded: // the one before goes on
		held := before[n]
		held.From = a.At
		h.add(k, now, held)
	case before[n].continues(&now):
		before[n].Until = now.Until
	default:
		h.add(k, now)
	}
}

// continues reports whether the next version is the same answer again.
func (x *Version) continues(next *Version) bool {
	return x.State == next.State && x.SHA256 == next.SHA256 && x.Status == next.Status &&
		x.UnreachableSince.Equal(next.UnreachableSince) && !next.From.After(x.Until)
}

// badAnswer says why a line about a robots.txt makes no sense; empty if it does.
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

// Then gives what the log says of the robots.txt of the line's origin, fetched in the name of an
// agent or, without one, of the gateway, at the time of the decision, the newest first; nothing if
// the line does not have that time. The lines about a robots.txt stand before those that rest on
// it. The last one may have ended before, and then so had all others. It is for the function that
// [Read] calls with the line.
func (l *Line) Then(agent string) iter.Seq[*Version] {
	versions := l.histories.byKey[historyKey{l.series, l.Robots.Gateway, l.Robots.Origin, agent}]
	at := l.Robots.DecidedAt.Time()
	return func(yield func(*Version) bool) {
		for i := len(versions) - 1; i >= 0 && !at.IsZero(); i-- {
			x := &versions[i]
			if x.From.After(at.Add(clockSlack)) && !x.From.After(l.Time()) {
				continue // it came later, by a clock that was not set back
			}
			if !yield(x) || x.From.Before(at.Add(-clockSlack)) {
				return
			}
		}
	}
}

// dated holds what a line rests on against what the log says of its origin at that time.
func (j *judge) dated(l *Line, v *verdict) {
	r, at := l.Robots, l.Robots.DecidedAt.Time().Add(-clockSlack)
	var newest, last *Version
	for x := range l.Then(r.FetchedAs) {
		if x.holds(r, at) {
			return
		}
		newest, last = cmp.Or(newest, x), x
	}
	if last == nil || !last.From.Before(at) {
		v.how, v.cause = unproven, CauseHistory
		return
	}
	v.add(KindHistory, &l.entry, fmt.Sprintf("lines are missing, or this one rests on what %s did not have: %s", r.Origin, newest))
}

// holds reports whether a line of that time may rest on the version.
func (x *Version) holds(r *enforce.Record, at time.Time) bool {
	if r.State == stateUnreachable { // the last good text, which may have been good until then
		return r.SHA256 == x.SHA256
	}
	return r.State == x.State && r.SHA256 == x.SHA256 && (x.Until.IsZero() || !at.After(x.Until))
}

// String says when and where the log has the version.
func (x *Version) String() string {
	until := ""
	if !x.Until.IsZero() {
		until = " to " + x.Until.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("by %s:%d it had state %s from %s%s, text %q", x.at.File, x.at.Line, x.State, x.From.UTC().Format(time.RFC3339), until, x.SHA256)
}
