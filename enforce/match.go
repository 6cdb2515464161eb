package enforce

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/crawlgate/crawlgate/robotstxt"
)

// condition is a set of kinds of evidence, ordered by strength: of several agents that a request
// matches, the one with the numerically greatest set is taken. So two different sets are never
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
	// met reports whether a sender meets the agent's condition.
	met func(a *agent, auth Authentication, n named) bool
	// overlap says how one sender can meet the conditions of both agents; "" if none can.
	overlap func(a, b *agent) string
}{
	{byCredential, "credential", (*agent).meetsCredential, overlapCredential},
	{byCertificate, "client_certificate", (*agent).meetsCertificate, overlapCertificate},
	{bySource, "source", (*agent).meetsSource, overlapSource},
	{byUserAgent, "user_agent", (*agent).meetsUserAgent, overlapUserAgent},
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

func (a *agent) meetsCredential(auth Authentication, _ named) bool {
	return auth.user != "" && slices.Contains(a.Credentials, auth.user)
}

func (a *agent) meetsCertificate(auth Authentication, _ named) bool {
	_, ok := common(auth.certificates, a.ClientCertificates)
	return ok
}

func (a *agent) meetsSource(auth Authentication, _ named) bool {
	return slices.ContainsFunc(a.from, func(p netip.Prefix) bool { return p.Contains(auth.source) })
}

// meetsUserAgent reports whether the User-Agent names a, and in a way that a's condition asks for:
// to show its first token alone does not satisfy its patterns.
func (a *agent) meetsUserAgent(_ Authentication, n named) bool {
	return slices.Contains(n.agents, a) &&
		(n.product != "" && containsFold(a.products, n.product) || a.globMatches(n.folded))
}

func (a *agent) globMatches(folded string) bool {
	return slices.ContainsFunc(a.globs, func(g glob) bool { return g.match(folded) })
}

// unmet returns the conditions of a, but for those in ignore, that the sender does not meet.
func (a *agent) unmet(auth Authentication, n named, ignore condition) (unmet condition) {
	for i := range conditionKinds {
		kind := &conditionKinds[i]
		if a.conditions&^ignore&kind.bit != 0 && !kind.met(a, auth, n) {
			unmet |= kind.bit
		}
	}
	return unmet
}

// describeUnmet lists the unmet conditions for people.
func (a *agent) describeUnmet(auth Authentication, n named) string {
	return strings.ReplaceAll(a.unmet(auth, n, 0).String(), "_", " ") + " differs"
}

// ambiguity says how one request can match both agents equally well, or returns "". Agents with
// different kinds of conditions never do: the stronger evidence decides.
//
// All of it is exact but for certificates: one that carries the names of two agents
// cannot be foreseen, and is refused when it comes.
func (a *agent) ambiguity(b *agent) string {
	if a.conditions != b.conditions {
		return ""
	}
	var both []string
	for _, kind := range conditionKinds {
		if a.conditions&kind.bit == 0 {
			continue
		}
		how := kind.overlap(a, b)
		if how == "" {
			return ""
		}
		both = append(both, how)
	}
	return strings.Join(both, ", ")
}

func overlapCredential(a, b *agent) string {
	return overlapText("credential user", a.Credentials, b.Credentials)
}

func overlapCertificate(a, b *agent) string {
	return overlapText("client certificate name", a.ClientCertificates, b.ClientCertificates)
}

func overlapText(kind string, a, b []string) string {
	if s, ok := common(a, b); ok {
		return fmt.Sprintf("%s %q", kind, s)
	}
	return ""
}

func overlapSource(a, b *agent) string {
	for _, p := range a.from {
		for _, q := range b.from {
			if p.Overlaps(q) {
				return fmt.Sprintf("sources %s and %s", p, q)
			}
		}
	}
	return ""
}

// overlapUserAgent compares products with products and globs with globs. A product goes
// before every glob (see [Identifier]), so those two never contend.
func overlapUserAgent(a, b *agent) string {
	if how := overlapText("User-Agent product", a.products, b.products); how != "" {
		return how
	}
	for _, g := range a.globs {
		for _, h := range b.globs {
			if witness, ok := g.intersect(h); ok {
				return fmt.Sprintf("User-Agent patterns %q and %q (both match %q)", g, h, witness)
			}
		}
	}
	return ""
}

// common returns the first element that both lists have.
func common(a, b []string) (string, bool) {
	for _, s := range a {
		if slices.Contains(b, s) {
			return s, true
		}
	}
	return "", false
}

// ranking keeps the agent with the strongest evidence, and another one that has the same.
type ranking struct{ best, tie *agent }

// consider ranks the agents whose conditions all hold.
func (r *ranking) consider(auth Authentication, n named, agents ...*agent) {
	for _, a := range agents {
		switch {
		case a == r.best || a.unmet(auth, n, 0) != 0:
		case r.best == nil || a.conditions > r.best.conditions:
			r.best, r.tie = a, nil
		case a.conditions == r.best.conditions:
			r.tie = a
		}
	}
}

// rank returns the ranking of all agents and, if there is binding evidence, one of the
// agents that it binds to: if possible one that the User-Agent names too.
func (id *Identifier) rank(auth Authentication, n named) (r ranking, bound *agent) {
	if agents := id.bound(auth); len(agents) > 0 {
		r.consider(auth, n, agents...)
		return r, n.pick(agents)
	}
	r.consider(auth, n, id.bySource...)
	for _, a := range n.agents {
		if a.conditions == byUserAgent {
			r.consider(auth, n, a)
		}
	}
	return r, nil
}

// bound returns the agents that credentials or, without any, the certificate bind the sender to.
// The slice is shared, and must not be changed.
func (id *Identifier) bound(auth Authentication) (agents []*agent) {
	if auth.user != "" {
		return auth.users
	}
	for _, name := range auth.certificates {
		if agents == nil {
			agents = id.byCert[name]
		} else {
			agents = append(slices.Clip(agents), id.byCert[name]...)
		}
	}
	return agents
}

// nameless identifies a sender by its binding evidence alone, as its User-Agent names no agent. It
// returns the refusal so far if that does not do.
func (id *Identifier) nameless(auth Authentication, refused Identity) Identity {
	var found *agent
	for _, a := range id.bound(auth) {
		switch {
		case a == found || a.unmet(auth, named{}, byUserAgent) != 0:
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

// named is the result of reading a User-Agent: the agents that it names.
type named struct {
	agents  []*agent // shared, not to be changed; empty for none
	product string   // that did, as received; "" if a pattern did
	folded  string   // the field in lower case, where some agent has patterns for it
}

// someoneElse reports whether the User-Agent names other agents than a.
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

// named finds the agents that the User-Agent names.
func (id *Identifier) named(userAgent string) (n named) {
	if userAgent == "" {
		return named{} // no pattern matches a missing field
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

// glob is a pattern for a whole header value in which * stands for any bytes, also
// none. It is kept in ASCII lower case, without runs of *.
type glob string

func newGlob(pattern string) glob {
	g := lowerASCII(pattern)
	for strings.Contains(g, "**") {
		g = strings.ReplaceAll(g, "**", "*")
	}
	return glob(g)
}

// match reports whether g matches all of s, which must be in ASCII lower case. It never
// backtracks: between the ends, each literal is taken where it comes first.
func (g glob) match(s string) bool {
	head, rest, star := strings.Cut(string(g), "*")
	s, ok := strings.CutPrefix(s, head)
	if !ok || !star {
		return ok && s == ""
	}
	for {
		var literal string
		if literal, rest, star = strings.Cut(rest, "*"); !star {
			return strings.HasSuffix(s, literal)
		}
		_, after, found := strings.Cut(s, literal)
		if !found {
			return false
		}
		s = after
	}
}

// intersect returns a string that both globs match, if there is one.
func (g glob) intersect(h glob) (witness string, ok bool) {
	return intersection{}.of(g, h)
}

// intersection is the search for a string that two globs match. It holds the pairs of rests for
// which there is none.
type intersection map[[2]glob]bool

func (none intersection) of(g, h glob) (string, bool) {
	if none[[2]glob{g, h}] {
		return "", false
	}
	witness, ok := none.search(g, h)
	none[[2]glob{g, h}] = !ok
	return witness, ok
}

func (none intersection) search(g, h glob) (string, bool) {
	switch {
	case g == "" && h == "":
		return "", true
	case strings.HasPrefix(string(h), "*") && !strings.HasPrefix(string(g), "*"):
		return none.of(h, g)
	case g == "":
		return "", false
	case g[0] != '*':
		if h == "" || g[0] != h[0] {
			return "", false
		}
		rest, ok := none.of(g[1:], h[1:])
		return string(g[:1]) + rest, ok
	}
	// The star of g stands for nothing, or for what h begins with.
	if witness, ok := none.of(g[1:], h); ok || h == "" {
		return witness, ok
	}
	rest, ok := none.of(g, h[1:])
	return strings.TrimPrefix(string(h[:1]), "*") + rest, ok
}
