package egress

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/crawlgate/crawlgate/egress/ftphttp"
	"github.com/crawlgate/crawlgate/egress/guard"
	"github.com/crawlgate/crawlgate/egress/h1"
)

// Defaults and limits of [Transport].
const (
	DefaultResponseHeaderTimeout = 60 * time.Second
	// maxResponseHeader bounds the header of a response; a larger one fails the request.
	maxResponseHeader = 256 << 10
	// maxIdle is the memory for idle connections to all hosts together, in KiB. It is enough for 2,048
	// connections of http or 1,024 of https. A host has as many as its pace allows requests at a time.
	maxIdle     = 16 << 10
	idleTimeout = 90 * time.Second
	// maxOther bounds the connections of net/http's transport. One takes some 50 KiB with HTTP/2.
	maxOther = 512
	// expectTimeout is how long an origin has to answer Expect: 100-continue before the body is sent
	// without an answer, as RFC 9110 section 10.1.1 recommends; curl waits as long.
	expectTimeout = time.Second
	// Bounds on the data that an HTTP/2 origin may send ahead of a slow client, per stream and
	// connection.
	h2StreamBuffer = 1 << 20
	h2ConnBuffer   = 8 << 20
	// A silent HTTP/2 connection is pinged, and closed if the ping is not answered.
	h2PingAfter   = 30 * time.Second
	h2PingTimeout = 15 * time.Second
	tlsSessions   = 512
)

// TransportConfig configures a [Transport]. Only Dialer is required.
type TransportConfig struct {
	Dialer *Dialer
	// Upstreams are proxies to go through instead of directly; the first whose Match accepts the host
	// is used.
	Upstreams []Upstream
	// RootCAs are the authorities trusted for origins and upstream proxies; nil means the system's.
	// [TrustedRoots] adds to the system's.
	RootCAs *x509.CertPool
	// ResponseHeaderTimeout runs from the end of the request to the header of the response; 0 means
	// DefaultResponseHeaderTimeout.
	ResponseHeaderTimeout time.Duration
	// FreshFor makes the transport send each request once, over a new connection, for callers that
	// count every request: other transports repeat a request whose kept connection breaks before the
	// answer. If possible, the connection then serves requests of that transport.
	FreshFor *Transport
}

// Transport sends requests to origins over HTTP/1.1 and HTTP/2, and reads from FTP servers,
// directly or through upstream proxies. The dialer's guard checks every connection. A Transport
// changes nothing about a message: it asks for no compression and follows no redirect. It verifies
// certificates; there is no switch to turn that off. It is safe for concurrent use.
//
// Only upstream proxies get Via. RFC 9110 section 7.6.3 asks for it towards origins too, but
// widespread servers stop compressing for requests that carry it, which would cost every crawled
// site traffic. A request that is sent directly cannot come back, because the guard refuses the
// gateway's own listeners.
type Transport struct {
	dialer    *Dialer
	simple    *h1.Transport // for the requests that it serves, without an upstream proxy
	direct    transportPair // for the rest
	upstreams []*upstream
	tls       *tls.Config
	via       string // this gateway's pseudonym, unique to the process, for finding loops
}

// NewTransport builds a transport. It fails on an upstream URL that cannot be used.
func NewTransport(c TransportConfig) (*Transport, error) {
	t := &Transport{
		dialer: c.Dialer,
		via:    "crawlgate-" + rand.Text(),
		tls: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			RootCAs:            c.RootCAs,
			ClientSessionCache: tls.NewLRUClientSessionCache(tlsSessions),
		},
	}
	direct := t.httpTransport(c)
	dial := bounded(c.Dialer, direct, maxOther)
	t.direct = pairOf(direct, dial, dial)
	settings := t.httpTransport(c)
	settings.DialContext = c.Dialer.DialContext
	if c.FreshFor != nil {
		t.simple = c.FreshFor.simple.Fresh(settings)
	} else {
		t.simple = h1.New(settings, maxIdle)
	}
	for _, u := range c.Upstreams {
		up, err := t.newUpstream(c, u)
		if err != nil {
			return nil, fmt.Errorf("building transport: %w", err)
		}
		t.upstreams = append(t.upstreams, up)
	}
	return t, nil
}

func (t *Transport) httpTransport(c TransportConfig) *http.Transport {
	secure := t.tls.Clone()
	secure.NextProtos = []string{"h2", "http/1.1"}
	return &http.Transport{
		TLSClientConfig:        secure,
		ForceAttemptHTTP2:      true, // a custom DialContext turns HTTP/2 off otherwise
		DisableCompression:     true, // otherwise it would decode bodies
		DisableKeepAlives:      c.FreshFor != nil,
		MaxIdleConns:           maxOther,
		MaxIdleConnsPerHost:    maxOther,
		IdleConnTimeout:        idleTimeout,
		TLSHandshakeTimeout:    c.Dialer.timeout(),
		ResponseHeaderTimeout:  cmp.Or(max(c.ResponseHeaderTimeout, 0), DefaultResponseHeaderTimeout),
		ExpectContinueTimeout:  expectTimeout,
		MaxResponseHeaderBytes: maxResponseHeader,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream:     h2StreamBuffer,
			MaxReceiveBufferPerConnection: h2ConnBuffer,
			SendPingTimeout:               h2PingAfter,
			PingTimeout:                   h2PingTimeout,
		},
	}
}

// bounded returns the dial function for a transport of net/http. Every most-th call closes idle
// connections, because MaxIdleConns does not count HTTP/2 connections.
func bounded(d *Dialer, transport *http.Transport, most int64) dialFunc {
	var dials atomic.Int64
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1)%most == 0 {
			transport.CloseIdleConnections()
		}
		return d.DialContext(ctx, network, addr)
	}
}

// transportPair is a transport for most requests, and another for those that must not share a
// connection.
type transportPair struct {
	shared *http.Transport
	single *http.Transport // has an HTTP/1.1 connection for each request
}

// pairOf makes a pair from a transport. It dials with plain for requests of http, and with secure
// for requests of https, where it does the TLS handshake with the origin itself.
func pairOf(shared *http.Transport, plain, secure dialFunc) transportPair {
	single := shared.Clone()
	single.DisableKeepAlives = true
	single.Protocols = new(http.Protocols)
	single.Protocols.SetHTTP1(true)
	single.TLSClientConfig.NextProtos = []string{"http/1.1"}
	for _, h := range []*http.Transport{shared, single} {
		h.DialContext, h.DialTLSContext = plain.mended, secure.overTLS(h)
	}
	return transportPair{shared, single}
}

// dialFunc is the function that [net/http.Transport] dials with.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// mended dials a connection whose responses are mended.
func (dial dialFunc) mended(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return h1.Mend(conn), nil
}

// overTLS returns a function that dials and does a TLS handshake with the settings of h. Responses
// are mended above TLS. net/http recognizes HTTP/2 by the type of the connection.
func (dial dialFunc) overTLS(h *http.Transport) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		config := h.TLSClientConfig.Clone()
		config.ServerName, _, _ = net.SplitHostPort(addr) // net/http made addr, so it can be split
		ctx, cancel := context.WithTimeout(ctx, h.TLSHandshakeTimeout)
		defer cancel()
		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err
		}
		if secure.ConnectionState().NegotiatedProtocol == "h2" {
			return secure, nil
		}
		return h1.Mend(secure), nil
	}
}

// roundTrip sends a request with the transport that it needs, and has the head of its response
// mended. It repeats a request that was not processed, once, if the body is at hand. net/http
// itself repeats a request without a body, except after HTTP_1_1_REQUIRED.
func (w transportPair) roundTrip(r *http.Request) (*http.Response, error) {
	trace := &httptrace.ClientTrace{GotConn: awaitResponse} // new, as WithClientTrace changes it
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), trace))
	resp, err := w.of(r).RoundTrip(r)
	next := w.again(err)
	if next == nil {
		return resp, err
	}
	if r.Body != nil && r.Body != http.NoBody {
		if body, ok := r.Body.(*requestBody); !ok || !body.rewind() {
			return nil, err
		}
	}
	return next.RoundTrip(r)
}

// again returns the transport that repeats a request which failed without being processed (RFC 9113
// section 8.7), or nil for other failures. Such a request came after the last stream of a GOAWAY,
// or its stream was refused. If it had a GetBody, net/http would repeat it after PROTOCOL_ERROR
// too, which is no such proof. The error for a body that cannot be sent again has no type.
func (w transportPair) again(err error) *http.Transport {
	if err == nil {
		return nil
	}
	text := err.Error()
	stream, _ := errors.AsType[http2.StreamError](err)
	ours := strings.HasPrefix(text, "http2: Transport") // such a text quotes nothing from the origin
	switch {
	case stream.Code == http2.ErrCodeHTTP11Required, ours && strings.HasSuffix(text, "ErrCode:HTTP_1_1_REQUIRED"):
		return w.single
	case stream.Code == http2.ErrCodeRefusedStream, ours && strings.Contains(text, "REFUSED_STREAM"), ours && strings.Contains(text, "GOAWAY"):
		return w.shared
	}
	return nil
}

// awaitResponse tells an HTTP/1 connection that a response will come.
func awaitResponse(info httptrace.GotConnInfo) {
	if conn, ok := info.Conn.(*h1.Mended); ok {
		conn.Await()
	}
}

// of returns the transport for a request. HTTP/2 has no Upgrade. NTLM and Negotiate authenticate
// the connection (RFC 4559 section 6): a later client on it would be taken for the first.
func (w transportPair) of(r *http.Request) *http.Transport {
	if r.Header["Upgrade"] != nil {
		return w.single
	}
	for _, v := range r.Header["Authorization"] {
		scheme, _, _ := strings.Cut(strings.ReplaceAll(strings.TrimLeft(v, " \t"), "\t", " "), " ")
		if strings.EqualFold(scheme, "NTLM") || strings.EqualFold(scheme, "Negotiate") {
			return w.single
		}
	}
	return w.shared
}

// TrustedRoots returns the system's authorities together with the certificates in pems, the
// contents of PEM files. Contents without a certificate are an error.
func TrustedRoots(pems ...[]byte) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("loading the system's certificate authorities: %w", err)
	}
	for i, pem := range pems {
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("adding trusted authority %d: no certificate in PEM form", i+1)
		}
	}
	return pool, nil
}

// RoundTrip implements [http.RoundTripper]. A request for an ftp URL must be GET or HEAD.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "ftp" {
		return ftphttp.RoundTrip(r, t.direct.shared.ResponseHeaderTimeout, t.dialFTP)
	}
	up := t.upstream(r.URL.Hostname())
	if up == nil {
		return t.directly(r)
	}
	resp, err := up.roundTrip(r)
	if err != nil && r.Body != nil {
		_ = r.Body.Close() // RoundTripper requires it; closing twice does no harm
	}
	return resp, err
}

// directly sends a request without an upstream proxy.
func (t *Transport) directly(r *http.Request) (*http.Response, error) {
	if h1.Serves(r) && t.direct.of(r) == t.direct.shared {
		resp, err := t.simple.RoundTrip(r)
		if !errors.Is(err, h1.ErrProtocol) {
			return resp, err
		}
	}
	return t.direct.roundTrip(r)
}

// dialFTP connects to an FTP server, through an upstream proxy if one is configured for the host.
// It is a [ftphttp.Dial].
func (t *Transport) dialFTP(ctx context.Context, host string, port uint16, control net.Conn) (net.Conn, error) {
	if up := t.upstream(host); up != nil {
		return up.dialTunnel(ctx, host, port, toFTP)
	}
	if control != nil {
		dialed, _ := DialedOf(control)
		host = dialed.Addr.Addr().String()
	}
	return t.dialer.dial(ctx, host, port, toFTP)
}

// DialTunnel connects to a port of an origin for opaque bytes, through an upstream proxy if one is
// configured for the host. A relay can close its sending half alone.
func (t *Transport) DialTunnel(ctx context.Context, host string, port uint16) (net.Conn, error) {
	if up := t.upstream(host); up != nil {
		return up.dialTunnel(ctx, host, port, toOrigin)
	}
	return t.dialer.dial(ctx, host, port, toOrigin)
}

// Looped reports whether a request's header says that this gateway has sent the request before.
func (t *Transport) Looped(h http.Header) bool {
	for _, v := range h["Via"] {
		for member := range strings.SplitSeq(v, ",") {
			if by := strings.Fields(member); len(by) >= 2 && strings.EqualFold(by[1], t.via) {
				return true
			}
		}
	}
	return false
}

// CloseIdleConnections closes the connections that no request uses.
func (t *Transport) CloseIdleConnections() {
	t.simple.CloseIdleConnections()
	t.direct.shared.CloseIdleConnections()
	for _, u := range t.upstreams {
		u.http.CloseIdleConnections()
	}
}

// Proxied reports whether requests for a host go through an upstream proxy that speaks HTTP, and so
// may answer them itself.
func (t *Transport) Proxied(host string) bool {
	u := t.upstream(host)
	return u != nil && !u.isSOCKS()
}

func (t *Transport) upstream(host string) *upstream {
	for _, u := range t.upstreams {
		if u.match == nil || u.match(host) {
			return u
		}
	}
	return nil
}

var defaultPorts = map[string]uint16{"http": 80, "https": 443, "ftp": guard.FTPPort, "socks5": 1080, "socks5h": 1080}

func effectivePort(u *url.URL) (uint16, error) {
	if p := u.Port(); p != "" {
		return guard.ParsePort(p)
	}
	port, ok := defaultPorts[u.Scheme]
	if !ok {
		return 0, fmt.Errorf("scheme %q has no default port", u.Scheme)
	}
	return port, nil
}
