package enforce

import (
	"errors"
	"fmt"
	"iter"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/crawlgate/crawlgate/internal/escape"
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
// Names are compared in their canonical form: lower case, punycode, no trailing dot. A pattern with
// two possible meanings (.example.com, foo*.example.com, 192.0.2.0/24, a URL) is refused.
// The zero value matches nothing.
type HostPattern struct {
	key  string // the host, canonical; ".example.com" for the names below it; "*" for all
	port uint16 // 0: any
}

// ParseHostPattern reads a pattern. The error says what to write instead.
func ParseHostPattern(s string) (HostPattern, error) {
	fail := func(format string, args ...any) (HostPattern, error) {
		return HostPattern{}, fmt.Errorf("host pattern %q: %s", escape.Cut(s, maxText), fmt.Sprintf(format, args...))
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
		return HostPattern{host, port}, nil
	}
	host, below := strings.CutPrefix(host, "*.")
	if strings.Contains(host, "*") {
		return fail("has * elsewhere than alone before a dot at its start")
	}
	o, err := origin.FromAuthority("http", host)
	if err != nil {
		return fail("%v", err)
	}
	if !below {
		return HostPattern{o.Host, port}, nil
	}
	if _, isAddr := o.Addr(); isAddr {
		return fail("no names are below an address")
	}
	return HostPattern{"." + o.Host, port}, nil
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
		return "", 0, fmt.Errorf("port %q is not a number from 1 to 65535", escape.Cut(s[at+1:], maxName))
	}
	if host = s[:at]; strings.LastIndexByte(host, ':') > strings.LastIndexByte(host, ']') {
		return "", 0, errors.New("has more than one port, or IPv6 without brackets")
	}
	return host, uint16(n), nil
}

// Match reports whether the origin's host, and port if the pattern has one, is in the set.
func (p HostPattern) Match(o origin.Origin) bool {
	switch {
	case p.key == "" || o.IsZero() || p.port != 0 && p.port != o.Port:
		return false
	case p.key[0] == '.':
		return len(o.Host) > len(p.key) && strings.HasSuffix(o.Host, p.key)
	default:
		return p.key == "*" || p.key == o.Host
	}
}

// String returns the pattern in its one canonical spelling, "" for the zero value.
func (p HostPattern) String() string {
	host := p.key
	if strings.HasPrefix(host, ".") {
		host = "*" + host
	}
	if p.port == 0 {
		return host
	}
	return net.JoinHostPort(host, strconv.Itoa(int(p.port)))
}

// hostIndex finds the values of the patterns that match an origin, without looking at the others.
// The zero value is empty. It is safe for concurrent use once filled.
type hostIndex[V any] struct {
	byKey map[string][]hostEntry[V]
}

type hostEntry[V any] struct {
	pattern HostPattern
	value   V
}

// add gives a value to the hosts of some patterns. It refuses a pattern that has one already.
func (x *hostIndex[V]) add(hosts []string, v V) error {
	for _, s := range hosts {
		p, err := ParseHostPattern(s)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(x.byKey[p.key], func(e hostEntry[V]) bool { return e.pattern == p }) {
			return fmt.Errorf("%q is given twice", p)
		}
		x.put(p, v)
	}
	return nil
}

// put gives a pattern one more value.
func (x *hostIndex[V]) put(p HostPattern, v V) {
	if x.byKey == nil {
		x.byKey = make(map[string][]hostEntry[V])
	}
	x.byKey[p.key] = append(x.byKey[p.key], hostEntry[V]{p, v})
}

// matches yields the values of the matching patterns, the closest pattern first: the host itself,
// the longest name that it is below, all; of equal ones that with a port.
func (x *hostIndex[V]) matches(o origin.Origin) iter.Seq2[HostPattern, V] {
	return func(yield func(HostPattern, V) bool) {
		if len(x.byKey) == 0 || !x.yieldKey(o.Host, o.Port, yield) {
			return
		}
		for i := range len(o.Host) {
			if o.Host[i] == '.' && !x.yieldKey(o.Host[i:], o.Port, yield) {
				return
			}
		}
		x.yieldKey("*", o.Port, yield)
	}
}

// yieldKey yields those of a key with the port, then those without one.
func (x *hostIndex[V]) yieldKey(key string, port uint16, yield func(HostPattern, V) bool) bool {
	list := x.byKey[key]
	for _, want := range [2]uint16{port, 0} {
		for _, e := range list {
			if e.pattern.port == want && !yield(e.pattern, e.value) {
				return false
			}
		}
	}
	return true
}

// closest returns the value of the closest pattern that matches.
func (x *hostIndex[V]) closest(o origin.Origin) (p HostPattern, v V, ok bool) {
	for p, v := range x.matches(o) {
		return p, v, true
	}
	return p, v, false
}
