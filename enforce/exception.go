package enforce

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/origin"
)

// Exception lets requests pass that robots.txt refuses, such as to a site whose owner has
// permitted it. It asks for no robots.txt. It lifts neither deny list nor kill switch.
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
	// Reason is a line for the log: why, who permitted it, which ticket.
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
	return time.Time{}, fmt.Errorf("until %q: want a date such as 2026-12-31, or a time such as 2026-12-31T12:00:00Z", cut(s, maxName))
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
	x.label = cut(strings.Join(append(hosts, x.paths...), " "), maxText)
	if c.Reason != "" {
		x.label = cut(hosts[0], maxText) + ": " + c.Reason
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

// pathPrefix checks a prefix and percent-encodes what a request has encoded too.
func pathPrefix(s string) (string, error) {
	switch {
	case !strings.HasPrefix(s, "/"):
		return "", fmt.Errorf("path %q does not start with a slash", cut(s, maxText))
	case len(s) > maxPattern:
		return "", fmt.Errorf("path %q is longer than %d bytes", cut(s, maxText), maxPattern)
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
