package rig

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"
)

// Dial opens a TLS connection to the port for HTTP/1.1.
func (p *TLSPort) Dial(t *testing.T) *Wire {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(p.Authority.Cert)
	d := tls.Dialer{Config: &tls.Config{RootCAs: roots, NextProtos: []string{"http/1.1"}}}
	conn, err := d.DialContext(t.Context(), "tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &Wire{conn, bufio.NewReader(conn)}
}

// TLSPort is a port of a gateway for TLS.
type TLSPort struct {
	Addr      string
	Authority *TestCA // of the port's own certificate
}

// WithTLSPort adds a second site to a gateway, like the first but over TLS. Its closing brackets
// are those that Caddyfile writes after the first site.
func (c Config) WithTLSPort(t *testing.T, a *TestCA, tlsOptions string) (Config, *TLSPort) {
	t.Helper()
	p := &TLSPort{Addr: FreePort(t), Authority: a}
	_, port, _ := net.SplitHostPort(p.Addr)
	dir := t.TempDir()
	cert := a.Issue(t, []string{"localhost", "127.0.0.1"}, nil)
	WritePEM(t, filepath.Join(dir, "cert.pem"), "CERTIFICATE", cert.Certificate...)
	WriteKey(t, filepath.Join(dir, "key.pem"), cert.PrivateKey)
	c.Global += "\nauto_https disable_redirects" // otherwise Caddy also listens at port 80
	c.Site += fmt.Sprintf(`
	}
}
https://:%s {
	bind 127.0.0.1
	tls %s/cert.pem %s/key.pem {
		%s
	}
	log {
		output file {env.XDG_DATA_HOME}/access.log {
			roll_disabled
		}
		format json
	}
	robots {
		%s
`, port, dir, dir, tlsOptions, c.Site)
	return c, p
}

// H2 opens an HTTP/2 connection to the port.
func (p *TLSPort) H2(t *testing.T) *http.ClientConn {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(p.Authority.Cert)
	base := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, Protocols: new(http.Protocols)}
	base.Protocols.SetHTTP2(true)
	cc, err := base.NewClientConn(t.Context(), "https", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// ConnectOver opens a tunnel as a stream of an HTTP/2 connection.
func ConnectOver(ctx context.Context, cc *http.ClientConn, authority string) (net.Conn, error) {
	up, body := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodConnect, "https://"+authority, up)
	if err != nil {
		return nil, err
	}
	resp, err := cc.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		a, _ := ReadAnswer(resp)
		return nil, fmt.Errorf("CONNECT %s: %+v", authority, a)
	}
	return &stream{Reader: resp.Body, down: resp.Body, up: body}, nil
}

// stream is a tunnel in an HTTP/2 stream as a connection. It ignores deadlines, which tests bound
// themselves.
type stream struct {
	io.Reader
	down io.Closer
	up   *io.PipeWriter
}

func (s *stream) Write(p []byte) (int, error) { return s.up.Write(p) }

func (s *stream) Close() error {
	_ = s.up.Close()
	return s.down.Close()
}

func (s *stream) LocalAddr() net.Addr { return &net.TCPAddr{} }

func (s *stream) RemoteAddr() net.Addr { return &net.TCPAddr{} }

func (s *stream) SetDeadline(time.Time) error { return nil }

func (s *stream) SetReadDeadline(time.Time) error { return nil }

func (s *stream) SetWriteDeadline(time.Time) error { return nil }

// RawH2 opens an HTTP/2 connection to the port.
func (p *TLSPort) RawH2(t *testing.T) *RawH2 {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(p.Authority.Cert)
	d := tls.Dialer{Config: &tls.Config{RootCAs: roots, NextProtos: []string{"h2"}}}
	conn, err := d.DialContext(t.Context(), "tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(Patience))
	return NewRawH2(t, conn)
}
