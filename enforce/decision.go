package enforce

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/directives"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/preferences"
	"github.com/crawlgate/crawlgate/robotscache"
)

// Mode says what is done with refusals. The zero value is ModeEnforce.
//
// Whatever the mode, these hold: the kill switch, the operator's deny list, wrong proxy
// credentials, and all that makes a request impossible to send. See [Reason.Hard].
type Mode uint8

const (
	// ModeEnforce refuses what is denied.
	ModeEnforce Mode = iota
	// ModeReport lets a denied request pass and marks its decision with WouldDeny and with the reason
	// of the refusal that it was spared.
	ModeReport
	// ModeOff does not ask for robots.txt. An unidentified sender is still refused.
	ModeOff
)

// String returns "enforce", "report" or "off".
func (m Mode) String() string { return fetch.NameOf(m, "enforce", "report", "off") }

// Named returns the one of some values that has a name.
func Named[T fmt.Stringer](what, name string, values ...T) (value T, err error) {
	names := make([]string, len(values))
	for i, v := range values {
		if names[i] = v.String(); names[i] == name {
			return v, nil
		}
	}
	return value, fmt.Errorf("%s %q: want %s", what, name, strings.Join(names, ", "))
}

// Paths says in which forms a path is held against the rules. The zero value is PathsStrict, and an
// undeclared value is strict too.
type Paths uint8

const (
	// PathsStrict judges the bytes as sent, and the forms that servers resolve them to
	// ([origin.Resolve]): a path that is disallowed in one of them is refused.
	PathsStrict Paths = iota
	// PathsAsSent judges the bytes as sent alone, as RFC 9309 section 2.2.2 has it.
	PathsAsSent
)

// String returns "strict" or "as_sent".
func (p Paths) String() string { return fetch.NameOf(p, "strict", "as_sent") }

// ParsePaths reads what String returns; the empty text stands for the default, strict.
func ParsePaths(s string) (Paths, error) {
	return Named("paths", cmp.Or(s, "strict"), PathsStrict, PathsAsSent)
}

// PathForm says by which form of a path the rules decided. It is empty where servers resolve the
// path to itself, and where no rules were asked.
type PathForm string

const (
	// PathAsSent is the bytes as sent: they are disallowed, or were alone to be judged.
	PathAsSent PathForm = "as_sent"
	// PathResolved is a resolved form, which is disallowed while the bytes as sent are not.
	PathResolved PathForm = "resolved"
	// PathBoth is the bytes as sent and all resolved forms, none of which is disallowed.
	PathBoth PathForm = "both"
)

// Decision is the decision on one request, with the evidence: which line of which version of which
// file said so. It is a value; its slices are shared and must not be changed. The zero Decision
// denies.
//
// It is the one source of the access log's object (DESIGN §9, [Decision.Record]), of refusals
// ([Render]) and of the answers of `robots check` and the admin API.
type Decision struct {
	// Allowed says that the request may leave, as far as this package is concerned.
	Allowed bool
	// Reason says why, also on a request that was let pass. With WouldDeny it is the reason of the
	// refusal that ModeReport spared.
	Reason Reason
	// Detail adds to Reason what people need to know, such as the condition that an identity failed.
	// Not to be parsed; free of credentials. May be empty.
	Detail string
	// Mode is the mode that held for this request.
	Mode Mode
	// WouldDeny says that ModeEnforce would have refused.
	WouldDeny bool

	// Agent names the crawler: its configured name or, without agent blocks, its product token. Empty
	// if it has no name. Tokens are the product tokens whose group was looked for, most specific
	// first; none means the group *.
	Agent  string
	Tokens []string
	// Owner and Contact are from its configuration: the people who answer for it.
	Owner, Contact string
	// IdentifiedBy says how the agent was recognised: the conditions that its block names, of
	// "credential", "client_certificate", "source" and "user_agent" in this order, joined by "+".
	// Empty if nothing did.
	IdentifiedBy string
	// UserAgent is the field's value as received; it is not safe to show.
	UserAgent string

	// Origin is whom the request is for.
	Origin origin.Origin
	// PathVisible says that the gateway sees the requested paths. It sees none in a tunnel that it
	// does not look into.
	PathVisible bool

	// Group, Rule and Line are what decided in the file: the group's name, the rule as written there,
	// its line from 1. Rule and Line are zero if no rule matched.
	Group string
	Rule  string
	Line  int
	// Form says which form of the path decided, and Judged is that path where it is not the one that
	// was asked for.
	Form   PathForm
	Judged string
	// State and Cause are from the origin's record; SHA256 is the hash of the text that decided, zero
	// if none did.
	State  fetch.State
	Cause  fetch.Cause
	SHA256 [32]byte
	// FetchedAs is the agent in whose name the record was fetched; empty for the gateway's own.
	FetchedAs string
	// Source tells where the record came from; SourceNone if it was not asked for.
	Source robotscache.Source
	// FetchedAt is when the answer that holds was fetched, Age how old it was at the decision,
	// FreshUntil when it has to be fetched again. Zero where there is none.
	FetchedAt  time.Time
	Age        time.Duration
	FreshUntil time.Time

	// RetryAfter is the earliest time at which a retry can succeed, 0 if waiting does not help.
	RetryAfter time.Duration
	// CrawlDelay is what the chosen group asks for, as written: 0 if nothing.
	CrawlDelay time.Duration
	// Wait is how long the request was held for politeness. The caller sets it.
	Wait time.Duration

	// Exception is the label of the exception that let the request pass.
	Exception string

	// Purposes and AlsoObey are from the agent's configuration.
	Purposes, AlsoObey []string
	// Preferences is what the site says of the use of its content, as far as it is known: in its
	// robots.txt and TDM file, and once an answer was read in that. Signals are the directives of the
	// answer.
	Preferences preferences.Set
	Signals     directives.Set
	// SignalFields are the rules of the TDM file and the fields of the answer that say so, SignalsCut
	// that there are more.
	SignalFields []string
	SignalsCut   bool
	// Conflict is the statement that stands against a purpose of the agent; empty for none.
	Conflict string

	matched  string // the path that was held against the rules
	use      wanted
	quoted   quotation
	unpaced  bool          // it is for /robots.txt
	interval time.Duration // the agent's own least pause at a host
}

// deny refuses, or, where the mode spares the refusal, notes it. Of several refusals that are
// spared the first is kept, as it is the one that ModeEnforce would have given.
func (d *Decision) deny(r Reason, detail string) {
	switch {
	case r.Hard() || d.Mode != ModeReport:
		d.Allowed, d.WouldDeny, d.Reason, d.Detail = false, false, r, detail
	case !d.WouldDeny:
		d.Allowed, d.WouldDeny, d.Reason, d.Detail = true, true, r, detail
	}
}

// allow lets the request pass, unless a refusal was spared before.
func (d *Decision) allow(r Reason) {
	if !d.WouldDeny {
		d.Allowed, d.Reason = true, r
	}
}

// Paced reports whether the request has to keep the host's clock. Only the robots.txt of a site is
// asked for without delay: a crawler that waits for it cannot obey it.
func (d Decision) Paced() bool {
	return d.Allowed && !d.unpaced
}

// The values of [Record.Decision].
const (
	OutcomeAllow = "allow"
	OutcomeDeny  = "deny"
	OutcomeError = "error" // not a judgement but a failure kept the request from being answered
)

// Outcome is the log's field "decision": one of the constants above.
func (d Decision) Outcome() string {
	switch {
	case d.Allowed:
		return OutcomeAllow
	case d.Reason.Failure():
		return OutcomeError
	default:
		return OutcomeDeny
	}
}

// SchemaVersion is the value of [Record.Schema]. Schema 1 lacks Config, SentAt, Removed,
// PaymentRequired, Signals and Preferences, and is schema 2 in all else.
const SchemaVersion = 2

// maxShown bounds the bytes of foreign text (a rule, a User-Agent) in what is shown or logged.
const maxShown = 512

// Record is a [Decision] in the form that is shown and stored: the object "robots" of the access
// log (DESIGN §9), of refusals, of `robots check` and of the admin API. Foreign text in it is cut,
// and escaped where it is not printable.
//
// The JSON names are those of the log, and are stable within a schema. Fields with omitempty are
// left out where they are empty.
type Record struct {
	Schema       int      `json:"schema"`
	Decision     string   `json:"decision"`
	Reason       Reason   `json:"reason"`
	Detail       string   `json:"detail,omitempty"`
	Mode         string   `json:"mode"`
	WouldDeny    bool     `json:"would_deny"`
	Agent        string   `json:"agent"`
	Tokens       []string `json:"tokens,omitempty"`
	Owner        string   `json:"owner,omitempty"`
	Contact      string   `json:"contact,omitempty"`
	IdentifiedBy string   `json:"identified_by,omitempty"`
	UserAgent    string   `json:"user_agent,omitempty"`
	Origin       string   `json:"origin"`
	RobotsURL    string   `json:"robots_url"`
	State        string   `json:"state"`
	Cause        string   `json:"cause,omitempty"`
	FetchedAs    string   `json:"fetched_as,omitempty"`
	Group        string   `json:"group,omitempty"`
	Rule         string   `json:"rule,omitempty"`
	Line         int      `json:"line,omitempty"`
	Form         PathForm `json:"form,omitempty"`
	SHA256       string   `json:"sha256,omitempty"`
	AgeSeconds   int64    `json:"age_s,omitempty"`
	Source       string   `json:"source"`
	PathVisible  bool     `json:"path_visible"`
	PathSum      string   `json:"path_sum,omitempty"` // PathSum of what was held against the rules
	WaitMillis   int64    `json:"wait_ms,omitempty"`
	CrawlDelay   float64  `json:"crawl_delay_s,omitempty"`
	// DialMillis and Address are of the sending, which comes after the decision: the caller sets them.
	DialMillis int64  `json:"dial_ms,omitempty"`
	Address    string `json:"address,omitempty"`
	Exception  string `json:"exception,omitempty"`
	// Gateway, Version and Config are the name, the build and the configuration's digest of the
	// gateway that writes a log. The caller sets them.
	Gateway string `json:"gateway,omitempty"`
	Version string `json:"version,omitempty"`
	Config  string `json:"config,omitempty"`
	// SentAt is when the request went out, in seconds since 1970; 0 if it did not, or nobody saw when.
	// The caller sets it.
	SentAt float64 `json:"sent_at,omitempty"`
	// Removed is how many lines of the request's header were kept back because the agent's block does
	// not let them pass. The caller sets it.
	Removed int `json:"removed,omitempty"`
	// PaymentRequired says that the site answered 402 (Payment Required). The caller sets it.
	PaymentRequired bool `json:"payment_required,omitempty"`
	// Signals and Preferences are what a site says of the use of its content, each as a member of an
	// RFC 9651 dictionary, such as "train-ai=n;from=robots;line=4".
	Signals     []string `json:"signals,omitempty"`
	Preferences []string `json:"preferences,omitempty"`
	// SignalsRead names where they were looked for. SignalFields are the rules of the TDM file and the
	// fields of the answer that they are from, SignalsCut says that not all of these are there.
	SignalsRead  string   `json:"signals_read,omitempty"`
	Vocabulary   string   `json:"vocabulary,omitempty"` // by which they were read
	SignalFields []string `json:"signal_fields,omitempty"`
	SignalsCut   bool     `json:"signals_cut,omitempty"`
	// Purposes are the agent's, AlsoObey the tokens that it obeys beside its own. Conflict is the
	// preference that stands against one of the purposes.
	Purposes []string `json:"purposes,omitempty"`
	AlsoObey []string `json:"also_obey,omitempty"`
	Conflict string   `json:"preference_conflict,omitempty"`
	// Lost is how many lines the log did not take, since LostSince and before this one.
	Lost      int64   `json:"lost,omitempty"`
	LostSince float64 `json:"lost_since,omitempty"`
}

// recordFields are the fields of a [Record] in order.
var recordFields = func() (all []recordField) {
	for f := range reflect.TypeFor[Record]().Fields() {
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		all = append(all, recordField{name, option == "omitempty"})
	}
	return all
}()

type recordField struct {
	name      string
	omitEmpty bool
}

// Fields yields the fields of r by their JSON names, in order, but for those that JSON leaves out.
// Each value is of the kind String, Bool, Int, Int64 or Float64, or is a []string.
func (r *Record) Fields() iter.Seq2[string, reflect.Value] {
	return func(yield func(string, reflect.Value) bool) {
		values := reflect.ValueOf(r).Elem()
		for i, f := range recordFields {
			v := values.Field(i)
			if f.omitEmpty && v.IsZero() {
				continue
			}
			if !yield(f.name, v) {
				return
			}
		}
	}
}

// Field returns the value of the field with a JSON name, also an empty one. It reports false for a
// name that no field has.
func (r *Record) Field(name string) (reflect.Value, bool) {
	at := slices.IndexFunc(recordFields, func(f recordField) bool { return f.name == name })
	if at < 0 {
		return reflect.Value{}, false
	}
	return reflect.ValueOf(r).Elem().Field(at), true
}

// PathSum is the first four hexadecimal digits of the SHA-256 of a path and, behind a dash, of its
// query, if it has one. It tells whether a log shows the path still as it was. Anyone who guesses what
// a filter took out of the log can test the guess by it, and is wrong once in 65,536 times.
func PathSum(path string) string {
	path, query, has := strings.Cut(path, "?")
	sum := sha256.Sum256([]byte(path))
	if !has {
		return hex.EncodeToString(sum[:2])
	}
	of := sha256.Sum256([]byte(query))
	return hex.EncodeToString(sum[:2]) + "-" + hex.EncodeToString(of[:2])
}

// shownAll is a list of foreign texts for the log.
func shownAll(list []string) []string {
	for i, text := range list {
		if shown := escape.Printable(text, maxSignalFields); shown != text {
			list = slices.Clone(list) // others read it
			list[i] = shown
		}
	}
	return list
}

// Record returns d in the form that is shown and stored.
func (d Decision) Record() Record {
	r := Record{
		Schema:       SchemaVersion,
		Decision:     d.Outcome(),
		Reason:       d.Reason,
		Detail:       escape.Printable(d.Detail, maxShown),
		Mode:         d.Mode.String(),
		WouldDeny:    d.WouldDeny,
		Agent:        escape.Printable(d.Agent, maxToken),
		Tokens:       d.Tokens, // of letters, digits, "-", "_" and "." (robotstxt.IsProductName)
		Owner:        escape.Printable(d.Owner, maxText),
		Contact:      escape.Printable(d.Contact, maxText),
		IdentifiedBy: d.IdentifiedBy,
		UserAgent:    escape.Printable(d.UserAgent, maxShown),
		State:        d.State.String(),
		Cause:        string(d.Cause),
		FetchedAs:    d.FetchedAs, // as Tokens
		Group:        escape.Visible(d.Group, maxToken),
		Rule:         escape.Visible(d.Rule, maxShown),
		Line:         d.Line,
		Form:         d.Form,
		SHA256:       fetch.Sum(d.SHA256).Hex(),
		AgeSeconds:   int64(d.Age / time.Second),
		Source:       d.Source.String(),
		PathVisible:  d.PathVisible,
		WaitMillis:   d.Wait.Milliseconds(),
		CrawlDelay:   d.CrawlDelay.Seconds(),
		Exception:    escape.Printable(d.Exception, maxShown),
		Signals:      d.Signals.Names(),
		Preferences:  statements(d.Preferences), // a purpose is of letters, digits and "_-.*" (preferences.IsPurpose)
		SignalFields: shownAll(d.SignalFields),
		SignalsCut:   d.SignalsCut,
		Purposes:     d.Purposes,
		AlsoObey:     d.AlsoObey,
		Conflict:     escape.Printable(d.Conflict, maxShown),
	}
	if d.PathVisible && d.Origin != (origin.Origin{}) {
		if r.SignalsRead = d.use.reads.String(); r.SignalsRead != "" {
			r.Vocabulary = Vocabulary
		}
	}
	if d.matched != "" {
		r.PathSum = PathSum(d.matched)
	}
	if !d.Reason.Valid() {
		r.Reason = ReasonInternal
	}
	if !d.Origin.IsZero() {
		r.RobotsURL = d.Origin.RobotsURL()
		r.Origin = strings.TrimSuffix(r.RobotsURL, "/robots.txt")
	}
	return r
}
