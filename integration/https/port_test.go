//go:build slow

package https

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// TestHTTPSProxyPort lets clients speak TLS to the gateway itself, and CONNECT over HTTP/1.1 and
// HTTP/2.
func TestHTTPSProxyPort(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	c, port := rig.Config{Engine: rig.Unpaced}.Trusting(authority).WithTLSPort(t, authority, "")
	g := rig.New(t, c)
	for _, tt := range []struct {
		name  string
		outer string // version of CONNECT
		inner string
		crawl func(*secureCrawl, *rig.TLSPort) []visited
	}{
		{"curl", "HTTP/1.1", "2", (*secureCrawl).byCurlOverTLS},
		{"curl --proxy-http2", "HTTP/2.0", "2", (*secureCrawl).byCurlOverHTTP2},
		// With HTTP/2, net/http would offer it to the proxy too, and then speak HTTP/1.1.
		{"Go", "HTTP/1.1", "1.1", (*secureCrawl).byGoOverTLS},
		{"HTTP/1.1 over HTTP/2", "HTTP/2.0", "1.1", (*secureCrawl).byGoOverHTTP2},
		{"HTTP/2 over HTTP/2", "HTTP/2.0", "2", (*secureCrawl).byGoOverHTTP2},
		{"Chromium", "HTTP/2.0", "2", (*secureCrawl).byChromiumOverTLS},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			site := rig.StartSecureSite(t, authority, nil)
			x := &secureCrawl{t: t, g: g, root: site.At("/"), ca: g.RootFile(), http: tt.inner}
			checkSecureCrawl(t, site, tt.crawl(x, port))
			checkSecureLog(t, g, site, tt.inner)
			rig.Eventually(t, "the line of the tunnel", func() bool {
				for _, l := range g.ReadLogs() {
					if l.Request.Method == http.MethodConnect && l.Request.URI == site.Authority() {
						if proto := l.Secure(t).Request.Proto; proto != tt.outer || l.Status != http.StatusOK {
							t.Errorf("CONNECT came over %s, want %s: %s", proto, tt.outer, l.Raw)
						}
						return true
					}
				}
				return false
			})
		})
	}
}

// TestTLSPortKnowsItsClients identifies agents by the certificates that clients show to a TLS port,
// over HTTP/1.1 and HTTP/2. An HTTP/2 connection must not count as a request that could not be
// read.
func TestTLSPortKnowsItsClients(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	c, port := rig.Config{
		Engine: rig.Unpaced, Site: "agent certified {\nclient_certificate crawler.example\n}",
		Global: "servers {\nstrict_sni_host insecure_off\nlistener_wrappers {\nrobots\n}\n}",
	}.Trusting(authority).WithTLSPort(t, authority, "client_auth {\nmode require_and_verify\ntrust_pool file "+authority.File+"\n}")
	g := rig.New(t, c)
	site := rig.StartSecureSite(t, authority, nil)
	roots := x509.NewCertPool()
	roots.AddCert(authority.Cert)
	asClient := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }
	config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{*authority.Issue(t, []string{"crawler.example"}, asClient)}}
	for proto, ask := range map[string]func(net.Conn) (rig.Answer, error){
		"http/1.1": func(c net.Conn) (rig.Answer, error) {
			return (&rig.Wire{Conn: c, Reader: bufio.NewReader(c)}).Ask(http.MethodGet, "GET "+site.At("/news/a.html")+" HTTP/1.1\r\nHost: "+site.Authority()+"\r\n\r\n")
		},
		"h2": func(c net.Conn) (rig.Answer, error) {
			// The bytes after the 200 are the tunnel, which stays open.
			h := rig.NewRawH2(t, c)
			return h.Open(":method", "CONNECT", ":authority", site.Authority())
		},
	} {
		config.NextProtos = []string{proto}
		conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", port.Addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(rig.Patience))
		if a, err := ask(conn); err != nil || a.Status != http.StatusOK {
			t.Errorf("%s: status %d, error %v: %s", proto, a.Status, err, a.Body)
		}
		_ = conn.Close()
	}
	for _, l := range g.Logs(2) {
		if s := l.Secure(t); s.Request.TLS.Proto == "" || l.Status != http.StatusOK || l.Request.Method == http.MethodGet && l.Robots.Agent != "certified" {
			t.Errorf("the log line is %s", l.Raw)
		}
	}
}

func (c *secureCrawl) byCurlOverTLS(p *rig.TLSPort) []visited {
	return c.curlOver(p)
}

func (c *secureCrawl) byCurlOverHTTP2(p *rig.TLSPort) []visited {
	curl := rig.Need(c.t, "curl")
	if out, _ := exec.Command(curl, "--help", "all").Output(); !bytes.Contains(out, []byte("--proxy-http2")) {
		c.t.Skip("this curl is older than 8.1.0 and lacks --proxy-http2")
	}
	return c.curlOver(p, "--proxy-http2")
}

func (c *secureCrawl) curlOver(p *rig.TLSPort, options ...string) []visited {
	curl := rig.Need(c.t, "curl")
	_, port, _ := net.SplitHostPort(p.Addr)
	return c.follow(func(url string) visited {
		args := []string{
			"--disable", "--silent", "--show-error", "--max-time", "30", "--proxy", "https://localhost:" + port, "--noproxy", "",
			"--proxy-cacert", p.Authority.File, "--cacert", c.ca, "--write-out", "\n%{http_code}", url,
		}
		out := c.run(exec.Command(curl, append(args, options...)...))
		body, code := out[:strings.LastIndexByte(out, '\n')], out[strings.LastIndexByte(out, '\n')+1:]
		page := visited{URL: url, Body: body}
		if _, err := fmt.Sscan(code, &page.Status); err != nil {
			c.t.Errorf("curl printed %q: %v", code, err)
		}
		return page
	})
}

func (c *secureCrawl) byGoOverTLS(p *rig.TLSPort) []visited {
	roots := c.g.Authority()
	roots.AddCert(p.Authority.Cert) // net/http uses one pool for both
	client := c.g.ClientOf("Reckless/1.0", 1, &url.URL{Scheme: "https", Host: p.Addr}, &tls.Config{RootCAs: roots})
	defer rig.HangUp(client)
	return c.follow(func(url string) visited {
		a := rig.Get(c.t, client, url)
		return visited{URL: url, Status: a.Status, Body: a.Body}
	})
}

func (c *secureCrawl) byGoOverHTTP2(p *rig.TLSPort) []visited {
	outer := p.H2(c.t)
	version := 1
	if c.http == "2" {
		version = 2
	}
	inner := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: c.g.Authority()}, ForceAttemptHTTP2: version == 2,
		DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
			return rig.ConnectOver(c.t.Context(), outer, addr)
		},
	}
	client := &http.Client{Transport: &rig.AgentTransport{UserAgent: "Reckless/1.0", Base: inner}, Timeout: rig.Patience}
	defer rig.HangUp(client)
	return c.follow(func(url string) visited {
		a := rig.Get(c.t, client, url)
		return visited{URL: url, Status: a.Status, Body: a.Body}
	})
}

func (c *secureCrawl) byChromiumOverTLS(p *rig.TLSPort) []visited {
	return c.browse(rig.StartChromium(c.t, "https://"+p.Addr, c.http, c.ca, p.Authority.File))
}
