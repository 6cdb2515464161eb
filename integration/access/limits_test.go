//go:build slow

package access

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// sourceThree is a third address of loopback.
const sourceThree = "127.0.0.3"

// dialFrom connects to addr from the address source of this machine.
func dialFrom(t *testing.T, source, addr string) *rig.Wire {
	t.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(rig.Patience))
	return &rig.Wire{Conn: conn, Reader: bufio.NewReader(conn)}
}

// fetchOver sends the text before, and then requests a page over the same connection.
func fetchOver(w *rig.Wire, before, rawURL string) (rig.Answer, error) {
	return w.Ask(http.MethodGet, before+"GET "+rawURL+" HTTP/1.1\r\nHost: "+rig.HostOf(rawURL)+"\r\nUser-Agent: Tester/1.0\r\n\r\n")
}

// refusedConnections returns the number of connections that were refused for one reason.
func refusedConnections(g *rig.Gateway, reason string) (n int) {
	g.T.Helper()
	for line := range strings.Lines(g.Admin("/metrics").Body) {
		_, _ = fmt.Sscanf(line, `crawlgate_connections_refused_total{reason="`+reason+`"} %d`, &n)
	}
	return n
}

// wantRefused reads the answer to a connection above a limit. The system may report its end as a
// reset.
func wantRefused(t *testing.T, w *rig.Wire) {
	t.Helper()
	resp, err := http.ReadResponse(w.Reader, nil)
	if err != nil {
		t.Errorf("no answer: %v", err)
		return
	}
	a, err := rig.ReadAnswer(resp)
	if err != nil || a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" || !resp.Close ||
		!strings.HasPrefix(a.Header.Get("Proxy-Status"), "crawlgate; error=") {
		t.Errorf("status %d, error %v, header %v, want a 503 that ends the connection: %s", a.Status, err, a.Header, a.Body)
	}
	if n, err := w.Reader.Peek(1); err == nil {
		t.Errorf("the connection has more to read after the refusal: %q", n)
	}
}

// TestIdleConnectionsOfOneSource opens more connections from one source than the gateway has
// descriptors. Another source is still answered. The first source is answered again when it has
// closed its connections.
func TestIdleConnectionsOfOneSource(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	descriptors := []string{rig.Need(t, "sh"), "-c", `ulimit -n 600; exec "$0" "$@"`}
	g := rig.New(t, rig.Config{Engine: rig.Unpaced, Wrap: descriptors})
	idle := make([]*rig.Wire, 900)
	for i := range idle {
		idle[i] = dialFrom(t, sourceTwo, g.Addr)
	}
	began := time.Now()
	a, err := fetchOver(dialFrom(t, sourceOne, g.Addr), "", site.URL(rig.OpenPage))
	if took := time.Since(began); err != nil || a.Status != http.StatusOK || took > 3*time.Second {
		t.Errorf("another source: status %d, error %v, after %v; want 200 within 3s", a.Status, err, took)
	}
	const most = 600 * 3 / 4 * 3 / 4
	rig.Eventually(t, "all are counted", func() bool { return refusedConnections(g, "source") == len(idle)-most })
	wantRefused(t, idle[len(idle)-1])
	for _, w := range idle {
		_ = w.Close()
	}
	rig.Eventually(t, "the first source is answered", func() bool {
		a, err := fetchOver(dialFrom(t, sourceTwo, g.Addr), "", site.URL(rig.OpenPage))
		return err == nil && a.Status == http.StatusOK
	})
	if n := strings.Count(g.Stderr.String(), "connections of clients are refused"); n != 1 {
		t.Errorf("the log has %d warnings, want 1: %s", n, g.Stderr)
	}
}

// TestConnectionLimits reaches each limit, in plain HTTP and over TLS, and checks that a reload
// keeps the counts.
func TestConnectionLimits(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	limits := func(n, each int) rig.Config {
		return rig.Config{Engine: fmt.Sprintf("%s\nlimits {\nconnections %d\nconnections_per_source %d\n}", rig.Unpaced, n, each)}
	}
	c, port := limits(100, 2).WithTLSPort(t, authority, "")
	g := rig.New(t, c)
	// One connection at each port. A connection counts once the gateway has read from it.
	if a, err := fetchOver(dialFrom(t, sourceTwo, g.Addr), "", site.URL(rig.OpenPage)); err != nil || a.Status != http.StatusOK {
		t.Errorf("the first connection: status %d, error %v", a.Status, err)
	}
	if _, err := dialFrom(t, sourceTwo, port.Addr).Over(t, &tls.Config{InsecureSkipVerify: true}); err != nil {
		t.Errorf("the second connection: %v", err)
	}
	wantRefused(t, dialFrom(t, sourceTwo, g.Addr))
	if _, err := dialFrom(t, sourceTwo, port.Addr).Reader.Peek(1); !errors.Is(err, io.EOF) {
		t.Errorf("over TLS: %v, want EOF", err)
	}
	if a, err := fetchOver(dialFrom(t, sourceThree, g.Addr), "", site.URL(rig.OpenPage)); err != nil || a.Status != http.StatusOK {
		t.Errorf("another source: status %d, error %v", a.Status, err)
	}
	if n := refusedConnections(g, "total"); n > 0 {
		t.Errorf("%d connections were refused for the total limit, want 0", n)
	}

	c.Engine = limits(3, 2).Engine // the connections of the two sources are still open
	if err := g.Reload(c); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the limit for all is reached", func() bool {
		_ = dialFrom(t, sourceOne, g.Addr)
		return refusedConnections(g, "total") > 0
	})
}

// TestConnectionsBehindProxyProtocol takes the sources from PROXY lines. A connection that sends no
// line delays no other.
func TestConnectionsBehindProxyProtocol(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	g := rig.New(t, rig.Config{
		Engine: rig.Unpaced + "\nlimits {\nconnections_per_source 1\n}", Site: "clients any",
		Global: "servers {\nlistener_wrappers {\nproxy_protocol {\ntimeout 60s\nallow 127.0.0.2/32\n}\nrobots\n}\n}",
	})
	_ = dialFrom(t, sourceTwo, g.Addr) // silent
	const of = "PROXY TCP4 198.51.100.%d 198.51.100.200 4000 3128\r\n"
	one := dialFrom(t, sourceTwo, g.Addr)
	if a, err := fetchOver(one, fmt.Sprintf(of, 1), site.URL(rig.OpenPage)); err != nil || a.Status != http.StatusOK {
		t.Errorf("the first connection: status %d, error %v", a.Status, err)
	}
	same := dialFrom(t, sourceTwo, g.Addr)
	if _, err := fmt.Fprintf(same, of, 1); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, same)
	if a, err := fetchOver(dialFrom(t, sourceTwo, g.Addr), fmt.Sprintf(of, 2), site.URL(rig.OpenPage)); err != nil || a.Status != http.StatusOK {
		t.Errorf("another source: status %d, error %v", a.Status, err)
	}
	if n := refusedConnections(g, "source"); n != 1 {
		t.Errorf("%d connections were refused, want 1", n)
	}
	if out := g.Stderr.String(); strings.Contains(out, "lacks the listener wrapper") {
		t.Errorf("the log warns of a missing wrapper: %s", out)
	}
}

// TestMissingListenerWrapper checks that the gateway warns if the limits on connections do not
// apply.
func TestMissingListenerWrapper(t *testing.T) {
	t.Parallel()
	g := rig.New(t, rig.Config{Global: "servers {\ntimeouts {\nread_header 30s\n}\n}"})
	if n := strings.Count(g.Stderr.String(), "lacks the listener wrapper robots"); n != 1 {
		t.Errorf("%d warnings, want 1: %s", n, g.Stderr)
	}
}

// TestMistypedAuthority checks that the gateway warns of an authority that it does not use.
func TestMistypedAuthority(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{"robot": 1, "robots": 0, "local": 0} {
		g := rig.New(t, rig.Config{Global: "pki {\nca " + name + " {\nname Acme\n}\n}"})
		if n := strings.Count(g.Stderr.String(), "none with the name robots"); n != want {
			t.Errorf("ca %s: %d warnings, want %d: %s", name, n, want, g.Stderr)
		}
	}
}

// heldSite starts a site that answers /held when the test ends, and everything else at once.
func heldSite(t *testing.T) (site *httptest.Server, held chan struct{}) {
	t.Helper()
	held = make(chan struct{}, 16)
	site = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			held <- struct{}{}
			<-r.Context().Done()
		}
	}))
	t.Cleanup(site.Close)
	return site, held
}

// wantAgentLimit checks the refusal for an agent's limit.
func wantAgentLimit(t *testing.T, where string, a rig.Answer, err error) {
	t.Helper()
	if err != nil || a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" ||
		!strings.Contains(a.Header.Get("Proxy-Status"), "http_request_denied") {
		t.Errorf("%s: status %d, error %v, header %v, want 503: %s", where, a.Status, err, a.Header, a.Body)
	}
}

// TestRequestsPerAgent sends two requests at once for an agent that may have one, in plain HTTP and
// inside a tunnel.
func TestRequestsPerAgent(t *testing.T) {
	t.Parallel()
	site, held := heldSite(t)
	g := rig.New(t, rig.Config{Engine: rig.Unpaced + "\nlimits {\nrequests_per_agent 1\n}"})
	first := g.Dial()
	if _, err := fmt.Fprintf(first, "GET %s/held HTTP/1.1\r\nHost: x\r\nUser-Agent: Tester/1.0\r\n\r\n", site.URL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-held:
	case <-time.After(rig.Patience / 2):
		raw, err := first.Reader.Peek(1)
		rest, _ := first.Reader.Peek(first.Reader.Buffered())
		t.Fatalf("the site got no request; the client read %q%s, %v; the gateway's log: %s", raw, rest, err, g.Stderr)
	}
	a, err := g.Fetch("Tester/1.0", site.URL+"/")
	wantAgentLimit(t, "a second request", a, err)
	host := strings.TrimPrefix(site.URL, "http://")
	tunnel := g.Tunnel(host)
	a, err = tunnel.Ask(http.MethodGet, "GET / HTTP/1.1\r\nHost: "+host+"\r\nUser-Agent: Tester/1.0\r\n\r\n")
	wantAgentLimit(t, "inside a tunnel", a, err)
	if a, err := g.Fetch("Other/1.0", site.URL+"/"); err != nil || a.Status != http.StatusOK {
		t.Errorf("another agent: status %d, error %v", a.Status, err)
	}
	_ = first.Close()
	rig.Eventually(t, "the agent is let in again", func() bool {
		a, err := g.Fetch("Tester/1.0", site.URL+"/")
		return err == nil && a.Status == http.StatusOK
	})
	for _, l := range g.ReadLogs() {
		if l.Status == http.StatusServiceUnavailable && (l.Robots.Reason != enforce.ReasonAgentLimit || l.Robots.Agent != "Tester" ||
			l.Robots.Decision != "error" || l.Robots.Detail != "1 requests are under way") {
			t.Errorf("the log line is %s", l.Raw)
		}
	}
}

// TestTunnelAge keeps tunnels open beyond tunnel_age. An intercepted tunnel ends with its next
// answer, a blind one at once.
func TestTunnelAge(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	site := rig.StartSecureSite(t, authority, nil)
	g := rig.New(t, rig.Config{Engine: rig.Unpaced + "\nlimits {\ntunnel_age 1s\n}", Site: "mode off 127.0.0.1\nconnect intercept localhost\nconnect tunnel"}.Trusting(authority))
	config := &tls.Config{InsecureSkipVerify: true, ServerName: "localhost"}

	w := rig.Inside(t, g.Tunnel(site.Authority()))
	answers := 0
	rig.Eventually(t, "an answer that ends the tunnel over HTTP/1.1", func() bool {
		if _, err := fmt.Fprintf(w, "GET /news/a.html HTTP/1.1\r\nHost: %s\r\nUser-Agent: Tester/1.0\r\n\r\n", site.Authority()); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(w.Reader, nil)
		if err != nil {
			t.Fatalf("after %d answers: %v", answers, err)
		}
		if a, err := rig.ReadAnswer(resp); err != nil || a.Status != http.StatusOK {
			t.Fatalf("after %d answers: status %d, error %v", answers, a.Status, err)
		}
		answers++
		return resp.Close
	})
	if _, err := w.Reader.Peek(1); err == nil || answers < 2 {
		t.Errorf("after %d answers: error %v, want the end of the tunnel after at least 2", answers, err)
	}

	config.NextProtos = []string{"h2"}
	secure, err := g.Tunnel(site.Authority()).Over(t, config)
	if err != nil {
		t.Fatal(err)
	}
	h2 := rig.NewRawH2(t, secure)
	answers = 0
	rig.Eventually(t, "the end of the tunnel over HTTP/2", func() bool {
		a, err := h2.Ask(":method", "GET", ":scheme", "https", ":authority", site.Authority(), ":path", "/news/a.html", "user-agent", "Tester/1.0")
		if err == nil && a.Status == http.StatusOK {
			answers++
			return false
		}
		if err == nil || !strings.Contains(err.Error(), http2.ErrCodeNo.String()) {
			t.Fatalf("after %d answers: status %d, error %v", answers, a.Status, err)
		}
		return true
	})
	if answers == 0 {
		t.Error("no answer over HTTP/2")
	}
	_ = secure.Close()

	blind := g.Tunnel("127.0.0.1:" + site.Port)
	secure, err = blind.Over(t, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, secure)
	if l := g.ClosedTunnel("127.0.0.1:" + site.Port); !strings.Contains(l.Robots.Detail, "older than tunnel_age") {
		t.Errorf("the log line does not give the tunnel's age as the reason: %s", l.Raw)
	}
}

// TestRequestSizes sends URLs and headers near the limits, in plain HTTP and inside tunnels.
func TestRequestSizes(t *testing.T) {
	t.Parallel()
	site, _ := heldSite(t)
	host := strings.TrimPrefix(site.URL, "http://")
	servers := "servers {\nmax_header_size 32KiB\nlistener_wrappers {\nrobots\n}\n}"
	g := rig.New(t, rig.Config{Global: servers, Engine: rig.Unpaced})
	long := func(n int) string { return "/" + strings.Repeat("a", n-1-len(site.URL)) }
	for _, tt := range []struct {
		name   string
		path   string
		fields string
		status int
	}{
		{"a URL at the limit", long(16 << 10), "", http.StatusOK},
		{"a URL above it", long(16<<10 + 1), "", http.StatusRequestURITooLong},
		{"a header that Caddy's own limit refuses", "/", "X-Long: " + strings.Repeat("b", 30<<10) + "\r\n", http.StatusOK},
		{"a header above the limit", "/", "X-Long: " + strings.Repeat("b", 40<<10) + "\r\n", http.StatusRequestHeaderFieldsTooLarge},
	} {
		rest := " HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: Tester/1.0\r\n" + tt.fields + "\r\n"
		a, err := g.Dial().Ask(http.MethodGet, "GET "+site.URL+tt.path+rest)
		if a.Status != tt.status {
			t.Errorf("%s: status %d, error %v, want %d: %s", tt.name, a.Status, err, tt.status, a.Body)
		}
		inner, err := g.Tunnel(host).Ask(http.MethodGet, "GET "+tt.path+rest)
		if inner.Status != tt.status {
			t.Errorf("%s, inside a tunnel: status %d, error %v, want %d: %s", tt.name, inner.Status, err, tt.status, inner.Body)
		}
		if tt.status == http.StatusRequestURITooLong && (!strings.Contains(a.Header.Get("Proxy-Status"), "http_request_error") || !strings.Contains(a.Body, "url_size")) {
			t.Errorf("%s: header %v, body %s", tt.name, a.Header, a.Body)
		}
	}
	reasons := 0
	for _, l := range g.ReadLogs() {
		if l.Status == http.StatusRequestURITooLong && l.Robots.Reason == enforce.ReasonURLSize {
			reasons++
		}
	}
	if reasons != 2 {
		t.Errorf("%d log lines have the reason, want 2", reasons)
	}
}
