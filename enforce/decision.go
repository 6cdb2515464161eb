package enforce

import (
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// Verdict is the answer to "may this request leave?". The zero value is Deny.
type Verdict uint8

const (
	// Deny keeps the request from leaving.
	Deny Verdict = iota
	// Allow lets it leave, as far as this package is concerned.
	Allow
)

// String returns "deny" or "allow"; every undeclared value denies.
func (v Verdict) String() string {
	if v == Allow {
		return "allow"
	}
	return "deny"
}

// Mode says what is done with refusals. The zero value is ModeEnforce.
//
// Whatever the mode, these hold: the kill switch, the operator's deny list, wrong
// proxy credentials, and all that makes a request impossible to send. See
// [Reason.Hard].
type Mode uint8

const (
	// ModeEnforce refuses what is denied.
	ModeEnforce Mode = iota
	// ModeReport lets a denied request pass and marks its decision with WouldDeny
	// and with the reason of the refusal that it was spared.
	ModeReport
	// ModeOff does not ask for robots.txt. Who is not identified is still refused.
	ModeOff
)

// String returns "enforce", "report" or "off".
func (m Mode) String() string {
	switch m {
	case ModeReport:
		return "report"
	case ModeOff:
		return "off"
	default:
		return "enforce"
	}
}

// Decision is what was decided on one request, with the evidence: which line of
// which version of which file said so. It is a value; its slices are shared and
// must not be changed. The zero Decision denies.
//
// It is the one source of the access log's object (DESIGN §9, [Decision.Record]),
// of refusals ([Render]) and of the answers of `robots check` and the admin API.
type Decision struct {
	Verdict Verdict
	// Reason says why, also on a request that was let pass. With WouldDeny it is the
	// reason of the refusal that ModeReport spared.
	Reason Reason
	// Detail adds to Reason what people need to know, such as the condition that an
	// identity failed. Not to be parsed; free of credentials. May be empty.
	Detail string
	// Mode is the mode that held for this request.
	Mode Mode
	// WouldDeny says that ModeEnforce would have refused.
	WouldDeny bool

	// Agent names the crawler: its configured name or, without agent blocks, its
	// product token. Empty if it has no name. Tokens are the product tokens whose
	// group was looked for, most specific first; none means the group *.
	Agent  string
	Tokens []string
	// Owner and Contact are those of its configuration: who answers for it, and where.
	Owner, Contact string
	// IdentifiedBy says what told the agent: the conditions that its block names,
	// of "credential", "client_certificate", "source" and "user_agent" in this
	// order, joined by "+". Empty if nothing did.
	IdentifiedBy string
	// UserAgent is the field's value as received; it is not safe to show.
	UserAgent string

	// Origin is whom the request is for, RobotsURL where its rules are.
	Origin    origin.Origin
	RobotsURL string
	// PathVisible says that the gateway sees the paths that are asked for. Of what passes
	// in a tunnel that is not looked into it sees none.
	PathVisible bool

	// Group, Rule and Line are what decided in the file: the group's name, the rule
	// as written there, its line from 1. Rule and Line are zero if no rule matched.
	Group string
	Rule  string
	Line  int
	// Form says which form of the path decided, and Judged is that path where it is
	// not the one that was asked for.
	Form   PathForm
	Judged string
	// State and Cause are those of the origin's record; SHA256 is that of the text
	// that decided, zero if none did.
	State  fetch.State
	Cause  fetch.Cause
	SHA256 [32]byte
	// Source tells where the record came from; SourceNone if it was not asked for.
	Source robotscache.Source
	// FetchedAt is when the answer in force was fetched, Age how old it was at the
	// decision, FreshUntil when it has to be fetched again. Zero where there is none.
	FetchedAt  time.Time
	Age        time.Duration
	FreshUntil time.Time

	// RetryAfter is the earliest time at which a retry can succeed, 0 if waiting
	// does not help.
	RetryAfter time.Duration
	// CrawlDelay is what the chosen group asks for, as written: 0 if nothing.
	CrawlDelay time.Duration
	// Wait is how long the request was held for politeness. The caller sets it.
	Wait time.Duration

	// Exception is the label of the exception that let the request pass.
	Exception string

	unpaced  bool          // it is for /robots.txt
	interval time.Duration // the agent's own least pause at a host
}

// Refuse returns d refused for a reason that a later step found: politeness,
// address guard, a failing origin. It refuses in every mode, as those steps do.
// What was decided before is kept as evidence.
//
// A reason that does not refuse is taken for [ReasonInternal].
func (d Decision) Refuse(r Reason, detail string, retryAfter time.Duration) Decision {
	if r.Allows() || !r.Valid() {
		r = ReasonInternal
	}
	d.Verdict, d.Reason, d.Detail, d.RetryAfter = Deny, r, detail, max(retryAfter, 0)
	d.WouldDeny = false
	return d
}

// deny refuses, or, where the mode spares the refusal, notes it. Of several refusals that
// are spared the first is kept, as it is the one that ModeEnforce would have given.
func (d *Decision) deny(r Reason, detail string) {
	switch {
	case r.Hard() || d.Mode != ModeReport:
		d.Verdict, d.WouldDeny, d.Reason, d.Detail = Deny, false, r, detail
	case !d.WouldDeny:
		d.Verdict, d.WouldDeny, d.Reason, d.Detail = Allow, true, r, detail
	}
}

// allow lets pass, unless a refusal was spared before.
func (d *Decision) allow(r Reason) {
	if !d.WouldDeny {
		d.Verdict, d.Reason = Allow, r
	}
}

// Paced reports whether the request has to keep the host's clock. Only the robots.txt
// of a site is asked for without delay: a crawler that waits for it cannot obey it.
func (d Decision) Paced() bool {
	return d.Verdict == Allow && !d.unpaced
}

// Outcome is the log's field "decision": "allow", "deny", or "error" where not a
// judgement but a failure kept the request from being answered.
func (d Decision) Outcome() string {
	switch {
	case d.Verdict == Allow:
		return "allow"
	case d.Reason.Failure():
		return "error"
	default:
		return "deny"
	}
}
