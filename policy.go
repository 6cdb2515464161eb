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
	Mode        string       `json:"mode,omitempty"`
	// MaxWait bounds how long a request of the agent is held. Default: the engine's wait.
	MaxWait *caddy.Duration `json:"max_wait,omitempty"`
	// Preferences and Unknown take precedence over the gateway's.
	Preferences string `json:"preferences,omitempty"`
	Unknown     string `json:"unknown,omitempty"`
}

// Credential is a user name and the hash of its password (bcrypt or argon2id, as `caddy
// hash-password` prints).
type Credential struct {
	User string `json:"user"`
	Hash string `json:"hash"`
}

// ExceptionConfig lets requests pass that robots.txt refuses. Each use is counted and logged.
type ExceptionConfig struct {
	enforce.Exception
	Until string `json:"until,omitempty"` // a date or a time
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
	checker := new(passwords.Checker)
	agents, names, err := h.agents(checker)
	if err != nil {
		return c, err
	}
	if err := oneOf("unidentified", h.Unidentified, "deny", "allow"); err != nil {
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
	operator, err := h.operatorConfig(names)
	if err != nil {
		return c, err
	}
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
		if err == nil {
			err = h.setUse(&a, c)
		}
		if err != nil {
			return nil, nil, err
		}
		agents, names = append(agents, a), append(names, c.Name)
	}
	for _, c := range h.known {
		names = append(names, c.Name)
	}
	return agents, names, nil
}

// setUse sets what the agent's content is for, and what a site's preferences do to it.
func (h *Handler) setUse(a *enforce.Agent, c AgentConfig) (err error) {
	for _, text := range []string{h.Unknown, c.Unknown} {
		if err := oneOf("unknown", text, "allow", "deny"); err != nil {
			return err
		}
	}
	a.DenyUnknown = cmp.Or(c.Unknown, h.Unknown) == "deny"
	if _, err := enforce.ParsePreferenceMode(h.Preferences); err != nil {
		return err
	}
	if a.Preferences, err = enforce.ParsePreferenceMode(cmp.Or(c.Preferences, h.Preferences)); err != nil {
		return fmt.Errorf("agent %q: %w", c.Name, err)
	}
	return nil
}

func (c *AgentConfig) agent(checker *passwords.Checker) (enforce.Agent, error) {
	fail := func(err error) (enforce.Agent, error) {
		return enforce.Agent{}, fmt.Errorf("agent %q: %w", c.Name, err)
	}
	from, err := guard.ParsePrefixes("from", c.From)
	if err != nil {
		return fail(err)
	}
	interval, err := pace.ParseRate(cmp.Or(c.Rate, "off"))
	if err != nil {
		return fail(err)
	}
	if _, err := enforce.ParseMode(c.Mode); err != nil {
		return fail(err)
	}
	a := c.Agent
	a.From, a.Interval, a.MaxWait = from, interval, (*time.Duration)(c.MaxWait)
	for _, credential := range c.Credentials {
		if err := checker.Add(credential.User, credential.Hash); err != nil {
			return fail(fmt.Errorf("credential of %q: %w", credential.User, err))
		}
		a.Credentials = append(a.Credentials, credential.User)
	}
	return a, nil
}

func (h *Handler) operatorConfig(names []string) (enforce.PolicyConfig, error) {
	config := enforce.PolicyConfig{
		Deny: h.Deny, Agents: names, HostModes: h.HostModes, Connect: h.Connect, ConnectDefault: enforce.ConnectIntercept,
		AgentModes: make(map[string]enforce.Mode),
	}
	var err error
	if config.Mode, err = enforce.ParseMode(h.Mode); err != nil {
		return config, err
	}
	if config.Paths, err = enforce.ParsePaths(h.Paths); err != nil {
		return config, err
	}
	for _, a := range h.Agents {
		if a.Mode == "" {
			continue // the general mode holds
		}
		if config.AgentModes[a.Name], err = enforce.ParseMode(a.Mode); err != nil {
			return config, err
		}
	}
	for _, e := range h.Exceptions {
		x := e.Exception
		if e.Until != "" {
			if x.Until, err = enforce.ParseUntil(e.Until); err != nil {
				return config, err
			}
		}
		config.Exceptions = append(config.Exceptions, x)
	}
	return config, nil
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
