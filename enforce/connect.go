package enforce

import (
	"errors"
	"fmt"

	"github.com/crawlgate/crawlgate/origin"
)

// Connect says what becomes of a CONNECT that carries TLS. The zero value is ConnectDeny.
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

// connectPolicy finds the first rule that matches.
type connectPolicy struct {
	rules    hostIndex[connectAt]
	fallback Connect
}

type connectAt struct {
	index  int
	choice Connect
}

func newConnectPolicy(rules []ConnectRule, fallback Connect) (c connectPolicy, err error) {
	c.fallback = fallback
	for i, rule := range rules {
		if rule.Choice > ConnectIntercept || fallback > ConnectIntercept {
			return c, errors.New("connect: the choice does not exist")
		}
		if len(rule.Hosts) == 0 {
			if i != len(rules)-1 {
				return c, fmt.Errorf("connect %s: holds for every host, so the rules after it are never reached", rule.Choice)
			}
			c.fallback = rule.Choice
		}
		for _, s := range rule.Hosts {
			pattern, err := ParseHostPattern(s)
			if err != nil {
				return c, fmt.Errorf("connect %s: %w", rule.Choice, err)
			}
			if c.rules.has(pattern) {
				return c, fmt.Errorf("connect %s: %q is given twice", rule.Choice, pattern)
			}
			c.rules.add(pattern, connectAt{i, rule.Choice})
		}
	}
	return c, nil
}

// Connect returns the choice for CONNECT to the origin.
func (p *Policy) Connect(o origin.Origin) Connect {
	if p == nil {
		return ConnectDeny
	}
	first, found := connectAt{}, false
	p.connect.rules.each(o, func(_ HostPattern, at connectAt) bool {
		if !found || at.index < first.index {
			first, found = at, true
		}
		return true
	})
	if !found {
		return p.connect.fallback
	}
	return first.choice
}
