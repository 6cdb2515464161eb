package crawlgate

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/egress/guard"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/enforce/pace"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/proxy"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/simulate"
)

var (
	enforceModes = map[string]enforce.Mode{
		"": enforce.ModeEnforce, "enforce": enforce.ModeEnforce, "report": enforce.ModeReport, "off": enforce.ModeOff,
	}
	connects = map[string]enforce.Connect{
		"intercept": enforce.ConnectIntercept, "tunnel": enforce.ConnectTunnel, "deny": enforce.ConnectDeny,
	}
)

// policy is what the configuration says about requests: the part of a site's that needs nothing
// else. It is called when a Caddyfile is read, so that a fault is reported with its line, and again
// when the module is provisioned, as the configuration may have come as JSON.
func (h *Handler) policy() (proxy.Config, error) { return h.policyBy(nil) }

// policyBy is policy with another way to check passwords than by the agents'.
func (h *Handler) policyBy(verify enforce.VerifyFunc) (proxy.Config, error) {
	c := proxy.Config{MaxWait: (*time.Duration)(h.MaxWait), EgressOff: h.EgressOff, DecisionHeader: h.DecisionHeader}
	var err error
	if c.Clients, err = proxy.ParseClients(h.Clients); err != nil {
		return c, err
	}
	passwords := new(proxy.Passwords)
	agents, names, err := h.agents(passwords)
	if err != nil {
		return c, err
	}
	if err := oneOf("unidentified", h.Unidentified, "deny", "allow"); err != nil {
		return c, err
	}
	identifier := enforce.IdentifierConfig{Agents: agents, Verify: verify}
	identifier.AllowUnidentified = h.Unidentified == "allow" || h.Unidentified == "" && len(agents) == 0
	if verify == nil {
		identifier.Verify = passwords.Verify
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
		Clients: c.Clients, Identifier: c.Identifier, Operator: c.Operator, Politeness: e.Politeness, Reading: reading,
	}, err
}

func (h *Handler) agents(passwords *proxy.Passwords) (agents []enforce.Agent, names []string, err error) {
	for _, c := range h.Agents {
		a, err := c.agent(passwords)
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

func (c *AgentConfig) agent(passwords *proxy.Passwords) (enforce.Agent, error) {
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
	if err := oneOf("mode", c.Mode, "enforce", "report", "off"); err != nil {
		return fail(err)
	}
	a := enforce.Agent{
		Name: c.Name, Tokens: c.Tokens, IgnoreWildcard: c.IgnoreWildcardGroup, UserAgents: c.UserAgents, From: from,
		ClientCertificates: c.ClientCertificates, Owner: c.Owner, Contact: c.Contact, Interval: interval,
	}
	for _, credential := range c.Credentials {
		if err := passwords.Add(credential.User, credential.Hash); err != nil {
			return fail(fmt.Errorf("credential of %q: %w", credential.User, err))
		}
		a.Credentials = append(a.Credentials, credential.User)
	}
	return a, nil
}

func (h *Handler) operatorConfig(names []string) (enforce.PolicyConfig, error) {
	config := enforce.PolicyConfig{Deny: h.Deny, Agents: names, ConnectDefault: defaultConnect, AgentModes: make(map[string]enforce.Mode)}
	var err error
	if config.Mode, err = parseMode(h.Mode); err != nil {
		return config, err
	}
	if config.Paths, err = enforce.ParsePaths(h.Paths); err != nil {
		return config, err
	}
	for _, rule := range h.HostModes {
		mode, err := parseMode(rule.Mode)
		if err != nil {
			return config, err
		}
		config.HostModes = append(config.HostModes, enforce.HostMode{Hosts: rule.Hosts, Mode: mode})
	}
	for _, a := range h.Agents {
		if a.Mode != "" {
			config.AgentModes[a.Name] = enforceModes[a.Mode]
		}
	}
	for _, rule := range h.Connect {
		choice, ok := connects[rule.Mode]
		if !ok {
			return config, fmt.Errorf("connect %q: want intercept, tunnel, deny", rule.Mode)
		}
		config.Connect = append(config.Connect, enforce.ConnectRule{Choice: choice, Hosts: rule.Hosts})
	}
	for _, e := range h.Exceptions {
		x, err := e.exception()
		if err != nil {
			return config, err
		}
		config.Exceptions = append(config.Exceptions, x)
	}
	return config, nil
}

func parseMode(s string) (enforce.Mode, error) {
	mode, ok := enforceModes[s]
	if !ok {
		return mode, oneOf("mode", s, "enforce", "report", "off")
	}
	return mode, nil
}

// mayIntercept reports whether some CONNECT could be intercepted, so that an authority is needed.
func (h *Handler) mayIntercept() bool {
	for _, rule := range h.Connect {
		if connects[rule.Mode] == enforce.ConnectIntercept {
			return true
		}
		if len(rule.Hosts) == 0 {
			return false // holds for every host that is left
		}
	}
	return defaultConnect == enforce.ConnectIntercept
}

func (c *ExceptionConfig) exception() (enforce.Exception, error) {
	x := enforce.Exception{Hosts: c.Hosts, Paths: c.Paths, Agents: c.Agents, Reason: c.Reason}
	if c.Until == "" {
		return x, nil
	}
	var err error
	x.Until, err = enforce.ParseUntil(c.Until)
	return x, err
}

// upstream parses one proxy. Its URL may hold credentials, which no error repeats.
func (u UpstreamConfig) upstream() (egress.Upstream, error) {
	parsed, err := url.Parse(caddy.NewReplacer().ReplaceKnown(u.URL, ""))
	if err != nil {
		return egress.Upstream{}, errors.New("url cannot be parsed")
	}
	up := egress.Upstream{URL: parsed}
	if err := up.Check(); err != nil {
		return egress.Upstream{}, err
	}
	if len(u.Hosts) > 0 {
		if up.Match, err = upstreamHosts(u.Hosts); err != nil {
			return egress.Upstream{}, err
		}
	}
	return up, nil
}

// upstreamHosts matches the hosts of an upstream proxy. Connections of one host share a transport
// whatever their port, so a pattern with a port could not be kept.
func upstreamHosts(hosts []string) (func(host string) bool, error) {
	patterns := make([]enforce.HostPattern, 0, len(hosts))
	for _, s := range hosts {
		p, err := enforce.ParseHostPattern(s)
		if err != nil {
			return nil, err
		}
		if _, _, err := net.SplitHostPort(s); err == nil {
			return nil, fmt.Errorf("host pattern %q: an upstream takes hosts without a port", s)
		}
		patterns = append(patterns, p)
	}
	return func(host string) bool {
		for _, p := range patterns {
			if p.Match(origin.Origin{Scheme: "http", Host: host, Port: 80}) {
				return true
			}
		}
		return false
	}, nil
}
