package enforce

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/signals/directives"
	"github.com/crawlgate/crawlgate/signals/preferences"
)

// Mode says what happens on a refusal. An undeclared value, such as the zero value, counts as
// ModeEnforce.
//
// Some refusals apply in every mode: stops, the operator's deny list, wrong proxy credentials, and
// everything that makes a request impossible to send. See [Reason.Hard].
type Mode string

const (
	// ModeEnforce refuses the request.
	ModeEnforce Mode = "enforce"
	// ModeReport lets a denied request pass. It marks the decision with WouldDeny and with the reason
	// of the refusal.
	ModeReport Mode = "report"
	// ModeOff does not ask for robots.txt. An unidentified sender is still refused.
	ModeOff Mode = "off"
)

// Check returns an error for an undeclared mode. The empty mode stands for a default.
func (m Mode) Check() error { return OneOf("mode", m, ModeEnforce, ModeReport, ModeOff) }

// OneOf returns an error for a value of the configuration that is not allowed. The empty value
// stands for a default.
func OneOf[T ~string](what string, v T, allowed ...T) error {
	if v == "" || slices.Contains(allowed, v) {
		return nil
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	return fmt.Errorf("%s %q: want %s", what, v, strings.Join(names, ", "))
}

// Paths says which forms of a path are matched against the rules. An undeclared value, such as the
// zero value, counts as PathsStrict.
type Paths string

const (
	// PathsStrict matches the bytes as sent and the forms that servers resolve them to
	// ([origin.Resolve]). The path is refused if any of them is disallowed.
	PathsStrict Paths = "strict"
	// PathsAsSent matches only the bytes as sent, as RFC 9309 section 2.2.2 says.
	PathsAsSent Paths = "as_sent"
)

// Check returns an error for an undeclared value. The empty value stands for a default.
func (p Paths) Check() error {
	return OneOf("paths", p, PathsStrict, PathsAsSent)
}

// PathForm says which form of a path the rules decided by. It is empty if servers resolve the path
// to itself, or if no rules were consulted.
type PathForm string

const (
	// PathAsSent is the bytes as sent: they are disallowed, or only they were matched.
	PathAsSent PathForm = "as_sent"
	// PathResolved is a resolved form. It is disallowed, but the bytes as sent are not.
	PathResolved PathForm = "resolved"
	// PathBoth is the bytes as sent and all resolved forms; none is disallowed.
	PathBoth PathForm = "both"
)

// Decision is the decision on one request, with its evidence: the file, its version and its line.
// It is a value; its slices are shared and must not be changed. The zero Decision denies.
//
// It is the only source of the access log's object ([Decision.Record]), of refusals ([Render]), and
// of the answers of `robots check` and the admin API.
type Decision struct {
	// Allowed says that the request may leave, as far as this package is concerned.
	Allowed bool
	// Reason says why, also for an allowed request. With WouldDeny it is the reason for which
	// ModeEnforce would have refused.
	Reason Reason
	// Detail adds to Reason what a human needs to know, such as the condition that an identity failed.
	// Do not parse it. It has no credentials and may be empty.
	Detail string
	// At is the time for which the rules were evaluated or, without rules, the time when the decision
	// began.
	At time.Time
	// Mode is the mode that applied to this request.
	Mode Mode
	// WouldDeny says that ModeEnforce would have refused.
	WouldDeny bool

	// Agent names the crawler: its configured name or, without agent blocks, its product token. Empty
	// if it has no name. Tokens are the product tokens whose group was searched for, most specific
	// first. An empty list means the group *.
	Agent  string
	Tokens []string
	// Owner and Contact are from its configuration. They name the people who are responsible for it.
	Owner, Contact string
	// IdentifiedBy says how the agent was recognised: the conditions that its block names, of
	// "credential", "client_certificate", "source" and "user_agent" in this order, joined by "+".
	// Empty if nothing did.
	IdentifiedBy string
	// UserAgent is the field's value as received; it is not safe to show.
	UserAgent string

	// Origin is whom the request is for.
	Origin origin.Origin
	// PathVisible says that the gateway sees the requested paths. It sees none in a blind tunnel.
	PathVisible bool

	// Group, Rule and Line say what decided in the file: the group's name, the rule as written, and
	// its line, from 1. Rule and Line are zero if no rule matched.
	Group string
	Rule  string
	Line  int
	// Form says which form of the path decided. Judged is that path, if it differs from the requested
	// one.
	Form   PathForm
	Judged string
	// State and Cause are from the origin's record. SHA256 is the hash of the text that decided, or
	// zero if none did.
	State  fetch.State
	Cause  fetch.Cause
	SHA256 [32]byte
	// FetchedAs is the agent in whose name the record was fetched; empty for the gateway's own.
	FetchedAs string
	// Source says where the record came from. It is SourceNone if no record was needed.
	Source robotscache.Source
	// FetchedAt is when the answer in force was fetched, Age is how old it was at the decision, and
	// FreshUntil is when it has to be fetched again. They are zero if there is no such answer.
	FetchedAt  time.Time
	Age        time.Duration
	FreshUntil time.Time

	// RetryAfter is the earliest time at which a retry can succeed, 0 if waiting does not help.
	RetryAfter time.Duration
	// CrawlDelay is the delay of the chosen group as written, or 0.
	CrawlDelay time.Duration
	// Wait is how long the request was held for politeness. The caller sets it.
	Wait time.Duration

	// Exception is the label of the exception that let the request pass.
	Exception string

	// Purposes and AlsoObey are from the agent's configuration.
	Purposes, AlsoObey []string
	// Preferences is what the site says about the use of its content, as far as the gateway knows:
	// from its robots.txt and TDM file, and from the answer once it was read. Signals are the
	// directives of the answer.
	Preferences preferences.Set
	Signals     directives.Set
	// SignalFields are the rules of the TDM file and the fields of the answer that Preferences and
	// Signals come from. SignalsCut says that there are more.
	SignalFields []string
	SignalsCut   bool
	// Conflict is the statement that conflicts with a purpose of the agent, or empty.
	Conflict string

	order    *Stop  // the order that made the exception, nil for an exception of the configuration
	matched  string // the path that was matched against the rules
	quoted   quotation
	unpaced  bool           // it is for /robots.txt
	interval time.Duration  // the agent's own least pause at a host
	maxWait  *time.Duration // how long the agent may be held, nil for the general limit

	preferMode  PreferenceMode // of the agent
	denyUnknown bool           // of the agent
	reads       Signals        // the sources of Preferences and Signals
}

// deny refuses the request or, if the mode lets it pass anyway, records the refusal. It keeps only
// the first of several recorded refusals, because ModeEnforce would have returned that one.
func (d *Decision) deny(r Reason, detail string) {
	switch {
	case r.Hard() || d.Mode != ModeReport:
		d.Allowed, d.WouldDeny, d.Reason, d.Detail, d.RetryAfter = false, false, r, detail, r.RetryAfter()
	case !d.WouldDeny:
		d.Allowed, d.WouldDeny, d.Reason, d.Detail, d.RetryAfter = true, true, r, detail, r.RetryAfter()
	}
}

// allow lets the request pass. It keeps an earlier recorded refusal.
func (d *Decision) allow(r Reason) {
	if !d.WouldDeny {
		d.Allowed, d.Reason = true, r
	}
}

// quote keeps the place in the file that refused, if there is one.
func (d *Decision) quote(b Bound) {
	if d.Allowed {
		d.quoted = quotation{}
		return
	}
	if d.Reason == ReasonDisallowed || d.Reason == ReasonVisitTime {
		d.quoted.line = d.Line
	}
	d.quoted.text = b.text
}

// Paced reports whether the host's clock applies to the request. Only requests for robots.txt are
// sent without delay, because a crawler that waits for the file cannot obey it.
func (d Decision) Paced() bool {
	return d.Allowed && !d.unpaced
}

// The values of [LogRecord.Decision].
const (
	OutcomeAllow = "allow"
	OutcomeDeny  = "deny"
	OutcomeError = "error" // the request was not answered because of a failure, not a decision
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

// HeaderDecision marks an answer as the gateway's own and carries the decision, see
// [Decision.Header]. The gateway must remove a field of that name from an origin's answer.
const HeaderDecision = "Crawlgate-Decision"

// Header returns the value of [HeaderDecision]: a structured-field token (RFC 9651) with
// parameters, such as `deny; reason=disallowed; line=12; until=@1795689024`: a Date of its section
// 3.3.7.
func (d Decision) Header() string {
	r := d.Reason
	if !r.Valid() {
		r = ReasonInternal
	}
	v := d.Outcome() + "; reason=" + string(r)
	if d.Line > 0 {
		v += "; line=" + strconv.Itoa(d.Line)
	}
	if d.WouldDeny {
		v += "; would-deny"
	}
	if until := d.holdsUntil(); !until.IsZero() {
		v += "; until=@" + strconv.FormatInt(until.Unix(), 10)
	}
	return v
}

// holdsUntil is the time until which the robots.txt that decided refuses the same request, or zero
// if unknown. It applies to a statement on the use of content only if the statement is a line of
// that file.
func (d Decision) holdsUntil() time.Time {
	if d.Allowed || !d.Reason.Info().Recorded || d.Reason == ReasonPreferenceDenied && d.quoted.line == 0 {
		return time.Time{}
	}
	return d.FreshUntil
}

// RetrySeconds is a Retry-After value. It is rounded up, because a retry that comes too early is
// refused again.
func RetrySeconds(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }
