package robotscache

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// Entry is what the cache knows about one origin at one moment: a record and the ruleset compiled
// from its text. It never changes; a new fetch makes a new Entry. A nil *Entry denies. All methods
// are safe for concurrent use.
type Entry struct {
	record         fetch.Record
	interpretation Interpretation
	text           fetch.Copy                // the record's one body, zero if it has none
	rules          func() *robotstxt.Ruleset // of text; nil without one
	size           int                       // bytes of the compiled ruleset
	askers         *askers                   // since this answer

	derive  sync.Once
	derived any // what Derive keeps

	// Told is for the user of the cache, to record which reports about the entry were made.
	Told atomic.Int64

	// usedAt is when Cache.markUsed last acted on the entry, in Unix ns; 0: never.
	usedAt atomic.Int64
}

// Interpretation says how to interpret records. The zero value is the default.
type Interpretation struct {
	// Policy determines how records age and what they permit.
	Policy fetch.Policy
	// IndexHTML is robotstxt.Options.IndexHTML.
	IndexHTML bool
}

// NewEntry compiles the text of a record by the given interpretation. It compiles a last good copy
// only when a [View] first needs it, because most are never needed.
//
// NewEntry keeps the record's slices: the caller must not change them afterwards.
func NewEntry(r fetch.Record, as Interpretation) *Entry {
	return newEntry(r, as, nil)
}

// newEntry is NewEntry, but reuses the ruleset of the predecessor if both have the same text and
// interpretation.
func newEntry(r fetch.Record, as Interpretation, old *Entry) *Entry {
	e := &Entry{record: r, interpretation: as, askers: new(askers)}
	if old != nil && old.record.FetchedAt.Equal(r.FetchedAt) {
		e.askers = old.askers
	}
	text, ok := r.Text()
	if !ok {
		return e
	}
	e.text = text
	parse := func() *robotstxt.Ruleset {
		return robotstxt.Options{Truncated: text.Truncated, IndexHTML: as.IndexHTML}.Parse(text.Body)
	}
	switch {
	case old != nil && old.rules != nil && old.text.SHA256 == text.SHA256 && old.interpretation.IndexHTML == as.IndexHTML:
		e.rules, e.size = old.rules, old.size
	case r.State == fetch.StateRules:
		rules := parse()
		e.rules, e.size = func() *robotstxt.Ruleset { return rules }, rules.Size()
	default:
		e.rules = sync.OnceValue(parse)
		e.size = len(text.Body) // an estimate before compilation; the mean of the corpus is 0.7 of it
	}
	return e
}

// Record returns the record. Its slices are shared with the cache and must not be changed.
func (e *Entry) Record() fetch.Record {
	if e == nil {
		return fetch.Record{}
	}
	return e.record
}

// Rules returns the ruleset of the record's text, even if the text does not decide now. It is nil
// without a text.
func (e *Entry) Rules() *robotstxt.Ruleset {
	if e == nil || e.rules == nil {
		return nil
	}
	return e.rules()
}

// turnedAway reports whether the site refused the sender, perhaps because of its name.
func (e *Entry) turnedAway() bool {
	return fetch.TurnedAway(e.record.State, e.record.Status) && e.View(time.Now()).State == fetch.StateAbsent
}

// repeats reports whether a variant has the same answer as the gateway's own record.
func (e *Entry) repeats(base *Entry) bool {
	v := e.View(time.Now())
	return base != nil && v.State == fetch.StateAbsent && v.Status == base.record.Status
}

// Derive returns the result of read for the text in force at the time now, or nil without such a
// text. It calls read once and keeps the result. It is for caches of files other than robots.txt.
// The caller must always pass the same read.
func (e *Entry) Derive(now time.Time, read func(text []byte) any) any {
	if e.View(now).Access != fetch.AccessRules {
		return nil
	}
	e.derive.Do(func() { e.derived = read(e.text.Body) })
	return e.derived
}

// Fresh reports whether the entry may be used at the time now: see fetch.Policy.Fresh. A nil Entry
// is never fresh.
func (e *Entry) Fresh(now time.Time) bool {
	return e != nil && e.interpretation.Policy.Fresh(e.record, now)
}

// View is the meaning of an Entry for crawlers at one moment. The zero value denies.
type View struct {
	// Record is the record as it stands at the time asked for: an answer whose time ended during a run
	// of failures is unreachable. Body and SHA256 describe the text that decides, which may be the
	// last good copy. They are zero if no text decides. FetchedAt is when that text was fetched or,
	// without such a text, when the origin gave the current answer. The slices are shared and must not
	// be changed.
	fetch.Record
	// Access says whether the rules decide, or one answer for every path.
	Access fetch.Access
	// Rules is the ruleset that decides. It is set exactly if Access is fetch.AccessRules or
	// fetch.AccessLastGood.
	Rules *robotstxt.Ruleset
}

// Why says in a few words why State is not rules: "status 503", "no such host".
func (v View) Why() string {
	switch {
	case v.Cause == fetch.CauseStatus:
		return "status " + strconv.Itoa(v.Status)
	case v.Detail == "":
		return string(v.Cause)
	default:
		return v.Detail
	}
}

// View evaluates the entry at the time now. It allocates nothing, except that the first call that
// falls back on a last good copy compiles it.
func (e *Entry) View(now time.Time) View {
	if e == nil {
		return View{}
	}
	v := View{Record: e.interpretation.Policy.Settle(e.record, now)}
	v.Access = e.interpretation.Policy.Access(v.Record, now)
	v.Body, v.SHA256 = nil, fetch.Sum{}
	switch v.Access {
	case fetch.AccessAllow:
		return v
	case fetch.AccessRules, fetch.AccessLastGood:
		if e.rules != nil {
			v.Rules, v.Body, v.SHA256, v.FetchedAt = e.rules(), e.text.Body, e.text.SHA256, e.text.FetchedAt
			return v
		}
	case fetch.AccessDeny:
	}
	v.Access = fetch.AccessDeny
	return v
}

// entryOverhead is the memory of an entry besides the memory that its slices and strings refer to:
// the entry itself, the closure and state for its ruleset, and the bookkeeping of ristretto (131
// bytes an item, measured) and of the map.
const entryOverhead = int64(unsafe.Sizeof(Entry{})) + 96 + 131 + 40

// cost returns the bytes that e keeps in memory. A last good copy that is not compiled yet is
// counted as if it were.
func (e *Entry) cost() int64 {
	r := &e.record
	n := entryOverhead + int64(unsafe.Sizeof(*e.askers)) + int64(cap(e.text.Body)) + int64(len(e.record.Agent))
	n += int64(len(r.Origin.Host) + len(r.Detail) + len(r.LastFailure.Detail))
	for _, hops := range [][]string{r.Hops, r.LastFailure.Hops} {
		for _, h := range hops {
			n += int64(unsafe.Sizeof(h)) + int64(len(h))
		}
	}
	return n + int64(e.size)
}
