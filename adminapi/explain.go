package adminapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/budget"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotstxt"
	"github.com/crawlgate/crawlgate/signals/preferences"
)

// Explain decides a request like the site, but does not send it. The agent is the one in the
// parameter. It fetches an unknown robots.txt, as for a crawler.
func Explain(ctx context.Context, e *engine.Engine, request ExplainRequest) (Explanation, error) {
	return explain(ctx, e, request, e, e)
}

// ExplainKnown is Explain without a fetch. If the decision needs a fetch, it returns an error.
func ExplainKnown(ctx context.Context, e *engine.Engine, request ExplainRequest) (Explanation, error) {
	known := newKnownRules(e)
	x, err := explain(ctx, e, request, known, known)
	if err == nil && (known.needsFile || x.Robots.Reason == enforce.ReasonPending) {
		return x, fault(http.StatusNotFound, "too little is known about %s to decide: its files must be fetched first", x.Robots.Origin)
	}
	return x, err
}

// explain decides with the given sources of rules and TDM files.
func explain(
	ctx context.Context, e *engine.Engine, request ExplainRequest, rules enforce.Lookup, files enforce.TDMFiles,
) (x Explanation, err error) {
	site, err := siteAt(e, request.Site)
	if err != nil {
		return x, err
	}
	identity, err := identityOf(site.Identifier, request.Agent)
	if err != nil {
		return x, err
	}
	target, err := ParseTarget(request.URL)
	if err != nil {
		return x, err
	}
	enforcer := *site.Enforcer
	enforcer.Rules, enforcer.Files = rules, files
	d := enforcer.Decide(ctx, enforce.Request{Method: http.MethodGet, Target: target, Identity: identity})
	var left *BudgetLeft
	if b, ok := e.Budget(identity.Config, target.Origin.Host); ok {
		left = budgetLeft(b.Standing)
		if spent := b.Spent(time.Now()); d.Allowed && spent != nil {
			d = d.RefuseSlot(ctx, spent)
		}
	}
	x = Explanation{
		Budget: left,
		Site:   site.Name(), URL: target.String(), Robots: d.Record(), Preferences: PreferencesOf(&d),
		BlockedUntil: blockedUntil(e, target.Origin),
	}
	if !d.Allowed {
		info := enforce.RequestInfo{Method: http.MethodGet, URL: target.String(), Help: e.Config.Help}
		problem := enforce.NewProblem(d, info)
		x.Refusal = &problem
	}
	return x, nil
}

// BudgetLeft is the rest of an agent's budget until the day ends. A number without a limit is
// missing.
type BudgetLeft struct {
	// Until is when the day ends.
	Until time.Time `json:"until"`
	// Requests is how many requests are left.
	Requests *int64 `json:"requests,omitempty"`
	// Bytes is how many bytes are left.
	Bytes *int64 `json:"bytes,omitempty"`
	// PerHost is how many requests to the host are left.
	PerHost *int64 `json:"per_host,omitempty"`
}

// String lists the numbers that are left.
func (b *BudgetLeft) String() string {
	left := make([]string, 0, 3)
	for _, part := range []struct {
		n    *int64
		what string
	}{{b.Requests, "requests"}, {b.PerHost, "requests to the host"}, {b.Bytes, "bytes"}} {
		if part.n != nil {
			left = append(left, fmt.Sprintf("%d %s", *part.n, part.what))
		}
	}
	return "left until " + b.Until.UTC().Format(time.RFC3339) + ": " + strings.Join(left, ", ")
}

func budgetLeft(s budget.Standing) *BudgetLeft {
	left := &BudgetLeft{Until: s.Ends}
	for _, l := range []struct {
		to       **int64
		limit, n int64
	}{{&left.Requests, s.Requests, s.RequestsLeft}, {&left.Bytes, s.Bytes, s.BytesLeft}, {&left.PerHost, s.PerHost, s.PerHostLeft}} {
		if l.limit > 0 {
			*l.to = &l.n
		}
	}
	return left
}

// ParseTarget reads the URL of a page. The error is a caddy.APIError.
func ParseTarget(rawURL string) (origin.Target, error) {
	target, err := origin.ParseTarget(rawURL)
	return target, wanted(err, "a URL such as https://example.com/page")
}

// identityOf returns the identity of an agent: the name of its block or, on a site without blocks,
// a product token.
func identityOf(id *enforce.Identifier, agent string) (enforce.Identity, error) {
	if agent == "" {
		return enforce.Identity{}, badRequest("agent is missing")
	}
	identity, ok := id.Named(agent)
	switch names := namesOf(id); {
	case ok:
		return identity, nil
	case len(names) == 0:
		return identity, badRequest(unknownAgent, agent)
	default:
		return identity, badRequest("agent %.100q is not configured: %s", agent, meant(names, agent))
	}
}

const unknownAgent = "agent %.100q is not a product token: want a single word without a version"

// siteAt returns the gateway with the given listener. The listener is optional if there is only
// one gateway.
func siteAt(e *engine.Engine, listener string) (*engine.SitePolicy, error) {
	sites := e.Sites()
	var names []string
	for _, s := range sites {
		if listener == "" && len(sites) == 1 || listener != "" && s.Listens(listener) {
			return s, nil
		}
		if name := s.Name(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	known := strings.Join(names, ", ")
	if listener == "" {
		return nil, badRequest("there are %d gateways: name one as site: %s", len(sites), known)
	}
	return nil, badRequest("site %.100q has no gateway: there is %s", listener, known)
}

// PreferencesOf lists the preferences behind a decision: the deciding statement for each purpose
// with a statement, and "unknown" for the agent's other purposes. The list is empty if no
// robots.txt was read, or if the URL may not be fetched (draft-ietf-aipref-attach-05 section 3.1).
func PreferencesOf(d *enforce.Decision) (list []Preference) {
	refused := (!d.Allowed || d.WouldDeny) && d.Reason != enforce.ReasonPreferenceDenied
	if refused || d.State == fetch.StateUnknown {
		return nil
	}
	decided := d.Preferences.Decided()
	for i := range decided {
		list = append(list, preferenceOf(&decided[i]))
	}
	for _, purpose := range d.Purposes {
		if slices.ContainsFunc(list, func(p Preference) bool { return p.Purpose == purpose }) {
			continue
		}
		unknown := d.Preferences.Deciding(purpose)
		unknown.Purpose = purpose
		list = append(list, preferenceOf(&unknown))
	}
	return list
}

// scopedOf returns the preferences of a robots.txt for an agent, for any URL.
func scopedOf(rules *robotstxt.Ruleset, id enforce.Identity) (list []Preference) {
	var alsoObey []string
	if id.Config != nil {
		alsoObey = id.Config.AlsoObey
	}
	groups := preferences.AppendGroups(nil, rules, id.Robots, alsoObey)
	all, _ := preferences.Scopes(rules, groups)
	for _, scoped := range all {
		p := preferenceOf(&scoped.Statement)
		p.Path = escape.Visible(scoped.Path, maxPath)
		list = append(list, p)
	}
	return list
}

func preferenceOf(s *preferences.Statement) Preference {
	value := s.Value.String()
	if s.Text != "" {
		value = escape.Visible(s.Text, maxPath)
	}
	return Preference{Purpose: escape.Visible(s.Purpose, maxPurpose), Value: value, Source: s.From.String(), Line: s.Line}
}

// The bounds of texts as they are shown, in bytes. No purpose is longer.
const (
	maxPurpose = 64
	maxPath    = 512
)
