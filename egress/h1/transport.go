// Package h1 sends requests without a body over HTTP/1.1, in the goroutine of the caller.
//
// Most requests of a crawler are of this kind. net/http's transport serves each connection with two
// goroutines and two buffers, even while it is idle; here an idle connection has none.
// [http.Request.Write] and [http.ReadResponse] do the writing and reading.
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
	"slices"
	"strings"
	"sync"
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

var (
	// errStale means that a connection ended before the first byte of a response.
	errStale = errors.New("the connection ended before a response")
	// errUnquiet means that a kept connection is closed or has received bytes, and that nothing was
	// sent.
	errUnquiet = errors.New("the kept connection cannot be used")
)

// Serves reports whether a [Transport] can send a request: GET or HEAD of http or https, without a
// body and without a change of the protocol.
func Serves(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Body == nil &&
		(r.URL.Scheme == "http" || r.URL.Scheme == "https") && r.Header["Upgrade"] == nil
}

// RoundTrip implements [http.RoundTripper]. If the origin closes a kept connection instead of
// answering, the request is sent once more, over a new one.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	trace := cmp.Or(httptrace.ContextClientTrace(r.Context()), &noTrace)
	for fresh := t.fresh; ; {
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
		fresh = !errors.Is(err, errUnquiet) // else another kept connection will do
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

// key identifies the origin that a connection leads to.
type key struct{ scheme, host string }

// pool keeps the idle connections to all origins, and bounds their memory. An idle connection has
// no goroutine and no buffer.
type pool struct {
	max     int // bounds used
	timeout time.Duration

	mu    sync.Mutex
	conns map[key][]*conn // the most recently used one is last
	used  int             // the sum of the connections' sizes
	timer *time.Timer     // runs expire while there are connections
}

func newPool(most int, timeout time.Duration) *pool {
	return &pool{max: most, timeout: timeout, conns: make(map[key][]*conn)}
}

// take returns the most recently used connection to an origin, or nil.
func (p *pool) take(k key) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.conns[k]); n > 0 {
		return p.remove(k, n-1)
	}
	return nil
}

// has reports whether there is a connection to an origin.
func (p *pool) has(k key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns[k]) > 0
}

func (p *pool) remove(k key, i int) *conn {
	c := p.conns[k][i]
	if p.conns[k] = slices.Delete(p.conns[k], i, i+1); len(p.conns[k]) == 0 {
		delete(p.conns, k)
	}
	p.used -= c.size()
	return c
}

// put keeps a connection. If there are too many, it closes others.
func (p *pool) put(c *conn) {
	c.reused, c.since = true, time.Now()
	p.mu.Lock()
	p.conns[c.key] = append(p.conns[c.key], c)
	p.used += c.size()
	var surplus []*conn
	for p.used > p.max {
		for k := range p.conns { // in random order
			surplus = append(surplus, p.remove(k, 0))
			break
		}
	}
	if p.timer == nil {
		p.timer = time.AfterFunc(p.timeout, p.expire)
	}
	p.mu.Unlock()
	for _, c := range surplus {
		_ = c.Close()
	}
}

// expire closes the connections that have been idle for too long, late by at most a quarter of that
// time.
func (p *pool) expire() {
	p.close(time.Now().Add(-p.timeout))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer = nil; p.used > 0 {
		p.timer = time.AfterFunc(p.timeout/4, p.expire)
	}
}

// close closes the connections that have been idle since the given time.
func (p *pool) close(since time.Time) {
	var closing []*conn
	p.mu.Lock()
	for k := range p.conns {
		for len(p.conns[k]) > 0 && !p.conns[k][0].since.After(since) {
			closing = append(closing, p.remove(k, 0))
		}
	}
	p.mu.Unlock()
	for _, c := range closing {
		_ = c.Close()
	}
}
