package enforce

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/crawlgate/crawlgate/origin"
)

// HostPattern is a set of hosts as operators write it in policy:
//
//	example.com          this host, at any port, over any scheme
//	*.example.com        every name below it, at any depth, but not itself
//	*                    every host
//	192.0.2.1, ::1       this address where a URL names it; a name that resolves to it is not meant
//	example.com:8080     the same with a port, which then has to be the request's: also
//	*.example.com:8080   [::1]:8080   *:8080
//
// Names are compared in their canonical form: lower case, punycode, no trailing dot. What
// could be meant in two ways (.example.com, foo*.example.com, 192.0.2.0/24, a URL) is refused.
// The zero value matches nothing.
type HostPattern struct {
	kind patternKind
	host string // canonical; of a suffix without "*."
	port uint16 // 0: any
}

type patternKind uint8

const (
	matchNone patternKind = iota
	matchExact
	matchBelow
	matchAll
)

// ParseHostPattern reads a pattern. The error says what to write instead.
func ParseHostPattern(s string) (HostPattern, error) {
	fail := func(format string, args ...any) (HostPattern, error) {
		return HostPattern{}, fmt.Errorf("host pattern %q: %s", cut(s, maxText), fmt.Sprintf(format, args...))
	}
	switch {
	case s == "":
		return fail("is empty")
	case strings.Contains(s, "://"):
		return fail("is a URL; want the host alone")
	case strings.HasPrefix(s, "."):
		return fail("could mean the name with or without those below it; write %s, *%s or both", s[1:], s)
	case isRange(s):
		return fail("is an address range; names that resolve into it would pass, so ranges are for the address guard")
	}
	host, port, err := splitPort(s)
	if err != nil {
		return fail("%v", err)
	}
	if host == "*" {
		return HostPattern{kind: matchAll, port: port}, nil
	}
	p := HostPattern{kind: matchExact, port: port}
	if below, ok := strings.CutPrefix(host, "*."); ok {
		p.kind, host = matchBelow, below
	}
	if strings.Contains(host, "*") {
		return fail("has * elsewhere than alone before a dot at its start")
	}
	o, err := origin.FromAuthority("http", host)
	if err != nil {
		return fail("%v", err)
	}
	if _, isAddr := o.Addr(); isAddr && p.kind == matchBelow {
		return fail("no names are below an address")
	}
	p.host = o.Host
	return p, nil
}

func isRange(s string) bool {
	_, err := netip.ParsePrefix(s)
	return err == nil
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
		return "", 0, fmt.Errorf("port %q is not a number from 1 to 65535", cut(s[at+1:], maxName))
	}
	if host = s[:at]; strings.LastIndexByte(host, ':') > strings.LastIndexByte(host, ']') {
		return "", 0, errors.New("has more than one port, or IPv6 without brackets")
	}
	return host, uint16(n), nil
}

// Match reports whether the origin's host, and port if the pattern has one, is in the set.
func (p HostPattern) Match(o origin.Origin) bool {
	if p.port != 0 && p.port != o.Port {
		return false
	}
	switch p.kind {
	case matchAll:
		return !o.IsZero()
	case matchExact:
		return p.host == o.Host
	case matchBelow:
		above, ok := strings.CutSuffix(o.Host, p.host)
		return ok && len(above) > 1 && above[len(above)-1] == '.'
	default:
		return false
	}
}

// String returns the pattern in its one canonical spelling, "" for the zero value.
func (p HostPattern) String() string {
	host := p.host
	switch p.kind {
	case matchNone:
		return ""
	case matchAll:
		host = "*"
	case matchBelow:
		host = "*." + host
	case matchExact:
		if p.port != 0 && strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
	}
	if p.port == 0 {
		return host
	}
	return host + ":" + strconv.Itoa(int(p.port))
}

// hostIndex finds what is filed under the patterns that match an origin, without looking
// at the others. The zero value is empty. It is safe for concurrent use once filled.
type hostIndex[V any] struct {
	exact, below map[string][]filed[V]
	all          []filed[V]
}

type filed[V any] struct {
	pattern HostPattern
	value   V
}

func (x *hostIndex[V]) add(p HostPattern, v V) {
	if x.exact == nil {
		x.exact, x.below = make(map[string][]filed[V]), make(map[string][]filed[V])
	}
	switch f := (filed[V]{p, v}); p.kind {
	case matchExact:
		x.exact[p.host] = append(x.exact[p.host], f)
	case matchBelow:
		x.below[p.host] = append(x.below[p.host], f)
	case matchAll:
		x.all = append(x.all, f)
	case matchNone:
	}
}

// has reports whether something is filed under exactly p.
func (x *hostIndex[V]) has(p HostPattern) bool {
	list := x.all
	switch p.kind {
	case matchExact:
		list = x.exact[p.host]
	case matchBelow:
		list = x.below[p.host]
	case matchAll, matchNone:
	}
	return slices.ContainsFunc(list, func(f filed[V]) bool { return f.pattern == p })
}

// each yields what is filed under matching patterns, the closest pattern first (the host
// itself, the longest name that it is below, all; of equal ones that with a port), until
// yield returns false.
func (x *hostIndex[V]) each(o origin.Origin, yield func(HostPattern, V) bool) {
	if !eachPort(x.exact[o.Host], o.Port, yield) {
		return
	}
	if len(x.below) > 0 {
		for at := strings.IndexByte(o.Host, '.'); at >= 0; {
			rest := o.Host[at+1:]
			if !eachPort(x.below[rest], o.Port, yield) {
				return
			}
			next := strings.IndexByte(rest, '.')
			if next < 0 {
				break
			}
			at += 1 + next
		}
	}
	eachPort(x.all, o.Port, yield)
}

// eachPort yields those filed with the port, then those without one.
func eachPort[V any](list []filed[V], port uint16, yield func(HostPattern, V) bool) bool {
	for _, want := range [2]uint16{port, 0} {
		for _, f := range list {
			if f.pattern.port == want && !yield(f.pattern, f.value) {
				return false
			}
		}
	}
	return true
}
