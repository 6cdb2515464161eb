package audit

import (
	"fmt"
	"slices"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
)

// basis is what a reason rests on. It tells an audit which part of a line to recompute.
type basis uint8

const (
	onLater  basis = iota // the request itself, or a step after the rules (politeness, sending): as recorded
	onRules               // the text and the path
	onTunnel              // the text, for a tunnel whose paths are not seen
	onState               // the absence of a text
	onSelf                // the request being for robots.txt itself
	onTurn                // the operator's limits, which can change during a wait: as recorded
	onSender              // the operator's word and the sender, before anything is sent: as recorded
)

// bases are the reasons that do not come after the rules.
var bases = map[enforce.Reason]basis{
	enforce.ReasonAllowedByRule: onRules, enforce.ReasonNoRule: onRules, enforce.ReasonDisallowed: onRules,
	enforce.ReasonUnrestricted: onTunnel, enforce.ReasonTunnelRestricted: onTunnel,
	enforce.ReasonAbsent: onState, enforce.ReasonUnreachable: onState, enforce.ReasonUnreachableExpired: onState,
	enforce.ReasonRobotsForbidden: onState, enforce.ReasonPending: onState,
	enforce.ReasonRobotsTxt: onSelf, enforce.ReasonVisitTime: onRules,
	enforce.ReasonOperatorDeny: onTurn, enforce.ReasonAgentPort: onTurn, enforce.ReasonAgentMethod: onTurn,
	enforce.ReasonAgentHost: onTurn, enforce.ReasonAgentExpired: onTurn, enforce.ReasonWindow: onTurn,
	enforce.ReasonException: onSender, enforce.ReasonRobotsOff: onSender, enforce.ReasonKillSwitch: onSender,
	enforce.ReasonConnectDenied: onSender, enforce.ReasonIntercepted: onSender,
	enforce.ReasonClientNotAllowed: onSender, enforce.ReasonUnidentified: onSender, enforce.ReasonCredentialsMissing: onSender,
	enforce.ReasonCredentialsWrong: onSender, enforce.ReasonCredentialsBusy: onSender, enforce.ReasonAgentMismatch: onSender,
	enforce.ReasonUserAgentConflict: onSender, enforce.ReasonAmbiguousAgent: onSender, enforce.ReasonAgentLimit: onSender,
}

// The texts of the closed sets of the log.
var (
	modeEnforce = string(enforce.ModeEnforce)
	modeReport  = string(enforce.ModeReport)
	modeOff     = string(enforce.ModeOff)

	stateUnknown     = fetch.StateUnknown.String()
	stateRules       = fetch.StateRules.String()
	stateAbsent      = fetch.StateAbsent.String()
	stateUnreachable = fetch.StateUnreachable.String()
)

// states has the state that each reason that follows from the state alone requires.
var states = map[enforce.Reason]string{
	enforce.ReasonAbsent: stateAbsent, enforce.ReasonRobotsForbidden: stateAbsent,
	enforce.ReasonUnreachable: stateUnreachable, enforce.ReasonUnreachableExpired: stateUnreachable,
	enforce.ReasonPending: stateUnknown,
}

// closed has the closed sets of words, except the reasons.
var closed = []struct {
	what  string
	words []string
}{
	{"decision", []string{enforce.OutcomeAllow, enforce.OutcomeDeny, enforce.OutcomeError}},
	{"mode", []string{modeEnforce, modeReport, modeOff}},
	{"state", []string{stateUnknown, stateRules, stateAbsent, stateUnreachable}},
	{"form", []string{"", string(enforce.PathAsSent), string(enforce.PathResolved), string(enforce.PathBoth)}},
}

// BadWord says which word of a record is in none of the closed sets, or which number makes no
// sense; empty if none.
func BadWord(r *enforce.LogRecord) string {
	for i, word := range [...]string{r.Decision, r.Mode, r.State, string(r.Form)} {
		if !slices.Contains(closed[i].words, word) {
			return fmt.Sprintf("%s %q does not exist", closed[i].what, word)
		}
	}
	if !r.Reason.Valid() {
		return fmt.Sprintf("reason %q does not exist", r.Reason)
	}
	if r.Line < 0 || r.WaitMillis < 0 || r.CrawlDelay < 0 || r.DialMillis < 0 {
		return "a number is negative"
	}
	return ""
}

// badDecision compares the decision with the reason and the mode: "report" refuses for hard reasons
// only, and "off" looks at no rules. A request for robots.txt itself is answered from the record in
// every mode, and refused while the record is unknown.
func badDecision(r *enforce.LogRecord) string {
	decision, spared := enforce.OutcomeDeny, false
	switch {
	case r.Reason.Allows():
		decision = enforce.OutcomeAllow
	case r.Reason.Failure():
		decision = enforce.OutcomeError
	case r.Mode == modeReport && !r.Reason.Hard() && (r.WouldDeny || r.Reason != enforce.ReasonPending):
		decision, spared = enforce.OutcomeAllow, true
	}
	on := bases[r.Reason]
	switch {
	case r.Decision != decision || r.WouldDeny != spared,
		r.Mode == modeOff && (on == onRules || on == onTunnel || on == onState || r.Reason == enforce.ReasonException) && r.Reason != enforce.ReasonPending,
		r.Mode != modeOff && r.Reason == enforce.ReasonRobotsOff:
		return fmt.Sprintf("reason %s never leads to decision %s with would_deny %t in mode %s", r.Reason, r.Decision, r.WouldDeny, r.Mode)
	case r.Mode == modeOff && r.SHA256 != "" && on != onSelf:
		return "mode off looks at no rules, but there is a sha256"
	}
	return ""
}

// badEvidence compares the reason with the evidence that it needs.
func badEvidence(r *enforce.LogRecord) string {
	hasText, hasRule := r.SHA256 != "", r.Rule != "" || r.Line != 0
	want, byState := states[r.Reason]
	switch on := bases[r.Reason]; {
	case byState && r.State != want:
		return fmt.Sprintf("reason %s requires state %s, not %s", r.Reason, want, r.State)
	case hasText && r.State != stateRules && r.State != stateUnreachable:
		return fmt.Sprintf("there is a sha256, but state %s has no text", r.State)
	case !hasText && (r.Group != "" || hasRule || r.CrawlDelay > 0 || r.Form != ""):
		return "there is a group, a rule, a form or a Crawl-delay, but no sha256 of the text that has them"
	case !hasText && r.State == stateRules:
		return "state rules has a text, but there is no sha256"
	case !hasText && (on == onRules || on == onTunnel):
		return fmt.Sprintf("reason %s requires a text, but there is no sha256", r.Reason)
	case hasText && (on == onState || r.Reason == enforce.ReasonException || r.Reason == enforce.ReasonRobotsOff || r.Reason == enforce.ReasonIntercepted):
		return fmt.Sprintf("reason %s uses no text, but there is a sha256", r.Reason)
	case r.Reason == enforce.ReasonPreferenceDenied && r.Conflict == "", r.Conflict != "" && len(r.Purposes) == 0:
		return "there is no preference that conflicts with a purpose of the agent"
	case r.Reason == enforce.ReasonVisitTime && r.Line == 0, hasRule && r.Line == 0, // a Visit-time is for all paths
		!r.PathVisible && (hasRule && r.Reason != enforce.ReasonVisitTime || r.Form != ""):
		return "there is a rule or a form, but no line or no path that it could match"
	case on == onRules && !r.PathVisible && r.Reason != enforce.ReasonVisitTime, on == onTunnel && r.PathVisible:
		return fmt.Sprintf("reason %s is impossible with path_visible %t", r.Reason, r.PathVisible)
	case r.Reason == enforce.ReasonNoRule && r.Line != 0,
		(r.Reason == enforce.ReasonAllowedByRule || r.Reason == enforce.ReasonDisallowed) && r.Line == 0:
		return fmt.Sprintf("reason %s is impossible with line %d", r.Reason, r.Line)
	case r.Reason == enforce.ReasonDisallowed && r.Form == enforce.PathBoth, r.Reason.Allows() && r.Form == enforce.PathResolved,
		on == onSelf && r.Form != "":
		return fmt.Sprintf("reason %s is impossible with form %s", r.Reason, r.Form)
	}
	return ""
}

// beforeSending reports whether a request was refused before anything was sent.
func beforeSending(r *enforce.LogRecord) bool {
	return r.Decision == enforce.OutcomeDeny && bases[r.Reason] != onLater && r.Reason != enforce.ReasonKillSwitch
}

// ClosedLate reports whether a request was refused because a limit of the operator closed while it
// waited for its rules or its turn.
func ClosedLate(r *enforce.LogRecord) bool {
	return bases[r.Reason] == onTurn && (r.State != stateUnknown || r.WaitMillis > 0)
}

// badTimes compares the times of the steps of a request, as far as the line has them.
func badTimes(r *enforce.LogRecord, tolerance time.Duration) string {
	var before string
	var last enforce.Seconds
	for _, step := range []struct {
		what string
		at   enforce.Seconds
	}{{"decided_at", r.DecidedAt}, {"sent_at", r.SentAt}, {"the end of the request", r.EndedAt}} {
		if step.at <= 0 {
			continue
		}
		if late := last.Time().Sub(step.at.Time()); last > 0 && late > tolerance {
			return fmt.Sprintf("%s is %s after %s", before, late, step.what)
		}
		before, last = step.what, step.at
	}
	return ""
}

// badAfterwards compares the decision with the steps after it.
func badAfterwards(r *enforce.LogRecord, tolerance time.Duration) string {
	switch {
	case beforeSending(r) && (r.Address != "" || r.WaitMillis > 0 && !ClosedLate(r) || r.DialMillis > 0 || r.SentAt > 0 || r.Removed > 0 || r.PaymentRequired):
		return fmt.Sprintf("reason %s is found before anything is sent, but there is an address, a wait or a time of sending", r.Reason)
	case r.Reason == enforce.ReasonException && r.Exception == "":
		return "reason exception names no exception"
	case r.Exception != "" && r.Reason != enforce.ReasonException && r.Decision == enforce.OutcomeAllow && !r.WouldDeny:
		return fmt.Sprintf("there is an exception, but reason %s needs none", r.Reason)
	case r.ExceptionOrder != "" && (r.Exception == "" || r.ExceptionBy == "" || r.ExceptionTicket == "" || r.ExceptionUntil <= 0):
		return fmt.Sprintf("the exception of order %.64q lacks its author, its ticket or its end", r.ExceptionOrder)
	case r.ExceptionOrder != "" && r.DecidedAt >= r.ExceptionUntil:
		return fmt.Sprintf("the exception of order %.64q had ended when the request was decided, at %s", r.ExceptionOrder, r.ExceptionUntil.Time().UTC().Format(time.RFC3339))
	case r.ExceptionOrder != "" && r.Reason == enforce.ReasonException && r.SentAt.Time().Sub(r.ExceptionUntil.Time()) > tolerance:
		return fmt.Sprintf("the exception of order %.64q had ended when the request was sent, at %s", r.ExceptionOrder, r.ExceptionUntil.Time().UTC().Format(time.RFC3339))
	case r.Reason == enforce.ReasonCrawlDelay && r.CrawlDelay <= 0:
		return "reason crawl_delay needs a Crawl-delay, but the line has 0"
	}
	return ""
}
