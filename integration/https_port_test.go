package integration

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// tlsPort is a port of a gateway at which it is spoken to by TLS.
type tlsPort struct {
	addr      string
	authority *testAuthority // of the port's own certificate
}

// withTLSPort adds a second site to a gateway: the same, by TLS. Its closing brackets are those that the harness
// writes after the first.
func (c gatewayConfig) withTLSPort(t *testing.T, a *testAuthority, tlsOptions string) (gatewayConfig, *tlsPort) {
	t.Helper()
	p := &tlsPort{addr: freePort(t), authority: a}
	_, port, _ := net.SplitHostPort(p.addr)
	dir := t.TempDir()
	cert := a.issue(t, []string{"localhost", "127.0.0.1"}, nil)
	writePEM(t, filepath.Join(dir, "cert.pem"), "CERTIFICATE", cert.Certificate...)
	writeKey(t, filepath.Join(dir, "key.pem"), cert.PrivateKey)
	c.Global += "\nauto_https disable_redirects" // else Caddy listens at port 80 as well
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

// TestHTTPSProxyPort has clients speak to the gateway itself by TLS, and CONNECT by HTTP/1.1 and HTTP/2.
func TestHTTPSProxyPort(t *testing.T) {
	t.Parallel()
	authority := newTestAuthority(t)
	c, port := gatewayConfig{Engine: unpaced}.trusting(authority).withTLSPort(t, authority, "")
	g := startGateway(t, c)
	for _, tt := range []struct {
		name  string
		outer string // version of CONNECT
		inner string
		crawl func(*secureCrawl, *tlsPort) []visited
	}{
		{"curl", "HTTP/1.1", "2", (*secureCrawl).byCurlOverTLS},
		{"curl --proxy-http2", "HTTP/2.0", "2", (*secureCrawl).byCurlOverHTTP2},
		// With HTTP/2 net/http would offer it to the proxy as well, and then speak HTTP/1.1.
		{"Go", "HTTP/1.1", "1.1", (*secureCrawl).byGoOverTLS},
		{"HTTP/1.1 over HTTP/2", "HTTP/2.0", "1.1", (*secureCrawl).byGoOverHTTP2},
		{"HTTP/2 over HTTP/2", "HTTP/2.0", "2", (*secureCrawl).byGoOverHTTP2},
		{"Chromium", "HTTP/2.0", "2", (*secureCrawl).byChromiumOverTLS},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			site := startSecureSite(t, authority, nil)
			x := &secureCrawl{t: t, g: g, root: site.at("/"), ca: g.rootFile(), http: tt.inner}
			checkSecureCrawl(t, site, tt.crawl(x, port))
			checkSecureLog(t, g, site, tt.inner)
			eventually(t, "the line of the tunnel", func() bool {
				for _, l := range g.readLogs() {
					if l.Request.Method == http.MethodConnect && l.Request.URI == site.authority() {
						if proto := l.secure(t).Request.Proto; proto != tt.outer || l.Status != http.StatusOK {
							t.Errorf("CONNECT came by %s, want %s: %s", proto, tt.outer, l.raw)
						}
						return true
					}
				}
				return false
			})
		})
	}
}

// TestTLSPortKnowsItsClients tells agents by the certificates that clients show to a TLS port, over HTTP/1.1 and HTTP/2, and
// takes no HTTP/2 connection for a request that could not be read.
func TestTLSPortKnowsItsClients(t *testing.T) {
	t.Parallel()
	authority := newTestAuthority(t)
	c, port := gatewayConfig{
		Engine: unpaced, Site: "agent certified {\nclient_certificate crawler.example\n}",
		Global: "servers {\nstrict_sni_host insecure_off\nlistener_wrappers {\nrobots\n}\n}",
	}.trusting(authority).withTLSPort(t, authority, "client_auth {\nmode require_and_verify\ntrust_pool file "+authority.file+"\n}")
	g := startGateway(t, c)
	site := startSecureSite(t, authority, nil)
	roots := x509.NewCertPool()
	roots.AddCert(authority.cert)
	asClient := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }
	config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{*authority.issue(t, []string{"crawler.example"}, asClient)}}
	for proto, ask := range map[string]func(net.Conn) (answer, error){
		"http/1.1": func(c net.Conn) (answer, error) {
			return (&wire{c, bufio.NewReader(c)}).ask(http.MethodGet, "GET "+site.at("/news/a.html")+" HTTP/1.1\r\nHost: "+site.authority()+"\r\n\r\n")
		},
		"h2": func(c net.Conn) (answer, error) {
			// What follows the 200 is the tunnel, which stays open.
			h := newRawH2(t, c)
			return h.open(":method", "CONNECT", ":authority", site.authority())
		},
	} {
		config.NextProtos = []string{proto}
		conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", port.addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		if a, err := ask(conn); err != nil || a.status != http.StatusOK {
			t.Errorf("%s: %d, %v: %s", proto, a.status, err, a.body)
		}
		_ = conn.Close()
	}
	for _, l := range g.logs(2) {
		if s := l.secure(t); s.Request.TLS.Proto == "" || l.Status != http.StatusOK || l.Request.Method == http.MethodGet && l.Robots.Agent != "certified" {
			t.Errorf("logged as %s", l.raw)
		}
	}
}

func (c *secureCrawl) byCurlOverTLS(p *tlsPort) []visited {
	return c.curlOver(p)
}

func (c *secureCrawl) byCurlOverHTTP2(p *tlsPort) []visited {
	curl := need(c.t, "curl")
	if out, _ := exec.Command(curl, "--help", "all").Output(); !bytes.Contains(out, []byte("--proxy-http2")) {
		c.t.Skip("this curl is older than 8.1.0, which brought --proxy-http2")
	}
	return c.curlOver(p, "--proxy-http2")
}

func (c *secureCrawl) curlOver(p *tlsPort, options ...string) []visited {
	curl := need(c.t, "curl")
	_, port, _ := net.SplitHostPort(p.addr)
	return c.follow(func(url string) visited {
		args := []string{
			"--disable", "--silent", "--show-error", "--max-time", "30", "--proxy", "https://localhost:" + port, "--noproxy", "",
			"--proxy-cacert", p.authority.file, "--cacert", c.ca, "--write-out", "\n%{http_code}", url,
		}
		out := c.run(exec.Command(curl, append(args, options...)...))
		body, code := out[:strings.LastIndexByte(out, '\n')], out[strings.LastIndexByte(out, '\n')+1:]
		page := visited{URL: url, Body: body}
		if _, err := fmt.Sscan(code, &page.Status); err != nil {
			c.t.Errorf("curl says %q: %v", code, err)
		}
		return page
	})
}

func (c *secureCrawl) byGoOverTLS(p *tlsPort) []visited {
	roots := c.g.authority()
	roots.AddCert(p.authority.cert) // net/http has one pool for both
	client := c.g.clientOf("Reckless/1.0", 1, &url.URL{Scheme: "https", Host: p.addr}, &tls.Config{RootCAs: roots})
	defer hangUp(client)
	return c.follow(func(url string) visited {
		a := get(c.t, client, url)
		return visited{URL: url, Status: a.status, Body: a.body}
	})
}

func (c *secureCrawl) byGoOverHTTP2(p *tlsPort) []visited {
	outer := p.h2(c.t)
	version := 1
	if c.http == "2" {
		version = 2
	}
	inner := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: c.g.authority()}, ForceAttemptHTTP2: version == 2,
		DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
			return connectOver(c.t.Context(), outer, addr)
		},
	}
	client := &http.Client{Transport: &agentTransport{"Reckless/1.0", inner}, Timeout: patience}
	defer hangUp(client)
	return c.follow(func(url string) visited {
		a := get(c.t, client, url)
		return visited{URL: url, Status: a.status, Body: a.body}
	})
}

func (c *secureCrawl) byChromiumOverTLS(p *tlsPort) []visited {
	browser := startChromium(c.t, "https://"+p.addr, c.http, c.ca, p.authority.file)
	return c.follow(browser.visit)
}

// h2 opens an HTTP/2 connection to the port.
func (p *tlsPort) h2(t *testing.T) *http.ClientConn {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(p.authority.cert)
	base := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, Protocols: new(http.Protocols)}
	base.Protocols.SetHTTP2(true)
	cc, err := base.NewClientConn(t.Context(), "https", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// connectOver opens a tunnel as a stream of an HTTP/2 connection.
func connectOver(ctx context.Context, cc *http.ClientConn, authority string) (net.Conn, error) {
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
		a, _ := readAnswer(resp)
		return nil, fmt.Errorf("CONNECT %s: %+v", authority, a)
	}
	return &stream{Reader: resp.Body, down: resp.Body, up: body}, nil
}

// stream is a tunnel within HTTP/2 as a connection. Deadlines are the tests' own.
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

func (s *stream) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (s *stream) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *stream) SetDeadline(time.Time) error      { return nil }
func (s *stream) SetReadDeadline(time.Time) error  { return nil }
func (s *stream) SetWriteDeadline(time.Time) error { return nil }
