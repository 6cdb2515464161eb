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

// Resolver turns a name into addresses. [*net.Resolver] implements it. The network is "ip".
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dialer connects only to addresses that it has checked. It resolves a name once, asks the guard
// about every address, and connects to one that passed, so a second DNS answer cannot lead
// elsewhere. It refuses a name that has both public and non-public addresses. The socket's control
// function asks the guard again, at the last moment before the connection leaves. Names are
// absolute: no search list of resolv.conf is added to them, so a rule for "pub.test" cannot be
// evaded by asking for "pub". The zero value works with the zero [guard.Guard]. A Dialer is safe
// for concurrent use; its fields are set before first use.
type Dialer struct {
	Guard    *guard.Guard
	Resolver Resolver      // nil means the system's, with its hosts file and DNS
	Timeout  time.Duration // for resolving and connecting together, and for TLS; 0: DefaultDialTimeout
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

// DialedOf reports how a connection was made, looking through TLS. It returns false for connections
// that no [Dialer] made.
func DialedOf(c net.Conn) (Dialed, bool) {
	conn, ok := find[*Conn](c)
	if !ok {
		return Dialed{}, false
	}
	return conn.Dialed, true
}

// find returns the outermost value of type T among c and the connections that NetConn methods
// return.
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

// Phase is a step of dialing, as an error's text words it.
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
	Host  string // the name or address that was asked for
	// Dialed holds the address that failed (zero while resolving), and the time that each step took.
	Dialed Dialed
	Err    error
}

func (e *DialError) Error() string {
	return string(e.Phase) + " " + e.Host + ": " + e.Err.Error()
}

func (e *DialError) Unwrap() error { return e.Err }

// Upstream implements the interface that package fetch looks for. It returns no cause if no
// upstream proxy failed. A 5xx answer to CONNECT, or a SOCKS proxy that refuses a connection,
// mostly says something about the site.
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

// DialContext has the signature that [net/http.Transport] expects. The network is always TCP, over
// IPv4 or IPv6; addr is a host or literal address with a numeric port. The connection is a [*Conn].
func (d *Dialer) DialContext(ctx context.Context, _, addr string) (net.Conn, error) {
	host, portText, err := net.SplitHostPort(addr)
	port, portErr := guard.ParsePort(portText)
	if err := cmp.Or(err, portErr); err != nil {
		return nil, fmt.Errorf("dialing %q: %w", addr, err)
	}
	return d.dial(ctx, host, port, toOrigin)
}

// purpose says what a connection is for. It decides how a name is looked up and which addresses are
// allowed. The zero value is the strictest.
type purpose uint8

const (
	toOrigin purpose = iota // the name is from a client or a site: absolute, its addresses guarded
	toFTP                   // the same, but FTP's port is open too
	toProxy                 // the name is from the operator: may be relative, or private
)

// allow returns the function that checks addresses for a purpose.
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

// dial connects to a port of a name or literal address (IPv6 without brackets), using one of the
// addresses that the guard allows. The connection is a [*Conn].
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

// Address returns the first address of host, for a request with the given scheme. It fails if the
// guard refuses any of the addresses.
func (d *Dialer) Address(ctx context.Context, scheme, host string, port uint16) (netip.Addr, error) {
	p := toOrigin
	if scheme == "ftp" {
		p = toFTP
	}
	return d.check(ctx, host, port, p)
}

// check resolves host and asks the guard about every address, without dialing. A dial leaves out
// the addresses that the guard refuses, but check fails if there are any: it is for connections
// that another party (an upstream proxy) makes, and that party may pick any of the addresses. It
// may also resolve the name to other addresses than those checked here. check returns the first
// address.
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

// lookup returns the addresses of host, at least one, and the time that the resolver took. It
// refuses a name that a client or a site gave if it has both public and non-public addresses.
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
		addrs[i] = a.Unmap() // resolvers return IPv4 addresses in mapped form
	}
	if p != toProxy {
		err = mixed(host, addrs, port)
	}
	return addrs, took, err
}

// systemResolver is Go's own resolver. The C library's does not find a name with a final dot in the
// hosts file.
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

// absolute looks a name up with a final dot. It first looks for a name of one label in the hosts
// file, where Go finds it only without the dot.
func (d *Dialer) absolute(ctx context.Context, host string) ([]netip.Addr, error) {
	if d.Resolver == nil && !strings.Contains(host, ".") {
		if addrs, err := hostsFile.LookupNetIP(ctx, "ip", host); err == nil {
			return addrs, nil
		}
	}
	return d.resolver(systemResolver).LookupNetIP(ctx, "ip", strings.TrimSuffix(host, ".")+".")
}

// asDNSError returns a resolver's error, if possible as a [*net.DNSError] with the name that was
// asked for.
func asDNSError(err error, host string) error {
	if unsuitable, ok := errors.AsType[*net.AddrError](err); ok {
		// Go's resolver returns this error for a name that it does not look up: one in .onion (RFC 7686),
		// or one without addresses of the family.
		return &net.DNSError{Err: unsuitable.Err, Name: host, IsNotFound: true}
	}
	if known, ok := err.(*net.DNSError); ok { //nolint:errorlint // an error that wraps it says more
		named := *known
		named.Name = host
		return &named
	}
	return err
}

// mixed refuses a name with both public and non-public addresses. No site is published that way:
// the owner of the name wants a check to see one address and the connection to reach another (DNS
// rebinding).
func mixed(host string, addrs []netip.Addr, port uint16) error {
	isPublic := func(a netip.Addr) bool { return guard.Classify(a) == guard.ClassPublic }
	public := slices.IndexFunc(addrs, isPublic)
	other := slices.IndexFunc(addrs, func(a netip.Addr) bool { return !isPublic(a) })
	if public < 0 || other < 0 {
		return nil
	}
	return &guard.ForbiddenError{Addr: netip.AddrPortFrom(addrs[other], port), Class: guard.ClassMixed, Name: host, Other: addrs[public]}
}

// permitted returns the addresses that allow accepts, in the order in which to try them. If it
// accepts none, the error is its refusal of the first.
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

// attempt connects to an address that allow has accepted, and calls allow once more at the socket.
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
