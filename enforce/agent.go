package enforce

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/robotstxt"
)

// Agent is one crawler of the company: how its requests are told from others, and under
// which names it looks for its rules.
//
// A request matches an agent if all conditions hold that the agent names: UserAgents,
// Credentials, From, ClientCertificates. Of several values of one condition any will do.
// An agent that names none is matched by User-Agent: its first token as a product.
type Agent struct {
	// Name is what logs and policy call the agent: up to 64 visible ASCII octets.
	Name string
	// Tokens are the product tokens under which it looks for its group in robots.txt,
	// most specific first (RFC 9309 section 2.2.1). Default: Name and, for a well-known
	// one, the tokens that follow it (Googlebot-News: Googlebot). The first token is also
	// the agent's own name in User-Agent: no other agent may show it.
	Tokens []string
	// IgnoreWildcard leaves the group * out: without a group of its own nothing binds
	// the agent. Well-known names that do so (AdsBot-Google) need not be told.
	IgnoreWildcard bool

	// UserAgents are patterns for User-Agent. One that is a product's name
	// ([robotstxt.IsProductName]) is compared with every product of the field
	// ([robotstxt.Products]), as a whole, ignoring case. Any other is compared with the whole
	// field, ignoring case; * stands for any octets. A missing User-Agent satisfies no pattern.
	UserAgents []string
	// Credentials are the user names of its proxy credentials.
	Credentials []string
	// From are the ranges that its requests come from.
	From []netip.Prefix
	// ClientCertificates are names (CN or SAN), one of which its certificate has to carry.
	ClientCertificates []string

	// Owner and Contact are for people, in refusals, logs and reports: a line each.
	Owner, Contact string
	// Interval is the least pause between two requests of the agent to one host, 0 for
	// none of its own.
	Interval time.Duration
}

// Limits of an Agent's texts.
const (
	maxName    = 64
	maxToken   = 128
	maxPattern = 256
	maxText    = 200
)

// condition is a set of kinds of evidence. Their order is that of strength: of several
// agents that a request matches, the one with the numerically greatest set is taken.
// A set is never ambiguous against another set.
type condition uint8

const (
	byUserAgent condition = 1 << iota
	bySource
	byCertificate
	byCredential
)

// conditionNames are the closed set of words in [Decision.IdentifiedBy], strongest first.
var conditionNames = []struct {
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
	for _, n := range conditionNames {
		if c&n.bit != 0 {
			names = append(names, n.name)
		}
	}
	return strings.Join(names, "+")
}

// agent is an Agent ready for matching.
type agent struct {
	*Agent
	conditions   condition
	identifiedBy string
	robots       robotstxt.Agent
	// claims are the products, in lower case, by which a User-Agent names this agent.
	claims []string
	// products and globs are its User-Agent condition.
	products []string
	globs    []glob
	from     []netip.Prefix
}

// compileAgent checks one agent by itself. Warnings are for people; they do not stop it.
func compileAgent(cfg Agent) (a *agent, warnings []string, err error) {
	a = &agent{Agent: &cfg}
	if err := checkName(cfg.Name); err != nil {
		return nil, nil, err
	}
	wrap := func(err error) error { return fmt.Errorf("agent %q: %w", cfg.Name, err) }
	if warnings, err = a.compileTokens(); err != nil {
		return nil, nil, wrap(err)
	}
	if err := a.compileUserAgents(); err != nil {
		return nil, nil, wrap(err)
	}
	if err := a.compileOthers(); err != nil {
		return nil, nil, wrap(err)
	}
	a.identifiedBy = a.conditions.String()
	return a, warnings, nil
}

func checkName(name string) error {
	if name == "" {
		return errors.New("agent has no name")
	}
	if len(name) > maxName {
		return fmt.Errorf("agent name %q is longer than %d octets", name[:maxName]+"...", maxName)
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return fmt.Errorf("agent name %q: only visible ASCII is allowed", name)
	}
	return nil
}

// compileTokens fills in robots and the claim of the first token.
func (a *agent) compileTokens() (warnings []string, err error) {
	a.robots = robotstxt.Agent{Tokens: slices.Clone(a.Tokens), IgnoreWildcard: a.IgnoreWildcard}
	if len(a.Tokens) == 0 {
		if !robotstxt.IsProductName(a.Name) {
			return nil, errors.New("its name is no product token: give it a token")
		}
		a.robots = robotstxt.Family(a.Name)
		a.robots.IgnoreWildcard = a.robots.IgnoreWildcard || a.IgnoreWildcard
	}
	for i, token := range a.robots.Tokens {
		switch {
		case token == "*":
			return nil, errors.New(`token "*" is no product token: an agent without a group of its own gets * by itself`)
		case len(token) > maxToken:
			return nil, fmt.Errorf("token %q is longer than %d octets", token[:maxToken]+"...", maxToken)
		case !robotstxt.IsProductName(token):
			return nil, fmt.Errorf(`token %q is no product token: want a single word without version, of letters, digits, "-", "_" and "."`, token)
		case containsFold(a.robots.Tokens[:i], token):
			return nil, fmt.Errorf("token %q is given twice", token)
		case strings.EqualFold(token, "Mozilla"):
			warnings = append(warnings, fmt.Sprintf("agent %q: token %q names every browser", a.Name, token))
		case !isRobotsToken(token):
			warnings = append(warnings, fmt.Sprintf(
				"agent %q: token %q has octets other than letters, _ and - (RFC 9309 section 2.2.1); "+
					"sites cannot be expected to name it", a.Name, token))
		}
	}
	a.claims = []string{lowerASCII(a.robots.Tokens[0])}
	return warnings, nil
}

// isRobotsToken reports whether s is in the alphabet of RFC 9309 section 2.2.1.
func isRobotsToken(s string) bool {
	for i := range len(s) {
		if c := lower(s[i]); (c < 'a' || c > 'z') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// compileUserAgents splits the patterns into products and globs.
func (a *agent) compileUserAgents() error {
	for _, pattern := range a.UserAgents {
		switch {
		case strings.TrimSpace(pattern) == "":
			return errors.New("user_agent pattern is empty")
		case len(pattern) > maxPattern:
			return fmt.Errorf("user_agent pattern %q is longer than %d octets", pattern[:maxPattern]+"...", maxPattern)
		case hasControl(pattern):
			return fmt.Errorf("user_agent pattern %q has a control octet", pattern)
		case robotstxt.IsProductName(pattern):
			a.products = append(a.products, lowerASCII(pattern))
		default:
			a.globs = append(a.globs, newGlob(pattern))
		}
	}
	for _, p := range a.products {
		if !slices.Contains(a.claims, p) {
			a.claims = append(a.claims, p)
		}
	}
	if len(a.UserAgents) > 0 {
		a.conditions |= byUserAgent
	}
	return nil
}

// compileOthers checks the remaining conditions and texts. It comes last: an agent that
// names no condition so far is matched by its first token.
func (a *agent) compileOthers() error {
	for _, user := range a.Credentials {
		if user == "" || len(user) > maxText || hasControl(user) || strings.Contains(user, ":") {
			return fmt.Errorf("credential user %q: want 1 to %d octets without colon and control octets", cut(user, maxText), maxText)
		}
		a.conditions |= byCredential
	}
	for _, name := range a.ClientCertificates {
		if name == "" || hasControl(name) {
			return fmt.Errorf("client_certificate name %q is empty or has a control octet", name)
		}
		a.conditions |= byCertificate
	}
	for _, p := range a.From {
		if !p.IsValid() || p != p.Masked() {
			return fmt.Errorf("from: %s is no range", p)
		}
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		a.from = append(a.from, p)
		a.conditions |= bySource
	}
	for _, text := range []string{a.Owner, a.Contact} {
		if len(text) > maxText || hasControl(text) {
			return fmt.Errorf("owner and contact are lines of up to %d octets", maxText)
		}
	}
	if a.Interval < 0 {
		return fmt.Errorf("interval %s is negative", a.Interval)
	}
	if a.conditions == 0 {
		a.conditions, a.products = byUserAgent, a.claims[:1:1]
	}
	return nil
}

// containsFold reports whether list has s, ignoring ASCII case.
func containsFold(list []string, s string) bool {
	return slices.ContainsFunc(list, func(e string) bool { return strings.EqualFold(e, s) })
}

// ambiguity says how one request can match both agents alike, or returns "". Agents with
// different kinds of conditions never do: the stronger evidence decides.
//
// All of it is exact but for certificates: one that carries the names of two agents
// cannot be foreseen, and is refused when it comes.
func (a *agent) ambiguity(b *agent) string {
	if a.conditions != b.conditions {
		return ""
	}
	var both []string
	for _, c := range []struct {
		bit     condition
		overlap func(a, b *agent) string
	}{
		{byCredential, overlapCredential},
		{byCertificate, overlapCertificate},
		{bySource, overlapSource},
		{byUserAgent, overlapUserAgent},
	} {
		if a.conditions&c.bit == 0 {
			continue
		}
		how := c.overlap(a, b)
		if how == "" {
			return ""
		}
		both = append(both, how)
	}
	return strings.Join(both, ", ")
}

func overlapCredential(a, b *agent) string {
	if user, ok := common(a.Credentials, b.Credentials); ok {
		return fmt.Sprintf("credential user %q", user)
	}
	return ""
}

func overlapCertificate(a, b *agent) string {
	if name, ok := common(a.ClientCertificates, b.ClientCertificates); ok {
		return fmt.Sprintf("client certificate name %q", name)
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
	if p, ok := common(a.products, b.products); ok {
		return fmt.Sprintf("User-Agent product %q", p)
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
