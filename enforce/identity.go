package enforce

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/crawlgate/crawlgate/robotstxt"
)

// Identifier identifies the senders of requests. Only the hosts of files change
// ([Identifier.Follow]). It is safe for concurrent use.
//
// # Naming by User-Agent
//
// The first product in the field ([robotstxt.Products]) that is an agent's first token, or a
// product among its patterns, names that agent and no other, whatever follows. Only if no product
// names anyone, patterns for the whole field are tried. An agent satisfies its own User-Agent
// condition only if the field names it.
//
// # Matching
//
// Of the agents whose conditions are all met, the one with the strongest evidence wins: credential,
// client certificate, source, User-Agent, in this order. Right credentials, or a certificate with
// the name of an agent, are binding: only agents that name them are considered. Wrong credentials
// are always refused.
//
// # Refusals
//
// A request sent under one agent's name must not be decided by another agent's rules. So a request
// of one agent is refused if its User-Agent names another agent, or an agent whose other conditions
// are not met, even if unidentified requests are allowed. A User-Agent that names no agent (a
// browser's, a library's, or none) says nothing: the agent is then identified by its other
// conditions.
//
// The zero Identifier refuses everybody.
type Identifier struct {
	agents       []*Agent
	byClaim      map[string][]*Agent
	allowUnknown bool
	tokenOnly    bool       // there are no agents
	verify       VerifyFunc // nil: no agent has credentials
	relisted     atomic.Pointer[chan struct{}]
}

// Sender is a request's evidence for the identity of its sender.
type Sender struct {
	// UserAgent and ProxyAuthorization are the values of these fields, "" if missing. Join several
	// User-Agent fields with spaces, because the site sees all of them.
	UserAgent          string
	ProxyAuthorization string
	// Source is the address of the client. The zero value is in no range.
	Source netip.Addr
	// CertificateNames are the common name and the subject alternative names of the client's
	// certificate. The caller must have verified it.
	CertificateNames []string
}

// Identity is the identity of a request's sender. The zero value is unidentified and is refused.
type Identity struct {
	// Agent is the name of the agent, also for most refusals. Without agent blocks it is the product
	// token. It may be empty.
	Agent string
	// Config is the agent's configuration, nil if it has none. It must not be changed.
	Config *Agent
	// Robots has the names under which the agent looks for its rules.
	Robots robotstxt.Agent
	// IdentifiedBy is as in [Decision].
	IdentifiedBy string
	// UserAgent is the field's value as received.
	UserAgent string

	acceptance
}

// acceptance says whether a sender is accepted. The zero value refuses it as unidentified.
type acceptance struct {
	accepted bool
	refusal  Reason
	detail   string
}

// Refused reports whether the sender is refused, with the reason and a human-readable detail. If an
// [Authentication] is refused, no request inside the tunnel can change that.
func (a acceptance) Refused() (reason Reason, detail string, refused bool) {
	if a.accepted {
		return "", "", false
	}
	return cmp.Or(a.refusal, ReasonUnidentified), a.detail, true
}

func (i Identity) refuse(r Reason, format string, args ...any) Identity {
	i.acceptance = acceptance{refusal: r, detail: fmt.Sprintf(format, args...)}
	return i
}

// HasBudget reports whether the agent, which may be nil, has a budget.
func (a *Agent) HasBudget() bool { return a != nil && a.Budget != nil }

// StopName is the name of the sender for stops. For a sender without a name it is the product
// token, so that it can be stopped too.
func (i Identity) StopName() string {
	if i.Agent == "" && len(i.Robots.Tokens) > 0 {
		return i.Robots.Tokens[0]
	}
	return i.Agent
}

// Identify identifies the sender of a request in absolute form. ctx is for Verify.
func (id *Identifier) Identify(ctx context.Context, s Sender) Identity {
	return id.Inner(id.authenticate(ctx, s), s.UserAgent)
}

// authenticate checks credentials and collects the evidence that does not depend on User-Agent.
func (id *Identifier) authenticate(ctx context.Context, s Sender) Authentication {
	auth := Authentication{source: s.Source.Unmap().WithZone(""), certificates: s.CertificateNames}
	if id.verify == nil || s.ProxyAuthorization == "" {
		auth.accepted = true
		return auth
	}
	user, password, ok := basicCredentials(s.ProxyAuthorization)
	if !ok {
		auth.refusal = ReasonCredentialsWrong
		auth.detail = "Proxy-Authorization is not Basic, or cannot be read"
		return auth
	}
	known := slices.ContainsFunc(id.agents, func(a *Agent) bool {
		return slices.Contains(a.Credentials, user)
	})
	switch check := id.verify(ctx, auth.source, user, password); {
	case check == PasswordUnchecked && ctx.Err() != nil:
		auth.refusal = ReasonCanceled
		auth.detail = "the client left while its password was waiting to be checked"
	case check == PasswordUnchecked:
		auth.refusal = ReasonCredentialsBusy
		auth.detail = "too many other passwords were waiting to be checked"
	case check != PasswordRight || !known:
		// The client must not learn which of the two was wrong.
		auth.refusal, auth.detail = ReasonCredentialsWrong, "user name or password is wrong"
	default:
		auth.accepted, auth.user = true, user
	}
	return auth
}

// maxAuthorization bounds the bytes of a Proxy-Authorization field that is read.
const maxAuthorization = 4096

// basicCredentials reads the value of a Proxy-Authorization field (RFC 7617 section 2). It is
// strict: a value is not a credential if it is not Basic or not base64, has no colon, or has
// control characters.
func basicCredentials(field string) (user, password string, ok bool) {
	scheme, encoded, found := strings.Cut(field, " ")
	if !found || len(field) > maxAuthorization || !strings.EqualFold(scheme, "Basic") {
		return "", "", false
	}
	decoded, err := base64.StdEncoding.Strict().DecodeString(strings.Trim(encoded, " "))
	if err != nil || hasControl(string(decoded)) {
		return "", "", false
	}
	user, password, ok = strings.Cut(string(decoded), ":")
	return user, password, ok && user != ""
}

// maxUserAgent bounds the bytes of a User-Agent. A longer one is refused, because the site would
// see names in the part that was not checked.
const maxUserAgent = 4096

// Inner identifies the sender of a request inside an accepted tunnel, by the authentication of the
// tunnel and the request's own User-Agent.
func (id *Identifier) Inner(auth Authentication, userAgent string) Identity {
	if !auth.accepted {
		return Identity{UserAgent: userAgent, acceptance: auth.acceptance}
	}
	if len(userAgent) > maxUserAgent {
		return Identity{UserAgent: userAgent}.refuse(ReasonUnidentified,
			"its User-Agent is longer than %d bytes", maxUserAgent)
	}
	if id.tokenOnly {
		return id.byToken(userAgent)
	}
	n := id.named(userAgent)
	best, tie, bound := id.rank(auth, n)
	switch a := cmp.Or(best, bound); {
	case tie != nil:
		return a.identity(userAgent).refuse(ReasonAmbiguousAgent,
			"it matches the agents %q and %q equally well", a.Name, tie.Name)
	case a != nil && len(n.agents) > 0 && !slices.Contains(n.agents, a):
		strongest := condition(1) << (bits.Len8(uint8(a.conditions)) - 1)
		return a.identity(userAgent).refuse(ReasonUserAgentConflict,
			"the User-Agent names agent %q, but the %s is that of agent %q",
			n.agents[0].Name, words(strongest), a.Name)
	case best != nil:
		return a.identity(userAgent)
	case bound != nil:
		return a.identity(userAgent).refuse(ReasonAgentMismatch,
			"it does not match the registration of agent %q: %s differs", a.Name, words(a.unmet(auth, n)))
	case len(n.agents) > 0:
		return unmetClaim(auth, n, userAgent)
	default:
		return id.unknown(auth, userAgent)
	}
}

// rank returns the agent with the strongest evidence among those whose conditions are all met, and
// another agent with equal evidence. Credentials or, without any, the certificate may bind the
// sender to some agents. Then only those are ranked, and bound is one of them, if possible one that
// the User-Agent names too.
func (id *Identifier) rank(auth Authentication, n named) (best, tie, bound *Agent) {
	for _, a := range id.agents {
		better := bound == nil || !slices.Contains(n.agents, bound) && slices.Contains(n.agents, a)
		if better && a.boundBy(auth) {
			bound = a
		}
	}
	for _, a := range id.agents {
		switch {
		case bound != nil && !a.boundBy(auth) || a.unmet(auth, n) != 0:
		case best == nil || a.conditions > best.conditions:
			best, tie = a, nil
		case a.conditions == best.conditions:
			tie = a
		}
	}
	return best, tie, bound
}

// unmetClaim refuses a request whose User-Agent names agents if it matches none of them.
func unmetClaim(auth Authentication, n named, userAgent string) Identity {
	i := n.agents[0].identity(userAgent)
	hasCredential := func(a *Agent) bool { return a.conditions&byCredential != 0 }
	if !auth.inner && slices.ContainsFunc(n.agents, hasCredential) {
		return i.refuse(ReasonCredentialsMissing,
			"the User-Agent names agent %q, which requires credentials", i.Agent)
	}
	return i.refuse(ReasonAgentMismatch,
		"the User-Agent names agent %q, whose registration it does not match: %s differs",
		i.Agent, words(n.agents[0].unmet(auth, n)))
}

// unknown is a sender that matches no agent and names none.
func (id *Identifier) unknown(auth Authentication, userAgent string) Identity {
	i := Identity{UserAgent: userAgent}
	switch {
	case id.allowUnknown:
		// The token is not a name here, because an agent may have the same name.
		i = id.byToken(userAgent)
		i.Agent, i.IdentifiedBy = "", ""
		return i
	case id.verify != nil && !auth.inner:
		return i.refuse(ReasonCredentialsMissing, "it matches no registered agent")
	case id.verify != nil:
		// A client in a tunnel believes that the origin answers, and does not expect a 407 from it.
		return i.refuse(ReasonUnidentified,
			"it matches no registered agent, and its tunnel was opened without proxy credentials")
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
	i.Robots, i.IdentifiedBy = robotstxt.Family(i.Agent), byUserAgent.String()
	return i
}

// named is the result of reading a User-Agent: the agents that it names.
type named struct {
	agents  []*Agent // shared, not to be changed; empty for none
	product string   // the product that names them, in lower case; "" if a pattern does
	folded  string   // the field in lower case
}

// named finds the agents that the User-Agent names. No pattern matches a missing field.
func (id *Identifier) named(userAgent string) named {
	n := named{folded: strings.ToLower(userAgent)}
	for product := range robotstxt.Products(n.folded) {
		if agents, ok := id.byClaim[product]; ok {
			n.agents, n.product = agents, product
			return n
		}
	}
	for _, a := range id.agents {
		if userAgent != "" && a.globMatches(n.folded) {
			n.agents = append(n.agents, a)
		}
	}
	return n
}

// condition is a set of kinds of evidence, ordered by strength. If a request matches several
// agents, the one with the numerically greatest set wins. So two different sets are never
// ambiguous.
type condition uint8

const (
	byUserAgent condition = 1 << iota
	bySource
	byCertificate
	byCredential
)

// conditionKinds are the kinds of condition, strongest first. Their names are the closed set of
// words in [Decision.IdentifiedBy].
var conditionKinds = []struct {
	bit  condition
	name string
}{
	{byCredential, "credential"},
	{byCertificate, "client_certificate"},
	{bySource, "source"},
	{byUserAgent, "user_agent"},
}

// String returns the names of the set, joined by "+".
func (c condition) String() string {
	var names []string
	for _, kind := range conditionKinds {
		if c&kind.bit != 0 {
			names = append(names, kind.name)
		}
	}
	return strings.Join(names, "+")
}

// words is the human-readable name of a set of conditions.
func words(c condition) string { return strings.ReplaceAll(c.String(), "_", " ") }

// identity returns the identity of a request that was matched to a.
func (a *Agent) identity(userAgent string) Identity {
	return Identity{
		Agent: a.Name, Config: a, Robots: a.robots, IdentifiedBy: a.identifiedBy,
		UserAgent: userAgent, acceptance: acceptance{accepted: true},
	}
}

// boundBy reports whether the credentials or, without any, the certificate bind the sender to a.
func (a *Agent) boundBy(auth Authentication) bool {
	if auth.user != "" {
		return slices.Contains(a.Credentials, auth.user)
	}
	return a.conditions&byCredential == 0 && a.meetsCertificate(auth)
}

func (a *Agent) meetsCertificate(auth Authentication) bool {
	return slices.ContainsFunc(a.ClientCertificates, func(name string) bool {
		return slices.Contains(auth.certificates, name)
	})
}

// meetsUserAgent reports whether the User-Agent names a in the way that a's condition requires. The
// first token alone does not satisfy its patterns.
func (a *Agent) meetsUserAgent(n named) bool {
	return slices.Contains(n.agents, a) &&
		(slices.Contains(a.products, n.product) || a.globMatches(n.folded))
}

func (a *Agent) globMatches(folded string) bool {
	return slices.ContainsFunc(a.globs, func(g glob) bool { return g.match(folded) })
}

// unmet returns the conditions of a that the sender does not meet.
func (a *Agent) unmet(auth Authentication, n named) condition {
	var met condition
	if slices.Contains(a.Credentials, auth.user) {
		met |= byCredential
	}
	if a.meetsCertificate(auth) {
		met |= byCertificate
	}
	if slices.ContainsFunc(a.from, func(p netip.Prefix) bool { return p.Contains(auth.source) }) {
		met |= bySource
	}
	if a.meetsUserAgent(n) {
		met |= byUserAgent
	}
	return a.conditions &^ met
}
