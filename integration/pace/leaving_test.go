//go:build slow

package pace

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// A leaver sends a request that is held, and returns a function that makes its client leave.
type leaver func(g *rig.Gateway, site *testorigin.Site) (leave func())

// heldAsIs sends a complete GET over a connection, in a tunnel or not.
func heldAsIs(scheme string, tunnel bool, leave func(conn, inner *rig.Wire)) leaver {
	return heldWithBody(scheme, tunnel, http.MethodGet, "\r\n", leave)
}

// heldWithBody sends a request that ends with end: the fields for the length of its body, and the
// body or a part of it.
func heldWithBody(scheme string, tunnel bool, method, end string, leave func(conn, inner *rig.Wire)) leaver {
	return func(g *rig.Gateway, site *testorigin.Site) func() {
		w := g.Dial()
		inner, target := w, site.URL("/left")
		if tunnel {
			_ = w.Connect(g.T, site.Origin().Authority(), "Tester/1.0").Body.Close()
			target = "/left"
		}
		if scheme == "https" {
			inner = insideOf(g, w, site, "http/1.1")
		}
		_, err := fmt.Fprintf(inner, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: Tester/1.0\r\n%s", method, target, site.Origin().Authority(), end)
		if err != nil {
			g.T.Fatal(err)
		}
		return func() { leave(w, inner) }
	}
}

func insideOf(g *rig.Gateway, w *rig.Wire, site *testorigin.Site, protocol string) *rig.Wire {
	g.T.Helper()
	inner, err := w.Over(g.T, &tls.Config{RootCAs: g.Authority(), ServerName: site.Origin().Host, NextProtos: []string{protocol}})
	if err != nil {
		g.T.Fatal(err)
	}
	return inner
}

// heldOverH2 sends a request over HTTP/2 in a tunnel.
func heldOverH2(leave func(w *rig.Wire, h *rig.RawH2)) leaver {
	return func(g *rig.Gateway, site *testorigin.Site) func() {
		w := g.Dial()
		_ = w.Connect(g.T, site.Origin().Authority(), "Tester/1.0").Body.Close()
		h := rig.NewRawH2(g.T, insideOf(g, w, site, "h2"))
		go func() { // its answer never comes
			_, _ = h.Ask(":method", "GET", ":scheme", "https", ":authority", site.Origin().Authority(), ":path", "/left", "user-agent", "Tester/1.0")
		}()
		return func() { leave(w, h) }
	}
}

// TestPaceLeaving lets the client of the next request leave. However the request came and however
// the client leaves, its slot is free at once: the request behind it takes the slot, and the number
// of waiting requests goes down.
func TestPaceLeaving(t *testing.T) {
	t.Parallel()
	shut := func(w *rig.Wire) { _ = w.Close() }
	half := func(w *rig.Wire) { _ = w.Conn.(*net.TCPConn).CloseWrite() }
	closes, halfCloses := func(w, _ *rig.Wire) { shut(w) }, func(w, _ *rig.Wire) { half(w) }
	reset := func(w, _ *rig.Wire) { _ = w.Conn.(*net.TCPConn).SetLinger(0); shut(w) }
	const (
		whole   = "Content-Length: 4\r\n\r\nbody"
		part    = "Content-Length: 4\r\n\r\nbo"
		chunked = "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n"
		expects = "Content-Length: 4\r\nExpect: 100-continue\r\n\r\n"
	)
	long := "Content-Length: 40000\r\n\r\n" + strings.Repeat("b", 40_000)
	for _, tt := range []struct {
		name, scheme string
		held         leaver
	}{
		{"HTTP/1.1", "http", heldAsIs("http", false, closes)},
		{"HTTP/1.1, half-closed", "http", heldAsIs("http", false, halfCloses)},
		{"plain HTTP/1.1 in a tunnel", "http", heldAsIs("http", true, closes)},
		{"plain HTTP/1.1 in a tunnel, half-closed", "http", heldAsIs("http", true, halfCloses)},
		{"HTTP/1.1 in a tunnel", "https", heldAsIs("https", true, closes)},
		{"HTTP/1.1 in a tunnel, half-closed", "https", heldAsIs("https", true, halfCloses)},
		{"HTTP/1.1 in a tunnel, TLS half-closed", "https", heldAsIs("https", true, func(_, inner *rig.Wire) { _ = inner.Conn.(*tls.Conn).CloseWrite() })},
		{"a body over HTTP/1.1", "http", heldWithBody("http", false, http.MethodPost, whole, closes)},
		{"a body over HTTP/1.1, half-closed", "http", heldWithBody("http", false, http.MethodPost, whole, halfCloses)},
		{"a body over HTTP/1.1, reset", "http", heldWithBody("http", false, http.MethodPost, whole, reset)},
		{"a body sent in part", "http", heldWithBody("http", false, http.MethodPost, part, closes)},
		{"a body in chunks, without its end", "http", heldWithBody("http", false, http.MethodPut, chunked, closes)},
		{"a body not sent before 100 Continue", "http", heldWithBody("http", false, http.MethodPost, expects, closes)},
		{"a body larger than what the server reads ahead", "http", heldWithBody("http", false, http.MethodPost, long, closes)},
		{"a body in a plain tunnel", "http", heldWithBody("http", true, http.MethodPost, whole, closes)},
		{"a body in a tunnel", "https", heldWithBody("https", true, http.MethodPost, whole, closes)},
		{"a body in a tunnel, sent in part", "https", heldWithBody("https", true, http.MethodPost, part, halfCloses)},
		{"HTTP/2 in a tunnel", "https", heldOverH2(func(w *rig.Wire, _ *rig.RawH2) { shut(w) })},
		{"HTTP/2 in a tunnel, half-closed", "https", heldOverH2(func(w *rig.Wire, _ *rig.RawH2) { half(w) })},
		{"HTTP/2 in a tunnel, stream reset", "https", heldOverH2(func(_ *rig.Wire, h *rig.RawH2) { _ = h.Framer.WriteRSTStream(1, http2.ErrCodeCancel) })},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := testorigin.Start(t, testorigin.Config{})
			site := server.Site(t, testorigin.SiteConfig{Scheme: tt.scheme})
			site.SetRobots(testorigin.OK("User-agent: *\nCrawl-delay: 6\n"))
			g := rig.New(t, rig.Config{Egress: "trust_ca " + rig.CAFile(t, server)})
			waiting := func(n int) func() bool {
				return func() bool { return strings.Contains(g.Admin("/robots/clocks").Body, fmt.Sprintf(`"waiting":%d`, n)) }
			}
			if a := g.MustFetch("Tester/1.0", site.URL("/first")); a.Status != http.StatusOK {
				t.Fatalf("status %d: %s", a.Status, a.Body)
			}
			leave := tt.held(g, site)
			rig.Eventually(t, "the first to be held", waiting(1))
			next := g.Dial()
			if _, err := io.WriteString(next, "GET "+site.URL("/next")+" HTTP/1.1\r\nHost: x\r\nUser-Agent: Tester/1.0\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			rig.Eventually(t, "the second to be held", waiting(2))
			leave()
			left := time.Now()
			rig.Eventually(t, "the place to be free", waiting(1))
			if took := time.Since(left); took > rig.Scheduling {
				t.Errorf("its place was free only after %s, want at most %s", took, rig.Scheduling)
			}
			if a, err := next.Ask(http.MethodGet, ""); err != nil || a.Status != http.StatusOK {
				t.Errorf("the request behind it: status %d, error %v: %s", a.Status, err, a.Body)
			}
			times := rig.Arrivals(site)
			if len(times) != 2 || times[1].Sub(times[0]) < 6*time.Second || times[1].Sub(times[0]) > 7*time.Second+rig.Scheduling {
				t.Errorf("the site got requests at %v, want two 6s apart", times)
			}
			g.CheckReason(enforce.ReasonCanceled, 1)
		})
	}
}

// TestPaceHeldForLong holds requests for longer than client and server may be idle. A held request
// does not count as idle, however it came.
func TestPaceHeldForLong(t *testing.T) {
	t.Parallel()
	const ask = "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: Tester/1.0\r\n\r\n"
	for i, way := range []string{"HTTP/1.1", "HTTP/1.1 in a tunnel", "HTTP/2 in a tunnel"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			server := testorigin.Start(t, testorigin.Config{})
			g := rig.New(t, rig.Config{
				Egress: "trust_ca " + rig.CAFile(t, server),
				Global: "servers {\nlistener_wrappers {\nrobots\n}\ntimeouts {\nread_header 1s\nread_body_idle 1s\nwrite_idle 1s\nidle 1s\n}\n}",
			})
			site := server.Site(t, testorigin.SiteConfig{Scheme: "https"})
			site.SetRobots(testorigin.OK("User-agent: *\nCrawl-delay: 5\n"))
			authority := site.Origin().Authority()
			if a := g.MustFetch("Tester/1.0", site.URL("/first")); a.Status != http.StatusOK {
				t.Fatalf("status %d: %s", a.Status, a.Body)
			}
			w := g.Dial()
			var a rig.Answer
			var err error
			if i > 0 {
				_ = w.Connect(t, authority, "Tester/1.0").Body.Close()
			}
			switch i {
			case 0:
				a, err = w.Ask(http.MethodGet, fmt.Sprintf(ask, site.URL("/held"), authority))
			case 1:
				a, err = insideOf(g, w, site, "http/1.1").Ask(http.MethodGet, fmt.Sprintf(ask, "/held", authority))
			default:
				h := rig.NewRawH2(t, insideOf(g, w, site, "h2"))
				a, err = h.Ask(":method", "GET", ":scheme", "https", ":authority", authority, ":path", "/held", "user-agent", "Tester/1.0")
			}
			if err != nil || a.Status != http.StatusOK {
				t.Errorf("status %d, error %v: %s", a.Status, err, a.Body)
			}
			if times := rig.Arrivals(site); len(times) != 2 || times[1].Sub(times[0]) < 5*time.Second {
				t.Errorf("the site got requests at %v, want two at least 5s apart", times)
			}
		})
	}
}
