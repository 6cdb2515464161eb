package enforce

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/origin"
)

// PolicyConfig is the operator's policy, as configured.
type PolicyConfig struct {
	// Mode holds where no other mode is given.
	Mode Mode
	// AgentModes are the modes of agents, by name.
	AgentModes map[string]Mode
	// HostModes are the modes of hosts. They go before those of agents. Of several
	// patterns that match a host the closest counts.
	HostModes []HostMode
	// Deny lists the hosts to which nothing goes, in every mode.
	Deny []string
	// Exceptions let requests pass that robots.txt refuses.
	Exceptions []Exception
	// Connect are the choices for CONNECT. The first rule that matches counts, and
	// ConnectDefault if none does.
	Connect        []ConnectRule
	ConnectDefault Connect
	// Paths says in which forms a path is held against the rules.
	Paths Paths
	// Agents are the names of the agents. Where there are some, the policy may refer to
	// no others; where there are none, every product token is an agent.
	Agents []string
}

// HostMode is the mode for the hosts of some patterns.
type HostMode struct {
	Hosts []string
	Mode  Mode
}

// Connect is the choice for a CONNECT that carries TLS. The zero value is ConnectDeny, and an
// undeclared value denies too.
type Connect uint8

const (
	// ConnectDeny opens no tunnel.
	ConnectDeny Connect = iota
	// ConnectTunnel opens one, blindly, where the rules refuse the agent nothing.
	ConnectTunnel
	// ConnectIntercept opens one and looks into it: each request inside is decided.
	ConnectIntercept
)

// String returns "deny", "tunnel" or "intercept".
func (c Connect) String() string {
	switch c {
	case ConnectTunnel:
		return "tunnel"
	case ConnectIntercept:
		return "intercept"
	default:
		return "deny"
	}
}

// ConnectRule is the choice for the hosts of some patterns; none means every host.
type ConnectRule struct {
	Choice Connect
	Hosts  []string
}

// Policy is the operator's policy, ready for use. It never changes and is safe for
// concurrent use. The zero Policy enforces everywhere, judges paths strictly, denies no host,
// makes no exception and opens no tunnel.
type Policy struct {
	mode           Mode
	agentModes     map[string]Mode // by name in lower case
	hostModes      hostIndex[Mode]
	deny           hostIndex[struct{}]
	exceptions     hostIndex[*exception]
	connect        hostIndex[connectAt]
	connectDefault Connect
	paths          Paths
}

// connectAt is a choice with the index of its rule: the first rule counts, not the closest.
type connectAt struct {
	index  int
	choice Connect
}

// NewPolicy checks a policy and makes it ready for use. Warnings, for people, tell of
// exceptions that are over at the time now, or have no reason or no end.
func NewPolicy(cfg PolicyConfig, now time.Time) (p *Policy, warnings []string, err error) {
	p = &Policy{
		mode: cfg.Mode, agentModes: make(map[string]Mode, len(cfg.AgentModes)), paths: cfg.Paths,
		connectDefault: cfg.ConnectDefault,
	}
	if err := p.addModes(cfg); err != nil {
		return nil, nil, err
	}
	if err := p.deny.add(cfg.Deny, struct{}{}); err != nil {
		return nil, nil, fmt.Errorf("deny: %w", err)
	}
	for _, c := range cfg.Exceptions {
		w, err := p.addException(c, cfg.Agents, now)
		if err != nil {
			return nil, nil, fmt.Errorf("except %s: %w", strings.Join(c.Hosts, " "), err)
		}
		warnings = append(warnings, w...)
	}
	for i, rule := range cfg.Connect {
		if err := p.addConnect(i, rule, i == len(cfg.Connect)-1); err != nil {
			return nil, nil, fmt.Errorf("connect %s: %w", rule.Choice, err)
		}
	}
	return p, warnings, nil
}

func (p *Policy) addModes(cfg PolicyConfig) error {
	for name, m := range cfg.AgentModes {
		if err := knownAgent(cfg.Agents, name); err != nil {
			return fmt.Errorf("mode of agent %q: %w", name, err)
		}
		if _, twice := p.agentModes[strings.ToLower(name)]; twice {
			return fmt.Errorf("mode of agent %q is given twice", name)
		}
		p.agentModes[strings.ToLower(name)] = m
	}
	for _, h := range cfg.HostModes {
		if len(h.Hosts) == 0 {
			return fmt.Errorf("mode %s of hosts: names no host", h.Mode)
		}
		if err := p.hostModes.add(h.Hosts, h.Mode); err != nil {
			return fmt.Errorf("mode %s of hosts: %w", h.Mode, err)
		}
	}
	return nil
}

// knownAgent refuses names that no agent has: a mistyped one would silently never match.
func knownAgent(agents []string, name string) error {
	if len(agents) > 0 && !containsFold(agents, name) {
		return fmt.Errorf("there is no agent %q", name)
	}
	return nil
}

func (p *Policy) addConnect(index int, rule ConnectRule, last bool) error {
	if len(rule.Hosts) > 0 {
		return p.connect.add(rule.Hosts, connectAt{index, rule.Choice})
	}
	if !last {
		return errors.New("holds for every host, so the rules after it are never reached")
	}
	p.connectDefault = rule.Choice
	return nil
}

// Mode returns the mode for a request of the agent to the origin: the host's, else the
// agent's, else the general one.
func (p *Policy) Mode(o origin.Origin, agent string) Mode {
	if _, m, ok := p.hostModes.closest(o); ok {
		return m
	}
	if m, ok := p.agentModes[strings.ToLower(agent)]; ok {
		return m
	}
	return p.mode
}

// Denied returns the pattern of the deny list that the origin matches, if any.
func (p *Policy) Denied(o origin.Origin) (pattern HostPattern, denied bool) {
	pattern, _, denied = p.deny.closest(o)
	return pattern, denied
}

// Connect returns the choice for CONNECT to the origin.
func (p *Policy) Connect(o origin.Origin) Connect {
	first, found := connectAt{choice: p.connectDefault}, false
	for _, at := range p.connect.matches(o) {
		if !found || at.index < first.index {
			first, found = at, true
		}
	}
	return first.choice
}

// ClientAllowed reports whether a client at source may use a gateway whose clients are in some
// ranges. No range at all stands for this machine and the company's own networks: the loopback
// addresses (127.0.0.0/8, ::1), the private ranges (RFC 1918, RFC 4193) and the link-local ones. The
// range that carriers share (100.64.0.0/10, RFC 6598) is not among them: other customers of the
// carrier have addresses in it, and so have load balancers of clouds, behind which is the whole
// internet. An unknown address is in no range.
func ClientAllowed(clients []netip.Prefix, source netip.Addr) bool {
	source = source.Unmap().WithZone("")
	if len(clients) == 0 {
		return source.IsLoopback() || source.IsPrivate() || source.IsLinkLocalUnicast()
	}
	return slices.ContainsFunc(clients, func(p netip.Prefix) bool { return p.Contains(source) })
}

// Exception lets requests pass that robots.txt refuses, for instance to a site whose owner has
// permitted it. It asks for no robots.txt. It overrides neither deny list nor kill switch.
type Exception struct {
	// Hosts are patterns as in [HostPattern]. At least one.
	Hosts []string
	// Paths are prefixes of the path and query in the bytes that are sent; none means
	// every path. All forms that servers resolve a path to ([origin.Resolve]) must have the
	// prefix too, or an exception would open another place.
	Paths []string
	// Agents are names of agents; none means every one.
	Agents []string
	// Until is when the exception ends, zero if it does not. See [ParseUntil].
	Until time.Time
	// Reason is a line for the log: the cause, the person who permitted it, a ticket.
	Reason string
}

// ParseUntil reads the end of an exception: a date, which is included to its end in UTC, or
// a time of RFC 3339.
func ParseUntil(s string) (time.Time, error) {
	if day, err := time.Parse(time.DateOnly, s); err == nil {
		return day.AddDate(0, 0, 1), nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("until %q: want a date such as 2026-12-31, or a time such as 2026-12-31T12:00:00Z", escape.Cut(s, maxName))
}

// exception is an Exception ready for matching.
type exception struct {
	label  string
	paths  []string
	agents []string
	until  time.Time
}

func (p *Policy) addException(c Exception, agents []string, now time.Time) (warnings []string, err error) {
	if len(c.Hosts) == 0 {
		return nil, errors.New("names no host")
	}
	if !isLine(c.Reason) {
		return nil, fmt.Errorf("reason is one line of up to %d bytes", maxText)
	}
	x := &exception{agents: slices.Clone(c.Agents), until: c.Until}
	for _, prefix := range c.Paths {
		canonical, err := pathPrefix(prefix)
		if err != nil {
			return nil, err
		}
		x.paths = append(x.paths, canonical)
	}
	for _, name := range c.Agents {
		if err := knownAgent(agents, name); err != nil {
			return nil, err
		}
	}
	var hosts []string
	for _, s := range c.Hosts {
		pattern, err := ParseHostPattern(s)
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, pattern.String())
		p.exceptions.put(pattern, x)
	}
	x.label = escape.Cut(strings.Join(append(hosts, x.paths...), " "), maxText)
	if c.Reason != "" {
		x.label = escape.Cut(hosts[0], maxText) + ": " + c.Reason
	} else {
		warnings = append(warnings, fmt.Sprintf("except %s: has no reason", x.label))
	}
	switch {
	case c.Until.IsZero():
		warnings = append(warnings, fmt.Sprintf("except %s: has no end", x.label))
	case !now.Before(c.Until):
		warnings = append(warnings, fmt.Sprintf("except %s: ended at %s", x.label, c.Until.UTC().Format(time.RFC3339)))
	}
	return warnings, nil
}

// pathPrefix checks a prefix and percent-encodes the bytes that are encoded in a request too.
func pathPrefix(s string) (string, error) {
	switch {
	case !strings.HasPrefix(s, "/"):
		return "", fmt.Errorf("path %q does not start with a slash", escape.Cut(s, maxText))
	case len(s) > maxPattern:
		return "", fmt.Errorf("path %q is longer than %d bytes", escape.Cut(s, maxText), maxPattern)
	case strings.ContainsAny(s, "*#"):
		return "", fmt.Errorf("path %q: want a plain prefix, without * and #", s)
	}
	if forms, ok := origin.Resolve(s); !ok {
		return "", fmt.Errorf("path %q covers nothing: servers could resolve it to too many others", s)
	} else if len(forms) > 0 {
		return "", fmt.Errorf("path %q covers nothing: servers resolve it to %q", s, forms[0])
	}
	const hex = "0123456789ABCDEF"
	b := make([]byte, 0, len(s))
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>\\^`{|}", c) >= 0 {
			b = append(b, '%', hex[c>>4], hex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return string(b), nil
}

// Exempt returns the label of the exception that covers the request at the time now. A path
// of "" stands for one that cannot be seen: exceptions with paths do not cover it.
func (p *Policy) Exempt(o origin.Origin, path, agent string, now time.Time) (label string, ok bool) {
	for _, x := range p.exceptions.matches(o) {
		if x.covers(path, agent, now) {
			return x.label, true
		}
	}
	return "", false
}

func (x *exception) covers(path, agent string, now time.Time) bool {
	if !x.until.IsZero() && !now.Before(x.until) {
		return false
	}
	if len(x.agents) > 0 && !containsFold(x.agents, agent) {
		return false
	}
	if len(x.paths) == 0 {
		return true
	}
	resolved, ok := origin.Resolve(path)
	return ok && slices.ContainsFunc(x.paths, func(prefix string) bool {
		elsewhere := func(form string) bool { return !strings.HasPrefix(form, prefix) }
		return !elsewhere(path) && !slices.ContainsFunc(resolved, elsewhere)
	})
}
