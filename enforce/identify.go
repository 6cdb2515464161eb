package enforce

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/crawlgate/crawlgate/robotstxt"
)

// Unidentified says what becomes of a request that matches no agent.
type Unidentified uint8

const (
	// UnidentifiedDefault denies if there are agents and allows if there are none.
	UnidentifiedDefault Unidentified = iota
	// UnidentifiedDeny refuses. Without agents, it refuses who shows no product token.
	UnidentifiedDeny
	// UnidentifiedAllow lets pass, under the product token of the User-Agent.
	UnidentifiedAllow
)

// IdentifierConfig is what an [Identifier] is made of.
type IdentifierConfig struct {
	Agents       []Agent
	Unidentified Unidentified
	// Verify reports whether the password is that of the user. It is called for unknown
	// users too, and has to take as long for them as for a wrong password, so that names
	// cannot be found out. It may be called concurrently and should return false when ctx
	// ends. Needed if an agent has credentials; otherwise credentials are not looked at.
	Verify func(ctx context.Context, user, password string) bool
}

// maxUserAgent bounds the octets of a User-Agent that is read. A longer one is no name.
const maxUserAgent = 4096

// Identifier tells who sends a request. It never changes and is safe for concurrent use.
//
// # Who is named by a User-Agent
//
// The first product in the field that is an agent's first token, or a product among its
// patterns, names that agent and no other, whatever follows. Only if no product names
// anyone, patterns for the whole field are tried. An agent satisfies its own User-Agent
// condition only if the field names it.
//
// # Who is matched
//
// Of the agents whose conditions all hold, that with the strongest evidence is taken:
// credential, client certificate, source, User-Agent, compared in this order. Right
// credentials, and a certificate with the name of an agent, bind: no agent is considered
// that does not name them. Wrong credentials are always refused.
//
// # What is not accepted
//
// What is sent out under one agent's name must not have been judged by another's rules.
// So a request of one agent whose User-Agent names another is refused, and so is one whose
// User-Agent names an agent whose other conditions do not hold, also where unidentified
// requests are allowed. A User-Agent that names nobody (a browser's, a library's, none) says
// nothing: with it an agent is taken by its other conditions.
//
// The zero Identifier refuses everybody.
type Identifier struct {
	agents       []*agent
	allowUnknown bool
	verify       func(ctx context.Context, user, password string) bool // nil: no agent has credentials
	tokenOnly    bool                                                  // there are no agents

	byUser    map[string][]*agent
	byCert    map[string][]*agent // of agents without credentials
	bySource  []*agent            // of agents without credentials and certificates
	byClaim   map[string][]*agent
	withGlobs []*agent
	// anyUserAgent says that an agent is told by User-Agent alone.
	anyUserAgent bool
}

// NewIdentifier checks the agents and makes them ready for matching. Warnings are for
// people. Errors name the agents: a name given twice, a value that cannot be meant, two
// agents that one request could match alike.
func NewIdentifier(cfg IdentifierConfig) (id *Identifier, warnings []string, err error) {
	id = &Identifier{
		tokenOnly:    len(cfg.Agents) == 0,
		allowUnknown: cfg.Unidentified == UnidentifiedAllow,
		byUser:       make(map[string][]*agent),
		byCert:       make(map[string][]*agent),
		byClaim:      make(map[string][]*agent),
	}
	if id.tokenOnly && cfg.Unidentified == UnidentifiedDefault {
		id.allowUnknown = true
	}
	for _, c := range cfg.Agents {
		a, w, err := compileAgent(c)
		if err != nil {
			return nil, nil, err
		}
		for _, other := range id.agents {
			if strings.EqualFold(other.Name, a.Name) {
				return nil, nil, fmt.Errorf("agent %q is given twice (names are compared ignoring case)", a.Name)
			}
			if how := a.ambiguity(other); how != "" {
				return nil, nil, fmt.Errorf("agents %q and %q can both match one request, by %s", other.Name, a.Name, how)
			}
		}
		warnings = append(warnings, w...)
		id.add(a)
	}
	if len(id.byUser) > 0 {
		if cfg.Verify == nil {
			return nil, nil, errors.New("agents have credentials, but there is nothing to verify passwords with")
		}
		id.verify = cfg.Verify
	}
	return id, warnings, nil
}

func (id *Identifier) add(a *agent) {
	id.agents = append(id.agents, a)
	switch {
	case a.conditions&byCredential != 0:
		for _, user := range a.Credentials {
			id.byUser[user] = append(id.byUser[user], a)
		}
	case a.conditions&byCertificate != 0:
		for _, name := range a.ClientCertificates {
			id.byCert[name] = append(id.byCert[name], a)
		}
	case a.conditions&bySource != 0:
		id.bySource = append(id.bySource, a)
	default:
		id.anyUserAgent = true
	}
	for _, claim := range a.claims {
		id.byClaim[claim] = append(id.byClaim[claim], a)
	}
	if len(a.globs) > 0 {
		id.withGlobs = append(id.withGlobs, a)
	}
}

// Evidence is what a request shows of its sender.
type Evidence struct {
	// UserAgent and ProxyAuthorization are the values of these fields, "" if missing.
	UserAgent          string
	ProxyAuthorization string
	// Source is the address of the client. The zero value is in no range.
	Source netip.Addr
	// CertificateNames are the common name and the subject alternative names of the
	// client's certificate, which the caller has verified.
	CertificateNames []string
}

// Identity is who sends a request. The zero value is nobody and is refused.
type Identity struct {
	// Agent is the name of the agent, also on most refusals: who it was that was
	// refused. Without agent blocks it is the product token. May be empty.
	Agent string
	// Config is the agent's configuration, nil if it has none. Not to be changed.
	Config *Agent
	// Robots is under which names it looks for its rules.
	Robots robotstxt.Agent
	// IdentifiedBy is as in [Decision].
	IdentifiedBy string
	// UserAgent is the field's value as received.
	UserAgent string

	accepted bool
	refusal  Reason
	detail   string
}

// Refused returns the reason for which the sender is not accepted, with a detail for
// people, and whether that is so.
func (i Identity) Refused() (reason Reason, detail string, refused bool) {
	switch {
	case i.accepted:
		return "", "", false
	case i.refusal == "":
		return ReasonUnidentified, "", true
	default:
		return i.refusal, i.detail, true
	}
}

func (i Identity) refuse(r Reason, format string, args ...any) Identity {
	i.accepted, i.refusal, i.detail = false, r, fmt.Sprintf(format, args...)
	return i
}

// Tunnel is what is known of the sender of a CONNECT: all but its name. The zero value
// is nobody and is refused. It holds no password.
type Tunnel struct {
	opened  bool // by Identifier.Tunnel
	refusal Reason
	detail  string

	user         string   // whose password was right, or ""
	users        []*agent // who names that user
	source       netip.Addr
	certificates []string
	// inner says that the requests judged come from inside an accepted tunnel.
	inner bool
}

// Refused returns the reason for which the CONNECT has to be answered with a refusal, as
// nothing inside could make it good, and whether that is so.
func (t Tunnel) Refused() (reason Reason, detail string, refused bool) {
	if !t.opened {
		return ReasonUnidentified, "", true
	}
	return t.refusal, t.detail, t.refusal != ""
}

// Identify tells who sends a request that shows all of its evidence at once: one in
// absolute form, or a CONNECT that will not be looked into. Of ctx only Verify takes notice.
func (id *Identifier) Identify(ctx context.Context, e Evidence) Identity {
	return id.judge(id.authenticate(ctx, e), e.UserAgent)
}

// Tunnel takes the evidence of a CONNECT whose inner requests will be seen. Its User-Agent
// is left out of account: most clients send none with CONNECT, some a wrong one (clients.md 1, 2).
// The credentials count for all that is inside, as clients send them here only. So a CONNECT
// is refused for its credentials, and where nobody could be accepted without some; all other
// refusals are given inside, where clients see them.
func (id *Identifier) Tunnel(ctx context.Context, e Evidence) Tunnel {
	t := id.authenticate(ctx, e)
	if t.refusal == "" && t.user == "" && id.verify != nil && !id.possible(t) {
		t.refusal, t.detail = ReasonCredentialsMissing, ""
	}
	t.inner = true
	return t
}

// Inner tells who sends a request inside an accepted tunnel, by the tunnel's evidence and
// the request's own User-Agent.
func (id *Identifier) Inner(t Tunnel, userAgent string) Identity {
	return id.judge(t, userAgent)
}

// Named returns the identity of an agent by its name, for questions that no request
// asks ("what would this agent be told?"). Without agent blocks every product token is an
// agent. IdentifiedBy is empty.
func (id *Identifier) Named(name string) (Identity, bool) {
	if id.tokenOnly {
		if !isToken(name) {
			return Identity{}, false
		}
		return Identity{Agent: name, Robots: robotstxt.Family(name), accepted: true}, true
	}
	for _, a := range id.agents {
		if strings.EqualFold(a.Name, name) {
			i := a.identity("")
			i.IdentifiedBy = ""
			return i, true
		}
	}
	return Identity{}, false
}

// Agents returns the names of the agents, in the order of their configuration.
func (id *Identifier) Agents() []string {
	names := make([]string, len(id.agents))
	for i, a := range id.agents {
		names[i] = a.Name
	}
	return names
}

// authenticate checks credentials and collects the evidence that does not depend on
// User-Agent.
func (id *Identifier) authenticate(ctx context.Context, e Evidence) Tunnel {
	t := Tunnel{opened: true, source: e.Source.Unmap().WithZone(""), certificates: e.CertificateNames}
	if id.verify == nil || e.ProxyAuthorization == "" {
		return t
	}
	user, password, ok := basicCredentials(e.ProxyAuthorization)
	if !ok {
		t.refusal, t.detail = ReasonCredentialsWrong, "Proxy-Authorization is not Basic, or cannot be read"
		return t
	}
	right := id.verify(ctx, user, password)
	agents := id.byUser[user]
	if !right || len(agents) == 0 {
		// Which of the two was wrong is not told.
		t.refusal, t.detail = ReasonCredentialsWrong, "user name or password is wrong"
		return t
	}
	t.user, t.users = user, agents
	return t
}

// possible reports whether some User-Agent inside the tunnel would be accepted.
func (id *Identifier) possible(t Tunnel) bool {
	if id.allowUnknown || id.anyUserAgent {
		return true
	}
	holds := func(a *agent) bool { return a.unmet(t, byUserAgent) == 0 }
	for _, name := range t.certificates {
		if slices.ContainsFunc(id.byCert[name], holds) {
			return true
		}
	}
	return slices.ContainsFunc(id.bySource, holds)
}

// judge is the last step: who is it, given the evidence and the User-Agent.
func (id *Identifier) judge(t Tunnel, userAgent string) Identity {
	if r, detail, refused := t.Refused(); refused {
		return Identity{UserAgent: userAgent, refusal: r, detail: detail}
	}
	if id.tokenOnly {
		return id.byToken(userAgent)
	}
	n := id.named(userAgent)
	r, bound := id.rank(t, n)
	switch a := r.best; {
	case r.tie != nil:
		return a.identity(userAgent).refuse(ReasonAmbiguousAgent, "it matches the agents %q and %q alike", a.Name, r.tie.Name)
	case a != nil && n.someoneElse(a):
		return a.conflict(n, userAgent)
	case a != nil:
		return a.identity(userAgent)
	case bound != nil && n.someoneElse(bound):
		return bound.conflict(n, userAgent)
	case bound != nil:
		return bound.identity(userAgent).refuse(ReasonAgentMismatch,
			"it is not what agent %q is registered with: %s", bound.Name, bound.unmetIn(t, n))
	case len(n.agents) > 0:
		return id.unmetClaim(t, n, userAgent)
	default:
		return id.unknown(t, userAgent)
	}
}

// ranking keeps the agent with the strongest evidence, and another one that has the same.
type ranking struct{ best, tie *agent }

// consider ranks the agents whose conditions all hold.
func (r *ranking) consider(t Tunnel, n named, agents ...*agent) {
	for _, a := range agents {
		switch {
		case a == r.best || a.unmetBy(t, n) != 0:
		case r.best == nil || a.conditions > r.best.conditions:
			r.best, r.tie = a, nil
		case a.conditions == r.best.conditions:
			r.tie = a
		}
	}
}

// rank returns the ranking of all agents and, if there is binding evidence, one of the
// agents that it binds to: if possible one that the User-Agent names too.
func (id *Identifier) rank(t Tunnel, n named) (r ranking, bound *agent) {
	if t.user != "" {
		r.consider(t, n, t.users...)
		return r, n.pick(t.users)
	}
	for _, name := range t.certificates {
		if agents := id.byCert[name]; len(agents) > 0 {
			r.consider(t, n, agents...)
			bound = n.pick(agents)
		}
	}
	if bound != nil {
		return r, bound
	}
	r.consider(t, n, id.bySource...)
	for _, a := range n.agents {
		if a.conditions == byUserAgent {
			r.consider(t, n, a)
		}
	}
	return r, nil
}

// unmetClaim refuses a request whose User-Agent names agents none of which it is.
func (id *Identifier) unmetClaim(t Tunnel, n named, userAgent string) Identity {
	a := n.agents[0]
	i := a.identity(userAgent)
	needsCredential := slices.ContainsFunc(n.agents, func(a *agent) bool { return a.conditions&byCredential != 0 })
	if needsCredential && !t.inner {
		return i.refuse(ReasonCredentialsMissing, "the User-Agent names agent %q, which is told by its credentials", a.Name)
	}
	return i.refuse(ReasonAgentMismatch, "the User-Agent names agent %q, which is registered with more: %s", a.Name, a.unmetIn(t, n))
}

// unknown is the sender that matches nobody and names nobody.
func (id *Identifier) unknown(t Tunnel, userAgent string) Identity {
	i := Identity{UserAgent: userAgent}
	switch {
	case id.allowUnknown:
		// The token is no name here: it could be that of an agent.
		i = id.byToken(userAgent)
		i.Agent, i.IdentifiedBy = "", ""
		return i
	case id.verify != nil && !t.inner:
		return i.refuse(ReasonCredentialsMissing, "it matches no registered agent")
	case id.verify != nil:
		// A client does not expect 407 from what it takes for the origin.
		return i.refuse(ReasonUnidentified, "it matches no registered agent, and its tunnel was opened without proxy credentials")
	default:
		return i.refuse(ReasonUnidentified, "it matches no registered agent")
	}
}

// byToken is identification without agents: the product token of the User-Agent.
func (id *Identifier) byToken(userAgent string) Identity {
	i := Identity{UserAgent: userAgent, accepted: true}
	if len(userAgent) <= maxUserAgent {
		i.Agent = robotstxt.ProductToken(userAgent)
	}
	if i.Agent == "" {
		if !id.allowUnknown {
			return i.refuse(ReasonUnidentified, "its User-Agent has no product token")
		}
		return i // the group * binds it
	}
	i.Robots, i.IdentifiedBy = robotstxt.Family(i.Agent), byUserAgentName
	return i
}

var byUserAgentName = byUserAgent.String()

// named is whom a User-Agent names.
type named struct {
	agents  []*agent // shared, not to be changed; empty if nobody
	product string   // that did, as received; "" if a pattern did
	folded  string   // the field in lower case, where some agent has patterns for it
}

// someoneElse reports whether the User-Agent names others than a.
func (n named) someoneElse(a *agent) bool {
	return len(n.agents) > 0 && !slices.Contains(n.agents, a)
}

// pick returns one of the agents, if possible one that the User-Agent names.
func (n named) pick(agents []*agent) *agent {
	for _, a := range agents {
		if slices.Contains(n.agents, a) {
			return a
		}
	}
	return agents[0]
}

// named finds whom the User-Agent names.
func (id *Identifier) named(userAgent string) (n named) {
	if userAgent == "" || len(userAgent) > maxUserAgent {
		return named{}
	}
	if len(id.withGlobs) > 0 {
		n.folded = lowerASCII(userAgent)
	}
	products(userAgent, func(product string) bool {
		agents, ok := lookupFold(id.byClaim, product)
		if ok {
			n.agents, n.product = agents, product
		}
		return !ok
	})
	if len(n.agents) > 0 {
		return n
	}
	for _, a := range id.withGlobs {
		if a.globMatches(n.folded) {
			n.agents = append(n.agents, a)
		}
	}
	return n
}

// identity is that of a request that was matched to a.
func (a *agent) identity(userAgent string) Identity {
	return Identity{
		Agent: a.Name, Config: a.Agent, Robots: a.robots,
		IdentifiedBy: a.identifiedBy, UserAgent: userAgent, accepted: true,
	}
}

// conflict refuses a request of a whose User-Agent names another agent.
func (a *agent) conflict(n named, userAgent string) Identity {
	return a.identity(userAgent).refuse(ReasonUserAgentConflict,
		"the User-Agent names agent %q, but the %s is that of agent %q", n.agents[0].Name, a.evidence(), a.Name)
}

// evidence names the strongest condition of a, for people.
func (a *agent) evidence() string {
	for _, n := range conditionNames {
		if a.conditions&n.bit != 0 {
			return strings.ReplaceAll(n.name, "_", " ")
		}
	}
	return ""
}

// unmet returns the conditions of a that the tunnel's evidence does not satisfy, but for
// those in ignore.
func (a *agent) unmet(t Tunnel, ignore condition) (unmet condition) {
	need := a.conditions &^ ignore
	if need&byCredential != 0 && (t.user == "" || !slices.Contains(a.Credentials, t.user)) {
		unmet |= byCredential
	}
	if need&byCertificate != 0 {
		if _, ok := common(t.certificates, a.ClientCertificates); !ok {
			unmet |= byCertificate
		}
	}
	if need&bySource != 0 && !slices.ContainsFunc(a.from, func(p netip.Prefix) bool { return p.Contains(t.source) }) {
		unmet |= bySource
	}
	return unmet
}

// unmetBy is unmet with the User-Agent condition.
func (a *agent) unmetBy(t Tunnel, n named) condition {
	unmet := a.unmet(t, byUserAgent)
	if a.conditions&byUserAgent != 0 && !a.satisfiedBy(n) {
		unmet |= byUserAgent
	}
	return unmet
}

// satisfiedBy reports whether the User-Agent names a, and in a way that a's condition
// asks for: to show its first token alone does not satisfy its patterns.
func (a *agent) satisfiedBy(n named) bool {
	return slices.Contains(n.agents, a) &&
		(n.product != "" && containsFold(a.products, n.product) || a.globMatches(n.folded))
}

func (a *agent) globMatches(folded string) bool {
	return slices.ContainsFunc(a.globs, func(g glob) bool { return g.match(folded) })
}

// unmetIn lists the unmet conditions for people.
func (a *agent) unmetIn(t Tunnel, n named) string {
	return strings.ReplaceAll(a.unmetBy(t, n).String(), "_", " ") + " differs"
}
