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
	// UnidentifiedDeny refuses. Without agents, it refuses senders without a product token.
	UnidentifiedDeny
	// UnidentifiedAllow lets the request pass, under the product token of the User-Agent.
	UnidentifiedAllow
)

// PasswordCheck is the result of checking a password.
type PasswordCheck uint8

const (
	// PasswordWrong is not the password of the user.
	PasswordWrong PasswordCheck = iota
	// PasswordRight is the password of the user.
	PasswordRight
	// PasswordUnchecked is a password that was not looked at: too many others wait for that, or
	// the client left.
	PasswordUnchecked
)

// IdentifierConfig configures an [Identifier].
type IdentifierConfig struct {
	Agents       []Agent
	Unidentified Unidentified
	// Verify checks the password of a user. It is called for unknown users
	// too, and has to take as long for them as for a wrong password, so that names cannot be
	// found out. Source is the address of the client, which may be the zero value. Verify may
	// be called concurrently and should return PasswordUnchecked when ctx ends. Needed if an
	// agent has credentials; otherwise credentials are not looked at.
	Verify func(ctx context.Context, source netip.Addr, user, password string) PasswordCheck
}

// maxUserAgent bounds the bytes of a User-Agent. A longer one is refused, not cut or passed
// over: the site would see names in it that were not judged.
const maxUserAgent = 4096

// Identifier identifies the senders of requests. It never changes and is safe for concurrent use.
//
// # Naming by User-Agent
//
// The first product in the field ([robotstxt.Products]) that is an agent's first token, or a
// product among its patterns, names that agent and no other, whatever follows. Only if no
// product names anyone, patterns for the whole field are tried. An agent satisfies its own
// User-Agent condition only if the field names it.
//
// # Matching
//
// Of the agents whose conditions all hold, that with the strongest evidence is taken:
// credential, client certificate, source, User-Agent, compared in this order. Right
// credentials, and a certificate with the name of an agent, bind: no agent is considered
// that does not name them. Wrong credentials are always refused.
//
// # Refusals
//
// A request sent under one agent's name must not have been judged by another's rules.
// So a request of one agent whose User-Agent names another is refused, and so is one whose
// User-Agent names an agent whose other conditions do not hold, also where unidentified
// requests are allowed. A User-Agent that names nobody (a browser's, a library's, none) says
// nothing: with it an agent is taken by its other conditions.
//
// The zero Identifier refuses everybody.
type Identifier struct {
	agents       []*agent
	allowUnknown bool
	verify       func(ctx context.Context, source netip.Addr, user, password string) PasswordCheck // nil: no agent has credentials
	tokenOnly    bool                                                                              // there are no agents

	byUser    map[string][]*agent
	byCert    map[string][]*agent // of agents without credentials
	bySource  []*agent            // of agents without credentials and certificates
	byClaim   map[string][]*agent
	withGlobs []*agent
	// anyUserAgent says that an agent is told by User-Agent alone.
	anyUserAgent bool
}

// NewIdentifier checks the agents and makes them ready for matching. Warnings are for
// people. Errors name the agents:  a name given twice, a value that cannot be meant, two
// agents that one request could match equally well.
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

// Identify identifies the sender of a request in absolute form. ctx is for Verify.
func (id *Identifier) Identify(ctx context.Context, s Sender) Identity {
	return id.judge(id.authenticate(ctx, s), s.UserAgent)
}

// Opaque identifies the sender of a CONNECT that will not be looked into. Most clients leave its
// User-Agent out and some get it wrong (clients.md 1, 2). So an agent bound by credentials or
// certificate need not show its User-Agent where the field names no other.
func (id *Identifier) Opaque(ctx context.Context, s Sender) Identity {
	auth := id.authenticate(ctx, s)
	i := id.judge(auth, s.UserAgent)
	if i.refusal == ReasonAgentMismatch && len(id.named(s.UserAgent).agents) == 0 {
		return id.nameless(auth, i)
	}
	return i
}

// AuthenticateTunnel authenticates the sender of a CONNECT whose inner requests will be seen. It
// ignores the User-Agent: most clients send none with CONNECT, some a wrong one (clients.md 1, 2).
// The credentials count for all requests inside, as clients send them here only. So a CONNECT is
// refused for its credentials, and for lack of them if no sender could do without; all other
// refusals are given inside, where clients see them.
func (id *Identifier) AuthenticateTunnel(ctx context.Context, s Sender) Authentication {
	auth := id.authenticate(ctx, s)
	if auth.accepted && auth.user == "" && id.verify != nil && !id.possible(auth) {
		auth.acceptance = acceptance{refusal: ReasonCredentialsMissing}
	}
	auth.inner = true
	return auth
}

// Inner identifies the sender of a request inside an accepted tunnel, by the authentication of the
// tunnel and the request's own User-Agent.
func (id *Identifier) Inner(auth Authentication, userAgent string) Identity {
	return id.judge(auth, userAgent)
}

// Named returns the identity of an agent by its name, to decide for it without a request. Without
// agent blocks every product token is an agent. IdentifiedBy is empty.
func (id *Identifier) Named(name string) (Identity, bool) {
	if id.tokenOnly {
		if !robotstxt.IsProductName(name) {
			return Identity{}, false
		}
		return Identity{Agent: name, Robots: robotstxt.Family(name), acceptance: acceptance{accepted: true}}, true
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

// Knows reports whether a sender may have the name: that of an agent in any case, and any
// product token where there are no agents, or where unidentified requests are allowed. See
// [Identity.KillName].
func (id *Identifier) Knows(name string) bool {
	_, named := id.Named(name)
	return named || id.allowUnknown && robotstxt.IsProductName(name)
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
func (id *Identifier) authenticate(ctx context.Context, s Sender) Authentication {
	auth := Authentication{acceptance: acceptance{accepted: true}, source: s.Source.Unmap().WithZone(""), certificates: s.CertificateNames}
	if id.verify == nil || s.ProxyAuthorization == "" {
		return auth
	}
	user, password, ok := basicCredentials(s.ProxyAuthorization)
	if !ok {
		auth.acceptance = acceptance{refusal: ReasonCredentialsWrong, detail: "Proxy-Authorization is not Basic, or cannot be read"}
		return auth
	}
	check := id.verify(ctx, auth.source, user, password)
	agents := id.byUser[user]
	switch {
	case check == PasswordUnchecked && ctx.Err() != nil:
		auth.acceptance = acceptance{refusal: ReasonCanceled, detail: "the client left while its password was waiting to be checked"}
	case check == PasswordUnchecked:
		auth.acceptance = acceptance{refusal: ReasonCredentialsBusy, detail: "too many other passwords were waiting to be checked"}
	case check != PasswordRight || len(agents) == 0:
		// The client must not learn which of the two was wrong.
		auth.acceptance = acceptance{refusal: ReasonCredentialsWrong, detail: "user name or password is wrong"}
	default:
		auth.user, auth.users = user, agents
	}
	return auth
}

// possible reports whether some User-Agent inside the tunnel would be accepted.
func (id *Identifier) possible(auth Authentication) bool {
	if id.allowUnknown || id.anyUserAgent {
		return true
	}
	holds := func(a *agent) bool { return a.unmet(auth, named{}, byUserAgent) == 0 }
	return slices.ContainsFunc(id.bound(auth), holds) || slices.ContainsFunc(id.bySource, holds)
}

// judge is the last step: it identifies the sender by authentication and User-Agent.
func (id *Identifier) judge(auth Authentication, userAgent string) Identity {
	if !auth.accepted {
		return Identity{UserAgent: userAgent, acceptance: auth.acceptance}
	}
	if len(userAgent) > maxUserAgent {
		return Identity{}.refuse(ReasonUnidentified, "its User-Agent is longer than %d bytes", maxUserAgent)
	}
	if id.tokenOnly {
		return id.byToken(userAgent)
	}
	n := id.named(userAgent)
	r, bound := id.rank(auth, n)
	switch a := r.best; {
	case r.tie != nil:
		return a.identity(userAgent).refuse(ReasonAmbiguousAgent, "it matches the agents %q and %q equally well", a.Name, r.tie.Name)
	case a != nil && n.someoneElse(a):
		return a.conflict(n, userAgent)
	case a != nil:
		return a.identity(userAgent)
	case bound != nil && n.someoneElse(bound):
		return bound.conflict(n, userAgent)
	case bound != nil:
		return bound.identity(userAgent).refuse(ReasonAgentMismatch,
			"it is not what agent %q is registered with: %s", bound.Name, bound.describeUnmet(auth, n))
	case len(n.agents) > 0:
		return id.unmetClaim(auth, n, userAgent)
	default:
		return id.unknown(auth, userAgent)
	}
}

// unmetClaim refuses a request whose User-Agent names agents, but that matches none of them.
func (id *Identifier) unmetClaim(auth Authentication, n named, userAgent string) Identity {
	a := n.agents[0]
	i := a.identity(userAgent)
	needsCredential := slices.ContainsFunc(n.agents, func(a *agent) bool { return a.conditions&byCredential != 0 })
	if needsCredential && !auth.inner {
		return i.refuse(ReasonCredentialsMissing, "the User-Agent names agent %q, which is told by its credentials", a.Name)
	}
	return i.refuse(ReasonAgentMismatch, "the User-Agent names agent %q, which is registered with more: %s", a.Name, a.describeUnmet(auth, n))
}

// unknown is a sender that matches no agent and names none.
func (id *Identifier) unknown(auth Authentication, userAgent string) Identity {
	i := Identity{UserAgent: userAgent}
	switch {
	case id.allowUnknown:
		// The token is no name here: an agent may have the same.
		i = id.byToken(userAgent)
		i.Agent, i.IdentifiedBy = "", ""
		return i
	case id.verify != nil && !auth.inner:
		return i.refuse(ReasonCredentialsMissing, "it matches no registered agent")
	case id.verify != nil:
		// A client in a tunnel believes that the origin answers, and does not expect 407 of it.
		return i.refuse(ReasonUnidentified, "it matches no registered agent, and its tunnel was opened without proxy credentials")
	default:
		return i.refuse(ReasonUnidentified, "it matches no registered agent")
	}
}

// byToken is identification without agents: the product token of the User-Agent.
func (id *Identifier) byToken(userAgent string) Identity {
	i := Identity{UserAgent: userAgent, acceptance: acceptance{accepted: true}}
	if i.Agent = robotstxt.ProductToken(userAgent); i.Agent == "" {
		if !id.allowUnknown {
			return i.refuse(ReasonUnidentified, "its User-Agent has no product token")
		}
		return i // the group * binds it
	}
	i.Robots, i.IdentifiedBy = robotstxt.Family(i.Agent), byUserAgentName
	return i
}

var byUserAgentName = byUserAgent.String()

// identity returns the identity of a request that was matched to a.
func (a *agent) identity(userAgent string) Identity {
	return Identity{
		Agent: a.Name, Config: a.Agent, Robots: a.robots,
		IdentifiedBy: a.identifiedBy, UserAgent: userAgent, acceptance: acceptance{accepted: true},
	}
}

// conflict refuses a request of a whose User-Agent names another agent.
func (a *agent) conflict(n named, userAgent string) Identity {
	return a.identity(userAgent).refuse(ReasonUserAgentConflict,
		"the User-Agent names agent %q, but the %s is that of agent %q", n.agents[0].Name, a.evidence(), a.Name)
}

// evidence names the strongest condition of a, for people.
func (a *agent) evidence() string {
	for _, n := range conditionKinds {
		if a.conditions&n.bit != 0 {
			return strings.ReplaceAll(n.name, "_", " ")
		}
	}
	return ""
}
