package integration

import (
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
)

// ambiguous are fields of which a request may have one of each.
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
