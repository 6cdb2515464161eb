package enforce

import (
	"cmp"
	"errors"
	"iter"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotstxt"
	"github.com/crawlgate/crawlgate/webbotauth"
)

// Connect is the choice for a CONNECT that carries TLS. An undeclared value, such as the zero
// value, counts as ConnectDeny.
type Connect string

const (
	// ConnectDeny opens no tunnel.
	ConnectDeny Connect = "deny"
	// ConnectTunnel opens a blind tunnel if the rules allow the agent everything.
	ConnectTunnel Connect = "tunnel"
	// ConnectIntercept opens a tunnel and intercepts it: each request inside is decided.
	ConnectIntercept Connect = "intercept"
)

// Check returns an error for an undeclared choice. The empty choice denies.
func (c Connect) Check() error {
	return OneOf("connect", c, ConnectIntercept, ConnectTunnel, ConnectDeny)
}

// Policy is the operator's policy, ready for use. It never changes and is safe for concurrent use.
// The zero Policy enforces everywhere, judges paths strictly, denies no host, makes no exception
// and opens no tunnel.
type Policy struct {
	mode           Mode
	hostModes      hostIndex[Mode]
	deny           hostIndex[struct{}]
	exceptions     hostIndex[*exception]
	all            []*exception // each once
	connect        []connectRule
	connectDefault Connect
	paths          Paths
}

// connectRule is the choice for the hosts of one pattern.
type connectRule struct {
	host   HostPattern
	choice Connect
}

// Mode returns the mode for a request of the agent, which may be nil, to the origin. The host's
// mode takes precedence over the agent's, and that over the general one.
func (p *Policy) Mode(o origin.Origin, agent *Agent) Mode {
	_, mode, ok := p.hostModes.closest(o)
	if !ok && agent != nil {
		mode = agent.Mode
	}
	if !ok && mode == "" {
		mode = p.mode
	}
	return cmp.Or(mode, ModeEnforce)
}

// Denied returns the pattern of the deny list that the origin matches, if any.
func (p *Policy) Denied(o origin.Origin) (pattern HostPattern, denied bool) {
	pattern, _, denied = p.deny.closest(o)
	return pattern, denied
}

// Connect returns the choice for CONNECT to the origin: the one of the first rule that matches.
func (p *Policy) Connect(o origin.Origin) Connect {
	choice := p.connectDefault
	if i := slices.IndexFunc(p.connect, func(r connectRule) bool { return r.host.Match(o) }); i >= 0 {
		choice = p.connect[i].choice
	}
	if choice != ConnectTunnel && choice != ConnectIntercept {
		return ConnectDeny
	}
	return choice
}

// MayIntercept reports whether the choice for CONNECT to some origin is to intercept it.
func (p *Policy) MayIntercept() bool {
	intercepts := func(r connectRule) bool { return r.choice == ConnectIntercept }
	return p.connectDefault == ConnectIntercept || slices.ContainsFunc(p.connect, intercepts)
}

// The kinds of fields in [Agent.Pass].
const (
	// PassPrice is for fields that offer or spend money, such as Crawler-Max-Price, and
	// Payment-Signature of x402.
	PassPrice = "price"
	// PassSignature is for the crawler's own signature (RFC 9421).
	PassSignature = "signature"
)

// Passes reports whether fields of a kind are sent on. For a sender without an agent block, none
// are.
func (a *Agent) Passes(kind string) bool { return a != nil && slices.Contains(a.Pass, kind) }

// Sends returns the fields that replace the client's own in the agent's requests. They must not be
// changed.
func (a *Agent) Sends() http.Header {
	if a == nil {
		return nil
	}
	return a.fields
}

// Signs reports whether requests of the agent are signed.
func (a *Agent) Signs() bool { return a != nil && a.Signer != nil }

// Signature signs a request that is about to leave to an origin.
func (a *Agent) Signature(r *http.Request, o origin.Origin, now time.Time) Signature {
	if !a.Signs() {
		return Signature{}
	}
	form := webbotauth.Dictionary
	if _, _, ok := a.stringForm.closest(o); ok {
		form = webbotauth.String
	}
	key, err := a.Signer.Sign(r, form, now)
	switch {
	case err == nil:
		return Signature{Key: key, Form: form}
	case errors.Is(err, webbotauth.ErrNoKey):
		return Signature{Unsigned: UnsignedNoKey}
	}
	return Signature{Unsigned: UnsignedScheme}
}

// ClientAllowed reports whether a client at source may use a gateway whose clients are in some
// ranges. An empty list stands for this machine and the company's own networks: the loopback
// addresses (127.0.0.0/8, ::1), the private ranges (RFC 1918, RFC 4193) and the link-local ones.
// The range that carriers share (100.64.0.0/10, RFC 6598) is not among them: other customers of the
// carrier have addresses in it, and so do load balancers of clouds, which face the whole internet.
// An unknown address is in no range.
func ClientAllowed(clients []netip.Prefix, source netip.Addr) bool {
	source = source.Unmap().WithZone("")
	if len(clients) == 0 {
		return source.IsLoopback() || source.IsPrivate() || source.IsLinkLocalUnicast()
	}
	return slices.ContainsFunc(clients, func(p netip.Prefix) bool { return p.Contains(source) })
}

// exception is an Exception ready for matching.
type exception struct {
	Exception
	until time.Time // zero if it does not end
	label string
}

// Exempt returns the label of the exception that covers the request at the time now. An empty path
// means that the gateway cannot see it: exceptions with paths do not cover it.
func (p *Policy) Exempt(
	o origin.Origin, path, agent string, now time.Time,
) (label string, ok bool) {
	for _, x := range p.exceptions.matches(o) {
		if x.covers(path, agent, now) {
			return x.label, true
		}
	}
	return "", false
}

// InForce counts the exceptions that have not ended at the time now, and returns when the next one
// of them ends; zero if none does.
func (p *Policy) InForce(now time.Time) (n int, next time.Time) {
	for _, x := range p.all {
		if x.ended(now) {
			continue
		}
		n++
		if !x.until.IsZero() && (next.IsZero() || x.until.Before(next)) {
			next = x.until
		}
	}
	return n, next
}

// Ending returns the exceptions that are in force at the time now and end before another, the next
// one first.
func (p *Policy) Ending(now, before time.Time) (list []Exception) {
	for _, x := range slices.SortedFunc(slices.Values(p.all), func(a, b *exception) int { return a.until.Compare(b.until) }) {
		if !x.ended(now) && !x.until.IsZero() && x.until.Before(before) {
			list = append(list, x.Exception)
		}
	}
	return list
}

func (x *exception) ended(now time.Time) bool { return !x.until.IsZero() && !now.Before(x.until) }

func (x *exception) covers(path, agent string, now time.Time) bool {
	if x.ended(now) {
		return false
	}
	if len(x.Agents) > 0 && !containsFold(x.Agents, agent) {
		return false
	}
	return coversPath(x.Paths, path)
}

// coversPath reports whether each form of the path begins with one of the prefixes, which are
// canonical. No prefixes stand for every path.
func coversPath(prefixes []string, path string) bool {
	if len(prefixes) == 0 {
		return true
	}
	resolved, ok := origin.Resolve(path)
	return ok && strings.HasPrefix(path, "/") && slices.ContainsFunc(prefixes, func(prefix string) bool {
		elsewhere := func(form string) bool { return !strings.HasPrefix(robotstxt.Canonical(form), prefix) }
		return !elsewhere(path) && !slices.ContainsFunc(resolved, elsewhere)
	})
}

// HostPattern is a set of hosts, as operators write it in a policy:
//
//	example.com          this host, at any port, over any scheme
//	*.example.com        every name below it, at any depth, but not itself
//	*                    every host
//	192.0.2.1, ::1       this address where a URL names it; a name that resolves to it is not meant
//	example.com:8080     the same with a port, which then has to be the request's: also
//	*.example.com:8080   [::1]:8080   *:8080
//
// Names are compared in their canonical form: lower case, punycode, no trailing dot. A pattern with
// two possible meanings (.example.com, foo*.example.com, 192.0.2.0/24, a URL) is refused. The zero
// value matches nothing.
type HostPattern struct {
	key  string // the host, canonical; ".example.com" for the names below it; "*" for all
	port uint16 // 0: any
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

// covers reports whether each origin that matches other matches p too.
func (p HostPattern) covers(other HostPattern) bool {
	below := strings.HasPrefix(p.key, ".") && strings.HasSuffix(other.key, p.key)
	return (p.port == 0 || p.port == other.port) && (p.key == "*" || p.key == other.key || below)
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

// hostIndex maps patterns to values. It finds the patterns that match an origin without trying all
// of them.
type hostIndex[V any] map[HostPattern][]V

// matches yields the values of the matching patterns, the closest pattern first.
func (x hostIndex[V]) matches(o origin.Origin) iter.Seq2[HostPattern, V] {
	return func(yield func(HostPattern, V) bool) {
		if len(x) == 0 {
			return
		}
		for p := range patternsOf(o) {
			for _, v := range x[p] {
				if !yield(p, v) {
					return
				}
			}
		}
	}
}

// patternsOf yields the patterns that match an origin, the closest first: the host itself, then the
// longest parent name, then all hosts. Between equal patterns, the one with a port comes first.
func patternsOf(o origin.Origin) iter.Seq[HostPattern] {
	return func(yield func(HostPattern) bool) {
		both := func(key string) bool { return yield(HostPattern{key, o.Port}) && yield(HostPattern{key, 0}) }
		more := both(o.Host)
		for i := 0; i < len(o.Host) && more; i++ {
			if o.Host[i] == '.' {
				more = both(o.Host[i:])
			}
		}
		if more {
			both("*")
		}
	}
}

// closest returns the value of the closest pattern that matches.
func (x hostIndex[V]) closest(o origin.Origin) (p HostPattern, v V, ok bool) {
	for p, v := range x.matches(o) {
		return p, v, true
	}
	return p, v, false
}
