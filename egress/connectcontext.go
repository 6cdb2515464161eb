package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/crawlgate/crawlgate/egress/mint"
)

// ConnectContext describes an accepted CONNECT to the requests inside its tunnel.
type ConnectContext struct {
	// Scheme is the scheme of the requests inside: "https" if TLS was ended, "http" if the tunnel
	// carries plain HTTP. It is set when serving begins.
	Scheme string
	// Host is the host that the CONNECT asked for: a name in lower case (punycode) or an IP address
	// without brackets.
	Host string
	Port uint16
	// Outer is the CONNECT request.
	Outer *http.Request
	// Minter makes the certificate for Host. If it is nil, only plain HTTP can be served.
	Minter *mint.Minter
	// Value is the caller's own.
	Value any
}

// Errors of [ConnectContext.Resolve].
var (
	// ErrMisdirected means that an inner request is for another authority than its tunnel's. The
	// answer is 421.
	ErrMisdirected = errors.New("request is for another authority than its tunnel")
	// ErrNested means that an inner request is itself a CONNECT. The answer is 400.
	ErrNested = errors.New("CONNECT inside a tunnel")
)

type connectKey struct{}

// ConnectFrom returns the CONNECT that a request came through, or nil if there was none.
func ConnectFrom(ctx context.Context) *ConnectContext {
	p, _ := ctx.Value(connectKey{}).(*ConnectContext)
	return p
}

// Authority returns the host and, unless it is the scheme's default, the port.
func (p *ConnectContext) Authority() string {
	if p.Scheme == "https" && p.Port == 443 || p.Scheme == "http" && p.Port == 80 {
		if strings.Contains(p.Host, ":") {
			return "[" + p.Host + "]"
		}
		return p.Host
	}
	return net.JoinHostPort(p.Host, strconv.Itoa(int(p.Port)))
}

// Resolve gives an inner request the form of a proxied one: an absolute URL with the scheme and
// authority of the tunnel, whatever the client wrote, and the address of the client outside. If the
// request's Host is not the tunnel's, its URL becomes the one that it asks for and the error is
// [ErrMisdirected]: the request must not be served, but logs should name its target.
func (p *ConnectContext) Resolve(r *http.Request) error {
	r.RemoteAddr = p.Outer.RemoteAddr
	if r.Method == http.MethodConnect {
		return ErrNested
	}
	u := *r.URL
	u.Scheme, u.Host, u.User = p.Scheme, p.Authority(), nil
	var misdirected error
	if !p.serves(r.Host) {
		misdirected = fmt.Errorf("%w: %+.240q in a tunnel to %s", ErrMisdirected, r.Host, p.Authority())
		u.Host = r.Host
	}
	target := r.RequestURI
	switch {
	case target == "*": // OPTIONS *, whose absolute form has an empty path, RFC 9112 section 3.2.4
		u.Path, target = "", ""
	case !strings.HasPrefix(target, "/"):
		target = r.URL.RequestURI()
	}
	r.URL = &u
	r.Host = u.Host
	r.RequestURI = p.Scheme + "://" + u.Host + target
	return misdirected
}

// serves reports whether an inner Host field names the tunnel's authority. A host without a port
// does: some clients leave out even unusual ports, and the request goes to the tunnel's port in any
// case.
func (p *ConnectContext) serves(host string) bool {
	u := url.URL{Host: host}
	if port := u.Port(); port != "" && port != strconv.Itoa(int(p.Port)) {
		return false
	}
	return sameHost(u.Hostname(), p.Host)
}

// sameHost reports whether two hosts are the same address, or the same name apart from case and a
// final dot.
func sameHost(a, b string) bool {
	if strings.EqualFold(strings.TrimSuffix(a, "."), strings.TrimSuffix(b, ".")) {
		return true
	}
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	return errX == nil && errY == nil && x.Unmap() == y.Unmap()
}
