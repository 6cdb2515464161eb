package integration

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// ambiguous are fields that a request may have only once.
var ambiguous = []struct{ name, first, second string }{
	{"User-Agent", "Tester/1.0", "Other/1.0"},
	{"User-Agent", "Tester/1.0", "Tester/1.0"},
	{"user-agent", "Tester/1.0", ""},
	{"Proxy-Authorization", "Basic dTpw", "Basic dTpx"},
}

// TestRepeatedFields sends User-Agent and Proxy-Authorization twice, everywhere: plainly, to open a tunnel, and inside of
// one by HTTP/1.1 and HTTP/2 (RFC 9110 section 5.3). The gateway would judge one of two names and the site see the other.
func TestRepeatedFields(t *testing.T) {
	t.Parallel()
	authority := newTestAuthority(t)
	site := startSecureSite(t, authority, nil)
	c, port := gatewayConfig{Engine: unpaced, Site: "mode report"}.trusting(authority).withTLSPort(t, authority, "")
	g := startGateway(t, c)
	plain := site.authority()
	sent := 0
	check := func(where string, a answer, err error) {
		t.Helper()
		sent++
		if err != nil || a.status != http.StatusBadRequest || !strings.Contains(a.header.Get("Proxy-Status"), "more than one") &&
			!strings.Contains(a.body, "more than one") {
			t.Errorf("%s: %d, %v: %v %s", where, a.status, err, a.header, a.body)
		}
	}
	for _, f := range ambiguous {
		twice := f.name + ": " + f.first + "\r\n" + f.name + ": " + f.second + "\r\n"
		w := g.dial()
		a, err := w.ask(http.MethodGet, "GET http://"+plain+"/ HTTP/1.1\r\nHost: "+plain+"\r\n"+twice+"\r\n")
		check("absolute form, "+f.name, a, err)
		_ = w.SetDeadline(time.Now().Add(10 * time.Second))
		if rest, err := io.ReadAll(w); err != nil || len(rest) > 0 {
			t.Errorf("%s: the connection goes on: %q, %v", f.name, rest, err)
		}
		a, err = g.dial().ask(http.MethodConnect, "CONNECT "+plain+" HTTP/1.1\r\nHost: "+plain+"\r\n"+twice+"\r\n")
		check("CONNECT, "+f.name, a, err)
		a, err = inside(t, g.tunnel(plain)).ask(http.MethodGet, "GET / HTTP/1.1\r\nHost: "+plain+"\r\n"+twice+"\r\n")
		check("inside a tunnel, "+f.name, a, err)
		a, err = g.tunnel(plain).ask(http.MethodGet, "GET / HTTP/1.1\r\nHost: "+plain+"\r\n"+twice+"\r\n")
		check("plain HTTP inside a tunnel, "+f.name, a, err)

		name := strings.ToLower(f.name)
		secure, err := g.tunnel(plain).over(t, &tls.Config{InsecureSkipVerify: true, ServerName: "localhost", NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		inner := newRawH2(t, secure)
		a, err = inner.ask(":method", "GET", ":scheme", "https", ":authority", plain, ":path", "/", name, f.first, name, f.second)
		check("HTTP/2 inside a tunnel, "+f.name, a, err)
		a, err = port.rawH2(t).ask(":method", "CONNECT", ":authority", plain, name, f.first, name, f.second)
		check("CONNECT by HTTP/2, "+f.name, a, err)
	}
	g.stop()
	refused := 0
	for _, l := range g.readLogs() {
		if l.Status == http.StatusBadRequest && l.Robots.Reason == enforce.ReasonBadRequest && l.Robots.Decision == "deny" {
			refused++
		}
	}
	if refused != sent {
		t.Errorf("%d of %d are logged as refused", refused, sent)
	}
	if n := site.arrived(); len(n) > 0 {
		t.Errorf("the site was asked for %+v", n)
	}
}

// TestMethodThatIsNoToken sends methods that HTTP/1.1 could not carry (RFC 9110 section 9.1) by HTTP/2, where net/http lets
// them pass.
func TestMethodThatIsNoToken(t *testing.T) {
	t.Parallel()
	authority := newTestAuthority(t)
	site := startSecureSite(t, authority, nil)
	g := startGateway(t, gatewayConfig{Engine: unpaced}.trusting(authority))
	methods := []string{"G ET", "GET\t", "GET /private HTTP/1.1", "G\u00c9T", "G,T", "{}", "\"GET\""}
	for _, method := range methods {
		secure, err := g.tunnel(site.authority()).over(t, &tls.Config{InsecureSkipVerify: true, ServerName: "localhost", NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		a, err := newRawH2(t, secure).ask(":method", method, ":scheme", "https", ":authority", site.authority(), ":path", "/news/a.html", "user-agent", "Tester/1.0")
		if err != nil || a.status != http.StatusBadRequest || !strings.Contains(a.body, "no token") {
			t.Errorf("%q: %d, %v: %s", method, a.status, err, a.body)
		}
	}
	eventually(t, "the lines", func() bool {
		var reasons []enforce.Reason
		for _, l := range g.readLogs() {
			reasons = append(reasons, l.Robots.Reason)
		}
		return countReason(reasons, enforce.ReasonBadRequest) == len(methods)
	})
	if n := site.arrived(); len(n) > 0 {
		t.Errorf("the site was asked for %+v", n)
	}
}

// bothLengths are heads whose length can be understood in two ways (RFC 9112 section 6.1). TARGET stands for the request target.
var bothLengths = []struct{ name, raw string }{
	{"length, then coding", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{"coding, then length", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"},
	{"in odd cases", "POST TARGET HTTP/1.1\r\nHost: HOST\r\ntRANSFER-eNCODING: Chunked\r\ncONTENT-lENGTH: 0\r\n\r\n0\r\n\r\n"},
	{"GET", "GET TARGET HTTP/1.1\r\nHost: HOST\r\nContent-Length: 0\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{"HTTP/1.0", "POST TARGET HTTP/1.0\r\nHost: HOST\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{"HTTP/1.0 with the coding alone", "POST TARGET HTTP/1.0\r\nHost: HOST\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{"behind a body", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nContent-Length: 4\r\n\r\nbodyPOST TARGET HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{"behind chunks", "POST TARGET HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\nPOST TARGET HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
}

// TestLengthInTwoWays sends Content-Length together with Transfer-Encoding everywhere that HTTP/1 is spoken: 400, closed, and
// of what follows nothing is read.
func TestLengthInTwoWays(t *testing.T) {
	t.Parallel()
	authority := newTestAuthority(t)
	secure := startSecureSite(t, authority, nil)
	plain := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	c, port := gatewayConfig{Engine: unpaced}.trusting(authority).withTLSPort(t, authority, "")
	g := startGateway(t, c)
	const smuggled = "GET TARGETsmuggled HTTP/1.1\r\nHost: HOST\r\n\r\n"
	for _, way := range []struct {
		name, target, host string
		open               func() *wire
	}{
		{"absolute form", plain.URL("/"), plain.Origin().Authority(), g.dial},
		{"absolute form by TLS", plain.URL("/"), plain.Origin().Authority(), func() *wire { return port.dial(t) }},
		{"https in absolute form", secure.at("/"), secure.authority(), g.dial},
		{"inside a tunnel", "/", secure.authority(), func() *wire { return inside(t, g.tunnel(secure.authority())) }},
		{"plain HTTP inside a tunnel", "/", plain.Origin().Authority(), func() *wire { return g.tunnel(plain.Origin().Authority()) }},
		{"for the gateway itself", "/", "gateway", g.dial},
	} {
		for _, tt := range bothLengths {
			w := way.open()
			_ = w.SetDeadline(time.Now().Add(10 * time.Second))
			raw := strings.NewReplacer("TARGET", way.target, "HOST", way.host).Replace(tt.raw + smuggled)
			if strings.HasPrefix(tt.name, "behind") {
				if a, err := w.ask(http.MethodPost, raw); err != nil || a.status == http.StatusBadRequest {
					t.Errorf("%s, %s: the request before: %d, %v", way.name, tt.name, a.status, err)
				}
				raw = ""
			}
			a, err := w.ask(http.MethodPost, raw)
			if raw == "" && errors.Is(err, io.ErrUnexpectedEOF) {
				continue // a site that answers before it has the whole body ends the connection of its client too
			}
			if err != nil || a.status != http.StatusBadRequest {
				t.Errorf("%s, %s: %d, %v: %.80q", way.name, tt.name, a.status, err, a.body)
			}
			if rest, err := io.ReadAll(w); err != nil || len(rest) > 0 {
				t.Errorf("%s, %s: the connection goes on: %.80q, %v", way.name, tt.name, rest, err)
			}
		}
	}
	for _, e := range plain.PageExchanges() {
		if e.Target != "/" || e.Method != http.MethodPost {
			t.Errorf("the site was asked for %s %s", e.Method, e.Target)
		}
	}
	for _, target := range secure.targets() {
		if target != "/" {
			t.Errorf("the https site was asked for %s", target)
		}
	}
}

// dial connects to the port by TLS, to speak HTTP/1.1.
func (p *tlsPort) dial(t *testing.T) *wire {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(p.authority.cert)
	d := tls.Dialer{Config: &tls.Config{RootCAs: roots, NextProtos: []string{"http/1.1"}}}
	conn, err := d.DialContext(t.Context(), "tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &wire{conn, bufio.NewReader(conn)}
}
