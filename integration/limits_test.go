package integration

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
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// sourceThree is one more.
const sourceThree = "127.0.0.3"

// dialFrom connects to an address from one of the machine's own.
func dialFrom(t *testing.T, source, addr string) *wire {
	t.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return &wire{conn, bufio.NewReader(conn)}
}

// fetch asks for a page, after the bytes of a line in front.
func (w *wire) fetch(before, rawURL string) (answer, error) {
	return w.ask(http.MethodGet, before+"GET "+rawURL+" HTTP/1.1\r\nHost: "+hostOf(rawURL)+"\r\nUser-Agent: Tester/1.0\r\n\r\n")
}

// refusedConnections is the metric for one reason.
func (g *gateway) refusedConnections(reason string) (n int) {
	g.t.Helper()
	for line := range strings.Lines(g.admin("/metrics").body) {
		_, _ = fmt.Sscanf(line, `crawlgate_connections_refused_total{reason="`+reason+`"} %d`, &n)
	}
	return n
}

// wantRefused reads what a connection that is too many is told. The system may report the end as a reset.
func wantRefused(t *testing.T, w *wire) {
	t.Helper()
	resp, err := http.ReadResponse(w.r, nil)
	if err != nil {
		t.Errorf("no answer: %v", err)
		return
	}
	a, err := readAnswer(resp)
	if err != nil || a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" || !resp.Close ||
		!strings.HasPrefix(a.header.Get("Proxy-Status"), "crawlgate; error=") {
		t.Errorf("%d, %v, %v: %s", a.status, err, a.header, a.body)
	}
	if n, err := w.r.Peek(1); err == nil {
		t.Errorf("the connection goes on: %q", n)
	}
}

// TestIdleConnectionsOfOneSource opens more connections than the gateway may have descriptors. Another source is still
// answered, and the first one is again once it has closed them.
func TestIdleConnectionsOfOneSource(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	descriptors := []string{need(t, "sh"), "-c", `ulimit -n 600; exec "$0" "$@"`}
	g := startGateway(t, gatewayConfig{Engine: unpaced, Wrap: descriptors})
	idle := make([]*wire, 900)
	for i := range idle {
		idle[i] = dialFrom(t, sourceTwo, g.addr)
	}
	began := time.Now()
	a, err := dialFrom(t, sourceOne, g.addr).fetch("", site.URL(openPage))
	if took := time.Since(began); err != nil || a.status != http.StatusOK || took > 3*time.Second {
		t.Errorf("another source: %d, %v, after %v", a.status, err, took)
	}
	const most = 600 * 3 / 4 * 3 / 4
	eventually(t, "all are counted", func() bool { return g.refusedConnections("source") == len(idle)-most })
	wantRefused(t, idle[len(idle)-1])
	for _, w := range idle {
		_ = w.Close()
	}
	eventually(t, "the first source is answered", func() bool {
		a, err := dialFrom(t, sourceTwo, g.addr).fetch("", site.URL(openPage))
		return err == nil && a.status == http.StatusOK
	})
	if n := strings.Count(g.stderr.String(), "connections of clients are refused"); n != 1 {
		t.Errorf("the log says so %d times: %s", n, g.stderr)
	}
}

// TestConnectionLimits reaches each limit, in plain HTTP and by TLS, and holds that a reload keeps the counts.
func TestConnectionLimits(t *testing.T) {
	t.Parallel()
	authority := newTestAuthority(t)
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	limits := func(n, each int) gatewayConfig {
		return gatewayConfig{Engine: fmt.Sprintf("%s\nlimits {\nconnections %d\nconnections_per_source %d\n}", unpaced, n, each)}
	}
	c, port := limits(100, 2).withTLSPort(t, authority, "")
	g := startGateway(t, c)
	// One at each port; both are counted once they were read from.
	if a, err := dialFrom(t, sourceTwo, g.addr).fetch("", site.URL(openPage)); err != nil || a.status != http.StatusOK {
		t.Errorf("the first: %d, %v", a.status, err)
	}
	if _, err := dialFrom(t, sourceTwo, port.addr).over(t, &tls.Config{InsecureSkipVerify: true}); err != nil {
		t.Errorf("the second: %v", err)
	}
	wantRefused(t, dialFrom(t, sourceTwo, g.addr))
	if _, err := dialFrom(t, sourceTwo, port.addr).r.Peek(1); !errors.Is(err, io.EOF) {
		t.Errorf("by TLS: %v, want the end", err)
	}
	if a, err := dialFrom(t, sourceThree, g.addr).fetch("", site.URL(openPage)); err != nil || a.status != http.StatusOK {
		t.Errorf("another source: %d, %v", a.status, err)
	}
	if n := g.refusedConnections("total"); n > 0 {
		t.Errorf("%d are refused for all", n)
	}

	c.Engine = limits(3, 2).Engine // the connections of the two sources are still open
	if err := g.reload(c); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the limit for all is reached", func() bool {
		_ = dialFrom(t, sourceOne, g.addr)
		return g.refusedConnections("total") > 0
	})
}

// TestConnectionsBehindProxyProtocol has the sources told by PROXY lines, and one that sends none. It keeps nobody waiting.
func TestConnectionsBehindProxyProtocol(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	g := startGateway(t, gatewayConfig{
		Engine: unpaced + "\nlimits {\nconnections_per_source 1\n}", Site: "clients any",
		Global: "servers {\nlistener_wrappers {\nproxy_protocol {\ntimeout 60s\nallow 127.0.0.2/32\n}\nrobots\n}\n}",
	})
	_ = dialFrom(t, sourceTwo, g.addr) // silent
	const of = "PROXY TCP4 198.51.100.%d 198.51.100.200 4000 3128\r\n"
	one := dialFrom(t, sourceTwo, g.addr)
	if a, err := one.fetch(fmt.Sprintf(of, 1), site.URL(openPage)); err != nil || a.status != http.StatusOK {
		t.Errorf("the first: %d, %v", a.status, err)
	}
	same := dialFrom(t, sourceTwo, g.addr)
	if _, err := fmt.Fprintf(same, of, 1); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, same)
	if a, err := dialFrom(t, sourceTwo, g.addr).fetch(fmt.Sprintf(of, 2), site.URL(openPage)); err != nil || a.status != http.StatusOK {
		t.Errorf("another source: %d, %v", a.status, err)
	}
	if n := g.refusedConnections("source"); n != 1 {
		t.Errorf("%d are refused", n)
	}
	if out := g.stderr.String(); strings.Contains(out, "lacks the listener wrapper") {
		t.Errorf("the wrapper is missed: %s", out)
	}
}

// TestMissingListenerWrapper warns where the limits of connections do not hold.
func TestMissingListenerWrapper(t *testing.T) {
	t.Parallel()
	g := startGateway(t, gatewayConfig{Global: "servers {\ntimeouts {\nread_header 30s\n}\n}"})
	if n := strings.Count(g.stderr.String(), "lacks the listener wrapper robots"); n != 1 {
		t.Errorf("%d warnings: %s", n, g.stderr)
	}
}

// heldSite answers /held once the test ends, and all else at once.
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

// wantAgentLimit holds what a refusal for an agent's limit says.
func wantAgentLimit(t *testing.T, where string, a answer, err error) {
	t.Helper()
	if err != nil || a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" ||
		!strings.Contains(a.header.Get("Proxy-Status"), "http_request_denied") {
		t.Errorf("%s: %d, %v: %v %s", where, a.status, err, a.header, a.body)
	}
}

// TestRequestsPerAgent has one agent send two requests at once, in plain HTTP and inside a tunnel, where one may be.
func TestRequestsPerAgent(t *testing.T) {
	t.Parallel()
	site, held := heldSite(t)
	g := startGateway(t, gatewayConfig{Engine: unpaced + "\nlimits {\nrequests_per_agent 1\n}"})
	first := g.dial()
	if _, err := fmt.Fprintf(first, "GET %s/held HTTP/1.1\r\nHost: x\r\nUser-Agent: Tester/1.0\r\n\r\n", site.URL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-held:
	case <-time.After(patience / 2):
		raw, err := first.r.Peek(1)
		rest, _ := first.r.Peek(first.r.Buffered())
		t.Fatalf("the site was not asked; the client was told %q%s, %v; the gateway says %s", raw, rest, err, g.stderr)
	}
	a, err := g.fetch("Tester/1.0", site.URL+"/")
	wantAgentLimit(t, "a second request", a, err)
	host := strings.TrimPrefix(site.URL, "http://")
	tunnel := g.tunnel(host)
	a, err = tunnel.ask(http.MethodGet, "GET / HTTP/1.1\r\nHost: "+host+"\r\nUser-Agent: Tester/1.0\r\n\r\n")
	wantAgentLimit(t, "inside a tunnel", a, err)
	if a, err := g.fetch("Other/1.0", site.URL+"/"); err != nil || a.status != http.StatusOK {
		t.Errorf("another agent: %d, %v", a.status, err)
	}
	_ = first.Close()
	eventually(t, "the agent is let in again", func() bool {
		a, err := g.fetch("Tester/1.0", site.URL+"/")
		return err == nil && a.status == http.StatusOK
	})
	for _, l := range g.readLogs() {
		if l.Status == http.StatusServiceUnavailable && (l.Robots.Reason != enforce.ReasonAgentLimit || l.Robots.Agent != "Tester" ||
			l.Robots.Decision != "error" || l.Robots.Detail != "1 requests are under way") {
			t.Errorf("logged as %s", l.raw)
		}
	}
}

// TestTunnelAge lets tunnels become too old: those that are looked into end with their next answer, blind ones at once.
func TestTunnelAge(t *testing.T) {
	t.Parallel()
	authority := newTestAuthority(t)
	site := startSecureSite(t, authority, nil)
	g := startGateway(t, gatewayConfig{Engine: unpaced + "\nlimits {\ntunnel_age 1s\n}", Site: "mode off 127.0.0.1\nconnect intercept localhost\nconnect tunnel"}.trusting(authority))
	config := &tls.Config{InsecureSkipVerify: true, ServerName: "localhost"}

	w := inside(t, g.tunnel(site.authority()))
	answers := 0
	eventually(t, "an answer that ends the tunnel over HTTP/1.1", func() bool {
		if _, err := fmt.Fprintf(w, "GET /news/a.html HTTP/1.1\r\nHost: %s\r\nUser-Agent: Tester/1.0\r\n\r\n", site.authority()); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(w.r, nil)
		if err != nil {
			t.Fatalf("after %d: %v", answers, err)
		}
		if a, err := readAnswer(resp); err != nil || a.status != http.StatusOK {
			t.Fatalf("after %d: %d, %v", answers, a.status, err)
		}
		answers++
		return resp.Close
	})
	if _, err := w.r.Peek(1); err == nil || answers < 2 {
		t.Errorf("after %d answers: %v", answers, err)
	}

	config.NextProtos = []string{"h2"}
	secure, err := g.tunnel(site.authority()).over(t, config)
	if err != nil {
		t.Fatal(err)
	}
	h2 := newRawH2(t, secure)
	answers = 0
	eventually(t, "the end of the tunnel over HTTP/2", func() bool {
		a, err := h2.ask(":method", "GET", ":scheme", "https", ":authority", site.authority(), ":path", "/news/a.html", "user-agent", "Tester/1.0")
		if err == nil && a.status == http.StatusOK {
			answers++
			return false
		}
		if err == nil || !strings.Contains(err.Error(), http2.ErrCodeNo.String()) {
			t.Fatalf("after %d answers: %d, %v", answers, a.status, err)
		}
		return true
	})
	if answers == 0 {
		t.Error("no answer over HTTP/2")
	}
	_ = secure.Close()

	blind := g.tunnel("127.0.0.1:" + site.port)
	secure, err = blind.over(t, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, secure)
	if l := g.closedTunnel("127.0.0.1:" + site.port); !strings.Contains(l.Robots.Detail, "older than tunnel_age") {
		t.Errorf("logged as %s", l.raw)
	}
}

// TestRequestSizes sends URLs and headers around the limits, in plain HTTP and inside tunnels.
func TestRequestSizes(t *testing.T) {
	t.Parallel()
	site, _ := heldSite(t)
	host := strings.TrimPrefix(site.URL, "http://")
	servers := "servers {\nmax_header_size 32KiB\nlistener_wrappers {\nrobots\n}\n}"
	g := startGateway(t, gatewayConfig{Global: servers, Engine: unpaced})
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
		a, err := g.dial().ask(http.MethodGet, "GET "+site.URL+tt.path+rest)
		if a.status != tt.status {
			t.Errorf("%s: %d, %v: %s", tt.name, a.status, err, a.body)
		}
		inner, err := g.tunnel(host).ask(http.MethodGet, "GET "+tt.path+rest)
		if inner.status != tt.status {
			t.Errorf("%s, inside a tunnel: %d, %v: %s", tt.name, inner.status, err, inner.body)
		}
		if tt.status == http.StatusRequestURITooLong && (!strings.Contains(a.header.Get("Proxy-Status"), "http_request_error") || !strings.Contains(a.body, "url_size")) {
			t.Errorf("%s: %v %s", tt.name, a.header, a.body)
		}
	}
	reasons := 0
	for _, l := range g.readLogs() {
		if l.Status == http.StatusRequestURITooLong && l.Robots.Reason == enforce.ReasonURLSize {
			reasons++
		}
	}
	if reasons != 2 {
		t.Errorf("%d lines with the reason", reasons)
	}
}
