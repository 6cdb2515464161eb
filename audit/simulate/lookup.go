package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotstxt"
	"github.com/crawlgate/crawlgate/signals/preferences"
)

// lookup finds what the robots.txt of an origin permitted at the time of a line. It implements
// [enforce.Lookup], for one line at a time.
type lookup struct {
	cfg  Config
	line *audit.Line
	at   time.Time // of its decision

	// The results for the line.
	cause      Uncomputed // why the line cannot be computed
	err        error
	failedThen bool // the lookup failed then, too
	asRecorded bool // what the state permits is taken from the line
	// queryMatters is [audit.QueryMatters] of the text that decided, or nil.
	queryMatters func(path string) bool

	day     time.Time // of the entries
	size    int
	entries map[known]kept
}

// kept is an entry, with queryMatters of its text.
type kept struct {
	*robotscache.Entry
	queryMatters func(path string) bool
}

// known describes a robots.txt. It is the key of entries.
type known struct {
	state  fetch.State
	access fetch.Access
	sha    fetch.Sum
}

// Bounds of the cache, in bytes of texts and in entries.
const (
	maxTexts   = 64 << 20
	maxEntries = 10_000
)

// dayLength is how long a gateway may use a text without fetching it again (RFC 9309 section 2.4),
// and how long an entry is valid.
const dayLength = 24 * time.Hour

func (k *lookup) begin(l *audit.Line) {
	k.line, k.at, k.cause, k.err, k.queryMatters = l, l.Robots.DecidedAt.Time(), "", nil, nil
	k.failedThen, k.asRecorded = false, false
	if day := k.at.Truncate(dayLength); !day.Equal(k.day) || k.size > maxTexts || len(k.entries) > maxEntries {
		k.day, k.size = day, 0
		clear(k.entries)
	}
}

// errUnknown ends a decision whose rules are unknown.
var errUnknown = errors.New("not known")

// Lookup implements [enforce.Lookup].
func (k *lookup) Lookup(ctx context.Context, o origin.Origin, a robotscache.Asker) (*robotscache.Entry, robotscache.Source, error) {
	if what := k.then(a); k.cause == "" && !k.failedThen {
		e, err := k.entry(ctx, o, what)
		if k.err = err; err == nil && k.cause == "" {
			return e, robotscache.SourceHot, nil
		}
	}
	return nil, robotscache.SourceNone, errUnknown
}

// TDMFile implements [enforce.TDMFiles]: the rules that applied then.
func (k *lookup) TDMFile(context.Context, origin.Origin) (rules preferences.TDMRules, ok bool, unread string) {
	rules, ok = k.line.Robots.TDMFile()
	return rules, ok, ""
}

// failedReasons are the reasons of a failed lookup, or of one that an order prevented.
var failedReasons = []enforce.Reason{
	enforce.ReasonKillSwitch,
	enforce.ReasonPending, enforce.ReasonCanceled, enforce.ReasonInternal, enforce.ReasonForbiddenAddress,
	enforce.ReasonForbiddenPort, enforce.ReasonOwnListener,
}

// then returns what the line says of its robots.txt or, if the line did not look it up, what the
// log says.
func (k *lookup) then(a robotscache.Asker) (w known) {
	r := k.line.Robots
	asked := r.Mode != string(enforce.ModeOff) && r.Exception == ""
	err := w.state.UnmarshalText([]byte(r.State))
	if err == nil && r.SHA256 != "" {
		err = w.sha.UnmarshalText([]byte(r.SHA256))
	}
	if err != nil {
		k.cause = CauseSchema
		return w
	}
	// If another reason refused the request, the line does not say what the rules permitted. The
	// answer to a request for robots.txt is the state itself.
	hidden := r.Mode == string(enforce.ModeReport) && !r.Reason.Allows() || r.Reason == enforce.ReasonRobotsTxt
	switch {
	case w.state == fetch.StateUnknown && asked && slices.Contains(failedReasons, r.Reason):
		k.failedThen = true
		return w
	case w.state == fetch.StateUnknown:
		return k.fromLog(a)
	case w.state == fetch.StateRules:
		w.access = fetch.AccessRules
		return w
	case w.sha != fetch.Sum{}:
		w.access, hidden = fetch.AccessLastGood, false
	case r.Reason == enforce.ReasonUnreachable, r.Reason == enforce.ReasonRobotsForbidden:
		w.access, hidden = fetch.AccessDeny, false
	default:
		w.access = fetch.AccessAllow
	}
	return k.byPolicy(r.FetchedAs, w, !hidden)
}

// entry returns a cache entry for w, valid on the day of the line.
func (k *lookup) entry(ctx context.Context, o origin.Origin, w known) (*robotscache.Entry, error) {
	e, ok := k.entries[w]
	if !ok {
		text := fetch.Copy{SHA256: w.sha}
		if w.access == fetch.AccessRules || w.access == fetch.AccessLastGood {
			body, err := k.cfg.Texts.Body(ctx, w.sha)
			switch {
			case errors.Is(err, robotscache.ErrNotFound):
				k.cause = CauseText
				return nil, nil
			case err != nil:
				return nil, fmt.Errorf("reading text %x: %w", w.sha, err)
			}
			text.Body, text.Truncated = body, len(body) == robotstxt.MaxSize
		}
		if e.Entry = k.make(o, w, text); text.Body != nil {
			e.queryMatters = audit.QueryMatters(text.Body, k.cfg.Policy.Interpretation.IndexHTML)
		}
		k.entries[w] = e
	}
	k.queryMatters = e.queryMatters
	return e.Entry, nil
}

// make makes an entry that permits w.access for a day.
func (k *lookup) make(o origin.Origin, w known, text fetch.Copy) *robotscache.Entry {
	k.size += 3 * len(text.Body) // the text, its rules, and those of queryMatters
	interpretation := robotscache.Interpretation{IndexHTML: k.cfg.Policy.Interpretation.IndexHTML}
	r := fetch.Record{Origin: o, State: w.state, FetchedAt: k.day, FreshUntil: k.day.Add(dayLength)}
	switch {
	case w.access == fetch.AccessRules:
		r.Body, r.SHA256, r.Truncated = text.Body, text.SHA256, text.Truncated
	case w.state == fetch.StateAbsent && w.access == fetch.AccessDeny:
		r.Status, interpretation.Policy.ForbiddenDisallow = 403, true
	case w.state == fetch.StateUnreachable:
		// After failures for long enough, the last good copy decides or everything is allowed.
		r.FreshUntil, r.Attempts = time.Time{}, 1
		r.UnreachableSince = k.day.Add(-interpretation.Policy.Complete().UnreachableFor)
		r.LastFailure = fetch.Failure{At: k.day}
		r.NextAttempt = k.day.Add(dayLength)
		if w.access == fetch.AccessLastGood {
			r.LastGood = &text
		}
		if w.access == fetch.AccessDeny {
			interpretation.Policy.Mode = fetch.ModeStrict
		}
	}
	return robotscache.NewEntry(r, interpretation)
}

// fromLog returns what the log says of a robots.txt that the line did not look up.
func (k *lookup) fromLog(a robotscache.Asker) (w known) {
	v, agent := k.inForce(""), ""
	if v == nil {
		k.cause = CauseText
		return w
	}
	_ = w.state.UnmarshalText([]byte(v.State)) // it was checked
	// An agent without its own answer gets the same one, or never asked.
	if own := k.inForce(a.Token); own != nil && fetch.TurnedAway(w.state, v.Status) {
		v, agent = own, a.Token
		_ = w.state.UnmarshalText([]byte(v.State))
	}
	if w.state == fetch.StateRules {
		_ = w.sha.UnmarshalText([]byte(v.SHA256))
		w.access = fetch.AccessRules
		return w
	}
	return k.byPolicy(agent, w, false)
}

// inForce returns the version that counted when the line was decided: until it expired or, if
// nobody asked again, for a day, which is the longest time that a gateway uses an answer.
func (k *lookup) inForce(agent string) *audit.Version {
	for v := range k.line.Then(agent) {
		if k.line.Follows(v) && (k.at.Before(v.From.Add(dayLength)) || k.at.Before(v.Until)) {
			return v
		}
	}
	return nil
}

// byPolicy returns what an absent or unreachable robots.txt permits by the policy of [Config]. The
// line has the state and, if told is set, the access that it permitted; the log has the run of
// failures and the status. If several answers are possible, the line's counts. If the line's is not
// among them, the result is unknown.
func (k *lookup) byPolicy(agent string, w known, told bool) known {
	all := k.permitted(agent, w, told)
	switch {
	case len(all) > 0 && !slices.ContainsFunc(all, func(other known) bool { return other != all[0] }):
		w = all[0]
	case told && (len(all) == 0 || slices.Contains(all, w)):
		k.asRecorded = true
	default:
		k.cause = CauseState
	}
	return w
}

// permitted returns what a robots.txt in the state of the line may have permitted by the policy,
// given what the log says of it.
func (k *lookup) permitted(agent string, w known, told bool) (all []known) {
	policy := k.cfg.Policy.Interpretation.Policy
	switch {
	case w.state == fetch.StateAbsent && !policy.ForbiddenDisallow:
		return []known{{state: w.state, access: fetch.AccessAllow}}
	case w.state == fetch.StateAbsent && told && w.access == fetch.AccessDeny:
		return []known{w}
	case w.state == fetch.StateUnreachable && policy.Mode >= fetch.ModeStrict:
		return []known{{state: w.state}}
	}
	for v := range k.line.Then(agent) {
		if !k.line.Follows(v) {
			continue
		}
		r := fetch.Record{State: w.state, Status: v.Status, FetchedAt: k.at, FreshUntil: k.at.Add(dayLength)}
		n := known{state: w.state}
		switch {
		case w.state == fetch.StateAbsent && v.State == w.state.String():
		case w.state == fetch.StateUnreachable && !v.UnreachableSince.IsZero():
			r.UnreachableSince = v.UnreachableSince
			if n.sha.UnmarshalText([]byte(v.SHA256)) == nil {
				r.LastGood = &fetch.Copy{SHA256: n.sha, Body: []byte{'#'}} // the policy asks only whether there is one
			}
		default:
			continue
		}
		if n.access = policy.Access(r, k.at); n.access != fetch.AccessLastGood {
			n.sha = fetch.Sum{}
		}
		all = append(all, n)
	}
	return all
}
