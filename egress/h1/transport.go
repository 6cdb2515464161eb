package h1

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"time"
)

// Transport is an [http.RoundTripper] for the requests that [Serves] accepts. It calls the hooks
// GetConn, GotConn, WroteRequest, GotFirstResponseByte and Got1xxResponse of httptrace in the
// caller's goroutine; if the context has ended when GotConn returns, nothing is sent. Only one
// goroutine at a time may use the body of a response. Otherwise a Transport is safe for concurrent
// use.
type Transport struct {
	config *http.Transport
	tls    *tls.Config
	pool   *pool
	fresh  bool
}

// New returns a transport with the settings of c: DialContext, TLSClientConfig and
// TLSHandshakeTimeout; ResponseHeaderTimeout, which includes the sending of the request;
// MaxResponseHeaderBytes, which includes interim responses; IdleConnTimeout. All are required.
// maxIdle bounds the memory of idle connections to all hosts together, in KiB.
func New(c *http.Transport, maxIdle int) *Transport {
	secure := c.TLSClientConfig.Clone() // net/http changes its own
	secure.NextProtos = []string{"http/1.1"}
	return &Transport{config: c, tls: secure, pool: newPool(maxIdle, c.IdleConnTimeout)}
}

// Fresh returns a transport with the settings of c that sends each request once, over a new
// connection. The connection then serves later requests of t, unless t has an idle one.
func (t *Transport) Fresh(c *http.Transport) *Transport {
	fresh := *t
	fresh.config, fresh.fresh = c, true
	return &fresh
}

// CloseIdleConnections closes the connections that no request uses.
func (t *Transport) CloseIdleConnections() { t.pool.close(time.Now()) }

// Errors of [Transport.RoundTrip].
var (
	// ErrProtocol means that an origin does not speak HTTP/1.1. Nothing was sent.
	ErrProtocol = errors.New("the origin does not speak HTTP/1.1")
	// ErrHeaderSize means that the header of a response is larger than MaxResponseHeaderBytes.
	ErrHeaderSize = errors.New("the header of the response is too large")
)

// errStale means that a connection ended before the first byte of a response.
var errStale = errors.New("the connection ended before a response")

// Serves reports whether a [Transport] can send a request: GET or HEAD of http or https, without a
// body and without a change of the protocol.
func Serves(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Body == nil &&
		(r.URL.Scheme == "http" || r.URL.Scheme == "https") && r.Header["Upgrade"] == nil
}

// RoundTrip implements [http.RoundTripper]. If the origin has closed a kept connection, the request
// is sent once more, over a new one.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	trace := cmp.Or(httptrace.ContextClientTrace(r.Context()), &noTrace)
	for fresh := t.fresh; ; fresh = true {
		if trace.GetConn != nil {
			trace.GetConn(r.URL.Host)
		}
		c, err := t.connect(r, fresh)
		if err != nil {
			return nil, ended(r.Context(), err)
		}
		resp, err := t.exchange(c, r, trace)
		if err == nil {
			return resp, nil
		}
		t.release(c, false)
		if !c.reused || !errors.Is(err, errStale) || errors.Is(err, os.ErrDeadlineExceeded) || r.Context().Err() != nil {
			return nil, ended(r.Context(), err)
		}
	}
}

var noTrace httptrace.ClientTrace

// ended returns why the context has ended, or err if it has not.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// connect takes an idle connection or makes one.
func (t *Transport) connect(r *http.Request, fresh bool) (*conn, error) {
	k := key{r.URL.Scheme, r.URL.Host}
	if !fresh {
		if c := t.pool.take(k); c != nil {
			c.endWith(r.Context())
			return c, nil
		}
	}
	port := cmp.Or(r.URL.Port(), map[string]string{"http": "80", "https": "443"}[k.scheme])
	tcp, err := t.config.DialContext(r.Context(), "tcp", net.JoinHostPort(r.URL.Hostname(), port))
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: tcp, tcp: tcp, key: k}
	c.endWith(r.Context())
	if k.scheme == "https" {
		if err := t.handshake(c, r.URL.Hostname()); err != nil {
			t.release(c, false)
			return nil, err
		}
	}
	return c, nil
}

func (t *Transport) handshake(c *conn, host string) error {
	config := t.tls.Clone()
	config.ServerName = host
	// This fails if the connection is closed.
	_ = c.tcp.SetDeadline(time.Now().Add(t.config.TLSHandshakeTimeout))
	secure := tls.Client(c.tcp, config)
	c.Conn = secure
	// A context that can end costs a goroutine, and the end of the request's context closes the
	// connection anyway.
	err := secure.HandshakeContext(context.Background())
	if err != nil && strings.Contains(err.Error(), "no application protocol") { // crypto/tls has no type for this alert
		return ErrProtocol
	}
	return err
}

// release ends the use of a connection, and keeps it if that is wanted and possible.
func (t *Transport) release(c *conn, keep bool) {
	keep = c.stop() && keep
	c.stop = nil // it refers to the request
	if c.br != nil {
		keep = keep && c.br.Buffered() == 0 // otherwise there are bytes that nobody has asked for
		c.br.Reset(nil)
		readers.Put(c.br)
		c.br = nil
	}
	if keep && (!t.fresh || !t.pool.has(c.key)) {
		t.pool.put(c)
	} else {
		_ = c.Close()
	}
}
