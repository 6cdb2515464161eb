package enforce

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/crawlgate/crawlgate/robotstxt"
)

// ranking keeps the agent with the strongest evidence, and another one that has the same.
type ranking struct{ best, tie *agent }

// consider ranks the agents whose conditions all hold.
func (r *ranking) consider(t Authentication, n named, agents ...*agent) {
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
func (id *Identifier) rank(t Authentication, n named) (r ranking, bound *agent) {
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

// nameless identifies a sender whose User-Agent names nobody by its binding evidence alone,
// or returns its refusal so far.
func (id *Identifier) nameless(t Authentication, refused Identity) Identity {
	bound := t.users
	for _, name := range t.certificates {
		if t.user == "" {
			bound = append(slices.Clip(bound), id.byCert[name]...)
		}
	}
	var found *agent
	for _, a := range bound {
		switch {
		case a == found || a.unmet(t, byUserAgent) != 0:
		case found != nil:
			return found.identity(refused.UserAgent).refuse(ReasonAmbiguousAgent,
				"without a User-Agent it could be agent %q or %q", found.Name, a.Name)
		default:
			found = a
		}
	}
	if found == nil {
		return refused
	}
	i := found.identity(refused.UserAgent)
	i.IdentifiedBy = (found.conditions &^ byUserAgent).String()
	return i
}

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
	if userAgent == "" {
		return named{} // no pattern is for a missing field
	}
	if len(id.withGlobs) > 0 {
		n.folded = lowerASCII(userAgent)
	}
	for product := range robotstxt.Products(userAgent) {
		if agents, ok := lookupFold(id.byClaim, product); ok {
			n.agents, n.product = agents, product
			return n
		}
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
func (a *agent) unmet(t Authentication, ignore condition) (unmet condition) {
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
func (a *agent) unmetBy(t Authentication, n named) condition {
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
func (a *agent) unmetIn(t Authentication, n named) string {
	return strings.ReplaceAll(a.unmetBy(t, n).String(), "_", " ") + " differs"
}
