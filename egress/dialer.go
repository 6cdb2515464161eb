package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/crawlgate/crawlgate/egress/guard"
)

// DefaultDialTimeout bounds name resolution and connecting together.
const DefaultDialTimeout = 10 * time.Second

// maxAddresses bounds how many addresses of one name are tried.
const maxAddresses = 8

// Resolver turns a name into addresses. [*net.Resolver] is one. The network is "ip".
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dialer connects to checked addresses only: a name is resolved once, every address is put to the
// guard and the connection goes to one of those that passed, so a second DNS answer cannot lead
// elsewhere. A name with public and non-public addresses is refused as a whole. The guard is asked
// again by the socket's control function, the last moment before the connection leaves. Names are
// absolute: no search list of resolv.conf is added to them, so that an order on "pub.test" cannot
// be passed as "pub". The zero value works with the zero [guard.Guard]. Safe for concurrent use;
// the fields are set before first use.
type Dialer struct {
	Guard    *guard.Guard
	Resolver Resolver      // nil: the system's, by its hosts file and DNS
	Timeout  time.Duration // of resolution and connecting together, and of TLS; 0: DefaultDialTimeout
}

// Dialed describes how a connection was made.
type Dialed struct {
	Addr    netip.AddrPort // the address connected to
	DNS     time.Duration  // name resolution; 0 for literal addresses
	Connect time.Duration  // from the first attempt to the connection, TCP only
}

// Conn is a TCP connection that knows how it was made.
type Conn struct {
	*net.TCPConn
	Dialed Dialed
}

// DialedOf finds out how a connection was made, looking through TLS. It answers false for
// connections that no [Dialer] made.
func DialedOf(c net.Conn) (Dialed, bool) {
	conn, ok := find[*Conn](c)
	if !ok {
		return Dialed{}, false
	}
	return conn.Dialed, true
}

// find returns the outermost connection of type T that c is or holds by methods NetConn.
func find[T any](c any) (found T, ok bool) {
	for c != nil {
		if found, ok = c.(T); ok {
			return found, true
		}
		holder, holds := c.(interface{ NetConn() net.Conn })
		if !holds {
			break
		}
		c = holder.NetConn()
	}
	return found, false
}

// Phase is a step of dialing, in the words of an error's text.
type Phase string

// The phases of dialing.
const (
	PhaseResolve Phase = "resolving"                     // looking the name up
	PhaseConnect Phase = "connecting to"                 // connecting to an address
	PhaseProxy   Phase = "asking the upstream proxy for" // speaking with an upstream proxy
)

// DialError says in which phase a dial failed. A refusal by the guard is a [*guard.ForbiddenError]
// instead.
type DialError struct {
	Phase Phase
	Host  string // name or address as asked for
	// Dialed holds the address that failed, zero while resolving, and the time that each step took.
	Dialed Dialed
	Err    error
}

func (e *DialError) Error() string {
	return string(e.Phase) + " " + e.Host + ": " + e.Err.Error()
}

func (e *DialError) Unwrap() error { return e.Err }

// Upstream implements what package fetch looks for, without a cause if no upstream proxy failed. A
// 5xx to CONNECT, and a SOCKS proxy that refuses a connection, mostly speak of the site.
func (e *DialError) Upstream() (cause, text string) {
	op, isOp := errors.AsType[*net.OpError](e.Err)
	refused, isAnswer := errors.AsType[tunnelError](e.Err)
	switch {
	case e.Phase != PhaseProxy:
		return "", ""
	case refused >= http.StatusInternalServerError:
		return "connect", refused.Error()
	case isAnswer:
		return "upstream", refused.Error()
	case isOp && op.Op == "socks connect":
		return "connect", "opened no connection"
	}
	return "upstream", "cannot be used"
}

// DialContext has the form that [net/http.Transport] wants. The network is always TCP, over IPv4 or
// IPv6; addr is a host or literal address with a numeric port. The connection is a [*Conn].
func (d *Dialer) DialContext(ctx context.Context, _, addr string) (net.Conn, error) {
	host, portText, err := net.SplitHostPort(addr)
	port, portErr := guard.ParsePort(portText)
	if err := cmp.Or(err, portErr); err != nil {
		return nil, fmt.Errorf("dialing %q: %w", addr, err)
	}
	return d.dial(ctx, host, port, toOrigin)
}

// purpose is the use of a connection. It decides how its name is looked up and which addresses
// pass. The zero value is the strictest.
type purpose uint8

const (
	toOrigin purpose = iota // a client or a site gave the name: it is absolute, and the guard has to allow its addresses
	toFTP                   // the same; the port of FTP is open, too
	toProxy                 // the operator named the upstream proxy: the name may be relative, its addresses not public
)

// allow returns the check of addresses for a purpose.
func (d *Dialer) allow(p purpose) func(netip.AddrPort) error {
	switch p {
	case toFTP:
		return d.Guard.AllowFTP
	case toProxy:
		return d.Guard.NotOwn
	default:
		return d.Guard.Allow
	}
}

// dial connects to a port of a name or literal address (IPv6 without brackets), at one of its
// addresses that the guard passes. The connection is a [*Conn].
func (d *Dialer) dial(ctx context.Context, host string, port uint16, p purpose) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout())
	defer cancel()
	allow := d.allow(p)
	addrs, took, err := d.lookup(ctx, host, port, p)
	if err != nil {
		return nil, err
	}
	targets, err := permitted(addrs, port, allow)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	conn, ap, err := race(ctx, targets, func(ctx context.Context, ap netip.AddrPort) (*net.TCPConn, error) {
		return attempt(ctx, ap, allow)
	})
	dialed := Dialed{Addr: ap, DNS: took, Connect: time.Since(start)}
	if err != nil {
		return nil, &DialError{Phase: PhaseConnect, Host: host, Dialed: dialed, Err: err}
	}
	return &Conn{TCPConn: conn, Dialed: dialed}, nil
}

// Address returns the first address of host, for a request with the given scheme. It is an error if
// the guard refuses any of them.
func (d *Dialer) Address(ctx context.Context, scheme, host string, port uint16) (netip.Addr, error) {
	p := toOrigin
	if scheme == "ftp" {
		p = toFTP
	}
	return d.check(ctx, host, port, p)
}

// check resolves host and puts every address to the guard, without dialing. Unlike a dial, which
// leaves refused addresses out, it fails when any address is refused: it serves where another party
// dials (an upstream proxy), which may pick any of them. What that party resolves may still differ
// from what was checked here. It returns the first address.
func (d *Dialer) check(ctx context.Context, host string, port uint16, p purpose) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout())
	defer cancel()
	addrs, _, err := d.lookup(ctx, host, port, p)
	if err != nil {
		return netip.Addr{}, err
	}
	allow := d.allow(p)
	for _, a := range addrs {
		if err := allow(netip.AddrPortFrom(a, port)); err != nil {
			return netip.Addr{}, fmt.Errorf("checking %s: %w", host, err)
		}
	}
	return addrs[0], nil
}

func (d *Dialer) timeout() time.Duration { return cmp.Or(max(d.Timeout, 0), DefaultDialTimeout) }

// lookup returns the addresses of host, at least one, and the time that the resolver took. A name
// that a client or a site gave and that has public and non-public addresses is refused.
func (d *Dialer) lookup(
	ctx context.Context, host string, port uint16, p purpose,
) (addrs []netip.Addr, took time.Duration, err error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a.Unmap()}, 0, nil
	}
	start := time.Now()
	if p == toProxy {
		addrs, err = d.resolver(net.DefaultResolver).LookupNetIP(ctx, "ip", host)
	} else {
		addrs, err = d.absolute(ctx, host)
	}
	took = time.Since(start)
	if err == nil && len(addrs) == 0 {
		err = &net.DNSError{Err: "no addresses", Name: host, IsNotFound: true}
	}
	if err != nil {
		return nil, took, &DialError{Phase: PhaseResolve, Host: host, Dialed: Dialed{DNS: took}, Err: asDNSError(err, host)}
	}
	for i, a := range addrs {
		addrs[i] = a.Unmap() // resolvers hand IPv4 addresses out in mapped form
	}
	if p != toProxy {
		err = mixed(host, addrs, port)
	}
	return addrs, took, err
}

// systemResolver is Go's own resolver: the one of the C library finds no name in the hosts file
// that ends in a dot.
var systemResolver = &net.Resolver{PreferGo: true}

// hostsFile is systemResolver without DNS.
var hostsFile = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("DNS is not asked")
}}

func (d *Dialer) resolver(fallback Resolver) Resolver {
	if d.Resolver != nil {
		return d.Resolver
	}
	return fallback
}

// absolute looks up a name as one that ends in a dot. One of a single label is looked for in the
// hosts file first, where Go finds it without the dot only.
func (d *Dialer) absolute(ctx context.Context, host string) ([]netip.Addr, error) {
	if d.Resolver == nil && !strings.Contains(host, ".") {
		if addrs, err := hostsFile.LookupNetIP(ctx, "ip", host); err == nil {
			return addrs, nil
		}
	}
	return d.resolver(systemResolver).LookupNetIP(ctx, "ip", strings.TrimSuffix(host, ".")+".")
}

// asDNSError gives a resolver's error the name that was asked for, and the form that others know.
func asDNSError(err error, host string) error {
	if unsuitable, ok := errors.AsType[*net.AddrError](err); ok {
		// So Go's resolver says that it does not ask for such a name: .onion (RFC 7686), or none of the
		// family.
		return &net.DNSError{Err: unsuitable.Err, Name: host, IsNotFound: true}
	}
	if known, ok := err.(*net.DNSError); ok { //nolint:errorlint // one that wraps it says more
		named := *known
		named.Name = host
		return &named
	}
	return err
}

// mixed refuses a name with public and non-public addresses. No site is published so: the owner of
// the name wants a check to see the one and a connection to reach the other (DNS rebinding).
func mixed(host string, addrs []netip.Addr, port uint16) error {
	isPublic := func(a netip.Addr) bool { return guard.Classify(a) == guard.ClassPublic }
	public := slices.IndexFunc(addrs, isPublic)
	other := slices.IndexFunc(addrs, func(a netip.Addr) bool { return !isPublic(a) })
	if public < 0 || other < 0 {
		return nil
	}
	return &guard.ForbiddenError{Addr: netip.AddrPortFrom(addrs[other], port), Class: guard.ClassMixed, Name: host, Other: addrs[public]}
}

// permitted keeps the addresses that allow passes, in the order in which to try them. If it passes
// none the error is the refusal of the first.
func permitted(addrs []netip.Addr, port uint16, allow func(netip.AddrPort) error) ([]netip.AddrPort, error) {
	var refused error
	out := make([]netip.AddrPort, 0, min(len(addrs), maxAddresses))
	for _, a := range interleave(addrs) {
		ap := netip.AddrPortFrom(a, port)
		if err := allow(ap); err != nil {
			refused = cmp.Or(refused, err)
			continue
		}
		if len(out) < maxAddresses {
			out = append(out, ap)
		}
	}
	if len(out) == 0 {
		return nil, refused
	}
	return out, nil
}

// attempt connects to one address that allow has passed, asking it once more at the socket.
func attempt(ctx context.Context, ap netip.AddrPort, allow func(netip.AddrPort) error) (*net.TCPConn, error) {
	nd := net.Dialer{
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			actual, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("reading socket address %q: %w", address, err)
			}
			return allow(actual)
		},
	}
	// Not DialTCP: it binds the local port before the destination is known, so that all origins would
	// share one range of ports.
	c, err := nd.DialContext(ctx, "tcp", ap.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil //nolint:forcetypeassert // the network says so
}
