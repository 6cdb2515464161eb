package enforce

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
)

// Reason says why a request was allowed, refused, or failed. The set is closed and its spellings
// are stable: logs, metrics, problem types and documentation are scripted against them. The zero
// value, of a decision that was never made, is not part of the set and counts as [ReasonInternal].
type Reason string

// Reasons to allow.
const (
	ReasonAllowedByRule Reason = "allowed_by_rule"   // an allow rule matched
	ReasonNoRule        Reason = "no_rule"           // no rule matched (RFC 9309 section 2.2.2)
	ReasonRobotsTxt     Reason = "robots_txt_itself" // /robots.txt itself (section 2.2.2)
	ReasonAbsent        Reason = "absent"            // no robots.txt (section 2.3.1.3)
	// ReasonUnreachableExpired means that robots.txt was unreachable for so long that it counts as
	// absent (section 2.3.1.4).
	ReasonUnreachableExpired Reason = "unreachable_expired"
	ReasonUnrestricted       Reason = "unrestricted" // the site allows the agent everything
	ReasonIntercepted        Reason = "intercepted"  // each request inside is decided
	ReasonException          Reason = "exception"    // an exception that the operator made
	ReasonRobotsOff          Reason = "robots_off"   // ModeOff: no rules were consulted
)

// Reasons to refuse.
const (
	ReasonDisallowed Reason = "disallowed" // a disallow rule matched
	// ReasonPreferenceDenied means that the site does not want its content used for a purpose of the
	// agent.
	ReasonPreferenceDenied Reason = "preference_denied"
	// ReasonUnreachable means that robots.txt is unreachable, which disallows everything (RFC 9309
	// section 2.3.1.4).
	ReasonUnreachable Reason = "unreachable"
	// ReasonRobotsForbidden means that the site answers 401 or 403 for its robots.txt, and the
	// operator treats that as disallowing everything (forbidden disallow).
	ReasonRobotsForbidden Reason = "robots_forbidden"
	ReasonPending         Reason = "pending" // the first fetch was not complete in time
	// ReasonTunnelRestricted is for a tunnel, which hides paths, to a site that disallows some of
	// them.
	ReasonTunnelRestricted Reason = "tunnel_restricted"
	ReasonConnectDenied    Reason = "connect_denied" // the operator allows no tunnel there
	ReasonKillSwitch       Reason = "kill_switch"    // a stop
	ReasonOperatorDeny     Reason = "operator_deny"  // the operator's deny list
	ReasonAgentHost        Reason = "agent_host"     // a host that is not one of the agent's
	ReasonAgentPort        Reason = "agent_port"     // a port that is not one of the agent's
	ReasonAgentMethod      Reason = "agent_method"   // a method that is not one of the agent's
	ReasonAgentExpired     Reason = "agent_expired"  // the agent may no longer send anything
	ReasonWindow           Reason = "window"         // not one of the agent's hours
	// ReasonVisitTime means that the site wants visits at other hours, and the agent respects that.
	ReasonVisitTime        Reason = "visit_time"
	ReasonClientNotAllowed Reason = "client_not_allowed" // the client's address is not allowed
	ReasonUnidentified     Reason = "unidentified"       // the request matches no agent
	// ReasonCredentialsMissing means that the request matches no agent, and has no proxy credentials.
	ReasonCredentialsMissing Reason = "credentials_missing"
	ReasonCredentialsWrong   Reason = "credentials_wrong" // wrong or unreadable proxy credentials
	// ReasonAgentMismatch means that credentials or User-Agent name an agent whose other conditions
	// are not met.
	ReasonAgentMismatch     Reason = "agent_mismatch"
	ReasonUserAgentConflict Reason = "user_agent_conflict" // an agent with the User-Agent of another
	ReasonAmbiguousAgent    Reason = "ambiguous_agent"     // several agents match equally well
	ReasonForbiddenAddress  Reason = "forbidden_address"   // an address that must not be reached
	ReasonForbiddenPort     Reason = "forbidden_port"      // a port that must not be reached
	ReasonOwnListener       Reason = "own_listener"        // a listener of the gateway's process
	ReasonBadTarget         Reason = "bad_target"          // a target that is not understood
	ReasonMethod            Reason = "method"              // it would change an ftp resource
	// ReasonBadRequest is for a request that two servers could understand differently: it has a field
	// twice that may appear once, or a method that is not a token (RFC 9110 sections 5.3 and 9.1).
	ReasonBadRequest  Reason = "bad_request"
	ReasonURLSize     Reason = "url_size"     // the URL is longer than the gateway accepts
	ReasonMisdirected Reason = "misdirected"  // for another host than the tunnel's
	ReasonRateLimited Reason = "rate_limited" // the slot comes too late for the request
	ReasonConcurrency Reason = "concurrency"  // too many open requests to the host
	ReasonQueueFull   Reason = "queue_full"   // too many requests wait for the host
	ReasonOverloaded  Reason = "overloaded"   // too many requests wait, or too many clocks run
	ReasonBackoff     Reason = "backoff"      // the host asked for a pause (429, 430, 503)
	ReasonCrawlDelay  Reason = "crawl_delay"  // longer than the operator accepts
	ReasonBudget      Reason = "budget"       // the agent has used up its budget for the day
)

// Reasons of failure. The reasons of failed sending are spelled like the kinds of package egress.
// Only those that code refers to have a constant here; reasons.json has all of them.
const (
	ReasonCanceled        Reason = "canceled"         // the client left before the answer
	ReasonCredentialsBusy Reason = "credentials_busy" // too many passwords wait to be checked
	ReasonNotReady        Reason = "not_ready"        // store, orders or clocks are not open
	ReasonAgentLimit      Reason = "agent_limit"      // too many requests or tunnels of one agent
	// ReasonEvidenceUnavailable means that the access log cannot be written or sealed, and the
	// operator has chosen to refuse requests then (on_failure refuse).
	ReasonEvidenceUnavailable Reason = "evidence_unavailable"
	ReasonLogUnavailable      Reason = "log_unavailable" // the access log accepts no lines
	ReasonInternal            Reason = "internal"        // a fault of the gateway
)

// StatusClientClosedRequest is the status, never sent, that the access log shows for a client that
// left. Caddy and nginx use it too.
const StatusClientClosedRequest = 499

// effect is what a reason does to a request.
type effect string

const (
	denies effect = "denies" // in every mode
	spares effect = "spares" // denies, unless the mode is ModeReport or ModeOff
	allows effect = "allows"
	fails  effect = "fails" // a failure, not a decision by rules; it denies in every mode
)

// ReasonInfo describes everything that depends only on a reason.
type ReasonInfo struct {
	Reason Reason `json:"reason"`
	Effect effect `json:"effect"`
	// Status is the HTTP status of a refusal, 200 for a reason to allow and
	// [StatusClientClosedRequest] for a client that left.
	Status int `json:"status"`
	// ProxyError is the error type of RFC 9209 section 2.3, empty for a reason to allow.
	ProxyError string `json:"proxy_error"`
	// RetryAfter is the number of seconds after which to retry, unless the refusal has a better time.
	// It is for causes that end by themselves at an unknown time. It is zero if the cause stays.
	RetryAfter int64 `json:"retry_after_s"`
	// Recorded says that the reason follows from the site's robots.txt, and is valid as long as that
	// file is used.
	Recorded bool `json:"recorded"`
	// Title is the title of the problem (RFC 9457 section 3.1.3): a short sentence.
	Title string `json:"title"`
	// Private says that only the log may show the detail. The detail may be an error of the network or
	// the system, which names internal addresses, hosts and files. An origin's TLS alerts and
	// certificate faults are not private.
	Private bool `json:"private"`
	// Summary describes the refusal in one line: see [Decision.summary].
	Summary string `json:"summary"`
	// Hint tells the person behind the crawler what to do. It may be empty.
	Hint string `json:"hint"`
}

// reasonsJSON is the table of reasons, in groups. A group's fields apply to its reasons, unless a
// reason overrides them. To add a reason, add its constant, its row there, its golden file (go test
// -run Golden -update), its page (go test . -run TestProblemPages -update).
//
//go:embed reasons.json
var reasonsJSON []byte

var reasonTable, reasonOrder = readReasons()

func readReasons() (table map[Reason]*ReasonInfo, order []Reason) {
	var groups []struct {
		ReasonInfo
		Reasons []json.RawMessage `json:"reasons"`
	}
	err := json.Unmarshal(reasonsJSON, &groups)
	table = make(map[Reason]*ReasonInfo)
	for _, g := range groups {
		for _, raw := range g.Reasons {
			row := g.ReasonInfo
			err = errors.Join(err, json.Unmarshal(raw, &row))
			table[row.Reason] = &row
			order = append(order, row.Reason)
		}
	}
	if err != nil {
		panic(err) // the file is part of the program
	}
	return table, order
}

// Info returns the properties of r. A reason outside the set counts as [ReasonInternal].
func (r Reason) Info() ReasonInfo { return *cmp.Or(reasonTable[r], reasonTable[ReasonInternal]) }

// Reasons returns the whole set, in the order of its documentation: reasons to allow, to refuse, of
// failure.
func Reasons() []Reason { return slices.Clone(reasonOrder) }

// Valid reports whether r is in the set.
func (r Reason) Valid() bool {
	_, ok := reasonTable[r]
	return ok
}

// Allows reports whether r is a reason to let a request pass.
func (r Reason) Allows() bool { return r.Info().Effect == allows }

// Failure reports whether r is a failure and not a decision.
func (r Reason) Failure() bool { return r.Info().Effect == fails }

// Hard reports whether r refuses in every [Mode].
func (r Reason) Hard() bool { return r.Info().Effect != spares && !r.Allows() }

// RetryAfter is how long to wait if a refusal does not say. It is zero if waiting does not help.
func (r Reason) RetryAfter() time.Duration { return time.Duration(r.Info().RetryAfter) * time.Second }

// Slug is the last part of the problem type (RFC 9457 section 3.1.1), stable, in lower-case letters
// and hyphens.
func (r Reason) Slug() string {
	return strings.ReplaceAll(string(r.Info().Reason), "_", "-")
}
