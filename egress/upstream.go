package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/net/proxy"
)

// maxConnectHeader bounds an upstream proxy's answer to CONNECT.
const maxConnectHeader = 64 << 10

// Upstream is a proxy to send requests through. The guard stays on: a target's name is resolved and
// every one of its addresses checked before the name is handed over. The upstream resolves the name
// again, out of this gateway's hands, so an upstream that can reach private networks should refuse
// them itself. The upstream's own address is the operator's choice and may be private. There is no
// fallback to a direct connection.
type Upstream struct {
	// URL is http, https or socks5, with credentials in its userinfo where the proxy wants some. The
	// names are resolved by the proxy in all three.
	URL *url.URL
	// Match reports whether a host (lower case, IPv6 without brackets) goes this way; nil means all.
	Match func(host string) bool
}

type upstream struct {
	match  func(host string) bool
	url    *url.URL
	host   string
	port   uint16
	dialer *Dialer
	tls    *tls.Config // towards the proxy; nil for plain
	via    string
	http   *http.Transport
	pair   transportPair // http, and one that shares no connections
}

// ParseUpstream reads the URL of an upstream proxy. Errors leave its password out.
func ParseUpstream(s string) (u Upstream, err error) {
	if u.URL, err = url.Parse(s); err != nil { // which repeats the whole text
		return Upstream{}, errors.New("url cannot be parsed")
	}
	_, err = u.port()
	return u, err
}

func (u Upstream) port() (uint16, error) {
	if u.URL == nil || u.URL.Hostname() == "" {
		return 0, errors.New("no host")
	}
	switch u.URL.Scheme {
	case "http", "https", "socks5", "socks5h":
	default:
		return 0, fmt.Errorf("%s: the scheme must be http, https or socks5", u.URL.Redacted())
	}
	if p := u.URL.Path; p != "" && p != "/" || u.URL.RawQuery != "" {
		return 0, fmt.Errorf("%s: a path has no meaning here", u.URL.Redacted())
	}
	port, err := effectivePort(u.URL)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", u.URL.Redacted(), err)
	}
	return port, nil
}

func (t *Transport) newUpstream(c TransportConfig, u Upstream) (*upstream, error) {
	port, err := u.port()
	if err != nil {
		return nil, fmt.Errorf("upstream proxy: %w", err)
	}
	up := &upstream{
		match: u.Match, url: u.URL, host: u.URL.Hostname(), port: port,
		dialer: t.dialer, via: "1.1 " + t.via, http: t.httpTransport(c),
	}
	switch u.URL.Scheme {
	case "socks5", "socks5h":
		up.pair = pairOf(up.http, up.dialSOCKS, up.dialSOCKS)
		return up, nil
	case "https":
		up.tls = t.tls.Clone()
		up.tls.ServerName = up.host
		up.tls.NextProtos = []string{"http/1.1"} // CONNECT and absolute form are spoken over HTTP/1.1 here
	}
	plain := &url.URL{Scheme: "http", Host: net.JoinHostPort(up.host, strconv.Itoa(int(port))), User: u.URL.User}
	up.http.Proxy = func(r *http.Request) (*url.URL, error) {
		if r.URL.Scheme == "https" {
			return nil, nil // it goes through a tunnel
		}
		return plain, nil // TLS towards the proxy is dialProxy's
	}
	up.pair = pairOf(up.http, up.dialProxy, up.dialThrough)
	return up, nil
}

func (u *upstream) name() string { return net.JoinHostPort(u.host, strconv.Itoa(int(u.port))) }

func (u *upstream) isSOCKS() bool { return u.http.Proxy == nil }

// granted returns an error for an answer that refuses a tunnel, any but 2xx (RFC 9110, 9.3.6).
func (u *upstream) granted(resp *http.Response) error {
	if resp.StatusCode/100 == 2 {
		return nil
	}
	return &Error{Kind: KindUpstream, Err: fmt.Errorf("upstream proxy %s %w", u.name(), tunnelError(resp.StatusCode))}
}

// tunnelError is an upstream proxy's answer to CONNECT, by its status.
type tunnelError int

func (s tunnelError) Error() string { return fmt.Sprintf("answered %d", int(s)) }

func (u *upstream) roundTrip(r *http.Request) (*http.Response, error) {
	port, err := effectivePort(r.URL)
	if err != nil {
		return nil, fmt.Errorf("sending through %s: %w", u.name(), err)
	}
	if _, err := u.dialer.check(r.Context(), r.URL.Hostname(), port, toOrigin); err != nil {
		return nil, err
	}
	if r.URL.Scheme == "http" && !u.isSOCKS() {
		out := *r
		out.Header = r.Header.Clone()
		out.Header.Set("Via", u.via)
		if r.URL.Opaque == "*" { // the absolute form without a path, RFC 9112 section 3.2.4
			out.URL = &url.URL{Scheme: "http", Host: r.URL.Host, Opaque: "//" + r.URL.Host}
		}
		r = &out
	}
	return u.pair.roundTrip(r)
}

// dialProxy connects to the proxy itself, TLS included.
func (u *upstream) dialProxy(ctx context.Context, _, _ string) (net.Conn, error) {
	conn, err := u.dialer.dial(ctx, u.host, u.port, toProxy)
	if err != nil {
		return nil, u.failed(netip.AddrPort{}, err)
	}
	if u.tls == nil {
		return conn, nil
	}
	ctx, cancel := context.WithTimeout(ctx, u.http.TLSHandshakeTimeout)
	defer cancel()
	secure := tls.Client(conn, u.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		dialed, _ := DialedOf(conn)
		return nil, u.failed(dialed.Addr, err)
	}
	return secure, nil
}

func (u *upstream) failed(addr netip.AddrPort, err error) error {
	return &DialError{Phase: PhaseProxy, Host: u.name(), Dialed: Dialed{Addr: addr}, Err: err}
}

// dialTunnel opens a tunnel to a target whose addresses the guard passes for the purpose.
func (u *upstream) dialTunnel(ctx context.Context, host string, port uint16, p purpose) (net.Conn, error) {
	if _, err := u.dialer.check(ctx, host, port, p); err != nil {
		return nil, err
	}
	target := net.JoinHostPort(host, strconv.Itoa(int(port)))
	if u.isSOCKS() {
		return u.dialSOCKS(ctx, "tcp", target)
	}
	return u.dialThrough(ctx, "tcp", target)
}

// dialThrough opens a tunnel through a proxy of HTTP.
func (u *upstream) dialThrough(ctx context.Context, _, target string) (net.Conn, error) {
	conn, err := u.dialProxy(ctx, "", "")
	if err != nil {
		return nil, err
	}
	tunnel, err := u.connect(ctx, conn, target)
	if err != nil {
		_ = conn.Close()
		return nil, u.failed(netip.AddrPort{}, err)
	}
	return tunnel, nil
}

// connect asks for a tunnel over a connection to the proxy. It waits for the answer at most as long
// as for a dial.
func (u *upstream) connect(ctx context.Context, conn net.Conn, target string) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(u.dialer.timeout())); err != nil {
		return nil, fmt.Errorf("setting a deadline for CONNECT: %w", err)
	}
	req := &http.Request{
		Method: http.MethodConnect,
		URL:    &url.URL{Opaque: target},
		Host:   target,
		Header: http.Header{"Via": {u.via}, "User-Agent": nil},
	}
	if user := u.url.User; user != nil {
		password, _ := user.Password()
		credentials := base64.StdEncoding.EncodeToString([]byte(user.Username() + ":" + password))
		req.Header.Set("Proxy-Authorization", "Basic "+credentials)
	}
	if err := req.Write(conn); err != nil {
		return nil, fmt.Errorf("sending CONNECT: %w", err)
	}
	br := bufio.NewReader(io.LimitReader(conn, maxConnectHeader))
	resp, err := http.ReadResponse(br, req) //nolint:bodyclose // what follows is the tunnel, or ends with the connection
	if err != nil {
		return nil, fmt.Errorf("reading the answer to CONNECT: %w", err)
	}
	if err := u.granted(resp); err != nil {
		return nil, err
	}
	if !stop() {
		return nil, context.Cause(ctx)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("clearing the deadline of the tunnel: %w", err)
	}
	return replay(conn, br, conn), nil
}

// socksClient is the ability of x/net's SOCKS5 dialer beyond its interface: to speak over a
// connection that exists. Its own dialing would hide the connection behind a type without
// CloseWrite.
type socksClient interface {
	DialWithConn(ctx context.Context, conn net.Conn, network, address string) (net.Addr, error)
}

// dialSOCKS opens a connection to addr through a SOCKS5 proxy, RFC 1928, which resolves the name.
func (u *upstream) dialSOCKS(ctx context.Context, network, addr string) (net.Conn, error) {
	var auth *proxy.Auth
	if user := u.url.User; user != nil {
		password, _ := user.Password()
		auth = &proxy.Auth{User: user.Username(), Password: password}
	}
	d, err := proxy.SOCKS5("tcp", u.name(), auth, nil)
	if err != nil {
		return nil, u.failed(netip.AddrPort{}, err)
	}
	socks := d.(socksClient) //nolint:forcetypeassert // which go.mod's version has; the tests hold it
	ctx, cancel := context.WithTimeout(ctx, u.dialer.timeout())
	defer cancel()
	conn, err := u.dialProxy(ctx, "", "")
	if err != nil {
		return nil, err
	}
	if _, err := socks.DialWithConn(ctx, conn, network, addr); err != nil {
		_ = conn.Close()
		return nil, u.failed(netip.AddrPort{}, err)
	}
	return conn, nil
}
