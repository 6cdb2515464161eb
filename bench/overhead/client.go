package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// client sends requests over one connection to the gateway, one after the other.
type client interface {
	get(path string) (*http.Response, error)
	close()
}

// dialer connects a client to the gateway. Only tunnels wait for an answer at that point.
type dialer func(ctx context.Context, g *gateway, s *site) (client, error)

const userAgent = "Bench/1.0"

// patience is the longest life of a connection, so that a gateway that hangs does not block the
// measurement.
const patience = 5 * time.Minute

func (g *gateway) dial(ctx context.Context) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", g.Addr)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(patience))
}

// wireClient speaks HTTP/1.1 without the cost of net/http's client.
type wireClient struct {
	conn   net.Conn
	r      *bufio.Reader
	prefix string // before the path: the origin's URL, or empty in a tunnel
	host   string
}

func (c *wireClient) get(path string) (*http.Response, error) {
	_, err := fmt.Fprintf(c.conn, "GET %s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nAccept: */*\r\n\r\n", c.prefix, path, c.host, userAgent)
	if err != nil {
		return nil, err
	}
	return http.ReadResponse(c.r, nil)
}

func (c *wireClient) close() { _ = c.conn.Close() } // the answers are there: nothing is lost

// absolute sends requests with absolute URLs, for http and https alike.
func absolute(ctx context.Context, g *gateway, s *site) (client, error) {
	conn, err := g.dial(ctx)
	if err != nil {
		return nil, err
	}
	return &wireClient{conn, bufio.NewReader(conn), s.URL, s.Listener.Addr().String()}, nil
}

// tunneled sends HTTP/1.1 over TLS in a tunnel. The configuration has the settings that differ
// between clients.
func tunneled(config *tls.Config) dialer {
	return func(ctx context.Context, g *gateway, s *site) (client, error) {
		conn, err := g.dial(ctx)
		if err != nil {
			return nil, err
		}
		inner, err := handshake(ctx, conn, g, s, config.Clone())
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return &wireClient{inner, bufio.NewReader(inner), "", s.Listener.Addr().String()}, nil
	}
}

// handshake opens a tunnel and starts TLS in it.
func handshake(ctx context.Context, conn net.Conn, g *gateway, s *site, config *tls.Config) (net.Conn, error) {
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\nUser-Agent: %s\r\n\r\n", s.Listener.Addr(), userAgent); err != nil {
		return nil, err
	}
	answers := bufio.NewReader(conn)
	resp, err := http.ReadResponse(answers, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, err
	}
	_ = resp.Body.Close() // it has no body: the tunnel follows
	if resp.StatusCode != http.StatusOK || answers.Buffered() > 0 {
		return nil, fmt.Errorf("CONNECT: got status %s, want 200 OK", resp.Status)
	}
	config.RootCAs, config.ServerName = g.roots, "127.0.0.1"
	inner := tls.Client(conn, config)
	return inner, inner.HandshakeContext(ctx)
}

// h2Client sends HTTP/2 in a tunnel.
type h2Client struct {
	ctx       context.Context
	transport *http.Transport
	url       string
	shared    bool
}

// overHTTP2 gives each client its own tunnel.
func overHTTP2(ctx context.Context, g *gateway, s *site) (client, error) {
	return &h2Client{ctx, h2Transport(g), s.URL, false}, nil
}

// overOneHTTP2 makes all clients share a tunnel, like the requests of one crawler to one site.
func overOneHTTP2() dialer {
	var once sync.Once
	var transport *http.Transport
	return func(ctx context.Context, g *gateway, s *site) (client, error) {
		once.Do(func() { transport = h2Transport(g) })
		return &h2Client{ctx, transport, s.URL, true}, nil
	}
}

func h2Transport(g *gateway) *http.Transport {
	return &http.Transport{
		Proxy:             http.ProxyURL(&url.URL{Scheme: "http", Host: g.Addr}),
		ForceAttemptHTTP2: true, DisableCompression: true, TLSClientConfig: &tls.Config{RootCAs: g.roots},
	}
}

func (c *h2Client) get(path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(c.ctx, http.MethodGet, c.url+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header["User-Agent"] = []string{userAgent}
	resp, err := c.transport.RoundTrip(req)
	if err == nil && resp.ProtoMajor != 2 {
		err = errors.Join(fmt.Errorf("got protocol %s, want HTTP/2", resp.Proto), resp.Body.Close())
	}
	return resp, err
}

func (c *h2Client) close() {
	if !c.shared {
		c.transport.CloseIdleConnections()
	}
}

// read reads a whole answer and checks that it is one of the origin's pages.
func read(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	size, err := io.Copy(io.Discard, resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || size != pageSize {
		return fmt.Errorf("got status %d with %d bytes, want 200 with a page", resp.StatusCode, size)
	}
	return nil
}
