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

// Upstream is a proxy to send requests through. The guard still applies: the gateway resolves a
// target's name and checks every address before it hands the name over. The upstream resolves the
// name again, beyond this gateway's control, so an upstream that can reach private networks should
// refuse them itself. The upstream's own address is the operator's choice and may be private. There
// is no fallback to a direct connection.
type Upstream struct {
	// URL is http, https or socks5, with credentials in its userinfo if the proxy wants some. In all
	// three cases the proxy resolves names.
	URL *url.URL
	// Match reports whether a host (lower case, IPv6 without brackets) goes this way; nil matches
	// every host.
	Match func(host string) bool
}

type upstream struct {
	match  func(host string) bool
	url    *url.URL
	host   string
	port   uint16
	dialer *Dialer
	tls    *tls.Config // for connections to the proxy; nil if they have no TLS
	via    string
	http   *http.Transport
	pair   transportPair // http, and its copy that shares no connections
}

const wantUpstream = "want one such as http://proxy.example:8080"

// ParseUpstream reads the URL of an upstream proxy. Errors leave its password out.
func ParseUpstream(s string) (u Upstream, err error) {
	if u.URL, err = url.Parse(s); err != nil { // the error repeats the whole text
		return Upstream{}, errors.New("url cannot be parsed; " + wantUpstream)
	}
	_, err = u.port()
	return u, err
}

func (u Upstream) port() (uint16, error) {
	if u.URL == nil || u.URL.Hostname() == "" {
		return 0, errors.New("no host; " + wantUpstream)
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
			return nil, nil // the request goes through a tunnel
		}
		return plain, nil // dialProxy does TLS with the proxy
	}
	up.pair = pairOf(up.http, up.dialProxy, up.dialThrough)
	return up, nil
}

func (u *upstream) name() string { return net.JoinHostPort(u.host, strconv.Itoa(int(u.port))) }

func (u *upstream) isSOCKS() bool { return u.http.Proxy == nil }

// granted returns an error for an answer that refuses a tunnel, any but 2xx (RFC 9110 section
// 9.3.6).
func (u *upstream) granted(resp *http.Response) error {
	if resp.StatusCode/100 == 2 {
		return nil
	}
	return &Error{Kind: KindUpstream, Err: fmt.Errorf("upstream proxy %s %w", u.name(), tunnelError(resp.StatusCode))}
}

// tunnelError is the status of an upstream proxy's answer to CONNECT.
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

// dialProxy connects to the proxy itself, with TLS if it needs that.
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

// dialTunnel opens a tunnel to a target. The guard must allow the target's addresses for the
// purpose.
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

// dialThrough opens a tunnel through an HTTP proxy.
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

// connect asks for a tunnel over a connection to the proxy. It waits for the answer no longer than
// a dial may take.
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
	resp, err := http.ReadResponse(br, req) //nolint:bodyclose // the tunnel follows, or the end
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

// socksClient is a method that x/net's SOCKS5 dialer has besides its interface: it speaks over an
// existing connection. The dialer's own dialing would hide the connection behind a type without
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
	socks := d.(socksClient) //nolint:forcetypeassert // go.mod's version has it; tests hold that
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
