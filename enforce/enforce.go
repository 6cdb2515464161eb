package enforce

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/pace"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// Lookup finds the entry of an origin's robots.txt for a crawler. It may wait for a fetch, no
// longer than ctx allows. Its errors are [robotscache.ErrPending], a [*robotscache.ForbiddenError],
// the error of ctx, and faults of the gateway. A site that does not answer has an entry too.
type Lookup interface {
	Lookup(ctx context.Context, o origin.Origin, a robotscache.Asker) (*robotscache.Entry, robotscache.Source, error)
}

// Asker returns the agent in whose name a site is asked for its robots.txt if it refuses the
// gateway's own request. It is the sender's, unless the sender was refused or has no product token.
func (i Identity) Asker() robotscache.Asker {
	switch {
	case !i.accepted || len(i.Robots.Tokens) == 0:
		return robotscache.Asker{}
	case i.Config != nil:
		return robotscache.Asker{Token: i.Config.sends, Configured: true}
	}
	return robotscache.Asker{Token: i.Robots.Tokens[0]}
}

// Enforcer decides. It is safe for concurrent use, if its fields are not changed after its first
// use. The zero value refuses everything.
type Enforcer struct {
	// Rules finds the rules of origins. Without it every request that needs rules is refused.
	Rules Lookup
	// Policy is the policy of the operator. nil means the zero Policy.
	Policy *Policy
	// Reads says which of the site's signals are read.
	Reads Signals
	// Files finds the sites' TDM files if Reads has them; nil reads none.
	Files TDMFiles
	// Stops are the stops in force; nil stops nothing.
	Stops *Stops
	// AllowFor is the longest time of an exception at run time. 0 permits none.
	AllowFor time.Duration
	// Now is the clock; default time.Now.
	Now func() time.Time
}

func (e *Enforcer) policy() *Policy { return cmp.Or(e.Policy, &zeroPolicy) }

var zeroPolicy Policy

// Request is a request to decide.
type Request struct {
	// Method is the HTTP method. An empty method counts as one that may change the resource.
	Method   string
	Target   origin.Target
	Identity Identity
}

// Decide decides a request whose path is visible. This is the order of all steps: the sender's
// identity (for robots.txt itself only its credentials), stops, operator's deny list, the agent's
// boundaries, robots.txt itself, the method (of ftp), mode off, exceptions, rules, Visit-time.
// Pacing follows and is up to the caller, see [Decision.Paced].
//
// ModeReport records a refusal and continues, so that the evidence and the Crawl-delay are
// complete. The first refusal is kept. Decide never fails: a failure is a Decision that denies.
func (e *Enforcer) Decide(ctx context.Context, r Request) Decision {
	robotsTxt := FetchesRobotsTxt(r.Method, r.Target.Path)
	d, decided := e.start(r.Identity, r.Target.Origin, r.Method, robotsTxt)
	d.PathVisible = true
	if decided {
		return d
	}
	if robotsTxt {
		d.unpaced = true
		d.allow(ReasonRobotsTxt)
		return d
	}
	if r.Target.Origin.Scheme == "ftp" && !isRead(r.Method) {
		d.deny(ReasonMethod, "")
		return d
	}
	if e.exempted(&d, r.Target.Path) {
		return d
	}
	bound, ok := e.bound(ctx, &d, r.Identity)
	if !ok {
		e.prefer(ctx, &d, bound, r.Target.Path)
		return d
	}
	m, form, judged := bound.Match(r.Method, r.Target.Path, e.policy().paths)
	d.Group, d.Rule, d.Line, d.Form, d.Judged, d.matched = m.Group, m.Rule, m.Line, form, judged, r.Target.Path
	switch {
	case !m.Allowed && m.Line == 0 && form == PathResolved:
		d.deny(ReasonBadTarget, "servers could resolve its path to too many others")
	case !m.Allowed && m.Line == 0:
		d.deny(ReasonInternal, "the rules give no answer")
	case !m.Allowed:
		d.deny(ReasonDisallowed, "")
	case m.Line > 0:
		d.allow(ReasonAllowedByRule)
	default:
		d.allow(ReasonNoRule)
	}
	e.prefer(ctx, &d, bound, r.Target.Path)
	if r.Identity.Config.keepsVisitTime() {
		d.visit(bound)
	}
	d.quote(bound)
	return d
}

// begin returns a decision with the facts that are known at the start.
func (e *Enforcer) begin(id Identity, o origin.Origin) Decision {
	d := Decision{
		At: e.clock(), Mode: e.policy().Mode(o, id.Config), Agent: id.Agent, Tokens: id.Robots.Tokens,
		IdentifiedBy: id.IdentifiedBy, UserAgent: id.UserAgent, Origin: o, reads: e.Reads,
	}
	d.reads.TDMFile = false // it is not read for every request
	if c := id.Config; c != nil {
		d.Owner, d.Contact, d.interval, d.maxWait = c.Owner, c.Contact, c.Interval, c.MaxWait
		d.Purposes, d.AlsoObey = c.Purposes, c.AlsoObey
		d.preferMode, d.denyUnknown = c.Preferences, c.DenyUnknown
	}
	return d
}

// start takes the steps before the rules that apply in every mode, and reports whether they
// decided. A request for robots.txt is refused only because of credentials: robots.txt libraries
// send their own User-Agent, and treat a 403 as "everything is disallowed". The method is as in
// [Agent.beyond].
func (e *Enforcer) start(id Identity, o origin.Origin, method string, robotsTxt bool) (d Decision, decided bool) {
	d = e.begin(id, o)
	if o.IsZero() {
		d.deny(ReasonBadTarget, "")
		return d, true
	}
	reason, detail, refused := id.Refused()
	if refused && (!robotsTxt || reason.Info().Status != http.StatusForbidden) {
		d.deny(reason, detail)
		if !d.Allowed {
			return d, true
		}
	}
	if order, stopped := e.Stops.Match(o, id.StopName()); stopped {
		d.deny(ReasonKillSwitch, order.detail())
		return d, true
	}
	if pattern, denied := e.policy().Denied(o); denied {
		d.deny(ReasonOperatorDeny, "deny "+pattern.String())
		return d, true
	}
	if c := id.Config; c != nil && c.limited {
		return d, d.refuseBeyond(c.beyond(o, method, d.At))
	}
	return d, false
}

// Beyond returns an error if a request or tunnel that was allowed is now outside a boundary of its
// agent, or to a host that the operator denies. The agent may be nil. The method is CONNECT for a
// blind tunnel. The error is for [Decision.RefuseSlot].
func (e *Enforcer) Beyond(a *Agent, o origin.Origin, method string) error {
	if pattern, denied := e.policy().Denied(o); denied {
		return &refusal{reason: ReasonOperatorDeny, detail: "deny " + pattern.String()}
	}
	if a == nil || !a.limited {
		return nil
	}
	if r := a.beyond(o, method, e.clock()); r.reason != "" {
		return new(r)
	}
	return nil
}

// StillExempt returns an error if an exception let a request for the path pass, and none does any
// more: the time of an order may be over, or somebody lifted it. The rules decide the next try. The
// error is for [Decision.RefuseSlot].
func (e *Enforcer) StillExempt(d *Decision, path string) error {
	if d.Reason != ReasonException {
		return nil
	}
	if again := *d; !e.exempted(&again, path) {
		return &refusal{reason: ReasonRateLimited, detail: "the exception ended while the request was held", wait: time.Second}
	}
	return nil
}

// exempted takes the steps by which the operator lets a request pass without rules, and reports
// whether they decided.
func (e *Enforcer) exempted(d *Decision, path string) bool {
	if d.Mode == ModeOff {
		d.allow(ReasonRobotsOff)
		return true
	}
	now := e.clock()
	label, ok := e.policy().Exempt(d.Origin, path, d.Agent, now)
	if !ok {
		if order, given := e.Stops.Exempt(d.Origin, path, d.Agent, now, e.AllowFor); given {
			kept := order // so that a decision without an exception allocates nothing
			label, d.order, ok = kept.label(), &kept, true
		}
	}
	if ok {
		d.Exception = label
		d.allow(ReasonException)
	}
	return ok
}

// keepsVisitTime reports whether the agent keeps the Visit-time lines of sites.
func (a *Agent) keepsVisitTime() bool { return a != nil && a.VisitTime == "keep" }

// bound looks up the origin's entry, and finds the groups that bind the sender and its Crawl-delay.
// It reports false if the decision does not depend on rules; then d is decided.
func (e *Enforcer) bound(ctx context.Context, d *Decision, id Identity) (Bound, bool) {
	if e.Rules == nil {
		d.deny(ReasonInternal, "no robots.txt source is configured")
		return Bound{}, false
	}
	entry, source, now, err := e.Lookup(ctx, d.Origin, id)
	if err != nil {
		d.Source = source
		d.deny(LookupFailure(ctx, err))
		return Bound{}, false
	}
	v := entry.View(now)
	d.NoteView(v, source, now)
	switch v.Access {
	case fetch.AccessRules, fetch.AccessLastGood:
		b := Bind(v.Rules, id.Robots, d.AlsoObey)
		b.text = v.Body
		d.CrawlDelay, _ = b.Own.CrawlDelay()
		return b, true
	case fetch.AccessAllow:
		if v.State == fetch.StateAbsent {
			d.allow(ReasonAbsent)
		} else {
			d.allow(ReasonUnreachableExpired)
		}
	case fetch.AccessDeny:
		fallthrough
	default:
		d.noAccess(v, now)
	}
	return Bound{}, false
}

// NoteView records the state of the robots.txt at the time now.
func (d *Decision) NoteView(v robotscache.View, source robotscache.Source, now time.Time) {
	d.At, d.Source, d.State, d.Cause, d.SHA256 = now, source, v.State, v.Cause, v.SHA256
	d.FetchedAs, d.FetchedAt, d.FreshUntil = v.Agent, v.FetchedAt, v.FreshUntil
	if !v.FetchedAt.IsZero() {
		d.Age = max(now.Sub(v.FetchedAt), 0)
	}
}

// Lookup looks up the origin's entry for a sender. If the entry expired in the meantime, Lookup
// asks once more, because an expired entry would refuse what the site allows. The returned time is
// one at which the entry was valid. The errors are those of [Enforcer.Rules], which must not be
// nil.
func (e *Enforcer) Lookup(
	ctx context.Context, o origin.Origin, id Identity,
) (entry *robotscache.Entry, source robotscache.Source, now time.Time, err error) {
	for range 2 {
		entry, source, err = e.Rules.Lookup(ctx, o, id.Asker())
		if now = e.clock(); err != nil || entry.Fresh(now) {
			break
		}
	}
	return entry, source, now, err
}

func (e *Enforcer) clock() time.Time {
	if e.Now == nil {
		return time.Now()
	}
	return e.Now()
}

// MatchPath matches the rules of a group against a path and query, and says which form of it
// decided. judged is the resolved form that is disallowed, if there is one. If all forms are
// allowed, the match is for the bytes as sent. A path with too many forms is refused: its form is
// PathResolved, and the line is 0.
func MatchPath(
	g robotstxt.Group, method, path string, paths Paths,
) (m robotstxt.Match, form PathForm, judged string) {
	match := g.MatchRules
	if isRead(method) {
		match = g.Match
	}
	m = match(path)
	resolved, ok := origin.Resolve(path)
	switch {
	case ok && len(resolved) == 0:
		return m, "", ""
	case !m.Allowed || paths == PathsAsSent:
		return m, PathAsSent, ""
	case !ok:
		return robotstxt.Match{}, PathResolved, ""
	}
	for _, judged := range resolved {
		if r := match(judged); !r.Allowed {
			return r, PathResolved, judged
		}
	}
	return m, PathBoth, ""
}

// FetchesRobotsTxt reports whether a request for a path and query reads robots.txt itself, which is
// always allowed. RFC 9309 section 2.2.2 exempts the URI /robots.txt, in exactly these bytes. With
// a query it is another URI, and the rules decide about one with an encoded letter, as well as
// about a request that could change the file.
func FetchesRobotsTxt(method, path string) bool { return path == "/robots.txt" && isRead(method) }

// isRead reports whether the method only reads the resource.
func isRead(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// DefaultMaxCrawlDelay is the longest Crawl-delay that is kept if the operator sets no other.
const DefaultMaxCrawlDelay = 30 * time.Second

// Politeness is the operator's configuration of when an allowed request may go. The zero value
// paces nothing and holds no request.
type Politeness struct {
	// Interval, Burst and Concurrency apply to each clock, see [pace.Limit].
	Interval    time.Duration
	Burst       int
	Concurrency int
	// CrawlDelay says how to treat a site's Crawl-delay.
	CrawlDelay pace.CrawlDelay
	// Wait is the longest time that a request may be held, unless its agent sets another. Zero or
	// less: not at all.
	Wait time.Duration
	// Per names the clocks of a host, at least one. If the host asks for a pause, the first one is
	// blocked.
	Per []pace.Scope
}

// Request returns the slot that a request needs: it combines the operator's limits, the site's
// Crawl-delay and the agent's interval. address resolves the origin's host, and is called once for
// each [pace.PerAddress]. If the address is not valid, the host's clock replaces it. The error is
// for [Decision.RefuseSlot].
func (p Politeness) Request(d Decision, address func() netip.Addr) (pace.Request, error) {
	delay, ok := p.CrawlDelay.Apply(d.CrawlDelay)
	if !ok {
		detail := fmt.Sprintf("Crawl-delay %s is above the limit of %s", brief(d.CrawlDelay), brief(p.CrawlDelay.Max))
		return pace.Request{}, &refusal{reason: ReasonCrawlDelay, detail: detail}
	}
	limit := pace.Limit{Interval: p.Interval, Burst: p.Burst, Delay: delay, Concurrency: p.Concurrency}
	request := pace.Request{Agent: d.Agent, MaxWait: *cmp.Or(d.maxWait, &p.Wait)}
	if request.MaxWait <= 0 {
		request.MaxWait = -1 // zero would mean the pacer's default
	}
	for i, scope := range p.Per {
		var addr netip.Addr
		if scope == pace.PerAddress {
			addr = address()
		}
		limit.Key = scope.Key(d.Origin.Host, addr)
		if i == 0 {
			request.Limit = limit
		} else {
			request.Also = append(request.Also, limit)
		}
	}
	if d.interval > 0 {
		key := pace.AgentKey(d.Agent, d.Origin.Host)
		request.Also = append(request.Also, pace.Limit{Key: key, Interval: d.interval, Burst: 1})
	}
	return request, nil
}

// AsksForPause reports whether an answer asks for a pause, and how long. The pause is zero if the
// answer does not say.
func AsksForPause(status int, header http.Header, now time.Time) (pause time.Duration, asked bool) {
	if !fetch.IsThrottle(status) && status != http.StatusServiceUnavailable {
		return 0, false
	}
	return fetch.ParseRetryAfter(header.Get("Retry-After"), now), true
}
