package enforce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/budget"
	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/robotstxt"
	"github.com/crawlgate/crawlgate/webbotauth"
)

// Agent is one crawler of the company: how to recognize its requests, and the names under which it
// looks for its rules.
//
// A request matches an agent if it meets all conditions that the agent has: UserAgents,
// Credentials, From, ClientCertificates. Any of several values of one condition will do. An agent
// without conditions is matched by User-Agent: its first token as a product. A missing User-Agent
// satisfies no pattern. An empty Preferences takes the site's in JSON; compiled, it counts as
// "deny".
type Agent struct {
	// Name is the name of the agent in logs and in the policy: up to 64 bytes of visible ASCII. No two
	// agents of a site have one name. Required.
	Name string `json:"name"`
	// Tokens are the product tokens under which the agent looks for its group in robots.txt, most
	// specific first (RFC 9309 section 2.2.1): letters, digits, `-`, `_` and `.`, up to 128 bytes.
	// The first is also its own name in User-Agent, which no other agent may send. Default: its
	// name and, for a well-known one, the tokens of its family (Googlebot-News: Googlebot).
	Tokens []string `json:"tokens,omitempty"`
	// IgnoreWildcard means that nothing binds the agent if it has no group of its own. Well-known
	// names that do so (AdsBot-Google) do not need it. Default: false.
	IgnoreWildcard bool `json:"ignore_wildcard_group,omitempty"`

	// UserAgents are patterns for User-Agent, of up to 256 bytes. The name of a product is compared
	// as a whole with every product of the field. Any other pattern is compared with the whole
	// field; `*` stands for any bytes. Case does not matter. Default: any.
	UserAgents []string `json:"user_agents,omitempty"`
	// Credentials are the user names of its proxy credentials.
	Credentials []string `json:"-"`
	// From are the ranges that its requests come from.
	From []netip.Prefix `json:"-"`
	// ClientCertificates are names: the verified certificate of the client has one of them as CN or
	// SAN. They need `strict_sni_host` off in the server, because the host of a proxied request is
	// never in the certificate of the gateway. Default: none is needed.
	ClientCertificates []string `json:"client_certificates,omitempty"`

	// Owner is the team that the agent belongs to, for refusals, logs and reports: a line of up to 200
	// bytes. Default: empty.
	Owner string `json:"owner,omitempty"`
	// Contact is where to ask about the agent, for refusals, logs and reports: a line of up to 200
	// bytes. Default: empty.
	Contact string `json:"contact,omitempty"`
	// Pass lists which of the crawler's own fields are sent on: `price`, the fields that offer a
	// price, and `signature`. The gateway removes the others. Default: none.
	Pass []string `json:"pass,omitempty"`
	// Purposes are what the content is used for: `search`, `ai-input`, `train-ai`, `archive`,
	// `tdm`, or another name. Default: none.
	Purposes []string `json:"purposes,omitempty"`
	// AlsoObey are tokens of controls or other crawlers, such as `Google-Extended`, whose groups
	// bind the agent too. The strictest rule counts. A token that no group names adds nothing.
	// Default: none.
	AlsoObey []string `json:"also_obey,omitempty"`
	// Mode replaces `mode` of the gateway for this agent: `enforce`, `report` or `off`. Default: the
	// gateway's.
	Mode Mode `json:"mode,omitempty"`
	// Preferences replaces `preferences` of the gateway for this agent: `deny` or `log`. Default: the
	// gateway's.
	Preferences PreferenceMode `json:"preferences,omitempty"`
	// DenyUnknown denies a purpose about which the site says nothing.
	DenyUnknown bool `json:"-"`
	// Interval is the least pause between two requests of the agent to one host, 0 for none of its
	// own.
	Interval time.Duration `json:"-"`
	// MaxWait is how long a request of the agent is held for politeness, nil for as long as any.
	MaxWait *time.Duration `json:"-"`
	// Budget limits its use per day. nil means no limit.
	Budget *budget.Allowance `json:"-"`
	Boundaries

	// SendUserAgent is the User-Agent that leaves in place of the client's: printable ASCII of up
	// to 256 bytes, whose first product is one of the agent's tokens. Rules are still judged by the
	// tokens. Default: the client's.
	SendUserAgent string `json:"send_user_agent,omitempty"`
	// SendFrom is the mail address that leaves as `From`. Default: the client's.
	SendFrom string `json:"send_from,omitempty"`
	// Sign has requests over https signed (Web Bot Auth). It excludes `pass: [signature]`. Default:
	// not signed.
	Sign *Signing `json:"sign,omitempty"`
	// Signer signs them. [NewIdentifier] sets it if Sign is there, without keys: the caller gives it
	// those before the first request.
	Signer *webbotauth.Signer `json:"-"`

	sends      string              // the product token that its requests have: of SendUserAgent or, as far as known, of its clients
	fields     http.Header         // that its requests are sent with
	stringForm hostIndex[struct{}] // the hosts that get the string form

	conditions   condition
	identifiedBy string
	robots       robotstxt.Agent
	claims       []string // the products, in lower case, by which a User-Agent names it
	products     []string // in lower case: its User-Agent condition, with globs
	globs        []glob
	from         []netip.Prefix
}

// Limits of texts of the configuration, in bytes.
const (
	maxName    = 64
	maxToken   = 128
	maxPattern = 256
	maxText    = 200
)

// PasswordCheck is the result of checking a password.
type PasswordCheck uint8

const (
	// PasswordWrong is not the password of the user.
	PasswordWrong PasswordCheck = iota
	// PasswordRight is the password of the user.
	PasswordRight
	// PasswordUnchecked is a password that was not checked, because too many others are waiting or
	// because the client left.
	PasswordUnchecked
)

// VerifyFunc checks the password of a user. It is called for unknown users too, and must take as
// long for them as for a wrong password, so that clients cannot discover names. source is the
// address of the client, which may be the zero value. It is called concurrently and should return
// PasswordUnchecked when ctx ends.
type VerifyFunc func(ctx context.Context, source netip.Addr, user, password string) PasswordCheck

// IdentifierConfig configures an [Identifier].
type IdentifierConfig struct {
	Agents []Agent
	// AllowUnidentified lets a request that matches no agent pass, under the product token of the
	// User-Agent. Without agents, every product token is an agent, and only senders without one are
	// unidentified.
	AllowUnidentified bool
	// Verify is needed if an agent has credentials. Otherwise credentials are ignored.
	Verify VerifyFunc
	// Now is when they are made ready, for warnings of agents that have expired.
	Now time.Time
}

// NewIdentifier checks the agents and makes them ready for matching. Warnings are human-readable.
// Errors name the agents: a name that is used twice, an invalid value, or two agents that one
// request could match equally well.
func NewIdentifier(cfg IdentifierConfig) (id *Identifier, warnings []string, err error) {
	id = &Identifier{
		tokenOnly: len(cfg.Agents) == 0, allowUnknown: cfg.AllowUnidentified,
		byClaim: make(map[string][]*Agent),
	}
	id.relisted.Store(newSignal())
	for _, c := range cfg.Agents {
		a, w, err := compileAgent(c)
		if err != nil {
			return nil, nil, err
		}
		for _, other := range id.agents {
			if strings.EqualFold(other.Name, a.Name) {
				return nil, nil, fmt.Errorf("agent %q is given twice "+
					"(names are compared ignoring case)", a.Name)
			}
			if how := a.ambiguity(other); how != "" {
				return nil, nil, fmt.Errorf("agents %q and %q can both match one request, by %s",
					other.Name, a.Name, how)
			}
		}
		warnings = append(warnings, w...)
		if end := a.End(); !end.IsZero() && !cfg.Now.Before(end) {
			warnings = append(warnings, fmt.Sprintf("agent %q: expired on %s", a.Name, a.Expires))
		}
		id.agents = append(id.agents, a)
		for _, claim := range a.claims {
			id.byClaim[claim] = append(id.byClaim[claim], a)
		}
		if len(a.Credentials) > 0 {
			if cfg.Verify == nil {
				return nil, nil, errors.New("agents have credentials, " +
					"but there is nothing to verify passwords with")
			}
			id.verify = cfg.Verify
		}
	}
	return id, warnings, nil
}

// compileAgent checks a single agent. Warnings are human-readable, and are not errors.
func compileAgent(cfg Agent) (a *Agent, warnings []string, err error) {
	switch name := cfg.Name; {
	case name == "":
		return nil, nil, errors.New("agent has no name")
	case len(name) > maxName:
		return nil, nil, tooLong("agent name", name, maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return nil, nil, fmt.Errorf("agent name %q: only visible ASCII is allowed", name)
	}
	a = &cfg
	warnings, err = a.compileTokens()
	for _, compile := range []func() error{a.compileUserAgents, a.compileSources, a.checkTexts, a.checkUse, a.compileSent, a.compileBoundaries} {
		if err == nil {
			err = compile()
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("agent %q: %w", cfg.Name, err)
	}
	for bit, values := range map[condition]int{
		byCredential: len(a.Credentials), byCertificate: len(a.ClientCertificates),
		bySource: len(a.From), byUserAgent: len(a.UserAgents),
	} {
		if values > 0 {
			a.conditions |= bit
		}
	}
	if a.conditions == 0 {
		a.conditions, a.products = byUserAgent, a.claims[:1:1]
	}
	a.identifiedBy = a.conditions.String()
	return a, warnings, nil
}

// compileTokens fills in robots and the claim of the first token.
func (a *Agent) compileTokens() (warnings []string, err error) {
	a.robots = robotstxt.Agent{Tokens: slices.Clone(a.Tokens), IgnoreWildcard: a.IgnoreWildcard}
	if len(a.Tokens) == 0 {
		if !robotstxt.IsProductName(a.Name) {
			return nil, errors.New("its name is not a product token: give it a token")
		}
		a.robots = robotstxt.Family(a.Name)
		a.robots.IgnoreWildcard = a.robots.IgnoreWildcard || a.IgnoreWildcard
	}
	for i, token := range a.robots.Tokens {
		switch {
		case token == "*":
			return nil, errors.New(`token "*" is not a product token: ` +
				"an agent without a group of its own gets * by itself")
		case len(token) > maxToken:
			return nil, tooLong("token", token, maxToken)
		case !robotstxt.IsProductName(token):
			return nil, fmt.Errorf("token %q is not a product token: want a single word without a version, "+
				`of letters, digits, "-", "_" and "."`, token)
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
	a.claims = []string{strings.ToLower(a.robots.Tokens[0])}
	return warnings, nil
}

// compileUserAgents splits the patterns into products and globs.
func (a *Agent) compileUserAgents() error {
	for _, pattern := range a.UserAgents {
		a.sends = cmp.Or(a.sends, robotstxt.ProductToken(pattern))
		switch {
		case strings.TrimSpace(pattern) == "":
			return errors.New("user_agent pattern is empty")
		case len(pattern) > maxPattern:
			return tooLong("user_agent pattern", pattern, maxPattern)
		case hasControl(pattern):
			return fmt.Errorf("user_agent pattern %q has a control character", pattern)
		case !robotstxt.IsProductName(pattern):
			a.globs = append(a.globs, newGlob(pattern))
			continue
		}
		product := strings.ToLower(pattern)
		a.products = append(a.products, product)
		if !slices.Contains(a.claims, product) {
			a.claims = append(a.claims, product)
		}
	}
	a.sends = cmp.Or(a.sends, a.robots.Tokens[0])
	return nil
}

// compileSources converts the ranges to the form that addresses are compared with.
func (a *Agent) compileSources() error {
	for _, p := range a.From {
		if !p.IsValid() || p != p.Masked() {
			return fmt.Errorf("from: %s is not a range", p)
		}
		if p.Addr().Is4In6() { // a range, so it has at least 96 bits
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		a.from = append(a.from, p)
	}
	return nil
}

func (a *Agent) checkTexts() error {
	for _, user := range a.Credentials {
		if user == "" || !isLine(user) || strings.Contains(user, ":") {
			return fmt.Errorf("credential user %q: want 1 to %d bytes without colon and control characters",
				escape.Cut(user, maxText), maxText)
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
	for i, kind := range a.Pass {
		if kind != PassPrice && kind != PassSignature || slices.Contains(a.Pass[:i], kind) {
			return fmt.Errorf("pass %q: want %s, %s, each once", escape.Cut(kind, maxName), PassPrice, PassSignature)
		}
	}
	if a.Interval < 0 {
		return fmt.Errorf("interval %s is negative", a.Interval)
	}
	if a.MaxWait != nil && *a.MaxWait < 0 {
		return fmt.Errorf("max_wait %s is negative", a.MaxWait)
	}
	return cmp.Or(a.Mode.Check(), a.Preferences.Check())
}

func tooLong(what, s string, limit int) error {
	return fmt.Errorf("%s %q is longer than %d bytes", what, escape.Cut(s, limit), limit)
}

// hasControl reports whether s has an ASCII control character.
func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// isLine reports whether s is a line of text of at most maxText bytes.
func isLine(s string) bool { return len(s) <= maxText && !hasControl(s) }

// containsFold reports whether list has s, ignoring case.
func containsFold(list []string, s string) bool {
	return slices.ContainsFunc(list, func(e string) bool { return strings.EqualFold(e, s) })
}

// Named returns the identity of an agent by its name, for a decision without a request. Without
// agent blocks every product token is an agent. IdentifiedBy is empty.
func (id *Identifier) Named(name string) (Identity, bool) {
	if id.tokenOnly {
		if !robotstxt.IsProductName(name) {
			return Identity{}, false
		}
		return Identity{
			Agent: name, Robots: robotstxt.Family(name), acceptance: acceptance{accepted: true},
		}, true
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

// Knows reports whether a sender may have the name. That is true for the name of an agent, and for
// any product token if there are no agents or if unidentified requests are allowed. See
// [Identity.StopName].
func (id *Identifier) Knows(name string) bool {
	_, named := id.Named(name)
	return named || id.allowUnknown && robotstxt.IsProductName(name)
}

// Agents returns the agents, in the order of their configuration. Neither they nor the slice must
// be changed.
func (id *Identifier) Agents() []*Agent { return id.agents }
