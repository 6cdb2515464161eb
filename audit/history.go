package audit

import (
	"fmt"
	"slices"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/robotscache"
)

// histories has what logs say of the robots.txt of origins, as far as they were read.
type histories struct {
	byKey     map[historyKey][]version // at most `most` records
	most      int
	forgotten int64
}

// historyKey tells apart the records that logs tell of. Gateways may share a log.
type historyKey struct {
	series                 int
	gateway, origin, agent string
}

// version is what holds from a line of the log on.
type version struct {
	from, until time.Time
	state, sha  string
	at          Place
}

const (
	// keptVersions is how many versions of a record are kept, for requests that take long.
	keptVersions = 16
	// clockSlack is by how much the times of a line may disagree: a busy machine notes the end of a
	// request later than its duration, and a clock may be set while the request is under way.
	clockSlack = 500 * time.Millisecond
)

// add puts versions behind those before them.
func (h *histories) add(k historyKey, next ...version) {
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

// learn notes a line about a robots.txt. The finding has no message if the line makes sense.
func (j *judge) learn(e *entry, at Place) Finding {
	a, h := e.Answer, &j.histories
	f := Finding{Place: at, Kind: KindImpossible, Message: badAnswer(a), Agent: a.FetchedAs, URL: a.Origin + "/robots.txt", SHA256: a.SHA256}
	if f.Message != "" {
		return f
	}
	if sha, _ := shaOf(a.SHA256); a.SHA256 != "" && j.texts.get(sha).altered {
		f.Kind, f.Message = KindText, "the stored text has another hash: it is not the one that the site gave"
	}
	if a.State == "" {
		return f // nothing new holds
	}
	k, now := historyKey{j.series, a.Gateway, a.Origin, a.FetchedAs}, version{a.At, a.FreshUntil, a.State, a.SHA256, at}
	before := h.byKey[k]
	switch n := len(before) - 1; {
	case n < 0:
		h.add(k, now)
	case a.Discarded: // the one before goes on
		held := before[n]
		held.from = a.At
		h.add(k, now, held)
	case before[n].state == now.state && before[n].sha == now.sha && !now.from.After(before[n].until):
		before[n].until = now.until
	default:
		h.add(k, now)
	}
	return f
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

// dated holds what a line rests on against what the log says of its origin at that time. The lines
// about a robots.txt stand before those that rest on it.
func (j *judge) dated(e *entry, v *verdict) {
	r, begin, sent := e.Robots, e.began(), sentAt(e.Robots)
	if begin.IsZero() || e.TS.IsZero() {
		return
	}
	if came := e.TS.Add(-e.Duration.Duration - e.TS.early); came.Before(begin) {
		begin = came // only the duration has the waits that are not for its turn
	}
	begin = begin.Add(-clockSlack)
	versions := j.histories.byKey[historyKey{j.series, r.Gateway, r.Origin, r.FetchedAs}]
	var then *version // the newest at that time
	for i := len(versions) - 1; i >= 0; i-- {
		x := &versions[i]
		if !sent.IsZero() && x.from.After(sent.Add(clockSlack)) && !x.from.After(e.TS.Add(e.TS.late)) {
			continue // it came when the request had left, by a clock that was not set back
		}
		if x.holds(r, begin) {
			return
		}
		if then == nil {
			then = x
		}
		if x.from.Before(begin) { // those before it had ended
			v.add(KindHistory, e, fmt.Sprintf("lines are missing, or this one rests on what %s did not have: %s", r.Origin, then))
			return
		}
	}
	v.how, v.cause = unproven, CauseHistory
}

// holds reports whether a line of a request that began then may rest on the version.
func (x *version) holds(r *enforce.Record, begin time.Time) bool {
	if r.State == stateUnreachable { // the last good text, which may have been good until then
		return r.SHA256 == x.sha
	}
	return r.State == x.state && r.SHA256 == x.sha && (x.until.IsZero() || !begin.After(x.until))
}

// String says when and where the log has the version.
func (x *version) String() string {
	until := ""
	if !x.until.IsZero() {
		until = " to " + x.until.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("by %s:%d it had state %s from %s%s, text %q", x.at.File, x.at.Line, x.state, x.from.UTC().Format(time.RFC3339), until, x.sha)
}
