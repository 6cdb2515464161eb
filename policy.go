package crawlgate

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/crawlgate/crawlgate/audit/simulate"
	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/egress/guard"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/passwords"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/pace"
	"github.com/crawlgate/crawlgate/proxy"
	"github.com/crawlgate/crawlgate/robotscache"
)

// AgentConfig is one crawler of the company, with the conditions that its requests have to meet.
type AgentConfig struct {
	enforce.Agent
	Credentials []Credential `json:"credentials,omitempty"`
	From        []string     `json:"from,omitempty"`
	Rate        string       `json:"rate,omitempty"`
	// MaxWait bounds how long a request of the agent is held. Default: the engine's wait.
	MaxWait *caddy.Duration `json:"max_wait,omitempty"`
	// Unknown takes precedence over the gateway's.
	Unknown string `json:"unknown,omitempty"`
}

// Credential is a user name and the hash of its password (bcrypt or argon2id, as `caddy
// hash-password` prints).
type Credential struct {
	User string `json:"user"`
	Hash string `json:"hash"`
}

// policy is what the configuration says about requests: the part of a site's that needs nothing
// else. It is called when a Caddyfile is read, so that a fault is reported with its line, and again
// when the module is provisioned, as the configuration may have come as JSON.
func (h *Handler) policy() (proxy.Config, error) { return h.policyBy(nil) }

// policyBy is policy with another way to check passwords than by the agents'.
func (h *Handler) policyBy(verify enforce.VerifyFunc) (proxy.Config, error) {
	c := proxy.Config{EgressOff: h.EgressOff}
	var err error
	if c.Clients, err = proxy.ParseClients(h.Clients); err != nil {
		return c, err
	}
	err = cmp.Or(
		enforce.OneOf("unidentified", h.Unidentified, "deny", "allow"),
		enforce.OneOf("unknown", h.Unknown, "allow", "deny"),
		h.Preferences.Check(),
	)
	if err != nil {
		return c, err
	}
	checker := new(passwords.Checker)
	agents, names, err := h.agents(checker)
	if err != nil {
		return c, err
	}
	identifier := enforce.IdentifierConfig{Agents: agents, Verify: verify}
	identifier.AllowUnidentified = h.Unidentified == "allow" || h.Unidentified == "" && len(agents) == 0
	if verify == nil {
		identifier.Verify = checker.Verify
	}
	if c.Identifier, c.Warnings, err = enforce.NewIdentifier(identifier); err != nil {
		return c, err
	}
	operator := h.PolicyConfig
	operator.AgentNames, operator.ConnectDefault = names, enforce.ConnectIntercept
	policy, warnings, err := enforce.NewPolicy(operator, time.Now())
	c.Operator, c.Warnings = policy, append(c.Warnings, warnings...)
	return c, err
}

// Simulated is the policy of the site, beside an app that is not provisioned, for requests that are
// known from logs: these have no passwords, and each is taken for right.
func (h *Handler) Simulated(app caddy.Module) (p simulate.Policy, err error) {
	c, err := h.policyBy(simulate.AnyPassword)
	if err != nil {
		return p, err
	}
	a, ok := app.(*App)
	if !ok {
		return p, fmt.Errorf("%T is not the app robots", app)
	}
	e, err := a.settings()
	reading := robotscache.Interpretation{Policy: e.Cache.Policy, IndexHTML: e.Cache.IndexHTML}
	return simulate.Policy{
		Clients: c.Clients, Identifier: c.Identifier, Operator: c.Operator, Politeness: e.Politeness, Interpretation: reading,
		Signals: e.Signals,
	}, err
}

func (h *Handler) agents(checker *passwords.Checker) (agents []enforce.Agent, names []string, err error) {
	for _, c := range h.Agents {
		a, err := c.agent(checker)
		if err != nil {
			return nil, nil, fmt.Errorf("agent %q: %w", c.Name, err)
		}
		a.Preferences = cmp.Or(c.Preferences, h.Preferences, enforce.PreferencesLog)
		a.DenyUnknown = cmp.Or(c.Unknown, h.Unknown) == "deny"
		agents, names = append(agents, a), append(names, c.Name)
	}
	for _, c := range h.known {
		names = append(names, c.Name)
	}
	return agents, names, nil
}

func (c *AgentConfig) agent(checker *passwords.Checker) (a enforce.Agent, err error) {
	a = c.Agent
	a.MaxWait = (*time.Duration)(c.MaxWait)
	if a.From, err = guard.ParsePrefixes("from", c.From); err != nil {
		return a, err
	}
	if a.Interval, err = pace.ParseRate(cmp.Or(c.Rate, "off")); err != nil {
		return a, err
	}
	for _, credential := range c.Credentials {
		if err := checker.Add(credential.User, credential.Hash); err != nil {
			return a, fmt.Errorf("credential of %q: %w", credential.User, err)
		}
		a.Credentials = append(a.Credentials, credential.User)
	}
	return a, enforce.OneOf("unknown", c.Unknown, "allow", "deny")
}

// upstream parses one proxy. Its URL may hold credentials, which no error repeats.
func (u UpstreamConfig) upstream() (up egress.Upstream, err error) {
	up, err = egress.ParseUpstream(caddy.NewReplacer().ReplaceKnown(u.URL, ""))
	if err == nil && len(u.Hosts) > 0 {
		up.Match, err = upstreamHosts(u.Hosts)
	}
	return up, err
}

// upstreamHosts matches the hosts of an upstream proxy. Connections of one host share a transport
// whatever their port, so a pattern with a port could not be kept.
func upstreamHosts(hosts []string) (func(host string) bool, error) {
	patterns := make([]enforce.HostPattern, len(hosts))
	for i, s := range hosts {
		var err error
		if patterns[i], err = enforce.ParseHostPattern(s); err != nil {
			return nil, err
		}
		if _, _, err := net.SplitHostPort(s); err == nil {
			return nil, fmt.Errorf("host pattern %q: an upstream takes hosts without a port", s)
		}
	}
	return func(host string) bool {
		o := origin.Origin{Scheme: "http", Host: host, Port: 80}
		return slices.ContainsFunc(patterns, func(p enforce.HostPattern) bool { return p.Match(o) })
	}, nil
}
