package enforce

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/origin"
)

// PolicyConfig is what the operator says, besides who the agents are.
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
	// Connect says what becomes of CONNECT; the first rule that matches is taken, and
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

// Policy is what the operator says, ready for use. It never changes and is safe for
// concurrent use. The zero Policy enforces everywhere, judges paths strictly, denies no host,
// makes no exception and opens no tunnel.
type Policy struct {
	mode       Mode
	agentModes map[string]Mode // by name in lower case
	hostModes  hostIndex[Mode]
	deny       hostIndex[struct{}]
	exceptions hostIndex[*exception]
	connect    connectPolicy
	paths      Paths
}

// NewPolicy checks a policy and makes it ready for use. Warnings, for people, tell of
// exceptions that are over at the time now or lack what an auditor asks for.
func NewPolicy(cfg PolicyConfig, now time.Time) (p *Policy, warnings []string, err error) {
	p = &Policy{mode: cfg.Mode, agentModes: make(map[string]Mode, len(cfg.AgentModes)), paths: cfg.Paths}
	if err := errors.Join(cfg.Paths.check(), p.addModes(cfg)); err != nil {
		return nil, nil, err
	}
	for _, s := range cfg.Deny {
		pattern, err := ParseHostPattern(s)
		if err != nil {
			return nil, nil, fmt.Errorf("deny: %w", err)
		}
		if p.deny.has(pattern) {
			return nil, nil, fmt.Errorf("deny: %q is given twice", pattern)
		}
		p.deny.add(pattern, struct{}{})
	}
	for _, c := range cfg.Exceptions {
		w, err := p.addException(c, cfg.Agents, now)
		if err != nil {
			return nil, nil, fmt.Errorf("except %s: %w", strings.Join(c.Hosts, " "), err)
		}
		warnings = append(warnings, w...)
	}
	if p.connect, err = newConnectPolicy(cfg.Connect, cfg.ConnectDefault); err != nil {
		return nil, nil, err
	}
	return p, warnings, nil
}

func (p *Policy) addModes(cfg PolicyConfig) error {
	if err := cfg.Mode.check(); err != nil {
		return err
	}
	for name, m := range cfg.AgentModes {
		if err := errors.Join(m.check(), knownAgent(cfg.Agents, name)); err != nil {
			return fmt.Errorf("mode of agent %q: %w", name, err)
		}
		if _, twice := p.agentModes[lowerASCII(name)]; twice {
			return fmt.Errorf("mode of agent %q is given twice", name)
		}
		p.agentModes[lowerASCII(name)] = m
	}
	for _, h := range cfg.HostModes {
		if len(h.Hosts) == 0 {
			return fmt.Errorf("mode %s of hosts: names no host", h.Mode)
		}
		for _, s := range h.Hosts {
			pattern, err := ParseHostPattern(s)
			if err := errors.Join(h.Mode.check(), err); err != nil {
				return fmt.Errorf("mode %s of hosts: %w", h.Mode, err)
			}
			if p.hostModes.has(pattern) {
				return fmt.Errorf("mode of host %q is given twice", pattern)
			}
			p.hostModes.add(pattern, h.Mode)
		}
	}
	return nil
}

func (m Mode) check() error {
	if m > ModeOff {
		return fmt.Errorf("mode %d does not exist", m)
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

// Mode returns the mode for a request of the agent to the origin: the host's, else the
// agent's, else the general one.
func (p *Policy) Mode(o origin.Origin, agent string) Mode {
	if p == nil {
		return ModeEnforce
	}
	mode := p.mode
	if len(p.agentModes) > 0 {
		if m, ok := lookupFold(p.agentModes, agent); ok {
			mode = m
		}
	}
	p.hostModes.each(o, func(_ HostPattern, m Mode) bool {
		mode = m
		return false
	})
	return mode
}

// Paths returns in which forms a path is held against the rules.
func (p *Policy) Paths() Paths {
	if p == nil {
		return PathsStrict
	}
	return p.paths
}

// Denied returns the pattern of the deny list that the origin matches, if any.
func (p *Policy) Denied(o origin.Origin) (pattern HostPattern, denied bool) {
	if p == nil {
		return HostPattern{}, false
	}
	p.deny.each(o, func(match HostPattern, _ struct{}) bool {
		pattern, denied = match, true
		return false
	})
	return pattern, denied
}
