package simulate

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/budget"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// Policy is the part of a gateway's configuration that decides about requests.
type Policy struct {
	// Clients are the ranges of clients. If empty, the default of [enforce.ClientAllowed] applies.
	Clients []netip.Prefix
	// Identifier identifies agents. Its password check is [AnyPassword], because a log has no
	// passwords.
	Identifier *enforce.Identifier
	// Operator is the operator's policy.
	Operator *enforce.Policy
	// Politeness says which Crawl-delay is refused.
	Politeness enforce.Politeness
	// Interpretation says how texts are read, and what an absent or unreachable robots.txt permits.
	Interpretation robotscache.Interpretation
	// Signals says which signals of sites are read. Signals in answers are taken as recorded.
	Signals enforce.Signals
	// AllowFor is the longest time of an exception at run time. If it is 0, no exception of the log
	// holds.
	AllowFor time.Duration
}

// AnyPassword accepts every password. It is the check of a [Policy]'s identifier.
func AnyPassword(context.Context, netip.Addr, string, string) enforce.PasswordCheck {
	return enforce.PasswordRight
}

// Config configures a simulation. All fields but Redacted are required.
type Config struct {
	Policy Policy
	Texts  audit.Texts
	// Redacted is what the filter of the log writes in place of all or part of a query. If it is
	// empty, the log has all queries.
	Redacted string
}

// Uncomputed says why a line cannot be computed. The set is closed and its spellings are stable;
// docs/simulate.md has a row for each.
type Uncomputed string

const (
	// CauseSchema is a line of an unknown schema, or an invalid one.
	CauseSchema Uncomputed = "schema"
	// CauseTime is a line that does not say when it was decided.
	CauseTime Uncomputed = "time"
	// CauseSource is a line without the address of its client.
	CauseSource Uncomputed = "source"
	// CauseUserAgent is a User-Agent that the log has changed.
	CauseUserAgent Uncomputed = "user_agent"
	// CauseCredentials is a request whose credentials or certificate are unknown and would decide
	// which agent it is.
	CauseCredentials Uncomputed = "credentials"
	// CauseURL is a URL that the log has changed.
	CauseURL Uncomputed = "url"
	// CauseQuery is a redacted query that a rule or an exception could look at.
	CauseQuery Uncomputed = "query"
	// CauseTunnel is a request inside a tunnel that would not be intercepted or not be opened, or a
	// tunnel whose content is unknown.
	CauseTunnel Uncomputed = "tunnel"
	// CauseState is a robots.txt whose access neither the line nor the history shows.
	CauseState Uncomputed = "state"
	// CauseText is a text that was not fetched then, or that the store does not have.
	CauseText Uncomputed = "text"
	// CauseGateway is a request that the gateway refused because of its own state, before it decided.
	CauseGateway Uncomputed = "gateway"
)

// Causes lists all causes, in the order of their documentation.
func Causes() []Uncomputed {
	return []Uncomputed{
		CauseSchema, CauseTime, CauseSource, CauseUserAgent, CauseCredentials, CauseURL, CauseQuery, CauseTunnel, CauseState, CauseText,
		CauseGateway,
	}
}

// Result is the result of deciding a line again.
type Result struct {
	// Cause says why the line cannot be computed. It is empty if it can.
	Cause Uncomputed
	// Old is the decision of the line, New the one by the other policy. If a later step decided the
	// line, such as the pace of the host, and the other policy lets the request reach that step too,
	// New is the decision of the line.
	Old, New Verdict
	// Differs means that New has another decision, reason, rule or agent than Old.
	Differs bool
	// AsRecorded means that no more can be computed: New is taken from the line, or what a robots.txt
	// without a text permits is, or what an unread answer says.
	AsRecorded bool
}

// Simulator decides lines. It must not be used by several goroutines at once.
type Simulator struct {
	cfg          Config
	enforcer     *enforce.Enforcer
	lookup       *lookup
	credentials  bool                         // some agent has credentials
	certificates bool                         // some agent has certificates
	budgets      map[string]*budget.Allowance // by agent
	tallies      map[string]*tally            // the same
}

// New makes a Simulator.
func New(cfg Config) *Simulator {
	s := &Simulator{cfg: cfg, tallies: make(map[string]*tally), budgets: make(map[string]*budget.Allowance), lookup: &lookup{cfg: cfg, entries: make(map[known]kept)}}
	s.enforcer = &enforce.Enforcer{
		Rules: s.lookup, Files: s.lookup, Now: func() time.Time { return s.lookup.at },
		Policy: cfg.Policy.Operator, Reads: cfg.Policy.Signals, AllowFor: cfg.Policy.AllowFor,
	}
	for _, a := range cfg.Policy.Identifier.Agents() {
		if a.Budget != nil {
			s.budgets[a.Name] = a.Budget
		}
		s.credentials = s.credentials || len(a.Credentials) > 0
		s.certificates = s.certificates || len(a.ClientCertificates) > 0
	}
	return s
}

// Decide decides a line that has a Robots object. An error comes from the texts or from ctx.
func (s *Simulator) Decide(ctx context.Context, l *audit.Line) (Result, error) {
	r := l.Robots
	switch {
	case r.Schema != enforce.SchemaVersion || audit.BadWord(r) != "":
		return Result{Cause: CauseSchema}, nil
	case r.DecidedAt <= 0:
		return Result{Cause: CauseTime}, nil
	case slices.Contains(ownReasons, r.Reason):
		return Result{Cause: CauseGateway}, nil
	}
	source, err := netip.ParseAddr(l.Client())
	if err != nil {
		return Result{Cause: CauseSource}, nil
	}
	if !enforce.ClientAllowed(s.cfg.Policy.Clients, source) {
		return compared(l, enforce.Decision{}.Refuse(enforce.ReasonClientNotAllowed, source.String()+" is in no range of clients", 0)), nil
	}
	if slices.Contains(formReasons, r.Reason) && r.Form == "" {
		return asRecorded(r), nil // every policy refuses it
	}
	senders, cause := s.senders(l, source)
	if cause != "" {
		return Result{Cause: cause}, nil
	}
	var result Result
	var spent *budget.SpentError
	for i, sender := range senders {
		d, cause, err := s.decide(ctx, l, sender)
		if err != nil || cause != "" {
			return Result{Cause: cause}, err
		}
		if i == 0 {
			spent = s.spend(l, &d)
		}
		if spent != nil && d.Allowed {
			d = d.RefuseSlot(ctx, spent)
		}
		next := s.after(l, d)
		if i > 0 && next.New.differs(result.New) {
			return Result{Cause: CauseCredentials}, nil
		}
		result = next
	}
	return result, nil
}

// ownReasons refuse a request because of the gateway's own state, before it is decided.
var ownReasons = []enforce.Reason{enforce.ReasonNotReady, enforce.ReasonAgentLimit, enforce.ReasonCredentialsBusy}

// formReasons refuse a malformed request. The rules can give ReasonBadTarget too; the line then has
// a form of the path.
var formReasons = []enforce.Reason{
	enforce.ReasonBadTarget, enforce.ReasonBadRequest, enforce.ReasonURLSize, enforce.ReasonMisdirected,
}

// decide takes the steps of a gateway up to pacing.
func (s *Simulator) decide(ctx context.Context, l *audit.Line, sender enforce.Sender) (d enforce.Decision, cause Uncomputed, err error) {
	s.lookup.begin(l)
	s.enforcer.Stops = ordersThen(l.Robots)
	if l.Tunnel() {
		d, cause = s.connect(ctx, l, sender)
	} else {
		d, cause = s.request(ctx, l, sender)
	}
	if err = s.lookup.err; err != nil || cause != "" {
		return d, cause, err
	}
	if s.lookup.cause != "" {
		return d, s.lookup.cause, nil
	}
	if d.Paced() && d.Reason != enforce.ReasonIntercepted {
		if _, err := s.cfg.Policy.Politeness.Request(d, func() netip.Addr { return netip.Addr{} }); err != nil {
			d = d.RefuseSlot(ctx, err)
		}
	}
	return d, "", nil
}

// request decides a request in absolute form, or one inside a tunnel.
func (s *Simulator) request(ctx context.Context, l *audit.Line, sender enforce.Sender) (enforce.Decision, Uncomputed) {
	if strings.ContainsRune(l.Request.URI, '\uFFFD') {
		return enforce.Decision{}, CauseURL
	}
	target, err := origin.ParseTarget(l.Request.URI)
	if err != nil {
		return enforce.Decision{}.Refuse(enforce.ReasonBadTarget, err.Error(), 0), ""
	}
	var id enforce.Identity
	if !l.InTunnel() {
		id = s.cfg.Policy.Identifier.Identify(ctx, sender)
		if reason, _, _ := id.Refused(); reason == enforce.ReasonCredentialsMissing && l.Robots.Reason == enforce.ReasonUnidentified {
			return enforce.Decision{}, CauseTunnel // plain HTTP inside a tunnel needs no credentials
		}
	} else {
		auth := s.cfg.Policy.Identifier.AuthenticateTunnel(ctx, sender)
		if _, _, refused := auth.Refused(); refused || s.cfg.Policy.Operator.Connect(target.Origin) != enforce.ConnectIntercept {
			return enforce.Decision{}, CauseTunnel
		}
		id = s.cfg.Policy.Identifier.Inner(auth, sender.UserAgent)
	}
	before, query, hasQuery := strings.Cut(target.Path, "?")
	redacted := hasQuery && s.cfg.Redacted != "" && strings.Contains(query, s.cfg.Redacted)
	if redacted {
		target.Path = before + "?"
	}
	d := s.enforcer.Decide(ctx, enforce.Request{Method: l.Request.Method, Target: target, Identity: id})
	if matters := s.lookup.queryMatters; redacted && matters != nil && matters(before) {
		return d, CauseQuery
	}
	return d, ""
}

func (s *Simulator) connect(ctx context.Context, l *audit.Line, sender enforce.Sender) (enforce.Decision, Uncomputed) {
	o, err := origin.FromAuthority("https", l.Request.URI)
	if err != nil {
		return enforce.Decision{}.Refuse(enforce.ReasonBadTarget, err.Error(), 0), ""
	}
	id := s.cfg.Policy.Identifier
	if s.cfg.Policy.Operator.Connect(o) == enforce.ConnectIntercept {
		return s.enforcer.DecideIntercept(id.AuthenticateTunnel(ctx, sender), o), ""
	}
	const httpPort, httpsPort = 80, 443
	identity, intercepted := id.Opaque(ctx, sender), l.Robots.Reason == enforce.ReasonIntercepted
	plain := intercepted && l.Robots.Detail == enforce.DetailPlain && o.Port != httpsPort
	if plain || o.Port == httpPort {
		d := s.enforcer.DecideOpening(identity, o)
		switch {
		case plain && (d.Allowed || d.MayBePlain()):
			return s.enforcer.DecidePlain(identity, o), ""
		case !d.Allowed:
			return d, ""
		case intercepted: // TLS came, or nothing
			return d, CauseTunnel
		}
	}
	return s.enforcer.DecideTunnel(ctx, identity, o), ""
}

// after compares a decision with the line's. If a later step decided the line, and the request
// would still reach that step, the line's decision stands.
func (s *Simulator) after(l *audit.Line, d enforce.Decision) Result {
	r := l.Robots
	switch {
	case !d.Allowed && d.Reason == enforce.ReasonInternal && s.lookup.failedThen:
		return asRecorded(r) // the rules were unavailable then, too
	case r.Reason == enforce.ReasonKillSwitch && r.State == fetch.StateUnknown.String():
		// Only the sender is checked before orders. Orders are not part of a policy.
		if d.Allowed || !slices.Contains(senderReasons, d.Reason) {
			return asRecorded(r)
		}
	case d.Allowed && !judged(r) && !s.freed(r, &d):
		return asRecorded(r)
	}
	d, known := recalled(l, d)
	if !known && r.RefusedByAnswer() {
		return asRecorded(r)
	}
	result := compared(l, d)
	result.AsRecorded = s.lookup.asRecorded || !known
	return result
}

// recalled repeats the step after the answer, if there was one: the line has what the answer's
// fields and tags said, if they were read.
func recalled(l *audit.Line, d enforce.Decision) (again enforce.Decision, known bool) {
	if r := l.Robots; r.RefusedByAnswer() && !r.WouldDeny || r.Decision == enforce.OutcomeAllow && enforce.HasContent(int(l.Status)) {
		return d.Recall(r)
	}
	return d, true
}

var senderReasons = []enforce.Reason{
	enforce.ReasonUnidentified, enforce.ReasonCredentialsMissing, enforce.ReasonCredentialsWrong, enforce.ReasonAgentMismatch,
	enforce.ReasonUserAgentConflict, enforce.ReasonAmbiguousAgent, enforce.ReasonClientNotAllowed,
}

// policyReasons are the reasons for which [Simulator.decide] refuses.
var policyReasons = append([]enforce.Reason{
	enforce.ReasonDisallowed, enforce.ReasonUnreachable, enforce.ReasonRobotsForbidden, enforce.ReasonTunnelRestricted,
	enforce.ReasonConnectDenied, enforce.ReasonOperatorDeny, enforce.ReasonMethod, enforce.ReasonCrawlDelay, enforce.ReasonPending,
	enforce.ReasonPreferenceDenied, enforce.ReasonVisitTime,
	enforce.ReasonAgentHost, enforce.ReasonAgentPort, enforce.ReasonAgentMethod, enforce.ReasonAgentExpired, enforce.ReasonWindow,
}, senderReasons...)

// judged reports whether a line was decided by the steps that are simulated.
func judged(r *enforce.LogRecord) bool {
	return r.Reason.Allows() || slices.Contains(policyReasons, r.Reason) && !audit.ClosedLate(r) || r.Reason == enforce.ReasonBadTarget && r.Form != ""
}

func compared(l *audit.Line, d enforce.Decision) Result {
	if id := l.Robots.ExceptionOrder; id != "" && strings.HasPrefix(d.Exception, "order "+id+",") {
		d.Exception = l.Robots.Exception // which says more of the order than the line does
	}
	n := enforce.Decision{ // only the fields that are compared
		Allowed: d.Allowed, Reason: d.Reason, WouldDeny: d.WouldDeny, Agent: d.Agent,
		Group: d.Group, Rule: d.Rule, Line: d.Line, Form: d.Form, Exception: d.Exception,
	}.Record()
	r := Result{Old: outcomeOf(l.Robots), New: outcomeOf(&n)}
	r.Differs = r.Old.differs(r.New)
	return r
}

// ordersThen has the exception at run time by which the request of a line passed: it was in force,
// and covered the request.
func ordersThen(r *enforce.LogRecord) *enforce.Stops {
	o, err := origin.Parse(r.Origin)
	if r.ExceptionOrder == "" || err != nil {
		return nil
	}
	orders := new(enforce.Stops)
	_ = orders.Set(enforce.Stop{ // a line that is malformed has none
		ID: r.ExceptionOrder, Scope: enforce.StopAllow, Value: r.Agent + "@" + o.Host,
		By: r.ExceptionBy, Ticket: r.ExceptionTicket, At: r.DecidedAt.Time(), Until: r.ExceptionUntil.Time(),
	})
	return orders
}

func asRecorded(r *enforce.LogRecord) Result {
	o := outcomeOf(r)
	return Result{Old: o, New: o, AsRecorded: true}
}
