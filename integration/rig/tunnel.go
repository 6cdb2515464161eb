package rig

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Inside starts TLS inside a tunnel. Other tests check the certificate.
func Inside(t *testing.T, w *Wire) *Wire {
	t.Helper()
	inner, err := w.Over(t, &tls.Config{InsecureSkipVerify: true, ServerName: "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	return inner
}

// RootFile writes the certificate that clients of the gateway must trust, as the gateway serves it,
// to a file.
func (g *Gateway) RootFile() string {
	g.T.Helper()
	file := filepath.Join(g.T.TempDir(), "ca.crt") // for each call, because subtests run in parallel
	if err := os.WriteFile(file, []byte(g.Own("/ca.crt").Body), 0o644); err != nil {
		g.T.Fatal(err)
	}
	return file
}

// Own requests one of the gateway's own pages.
func (g *Gateway) Own(path string) Answer {
	g.T.Helper()
	return Get(g.T, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, "http://"+g.Addr+path)
}

// Browse requests one of the gateway's own pages like a browser.
func (g *Gateway) Browse(path string) Answer {
	g.T.Helper()
	req, err := http.NewRequestWithContext(g.T.Context(), http.MethodGet, "http://"+g.Addr+path, http.NoBody)
	if err != nil {
		g.T.Fatal(err)
	}
	req.Header.Set("Accept", "text/html,application/xhtml+xml")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		g.T.Fatal(err)
	}
	a, err := ReadAnswer(resp)
	if err != nil {
		g.T.Fatal(err)
	}
	return a
}

// SecureClient returns a client that sends everything through the gateway and trusts its
// certificate. It uses HTTP/2 inside if version is 2.
func (g *Gateway) SecureClient(userAgent string, version int) *http.Client {
	return g.ClientOf(userAgent, version, &url.URL{Scheme: "http", Host: g.Addr}, &tls.Config{RootCAs: g.Authority()})
}

// ClientOf returns a client that sends everything through a proxy, such as the gateway's TLS port,
// with the given TLS configuration.
func (g *Gateway) ClientOf(userAgent string, version int, proxy *url.URL, config *tls.Config) *http.Client {
	base := &http.Transport{
		Proxy: http.ProxyURL(proxy), MaxIdleConnsPerHost: 256, DisableCompression: true,
		TLSClientConfig: config, ForceAttemptHTTP2: version == 2,
	}
	g.T.Cleanup(base.CloseIdleConnections)
	return &http.Client{
		Transport:     &AgentTransport{userAgent, base},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       Patience,
	}
}

// HangUp closes the tunnels of a client, which the gateway then logs.
func HangUp(c *http.Client) {
	if a, ok := c.Transport.(*AgentTransport); ok {
		a.Base.CloseIdleConnections()
	}
}

// Tunnel opens a tunnel over HTTP/1.1.
func (g *Gateway) Tunnel(authority string) *Wire {
	g.T.Helper()
	w := g.Dial()
	if resp := w.Connect(g.T, authority, ""); resp.StatusCode != http.StatusOK {
		g.T.Fatalf("CONNECT %s: %s", authority, resp.Status)
	}
	return w
}

// Of returns the same gateway for a subtest, which then reports its own failures.
func (g *Gateway) Of(t *testing.T) *Gateway {
	t.Helper()
	sub := *g
	sub.T = t
	return &sub
}

// ClosedTunnel waits for the line of the only tunnel to an authority.
func (g *Gateway) ClosedTunnel(authority string) (line LogLine) {
	g.T.Helper()
	Eventually(g.T, "the line of the tunnel to "+authority, func() bool {
		n := 0
		for _, l := range g.ReadLogs() {
			if l.Request.Method == http.MethodConnect && l.Request.URI == authority {
				line = l
				n++
			}
		}
		if n > 1 {
			g.T.Fatalf("%d lines for one tunnel: %s", n, line.Raw)
		}
		return n == 1
	})
	return line
}

// SecureLine has the fields of a line that tests of tunnels need besides [LogLine].
type SecureLine struct {
	Request struct {
		Proto    string `json:"proto"`
		RemoteIP string `json:"remote_ip"`
		TLS      struct {
			Proto      string `json:"proto"`
			ServerName string `json:"server_name"`
		} `json:"tls"`
	} `json:"request"`
	UserID string `json:"user_id"`
}

// Secure returns the TLS fields of a line.
func (l LogLine) Secure(t *testing.T) (s SecureLine) {
	t.Helper()
	if err := json.Unmarshal([]byte(l.Raw), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// OpenTunnel opens a tunnel outside the test's own goroutine. The caller closes it.
func (g *Gateway) OpenTunnel(ctx context.Context, authority string) (*Wire, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", g.Addr)
	if err != nil {
		return nil, Unread(err)
	}
	_ = conn.SetDeadline(time.Now().Add(Patience))
	w := &Wire{Conn: conn, Reader: bufio.NewReader(conn)}
	_, err = io.WriteString(conn, "CONNECT "+authority+" HTTP/1.1\r\nHost: "+authority+"\r\n\r\n")
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(w.Reader, &http.Request{Method: http.MethodConnect})
	}
	switch {
	case err != nil:
		err = Unread(err)
	case resp.StatusCode != http.StatusOK:
		err = fmt.Errorf("CONNECT %s: %s", authority, resp.Status)
	default:
		return w, nil
	}
	_ = conn.Close()
	return nil, err
}

// OneTunnel opens a tunnel, requests a page inside, and returns the verified chain.
func (g *Gateway) OneTunnel(site *SecureSite, roots *x509.CertPool) ([]*x509.Certificate, error) {
	w, err := g.OpenTunnel(g.T.Context(), site.Authority())
	if err != nil {
		return nil, err
	}
	defer w.Close()
	config := &tls.Config{RootCAs: roots, ServerName: "localhost", CurvePreferences: []tls.CurveID{tls.X25519}}
	inner, err := w.Over(g.T, config)
	if err != nil {
		return nil, err
	}
	a, err := inner.Ask(http.MethodGet, "GET /news/a.html HTTP/1.1\r\nHost: "+site.Authority()+"\r\nUser-Agent: Tester/1.0\r\n\r\n")
	if err != nil || a.Status != http.StatusOK {
		return nil, fmt.Errorf("GET: %d, %w", a.Status, err)
	}
	return inner.Conn.(*tls.Conn).ConnectionState().VerifiedChains[0], nil
}
