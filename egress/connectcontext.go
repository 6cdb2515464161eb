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
	// Scheme of the requests inside: "https" where TLS was ended, "http" where none was spoken. Set
	// when serving begins.
	Scheme string
	// Host is the host that the CONNECT asked for: a name in lower case (punycode) or an IP address
	// without brackets.
	Host string
	Port uint16
	// Outer is the CONNECT request.
	Outer *http.Request
	// Minter makes the certificate for Host. Without one only plain HTTP can be served.
	Minter *mint.Minter
	// Value is the caller's own.
	Value any
}

// Errors of [ConnectContext.Resolve].
var (
	// ErrMisdirected says that an inner request is for another authority than its tunnel; 421 answers
	// it.
	ErrMisdirected = errors.New("request is for another authority than its tunnel")
	// ErrNested says that an inner request is itself a CONNECT; 400 answers it.
	ErrNested = errors.New("CONNECT inside a tunnel")
)

type connectKey struct{}

// ConnectFrom returns the CONNECT that a request came through, nil if there was none.
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
// authority of the tunnel, whatever the client wrote, and the address of the client outside. If its
// Host is not the tunnel's, the URL is the one that it asks for and the error is [ErrMisdirected]:
// it must not be served, but logs should name its target.
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

// serves reports whether an inner Host field is the tunnel's. A host without a port is: some
// clients leave even unusual ports out, and the request goes to the tunnel's port in any case.
func (p *ConnectContext) serves(host string) bool {
	u := url.URL{Host: host}
	if port := u.Port(); port != "" && port != strconv.Itoa(int(p.Port)) {
		return false
	}
	return sameHost(u.Hostname(), p.Host)
}

// sameHost reports whether two hosts are the same name, whatever their case and the dot of the
// root, or the same address.
func sameHost(a, b string) bool {
	if strings.EqualFold(strings.TrimSuffix(a, "."), strings.TrimSuffix(b, ".")) {
		return true
	}
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	return errX == nil && errY == nil && x.Unmap() == y.Unmap()
}
