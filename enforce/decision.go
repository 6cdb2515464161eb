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

// Mode says what happens on a refusal. A value that is not declared, such as the zero value, counts
// as ModeEnforce.
//
// Whatever the mode, these hold: the stops, the operator's deny list, wrong proxy
// credentials, and all that makes a request impossible to send. See [Reason.Hard].
type Mode string

const (
	// ModeEnforce refuses the request.
	ModeEnforce Mode = "enforce"
	// ModeReport lets a denied request pass and marks its decision with WouldDeny and with the reason
	// of the refusal that it was spared.
	ModeReport Mode = "report"
	// ModeOff does not ask for robots.txt. An unidentified sender is still refused.
	ModeOff Mode = "off"
)

// Check reports a mode that is not declared. The empty one stands for a default.
func (m Mode) Check() error { return OneOf("mode", m, ModeEnforce, ModeReport, ModeOff) }

// OneOf reports a value of the configuration that is neither allowed nor empty, which stands for a
// default.
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

// Paths says in which forms a path is held against the rules. A value that is not declared, such as
// the zero one, counts as PathsStrict.
type Paths string

const (
	// PathsStrict judges the bytes as sent, and the forms that servers resolve them to
	// ([origin.Resolve]): a path that is disallowed in one of them is refused.
	PathsStrict Paths = "strict"
	// PathsAsSent judges the bytes as sent alone, as RFC 9309 section 2.2.2 has it.
	PathsAsSent Paths = "as_sent"
)

// Check reports a value that is not declared. The empty one stands for a default.
func (p Paths) Check() error {
	return OneOf("paths", p, PathsStrict, PathsAsSent)
}

// PathForm says by which form of a path the rules decided. It is empty where servers resolve the
// path to itself, and where no rules were asked.
type PathForm string

const (
	// PathAsSent is the bytes as sent: they are disallowed, or were alone to be judged.
	PathAsSent PathForm = "as_sent"
	// PathResolved is a resolved form, which is disallowed while the bytes as sent are not.
	PathResolved PathForm = "resolved"
	// PathBoth is the bytes as sent and all resolved forms; none is disallowed.
	PathBoth PathForm = "both"
)

// Decision is the decision on one request, with the evidence: the file, its version and its line.
// It is a value; its slices are shared and must not be changed. The zero Decision denies.
//
// It is the one source of the access log's object ([Decision.Record]), of refusals ([Render]) and
// of the answers of `robots check` and the admin API.
type Decision struct {
	// Allowed says that the request may leave, as far as this package is concerned.
	Allowed bool
	// Reason says why, also on a request that was let pass. With WouldDeny it is the reason of the
	// refusal that ModeReport spared.
	Reason Reason
	// Detail adds to Reason what a human needs, such as the condition that an identity failed.
	// Not to be parsed; free of credentials. May be empty.
	Detail string
	// At is the time for which the rules were evaluated or, without rules, the time when the decision
	// began.
	At time.Time
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
	// FreshUntil when it has to be fetched again. Zero if there is no such answer.
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

	order    *Stop  // the order that made the exception, nil for an exception of the configuration
	matched  string // the path that was held against the rules
	use      wanted
	quoted   quotation
	unpaced  bool           // it is for /robots.txt
	interval time.Duration  // the agent's own least pause at a host
	maxWait  *time.Duration // how long the agent may be held, nil for as long as any
}

// deny refuses, or, where the mode spares the refusal, notes it. Of several refusals that are
// spared the first is kept, as it is the one that ModeEnforce would have given.
func (d *Decision) deny(r Reason, detail string) {
	switch {
	case r.Hard() || d.Mode != ModeReport:
		d.Allowed, d.WouldDeny, d.Reason, d.Detail, d.RetryAfter = false, false, r, detail, r.RetryAfter()
	case !d.WouldDeny:
		d.Allowed, d.WouldDeny, d.Reason, d.Detail, d.RetryAfter = true, true, r, detail, r.RetryAfter()
	}
}

// allow lets the request pass, unless a refusal was spared before.
func (d *Decision) allow(r Reason) {
	if !d.WouldDeny {
		d.Allowed, d.Reason = true, r
	}
}

// quote keeps the place that refused, where one did.
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

// Paced reports whether the request has to keep the host's clock. Only the robots.txt of a site is
// asked for without delay: a crawler that waits for it cannot obey it.
func (d Decision) Paced() bool {
	return d.Allowed && !d.unpaced
}

// The values of [LogRecord.Decision].
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

// HeaderDecision marks an answer as the gateway's own and carries the decision, see
// [Decision.Header]. A field of that name from an origin must not be let through.
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

// holdsUntil is the time before which the robots.txt that decided refuses the same request; zero if
// nobody knows. A statement on the use of content holds for as long only if a line of it says so.
func (d Decision) holdsUntil() time.Time {
	if d.Allowed || !d.Reason.Info().Recorded || d.Reason == ReasonPreferenceDenied && d.quoted.line == 0 {
		return time.Time{}
	}
	return d.FreshUntil
}

// RetrySeconds is a Retry-After value: rounded up, as coming too early is refused again.
func RetrySeconds(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }
