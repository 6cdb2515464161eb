package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// PortRange is a range of ports, both ends included.
type PortRange struct{ First, Last uint16 }

// ParsePortRange reads "443" or "1024-65535". Port 0 and reversed ranges are errors.
func ParsePortRange(s string) (PortRange, error) {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	lo, err := parsePort(first)
	if err != nil {
		return PortRange{}, fmt.Errorf("reading port range %q: %w", s, err)
	}
	hi, err := parsePort(last)
	if err != nil {
		return PortRange{}, fmt.Errorf("reading port range %q: %w", s, err)
	}
	if lo > hi {
		return PortRange{}, fmt.Errorf("reading port range %q: first port is above the last", s)
	}
	return PortRange{lo, hi}, nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("reading port %q: %w", s, err)
	}
	if n == 0 || s[0] == '+' {
		return 0, fmt.Errorf("reading port %q: not a port", s)
	}
	return uint16(n), nil
}

// DefaultPorts gives the ports that are open for egress where none are configured: 80, 443 and 1024-65535. The
// privileged rest holds mail, DNS and the like, which no crawler has business with.
func DefaultPorts() []PortRange { return []PortRange{{80, 80}, {443, 443}, {1024, 65535}} }

// Guard decides which addresses may be dialed. The zero value is the strictest useful one: public addresses only,
// on the default ports. The fields are set before first use; the methods are safe for concurrent use.
type Guard struct {
	// AllowPrivate names the non-public blocks that may be dialed nevertheless. An address that a cloud's metadata
	// service uses is opened only by a block of just this address, never by a wider one. An IPv6 address with an
	// IPv4 address inside (NAT64, 6to4, ...) is opened by a block of the IPv6 address, not of the inner one.
	AllowPrivate []netip.Prefix
	// Ports are the ports that may be dialed; empty means [DefaultPorts].
	Ports []PortRange

	own        atomic.Pointer[[]netip.AddrPort]
	interfaces func() ([]netip.Addr, error) // nil: this machine's; replaced in tests
}

// SetOwn names the gateway's own listeners. They are refused whatever AllowPrivate says, as dialing them is a loop.
// An unspecified address (0.0.0.0, ::) stands for every address of this machine. It may be called at any time.
func (g *Guard) SetOwn(listeners ...netip.AddrPort) {
	own := slices.Clone(listeners)
	g.own.Store(&own)
}

// Allow tells whether ap may be dialed. The error is a [*ForbiddenError]. A nil Guard works as its zero value.
func (g *Guard) Allow(ap netip.AddrPort) error {
	if g == nil {
		g = new(Guard)
	}
	addr := canonical(ap.Addr())
	class := Classify(addr)
	switch {
	case class == ClassInvalid:
	case g.isOwn(netip.AddrPortFrom(addr, ap.Port())):
		class = ClassOwn
	case class != ClassPublic && !g.opened(addr, class):
	case !g.portOpen(ap.Port()):
		class = ClassPort
	default:
		return nil
	}
	return &ForbiddenError{Addr: ap, Class: class}
}

// ftpPort is the port of FTP's control connections.
const ftpPort = 21

// allowFTP is Allow for connections to FTP servers, for which their port is open too.
func (g *Guard) allowFTP(ap netip.AddrPort) error {
	err := g.Allow(ap)
	// The port is what is looked at last.
	if f, ok := errors.AsType[*ForbiddenError](err); ok && f.Class == ClassPort && ap.Port() == ftpPort {
		return nil
	}
	return err
}

// notOwn refuses the gateway's own listeners only. It guards connections to upstream proxies, whose addresses the
// operator has named.
func (g *Guard) notOwn(ap netip.AddrPort) error {
	if g != nil && g.isOwn(netip.AddrPortFrom(canonical(ap.Addr()), ap.Port())) {
		return &ForbiddenError{Addr: ap, Class: ClassOwn}
	}
	return nil
}

func (g *Guard) opened(addr netip.Addr, class Class) bool {
	for _, p := range g.AllowPrivate {
		if class == ClassMetadata && !p.IsSingleIP() {
			continue
		}
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

func (g *Guard) portOpen(port uint16) bool {
	if len(g.Ports) == 0 {
		return port == 80 || port == 443 || port >= 1024
	}
	for _, r := range g.Ports {
		if r.First <= port && port <= r.Last {
			return true
		}
	}
	return false
}

// isOwn tells whether ap is one of the own listeners. Where the machine's addresses cannot be read, an address
// with a listener's port counts as own: a loop is worse than a refused request.
func (g *Guard) isOwn(ap netip.AddrPort) bool {
	own := g.own.Load()
	if own == nil {
		return false
	}
	for _, l := range *own {
		if l.Port() != ap.Port() {
			continue
		}
		if addr := canonical(l.Addr()); addr == ap.Addr() || addr.IsUnspecified() && g.isLocal(ap.Addr()) {
			return true
		}
		if ap.Addr().IsUnspecified() { // the system dials its loopback address for 0.0.0.0 and ::
			return true
		}
	}
	return false
}

func (g *Guard) isLocal(addr netip.Addr) bool {
	if addr.IsLoopback() || addr.IsUnspecified() {
		return true
	}
	list := g.interfaces
	if list == nil {
		list = interfaceAddrs
	}
	addrs, err := list()
	return err != nil || slices.Contains(addrs, addr)
}

func interfaceAddrs() ([]netip.Addr, error) {
	nets, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("listing this machine's addresses: %w", err)
	}
	addrs := make([]netip.Addr, 0, len(nets))
	for _, n := range nets {
		if p, err := netip.ParsePrefix(n.String()); err == nil {
			addrs = append(addrs, canonical(p.Addr()))
		}
	}
	return addrs, nil
}

// ForbiddenError says that the guard refused an address.
type ForbiddenError struct {
	Addr  netip.AddrPort
	Class Class
	// Name is the name that was looked up, for [ClassMixed], and Other another address of it: one of the two is public.
	Name  string
	Other netip.Addr
}

func (e *ForbiddenError) Error() string {
	switch e.Class {
	case ClassPort:
		return fmt.Sprintf("port of %s is not open for egress", e.Addr)
	case ClassOwn:
		return fmt.Sprintf("address %s is a listener of this gateway", e.Addr)
	case ClassMixed:
		return fmt.Sprintf("name %s has a public and a non-public address (%s, %s), as for DNS rebinding", e.Name, e.Addr.Addr(), e.Other)
	default:
	}
	if in, ok := Embedded(e.Addr.Addr()); ok {
		return fmt.Sprintf("address %s is not public (%s, holds %s)", e.Addr, e.Class, in)
	}
	return fmt.Sprintf("address %s is not public (%s)", e.Addr, e.Class)
}

// Forbidden marks the error for consumers that do not import this package: an error with this
// method is the gateway's own refusal of an address, not a failure of the network. It returns the
// name of the error's [Kind]: "forbidden_address", "forbidden_port" or "own_listener".
func (e *ForbiddenError) Forbidden() string { return forbiddenKind(e.Class).String() }
