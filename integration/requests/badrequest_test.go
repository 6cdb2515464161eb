package requests

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// ambiguous are fields that a request must not repeat.
var ambiguous = []struct{ name, first, second string }{
	{"User-Agent", "Tester/1.0", "Other/1.0"},
	{"User-Agent", "Tester/1.0", "Tester/1.0"},
	{"user-agent", "Tester/1.0", ""},
	{"Proxy-Authorization", "Basic dTpw", "Basic dTpx"},
}

// TestRepeatedFields repeats User-Agent and Proxy-Authorization in all kinds of requests: plain, to
// open a tunnel, and inside a tunnel over HTTP/1.1 and HTTP/2 (RFC 9110 section 5.3). Otherwise the
// gateway would judge one of two names, and the site would see the other.
func TestRepeatedFields(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	site := rig.StartSecureSite(t, authority, nil)
	c, port := rig.Config{Engine: rig.Unpaced, Site: "mode report"}.Trusting(authority).WithTLSPort(t, authority, "")
	g := rig.New(t, c)
	plain := site.Authority()
	sent := 0
	check := func(where string, a rig.Answer, err error) {
		t.Helper()
		sent++
		if err != nil || a.Status != http.StatusBadRequest || !strings.Contains(a.Header.Get("Proxy-Status"), "more than one") &&
			!strings.Contains(a.Body, "more than one") {
			t.Errorf("%s: status %d, error %v, want 400: %v %s", where, a.Status, err, a.Header, a.Body)
		}
	}
	for _, f := range ambiguous {
		twice := f.name + ": " + f.first + "\r\n" + f.name + ": " + f.second + "\r\n"
		w := g.Dial()
		a, err := w.Ask(http.MethodGet, "GET http://"+plain+"/ HTTP/1.1\r\nHost: "+plain+"\r\n"+twice+"\r\n")
		check("absolute form, "+f.name, a, err)
		_ = w.SetDeadline(time.Now().Add(10 * time.Second))
		if rest, err := io.ReadAll(w); err != nil || len(rest) > 0 {
			t.Errorf("%s: after the refusal, read %q, error %v, want the end", f.name, rest, err)
		}
		a, err = g.Dial().Ask(http.MethodConnect, "CONNECT "+plain+" HTTP/1.1\r\nHost: "+plain+"\r\n"+twice+"\r\n")
		check("CONNECT, "+f.name, a, err)
		a, err = rig.Inside(t, g.Tunnel(plain)).Ask(http.MethodGet, "GET / HTTP/1.1\r\nHost: "+plain+"\r\n"+twice+"\r\n")
		check("inside a tunnel, "+f.name, a, err)
		a, err = g.Tunnel(plain).Ask(http.MethodGet, "GET / HTTP/1.1\r\nHost: "+plain+"\r\n"+twice+"\r\n")
		check("plain HTTP inside a tunnel, "+f.name, a, err)

		name := strings.ToLower(f.name)
		secure, err := g.Tunnel(plain).Over(t, &tls.Config{InsecureSkipVerify: true, ServerName: "localhost", NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		inner := rig.NewRawH2(t, secure)
		a, err = inner.Ask(":method", "GET", ":scheme", "https", ":authority", plain, ":path", "/", name, f.first, name, f.second)
		check("HTTP/2 inside a tunnel, "+f.name, a, err)
		a, err = port.RawH2(t).Ask(":method", "CONNECT", ":authority", plain, name, f.first, name, f.second)
		check("CONNECT by HTTP/2, "+f.name, a, err)
	}
	g.Stop()
	refused := 0
	for _, l := range g.ReadLogs() {
		if l.Status == http.StatusBadRequest && l.Robots.Reason == enforce.ReasonBadRequest && l.Robots.Decision == "deny" {
			refused++
		}
	}
	if refused != sent {
		t.Errorf("the log has %d refusals, want %d", refused, sent)
	}
	if n := site.Arrived(); len(n) > 0 {
		t.Errorf("requests reached the site: %+v", n)
	}
}

// TestMethodThatIsNoToken sends methods that HTTP/1.1 cannot carry (RFC 9110 section 9.1) over
// HTTP/2, where net/http accepts them.
func TestMethodThatIsNoToken(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	site := rig.StartSecureSite(t, authority, nil)
	g := rig.New(t, rig.Config{Engine: rig.Unpaced}.Trusting(authority))
	methods := []string{"G ET", "GET\t", "GET /private HTTP/1.1", "G\u00c9T", "G,T", "{}", "\"GET\""}
	for _, method := range methods {
		secure, err := g.Tunnel(site.Authority()).Over(t, &tls.Config{InsecureSkipVerify: true, ServerName: "localhost", NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		a, err := rig.NewRawH2(t, secure).Ask(":method", method, ":scheme", "https", ":authority", site.Authority(), ":path", "/news/a.html", "user-agent", "Tester/1.0")
		if err != nil || a.Status != http.StatusBadRequest || !strings.Contains(a.Body, "not a token") {
			t.Errorf("%q: status %d, error %v, want 400: %s", method, a.Status, err, a.Body)
		}
	}
	rig.Eventually(t, "the lines", func() bool {
		var reasons []enforce.Reason
		for _, l := range g.ReadLogs() {
			reasons = append(reasons, l.Robots.Reason)
		}
		return rig.CountReason(reasons, enforce.ReasonBadRequest) == len(methods)
	})
	if n := site.Arrived(); len(n) > 0 {
		t.Errorf("requests reached the site: %+v", n)
	}
}

// bothLengths are heads with an ambiguous length (RFC 9112 section 6.1). TARGET stands for the
// request target.
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

// TestLengthInTwoWays sends Content-Length together with Transfer-Encoding to everything that reads
// HTTP/1. The gateway must answer 400, close the connection, and read no more from it.
func TestLengthInTwoWays(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	secure := rig.StartSecureSite(t, authority, nil)
	plain := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	c, port := rig.Config{Engine: rig.Unpaced}.Trusting(authority).WithTLSPort(t, authority, "")
	g := rig.New(t, c)
	const smuggled = "GET TARGETsmuggled HTTP/1.1\r\nHost: HOST\r\n\r\n"
	for _, way := range []struct {
		name, target, host string
		open               func() *rig.Wire
	}{
		{"absolute form", plain.URL("/"), plain.Origin().Authority(), g.Dial},
		{"absolute form by TLS", plain.URL("/"), plain.Origin().Authority(), func() *rig.Wire { return port.Dial(t) }},
		{"https in absolute form", secure.At("/"), secure.Authority(), g.Dial},
		{"inside a tunnel", "/", secure.Authority(), func() *rig.Wire { return rig.Inside(t, g.Tunnel(secure.Authority())) }},
		{"plain HTTP inside a tunnel", "/", plain.Origin().Authority(), func() *rig.Wire { return g.Tunnel(plain.Origin().Authority()) }},
		{"for the gateway itself", "/", "gateway", g.Dial},
	} {
		for _, tt := range bothLengths {
			w := way.open()
			_ = w.SetDeadline(time.Now().Add(10 * time.Second))
			raw := strings.NewReplacer("TARGET", way.target, "HOST", way.host).Replace(tt.raw + smuggled)
			if strings.HasPrefix(tt.name, "behind") {
				if a, err := w.Ask(http.MethodPost, raw); err != nil || a.Status == http.StatusBadRequest {
					t.Errorf("%s, %s: the request before it: status %d, error %v", way.name, tt.name, a.Status, err)
				}
				raw = ""
			}
			a, err := w.Ask(http.MethodPost, raw)
			if raw == "" && errors.Is(err, io.ErrUnexpectedEOF) {
				continue // a site that answers before it has the whole body also ends the client's connection
			}
			if err != nil || a.Status != http.StatusBadRequest {
				t.Errorf("%s, %s: status %d, error %v, want 400: %.80q", way.name, tt.name, a.Status, err, a.Body)
			}
			if rest, err := io.ReadAll(w); err != nil || len(rest) > 0 {
				t.Errorf("%s, %s: after the refusal, read %.80q, error %v, want the end", way.name, tt.name, rest, err)
			}
		}
	}
	for _, e := range plain.PageExchanges() {
		if e.Target != "/" || e.Method != http.MethodPost {
			t.Errorf("the site got %s %s", e.Method, e.Target)
		}
	}
	for _, target := range secure.Targets() {
		if target != "/" {
			t.Errorf("the https site got %s", target)
		}
	}
}
