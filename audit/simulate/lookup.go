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

// lookup finds what the robots.txt of an origin permitted at the time of a line. It is an
// [enforce.Lookup] for one line at a time.
type lookup struct {
	cfg  Config
	line *audit.Line
	at   time.Time // of its decision

	// The results for the line.
	cause      Cause // why nothing is known
	err        error
	failedThen bool   // nothing was known then, either
	asRecorded bool   // what the state permits is what the line says
	text       []byte // that decided

	day     time.Time // of the entries
	size    int
	entries map[known]*robotscache.Entry
}

// known is what is known of a robots.txt. It is the key of entries.
type known struct {
	state  fetch.State
	access fetch.Access
	sha    fetch.Sum
}

// Bounds of what is kept, in bytes of texts and in entries.
const (
	maxTexts   = 64 << 20
	maxEntries = 10_000
)

// dayLength is for how long a gateway uses a text at most without asking for it again, and for how
// long an entry is made.
const dayLength = 24 * time.Hour

func newLookup(cfg Config) *lookup {
	return &lookup{cfg: cfg, entries: make(map[known]*robotscache.Entry)}
}

// begin prepares for a line.
func (k *lookup) begin(l *audit.Line) {
	k.line, k.at, k.cause, k.err, k.text = l, l.Robots.DecidedAt.Time(), "", nil, nil
	k.failedThen, k.asRecorded = false, false
	if day := k.at.Truncate(dayLength); !day.Equal(k.day) || k.size > maxTexts || len(k.entries) > maxEntries {
		k.day, k.size = day, 0
		clear(k.entries)
	}
}

// errUnknown ends a decision whose rules are not known.
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

// failedReasons are those of a lookup that found nothing, or was kept from being made by an order.
var failedReasons = []enforce.Reason{
	enforce.ReasonKillSwitch,
	enforce.ReasonPending, enforce.ReasonCanceled, enforce.ReasonInternal, enforce.ReasonForbiddenAddress,
	enforce.ReasonForbiddenPort, enforce.ReasonOwnListener,
}

// then is what the line says of the robots.txt of its time or, where nobody asked for it, what the
// log says.
func (k *lookup) then(a robotscache.Asker) (w known) {
	r := k.line.Robots
	asked := r.Mode != enforce.ModeOff.String() && r.Exception == ""
	err := w.state.UnmarshalText([]byte(r.State))
	if err == nil && r.SHA256 != "" {
		err = w.sha.UnmarshalText([]byte(r.SHA256))
	}
	if err != nil {
		k.cause = CauseSchema
		return w
	}
	// Of a request that another reason kept from its site, the line does not say what was permitted;
	// and the answer to one for robots.txt is the state itself.
	hidden := r.Mode == enforce.ModeReport.String() && !r.Reason.Allows() || r.Reason == enforce.ReasonRobotsTxt
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

// entry returns what is known as an entry for the day of the line.
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
		e = k.make(o, w, text)
		k.entries[w] = e
	}
	text, _ := e.Record().Text()
	k.text = text.Body
	return e, nil
}

// make makes an entry that permits what is known, for a day.
func (k *lookup) make(o origin.Origin, w known, text fetch.Copy) *robotscache.Entry {
	k.size += 2 * len(text.Body)
	reading := robotscache.Interpretation{IndexHTML: k.cfg.Policy.Reading.IndexHTML}
	r := fetch.Record{Origin: o, State: w.state, FetchedAt: k.day, FreshUntil: k.day.Add(dayLength)}
	switch {
	case w.access == fetch.AccessRules:
		r.Body, r.SHA256, r.Truncated = text.Body, text.SHA256, text.Truncated
	case w.state == fetch.StateAbsent && w.access == fetch.AccessDeny:
		r.Status, reading.Policy.ForbiddenDisallow = 403, true
	case w.state == fetch.StateUnreachable:
		// A run of failures that began long enough ago permits what its copy does, or everything.
		r.FreshUntil, r.Attempts = time.Time{}, 1
		r.UnreachableSince = k.day.Add(-reading.Policy.Complete().UnreachableFor)
		r.LastFailure = fetch.Failure{At: k.day}
		r.NextAttempt = k.day.Add(dayLength)
		if w.access == fetch.AccessLastGood {
			r.LastGood = &text
		}
		if w.access == fetch.AccessDeny {
			reading.Policy.Mode = fetch.ModeStrict
		}
	}
	return robotscache.NewEntry(r, reading)
}
