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
	// Name is what logs and policy call the agent: up to 64 bytes of visible ASCII.
	Name string
	// Tokens are the product tokens under which it looks for its group in robots.txt,
	// most specific first (RFC 9309 section 2.2.1). Default: Name and, for a well-known
	// one, the tokens that follow it (Googlebot-News: Googlebot). The first token is also
	// the agent's own name in User-Agent: no other agent may show it.
	Tokens []string
	// IgnoreWildcard leaves the group * out: without a group of its own nothing binds
	// the agent. Well-known names that do so (AdsBot-Google) do it without this.
	IgnoreWildcard bool

	// UserAgents are patterns for User-Agent. One that is a product's name
	// ([robotstxt.IsProductName]) is compared with every product of the field
	// ([robotstxt.Products]), as a whole, ignoring case. Any other is compared with the whole
	// field, ignoring case; * stands for any bytes. A missing User-Agent satisfies no pattern.
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

// Limits of texts of the configuration, in bytes.
const (
	maxName    = 64
	maxToken   = 128
	maxPattern = 256
	maxText    = 200
)

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
	if err := checkName(cfg.Name); err != nil {
		return nil, nil, err
	}
	a = &agent{Agent: &cfg}
	warnings, err = a.compileTokens()
	for _, compile := range []func() error{a.compileUserAgents, a.compileSources, a.checkTexts} {
		if err == nil {
			err = compile()
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("agent %q: %w", cfg.Name, err)
	}
	a.setConditions()
	return a, warnings, nil
}

func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("agent has no name")
	case len(name) > maxName:
		return fmt.Errorf("agent name %q is longer than %d bytes", name[:maxName]+"...", maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return fmt.Errorf("agent name %q: only visible ASCII is allowed", name)
	default:
		return nil
	}
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
			return nil, fmt.Errorf("token %q is longer than %d bytes", token[:maxToken]+"...", maxToken)
		case !robotstxt.IsProductName(token):
			return nil, fmt.Errorf(`token %q is no product token: want a single word without version, of letters, digits, "-", "_" and "."`, token)
		case containsFold(a.robots.Tokens[:i], token):
			return nil, fmt.Errorf("token %q is given twice", token)
		case strings.EqualFold(token, "Mozilla"):
			warnings = append(warnings, fmt.Sprintf("agent %q: token %q names every browser", a.Name, token))
		case strings.ContainsAny(token, "0123456789."):
			// IsProductName leaves no other bytes but these.
			warnings = append(warnings, fmt.Sprintf(
				"agent %q: token %q has bytes other than letters, _ and - (RFC 9309 section 2.2.1); "+
					"sites cannot be expected to name it", a.Name, token))
		}
	}
	a.claims = []string{lowerASCII(a.robots.Tokens[0])}
	return warnings, nil
}

// compileUserAgents splits the patterns into products and globs.
func (a *agent) compileUserAgents() error {
	for _, pattern := range a.UserAgents {
		switch {
		case strings.TrimSpace(pattern) == "":
			return errors.New("user_agent pattern is empty")
		case len(pattern) > maxPattern:
			return fmt.Errorf("user_agent pattern %q is longer than %d bytes", pattern[:maxPattern]+"...", maxPattern)
		case hasControl(pattern):
			return fmt.Errorf("user_agent pattern %q has a control character", pattern)
		case !robotstxt.IsProductName(pattern):
			a.globs = append(a.globs, newGlob(pattern))
			continue
		}
		product := lowerASCII(pattern)
		a.products = append(a.products, product)
		if !slices.Contains(a.claims, product) {
			a.claims = append(a.claims, product)
		}
	}
	return nil
}

// compileSources brings the ranges into the form in which addresses are compared with them.
func (a *agent) compileSources() error {
	for _, p := range a.From {
		if !p.IsValid() || p != p.Masked() {
			return fmt.Errorf("from: %s is no range", p)
		}
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		a.from = append(a.from, p)
	}
	return nil
}

func (a *agent) checkTexts() error {
	for _, user := range a.Credentials {
		if user == "" || !isLine(user) || strings.Contains(user, ":") {
			return fmt.Errorf("credential user %q: want 1 to %d bytes without colon and control characters", cut(user, maxText), maxText)
		}
	}
	for _, name := range a.ClientCertificates {
		if name == "" || hasControl(name) {
			return fmt.Errorf("client_certificate name %q is empty or has a control character", name)
		}
	}
	if !isLine(a.Owner) || !isLine(a.Contact) {
		return fmt.Errorf("owner and contact are lines of up to %d bytes", maxText)
	}
	if a.Interval < 0 {
		return fmt.Errorf("interval %s is negative", a.Interval)
	}
	return nil
}

// setConditions notes what the agent names. One that names nothing is matched by its first token.
func (a *agent) setConditions() {
	for bit, values := range map[condition]int{
		byCredential: len(a.Credentials), byCertificate: len(a.ClientCertificates), bySource: len(a.From), byUserAgent: len(a.UserAgents),
	} {
		if values > 0 {
			a.conditions |= bit
		}
	}
	if a.conditions == 0 {
		a.conditions, a.products = byUserAgent, a.claims[:1:1]
	}
	a.identifiedBy = a.conditions.String()
}
