package enforce

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// PolicyConfig is the operator's policy, as configured.
type PolicyConfig struct {
	// Mode says what happens to a request that robots.txt refuses: `enforce` refuses it, `report`
	// lets it pass and logs that it would be refused, `off` does not ask for robots.txt. Default:
	// `enforce`.
	Mode Mode `json:"mode,omitempty"`
	// HostModes are the modes of some hosts. They take precedence over the mode of an agent. Of
	// several patterns that match a host, the closest counts. Default: none.
	HostModes []HostMode `json:"host_modes,omitempty"`
	// Deny lists patterns of hosts to which the gateway sends nothing, in every mode. If all sites
	// of the configuration deny a host, its robots.txt is not fetched either. Default: none.
	Deny []string `json:"deny,omitempty"`
	// Exceptions let requests pass that robots.txt refuses. Each use is counted and logged. Default:
	// none.
	Exceptions []Exception `json:"exceptions,omitempty"`
	// Connect says what happens to a CONNECT. The first rule that matches counts. A rule without hosts
	// matches every host, so it has to be the last. Default: `intercept`.
	Connect []ConnectRule `json:"connect,omitempty"`
	// ConnectDefault counts if no rule of Connect matches. The gateway sets it to ConnectIntercept.
	ConnectDefault Connect `json:"-"`
	// Paths says how a path is judged: `strict` as it is sent and as servers resolve it, `as_sent`
	// only as it is sent. Under `strict` a request is refused if one of the forms is disallowed.
	// Default: `strict`.
	Paths Paths `json:"paths,omitempty"`
	// AgentNames are the names of the agents. If there are any, the policy may refer to no others. If
	// there are not, every product token is an agent.
	AgentNames []string `json:"-"`
}

// HostMode is the mode for some hosts.
type HostMode struct {
	// Hosts are host patterns. Required.
	Hosts []string `json:"hosts"`
	// Mode is `enforce`, `report` or `off`. Required.
	Mode Mode `json:"mode"`
}

// ConnectRule says what happens to a CONNECT to some hosts.
type ConnectRule struct {
	// Choice is `intercept` (decide each request in the tunnel), `tunnel` (pass it through unread, if
	// robots.txt allows the agent everything) or `deny`. Required.
	Choice Connect `json:"mode"`
	// Hosts are host patterns. Default: every host.
	Hosts []string `json:"hosts,omitempty"`
}

// Exception lets requests pass that robots.txt refuses, for instance because the owner of the site
// has permitted it. It asks for no robots.txt. It overrides neither deny list nor stops.
type Exception struct {
	// Hosts are host patterns, at least one. Required.
	Hosts []string `json:"hosts"`
	// Paths are beginnings of path and query, in any equivalent spelling. All forms to which servers
	// resolve the path must begin with one of them too, or the exception would open another place.
	// Default: every path.
	Paths []string `json:"paths,omitempty"`
	// Agents are names of agents. Default: every agent.
	Agents []string `json:"agents,omitempty"`
	// Until is the end of the exception: a date, which is included (in UTC), or a time of RFC 3339.
	// Default: no end, with a warning.
	Until string `json:"until,omitempty"`
	// Reason is why: a line for the log. Reason, ticket and who approved it have up to 200 bytes
	// together. Default: empty, with a warning.
	Reason string `json:"reason,omitempty"`
	// Ticket is the number of the request for it. Default: empty.
	Ticket string `json:"ticket,omitempty"`
	// ApprovedBy is who permitted it. Default: empty.
	ApprovedBy string `json:"approved_by,omitempty"`
}

// Why is the reason of the exception, with its ticket and the person who approved it.
func (c Exception) Why() string {
	why := c.Reason
	for _, part := range [][2]string{{"ticket ", c.Ticket}, {"approved by ", c.ApprovedBy}} {
		if part[1] == "" {
			continue
		}
		if why != "" {
			why += ", "
		}
		why += part[0] + part[1]
	}
	return why
}

// parseUntil reads [Exception.Until].
func parseUntil(s string) (time.Time, error) {
	if day, err := time.Parse(time.DateOnly, s); err == nil {
		return day.AddDate(0, 0, 1), nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("until %q: want a date such as 2026-12-31, "+
		"or a time such as 2026-12-31T12:00:00Z", escape.Cut(s, maxName))
}

// NewPolicy checks a policy and makes it ready for use. It returns human-readable warnings about
// exceptions that are over at the time now, or that have no reason or no end.
func NewPolicy(cfg PolicyConfig, now time.Time) (p *Policy, warnings []string, err error) {
	p = &Policy{mode: cfg.Mode, paths: cfg.Paths, connectDefault: cfg.ConnectDefault}
	if err := cmp.Or(cfg.Mode.Check(), cfg.Paths.Check(), cfg.ConnectDefault.Check()); err != nil {
		return nil, nil, err
	}
	for _, h := range cfg.HostModes {
		if err := p.addHostMode(h); err != nil {
			return nil, nil, fmt.Errorf("mode %s of hosts: %w", h.Mode, err)
		}
	}
	if err := p.deny.add(cfg.Deny, struct{}{}); err != nil {
		return nil, nil, fmt.Errorf("deny: %w", err)
	}
	for _, c := range cfg.Exceptions {
		w, err := p.addException(c, cfg.AgentNames, now)
		if err != nil {
			return nil, nil, fmt.Errorf("except %s: %w", strings.Join(c.Hosts, " "), err)
		}
		warnings = append(warnings, w...)
	}
	for i, rule := range cfg.Connect {
		if err := p.addConnect(rule, i == len(cfg.Connect)-1); err != nil {
			return nil, nil, fmt.Errorf("connect %s: %w", rule.Choice, err)
		}
	}
	return p, warnings, nil
}

func (p *Policy) addHostMode(h HostMode) error {
	if len(h.Hosts) == 0 {
		return errors.New("names no host")
	}
	return cmp.Or(h.Mode.Check(), p.hostModes.add(h.Hosts, h.Mode))
}

func (p *Policy) addConnect(rule ConnectRule, last bool) error {
	if err := rule.Choice.Check(); err != nil {
		return err
	}
	if len(rule.Hosts) == 0 {
		if !last {
			return errors.New("applies to every host, so the rules after it are never reached")
		}
		p.connectDefault = rule.Choice
	}
	for _, s := range rule.Hosts {
		host, err := ParseHostPattern(s)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(p.connect, func(r connectRule) bool { return r.host == host }) {
			return fmt.Errorf("%q is given twice", host)
		}
		for _, r := range p.connect {
			if r.choice != rule.Choice && r.host.covers(host) {
				return fmt.Errorf("%q is never reached, because %q comes first", host, r.host)
			}
		}
		p.connect = append(p.connect, connectRule{host, rule.Choice})
	}
	return nil
}

func (p *Policy) addException(
	c Exception, agents []string, now time.Time,
) (warnings []string, err error) {
	if len(c.Hosts) == 0 {
		return nil, errors.New("names no host")
	}
	if !isLine(c.Why()) {
		return nil, fmt.Errorf("reason, ticket and approved_by are one line of up to %d bytes together", maxText)
	}
	x := &exception{Exception: c}
	if c.Until != "" {
		if x.until, err = parseUntil(c.Until); err != nil {
			return nil, err
		}
	}
	p.all = append(p.all, x)
	x.Paths = slices.Clone(c.Paths)
	for i, prefix := range c.Paths {
		if x.Paths[i], err = pathPrefix(prefix); err != nil {
			return nil, err
		}
	}
	for _, name := range c.Agents {
		if len(agents) > 0 && !containsFold(agents, name) { // it would silently never match
			return nil, fmt.Errorf("there is no agent %q", name)
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
	x.label = escape.Cut(strings.Join(append(hosts, x.Paths...), " "), maxText)
	if why := c.Why(); why != "" {
		x.label = escape.Cut(hosts[0], maxText) + ": " + why
	} else {
		warnings = append(warnings, fmt.Sprintf("except %s: has no reason", x.label))
	}
	switch {
	case x.until.IsZero():
		warnings = append(warnings, fmt.Sprintf("except %s: has no end", x.label))
	case !now.Before(x.until):
		warnings = append(warnings, fmt.Sprintf("except %s: ended at %s", x.label, stamp(x.until)))
	}
	return warnings, nil
}

// pathPrefix checks a prefix, and returns its canonical form.
func pathPrefix(s string) (string, error) {
	switch {
	case !strings.HasPrefix(s, "/"):
		return "", fmt.Errorf("path %q does not start with a slash", escape.Cut(s, maxText))
	case len(s) > maxPattern:
		return "", tooLong("path", s, maxPattern)
	case strings.ContainsAny(s, "*#"):
		return "", fmt.Errorf("path %q: want a plain prefix, without * and #", s)
	}
	if forms, ok := origin.Resolve(s); !ok {
		return "", fmt.Errorf("path %q covers nothing: servers could resolve it to too many others", s)
	} else if len(forms) > 0 {
		return "", fmt.Errorf("path %q covers nothing: servers resolve it to %q", s, forms[0])
	}
	return robotstxt.Canonical(s), nil
}

// ParseHostPattern reads a pattern. The error says what to write instead.
func ParseHostPattern(s string) (HostPattern, error) {
	fail := func(format string, args ...any) (HostPattern, error) {
		err := fmt.Errorf(format, args...)
		return HostPattern{}, fmt.Errorf("host pattern %q: %w", escape.Cut(s, maxText), err)
	}
	_, notRange := netip.ParsePrefix(s)
	switch {
	case s == "":
		return fail("is empty")
	case strings.Contains(s, "://"):
		return fail("is a URL; want the host alone")
	case strings.HasPrefix(s, "."):
		return fail("could mean the name with or without the names below it; write %s, *%s or both", s[1:], s)
	case notRange == nil:
		return fail("is an address range; names that resolve into it would pass, " +
			"so ranges are for the address guard")
	}
	host, port, err := splitPort(s)
	if err != nil {
		return fail("%v", err)
	}
	if host == "*" {
		return HostPattern{host, port}, nil
	}
	host, below := strings.CutPrefix(host, "*.")
	if strings.Contains(host, "*") {
		return fail("may have * only at its start, before a dot")
	}
	o, err := origin.FromAuthority("http", host)
	if err != nil {
		return fail("%v", err)
	}
	if !below {
		return HostPattern{o.Host, port}, nil
	}
	if _, isAddr := o.Addr(); isAddr {
		return fail("an address has no names below it")
	}
	return HostPattern{"." + o.Host, port}, nil
}

// splitPort cuts host and port. A bare IPv6 address gets the brackets of an authority.
func splitPort(s string) (host string, port uint16, err error) {
	if addr, err := netip.ParseAddr(s); err == nil && addr.Is6() {
		return "[" + s + "]", 0, nil
	}
	at := strings.LastIndexByte(s, ':')
	if at < 0 || strings.HasSuffix(s, "]") {
		return s, 0, nil
	}
	n, err := strconv.ParseUint(s[at+1:], 10, 16)
	if err != nil || n == 0 || s[at+1] == '0' {
		return "", 0, fmt.Errorf("port %q is not a number from 1 to 65535", escape.Cut(s[at+1:], maxName))
	}
	if host = s[:at]; strings.LastIndexByte(host, ':') > strings.LastIndexByte(host, ']') {
		return "", 0, errors.New("has more than one port, or IPv6 without brackets")
	}
	return host, uint16(n), nil
}

// add sets the value of some patterns. It refuses a pattern that already has one.
func (x *hostIndex[V]) add(hosts []string, v V) error {
	for _, s := range hosts {
		p, err := ParseHostPattern(s)
		if err != nil {
			return err
		}
		if len((*x)[p]) > 0 {
			return fmt.Errorf("%q is given twice", p)
		}
		x.put(p, v)
	}
	return nil
}

// put adds a value to a pattern.
func (x *hostIndex[V]) put(p HostPattern, v V) {
	if *x == nil {
		*x = make(hostIndex[V])
	}
	(*x)[p] = append((*x)[p], v)
}
