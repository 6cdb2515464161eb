// Package guard decides which addresses and ports a forward proxy may connect to: public addresses,
// and those that the operator opens, but never a gateway, the admin API or the operator's page of
// its own process.
package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// PortRange is a range of ports, both ends included.
type PortRange struct{ First, Last uint16 }

// ParsePortRange reads "443" or "1024-65535". Port 0 and reversed ranges are errors.
func ParsePortRange(s string) (PortRange, error) {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	var r PortRange
	var err error
	if r.First, err = ParsePort(first); err == nil {
		r.Last, err = ParsePort(last)
	}
	if err == nil && r.First > r.Last {
		err = errors.New("first port is above the last")
	}
	if err != nil {
		return PortRange{}, fmt.Errorf("reading port range %q: %w", s, err)
	}
	return r, nil
}

// ParsePort reads a decimal port other than 0.
func ParsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("reading port %q: want a number from 1 to 65535", s)
	}
	return uint16(n), nil
}

// defaultPorts are open for egress if none are configured. The other privileged ports are for mail,
// DNS and the like, which crawlers do not need.
var defaultPorts = []PortRange{{80, 80}, {443, 443}, {1024, 65535}}

// Guard decides which addresses may be dialed. The zero value is the strictest useful one: public
// addresses only, on the default ports. The fields are set before first use; the methods are safe
// for concurrent use.
type Guard struct {
	// AllowPrivate lists the non-public blocks that may be dialed nevertheless. An address that a
	// cloud's metadata service uses is opened only by a block of this one address, never by a wider
	// one. An IPv6 address with an IPv4 address inside (NAT64, 6to4, ...) is opened by a block of the
	// IPv6 address, not of the inner one.
	AllowPrivate []netip.Prefix
	// Ports are the ports that may be dialed; empty means 80, 443 and 1024-65535.
	Ports []PortRange

	// Listener returns the part of this process that a connection to an address would reach. public
	// means that the address is in no special block. If Listener is nil, no address reaches this
	// process. It is called for every connection, sometimes more than once.
	Listener func(ap netip.AddrPort, public bool) Listener
}

// Listener is the part of this process that listens at an address. The zero value means that no
// part does.
type Listener uint8

// The listeners. A gateway and the rest of the process are refused whatever AllowPrivate says. A
// site, and a listener that cannot be determined, are allowed if AllowPrivate has a block of their
// address alone.
const (
	NoListener      Listener = iota
	ListenerUnknown          // an address of this machine, on a system that does not list listeners
	ListenerSite             // an HTTP server of this process that is no gateway and has no operator's page
	ListenerGateway          // a gateway: dialing it would be a loop
	ListenerOther            // the admin API, the operator's page, or another listener
)

// openable reports whether AllowPrivate can open the listener.
func (l Listener) openable() bool {
	return l == NoListener || l == ListenerUnknown || l == ListenerSite
}

// Allow returns nil if ap may be dialed; otherwise the error is a [*ForbiddenError]. A nil Guard
// works as its zero value.
func (g *Guard) Allow(ap netip.AddrPort) error {
	if g == nil {
		g = new(Guard)
	}
	addr := canonical(ap.Addr())
	class := Classify(addr)
	listener := g.listener(netip.AddrPortFrom(addr, ap.Port()), class)
	switch {
	case class == ClassInvalid:
	case listener != NoListener && (!listener.openable() || !g.named(addr)):
		class = ClassOwn
	case class != ClassPublic && !g.opened(addr, class):
	case !g.portOpen(ap.Port()):
		class = ClassPort
	default:
		return nil
	}
	return &ForbiddenError{Addr: ap, Class: class, Listener: listener}
}

// FTPPort is the port of FTP's control connections.
const FTPPort = 21

// AllowFTP is like [Guard.Allow], but for connections to FTP servers, whose port is open too.
func (g *Guard) AllowFTP(ap netip.AddrPort) error {
	err := g.Allow(ap)
	// Allow checks the port last.
	if f, ok := errors.AsType[*ForbiddenError](err); ok && f.Class == ClassPort && ap.Port() == FTPPort {
		return nil
	}
	return err
}

// NotOwn refuses only gateways, the admin API and the operator's page of this process. It checks
// connections to upstream proxies, whose addresses the operator has named.
func (g *Guard) NotOwn(ap netip.AddrPort) error {
	if g == nil {
		return nil
	}
	addr := canonical(ap.Addr())
	if l := g.listener(netip.AddrPortFrom(addr, ap.Port()), Classify(addr)); !l.openable() {
		return &ForbiddenError{Addr: ap, Class: ClassOwn, Listener: l}
	}
	return nil
}

// listener returns the part of this process that a connection would reach, either directly or,
// through a translator, at the IPv4 address inside.
func (g *Guard) listener(ap netip.AddrPort, class Class) Listener {
	if g.Listener == nil || class == ClassInvalid {
		return NoListener
	}
	found := g.Listener(ap, class == ClassPublic)
	if in, ok := Embedded(ap.Addr()); ok && found == NoListener {
		found = g.Listener(netip.AddrPortFrom(in, ap.Port()), Classify(in) == ClassPublic)
	}
	return found
}

func (g *Guard) opened(addr netip.Addr, class Class) bool {
	if class == ClassMetadata {
		return g.named(addr)
	}
	return slices.ContainsFunc(g.AllowPrivate, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// named reports whether AllowPrivate has a block of this address alone.
func (g *Guard) named(addr netip.Addr) bool {
	return slices.ContainsFunc(g.AllowPrivate, func(p netip.Prefix) bool { return p.IsSingleIP() && p.Contains(addr) })
}

func (g *Guard) portOpen(port uint16) bool {
	ports := g.Ports
	if len(ports) == 0 {
		ports = defaultPorts
	}
	return slices.ContainsFunc(ports, func(r PortRange) bool { return r.First <= port && port <= r.Last })
}

// ForbiddenError says that the guard refused an address.
type ForbiddenError struct {
	Addr  netip.AddrPort
	Class Class
	// Listener is the part of this process that listens there, for [ClassOwn].
	Listener Listener
	// For [ClassMixed], Name is the name that was looked up, and Other is another of its addresses:
	// either Addr or Other is public.
	Name  string
	Other netip.Addr
}

func (e *ForbiddenError) Error() string {
	switch e.Class {
	case ClassPort:
		return fmt.Sprintf("port of %s is not open for egress", e.Addr)
	case ClassOwn:
		return fmt.Sprintf("address %s %s", e.Addr, e.Listener.text(e.Addr.Addr()))
	case ClassMixed:
		return fmt.Sprintf("name %s has a public and a non-public address (%s, %s), as for DNS rebinding", e.Name, e.Addr.Addr(), e.Other)
	default:
	}
	if in, ok := Embedded(e.Addr.Addr()); ok {
		return fmt.Sprintf("address %s is not public (%s, holds %s)", e.Addr, e.Class, in)
	}
	return fmt.Sprintf("address %s is not public (%s)", e.Addr, e.Class)
}

// text describes the listener at an address.
func (l Listener) text(addr netip.Addr) string {
	switch l {
	case ListenerGateway:
		return "is a listener of this gateway"
	case ListenerSite:
		return fmt.Sprintf("belongs to another site of the gateway's process; only allow_private %s opens it", canonical(addr))
	case ListenerUnknown:
		return fmt.Sprintf("is one of the gateway's own machine; only allow_private %s opens it", canonical(addr))
	case NoListener, ListenerOther:
	}
	return "belongs to the admin API, the operator's page or another listener of the gateway's process"
}

// Forbidden marks the error for consumers that do not import this package: an error with this
// method is the gateway's own refusal of an address, not a failure of the network. It returns
// "forbidden_address", "forbidden_port" or "own_listener".
func (e *ForbiddenError) Forbidden() string {
	switch e.Class {
	case ClassPort:
		return "forbidden_port"
	case ClassOwn:
		return "own_listener"
	default:
		return "forbidden_address"
	}
}

// ParsePrefixes reads CIDR ranges; a bare address is a range of one. Errors begin with what.
func ParsePrefixes(what string, list []string) ([]netip.Prefix, error) {
	out := make([]netip.Prefix, 0, len(list))
	for _, s := range list {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			a, aerr := netip.ParseAddr(s)
			if aerr != nil {
				return nil, fmt.Errorf("%s %q: not an address range such as 10.0.0.0/8", what, s)
			}
			p = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())
		}
		if p != p.Masked() {
			return nil, fmt.Errorf("%s %q: has bits set outside the range, want %s", what, s, p.Masked())
		}
		out = append(out, p)
	}
	return out, nil
}
