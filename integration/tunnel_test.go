package integration

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// tunnelRules leave one crawler unrestricted.
const tunnelRules = "User-agent: Free\nDisallow:\n\nUser-agent: *\nDisallow: /private\n"

// connect sends a CONNECT and returns its answer; the connection is the tunnel if that is 200.
func (w *wire) connect(t *testing.T, authority, userAgent string) *http.Response {
	t.Helper()
	head := "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n"
	if userAgent != "" {
		head += "User-Agent: " + userAgent + "\r\n"
	}
	return w.handshake(t, head+"\r\n")
}

// handshake sends the bytes of a CONNECT.
func (w *wire) handshake(t *testing.T, raw string) *http.Response {
	t.Helper()
	if _, err := io.WriteString(w, raw); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(w.r, &http.Request{Method: http.MethodConnect})
	if err != nil {
		t.Fatalf("CONNECT: %v", err)
	}
	return resp
}

// over starts TLS inside the tunnel.
func (w *wire) over(t *testing.T, config *tls.Config) (*wire, error) {
	t.Helper()
	conn := tls.Client(w, config)
	if err := conn.HandshakeContext(t.Context()); err != nil {
		return nil, err
	}
	return &wire{conn, bufio.NewReader(conn)}, nil
}

func TestTunnelOpensForTheUnrestricted(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{Scheme: "https"})
	site.SetRobots(testorigin.OK(tunnelRules))
	g := startTunnelGateway(t, server, "connect tunnel")

	w := g.dial()
	if resp := w.connect(t, site.Origin().Authority(), "Free/1.0"); resp.StatusCode != http.StatusOK {
		t.Fatalf("CONNECT: status %s", resp.Status)
	}
	inner, err := w.over(t, &tls.Config{RootCAs: server.CAPool(), ServerName: site.Origin().Host})
	if err != nil {
		t.Fatalf("TLS with the origin through the tunnel: %v", err)
	}
	request := "GET " + privatePage + " HTTP/1.1\r\nHost: " + site.Origin().Authority() + "\r\n\r\n"
	a, err := inner.ask(http.MethodGet, request)
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("GET inside the tunnel: status %d, %v", a.status, err)
	}
	_ = w.Close()

	l := g.logs(1)[0]
	if l.Request.Method != http.MethodConnect || l.Status != http.StatusOK || l.Robots.Reason != enforce.ReasonUnrestricted ||
		l.Robots.PathVisible || l.Robots.Address != site.Origin().HostPort() {
		t.Errorf("logged as %s", l.raw)
	}
	// TLS adds some kilobytes for its handshake.
	if l.BytesRead < int64(len(request)) || l.BytesRead > 16<<10 || l.Size < int64(len(a.body)) || l.Size > 16<<10 {
		t.Errorf("logged with %d bytes read and %d written; inside were %d and %d and more", l.BytesRead, l.Size, len(request), len(a.body))
	}
}

func TestTunnelOpensForCurl(t *testing.T) {
	t.Parallel()
	curl := need(t, "curl")
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{Scheme: "https"})
	site.SetRobots(testorigin.OK(tunnelRules))
	g := startTunnelGateway(t, server, "connect tunnel")
	for agent, want := range map[string]string{"Free/1.0": "200 200", "Tester/1.0": "403 000"} {
		out, _ := exec.CommandContext(t.Context(), curl, "--disable", "--silent", "--insecure", "--noproxy", "", "--proxy", "http://"+g.addr,
			"--user-agent", agent, "--output", filepath.Join(t.TempDir(), "body"), "--write-out", "%{http_connect} %{http_code}",
			site.URL(privatePage)).Output() // curl fails if the tunnel is refused: its output tells why
		if string(out) != want {
			t.Errorf("%s: curl says %q, want %q", agent, out, want)
		}
	}
}

func TestTunnelIsRefusedToTheRestricted(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{Scheme: "https"})
	site.SetRobots(testorigin.OK(tunnelRules))
	g := startTunnelGateway(t, server, "connect tunnel")
	const tries = 30 // as often as some clients repeat it
	for range tries {
		resp := g.dial().connect(t, site.Origin().Authority(), "Tester/1.0")
		a, err := readAnswer(resp)
		if err != nil || a.status != http.StatusForbidden || !strings.HasPrefix(a.reason, "Forbidden by robots.txt") || len(a.reason) > 100 ||
			!strings.Contains(a.header.Get("Proxy-Status"), "crawlgate; error=") || !strings.Contains(a.body, site.URL("/robots.txt")) {
			t.Fatalf("CONNECT: %q %v, %v: %s", resp.Status, a.header, err, a.body)
		}
	}
	if n := len(site.RobotsExchanges()); n != 1 || len(site.PageExchanges()) > 0 {
		t.Errorf("robots.txt was fetched %d times, and %d pages", n, len(site.PageExchanges()))
	}
	if l := g.logs(1)[0]; l.Status != http.StatusForbidden || l.Robots.Reason != enforce.ReasonTunnelRestricted {
		t.Errorf("logged as %s", l.raw)
	}
}

func TestTunnelsDenied(t *testing.T) {
	t.Parallel()
	g := startTunnelGateway(t, testorigin.Start(t, testorigin.Config{}), "connect deny")
	a, err := readAnswer(g.dial().connect(t, "127.0.0.1:443", "Free/1.0"))
	if err != nil || a.status != http.StatusForbidden || a.reason == http.StatusText(http.StatusForbidden) {
		t.Errorf("CONNECT: %d %q, %v", a.status, a.reason, err)
	}
	if l := g.logs(1)[0]; l.Robots.Reason != enforce.ReasonConnectDenied {
		t.Errorf("logged as %s", l.raw)
	}
}

// TestPlainHTTPInTunnels is what undici, got and linkinator do with http:// URLs. Whatever happens to TLS,
// each request inside is enforced.
func TestPlainHTTPInTunnels(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"intercept", "tunnel", "deny"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			server := testorigin.Start(t, testorigin.Config{})
			site := server.Site(t, testorigin.SiteConfig{})
			site.SetRobots(testorigin.OK(tunnelRules))
			g := startTunnelGateway(t, server, "connect "+policy)
			w := g.dial()
			if resp := w.connect(t, site.Origin().Authority(), ""); resp.StatusCode != http.StatusOK {
				t.Fatalf("CONNECT: status %s", resp.Status)
			}
			for _, tt := range []struct {
				path, host, agent string
				status            int
			}{
				{openPage, site.Origin().Authority(), "Tester/1.0", http.StatusOK},
				{privatePage, site.Origin().Authority(), "Tester/1.0", http.StatusForbidden},
				{privatePage, site.Origin().Authority(), "Free/1.0", http.StatusOK},
				{openPage, "other.example", "Free/1.0", http.StatusMisdirectedRequest},
				{site.URL(openPage), site.Origin().Authority(), "Tester/1.0", http.StatusOK},
			} {
				a, err := w.ask(http.MethodGet, "GET "+tt.path+" HTTP/1.1\r\nHost: "+tt.host+"\r\nUser-Agent: "+tt.agent+"\r\n\r\n")
				if err != nil || a.status != tt.status {
					t.Fatalf("%s of %s for %s: status %d, %v, want %d", tt.path, tt.host, tt.agent, a.status, err, tt.status)
				}
			}
			_ = w.Close()
			var got []string
			for _, e := range site.PageExchanges() {
				got = append(got, e.Target)
			}
			if want := []string{openPage, privatePage, openPage}; !slices.Equal(got, want) {
				t.Errorf("the origin was asked for %q, want %q", got, want)
			}
			checkPlainLog(t, g.logs(6), site)
		})
	}
}

// checkPlainLog wants a line for each request inside and one for the tunnel, last.
func checkPlainLog(t *testing.T, lines []logLine, site *testorigin.Site) {
	t.Helper()
	want := []string{
		"GET " + site.URL(openPage) + " 200", "GET " + site.URL(privatePage) + " 403", "GET " + site.URL(privatePage) + " 200",
		"GET http://other.example" + openPage + " 421", "GET " + site.URL(openPage) + " 200",
		"CONNECT " + site.Origin().Authority() + " 200",
	}
	var got []string
	for _, l := range lines {
		got = append(got, fmt.Sprint(l.Request.Method, " ", l.Request.URI, " ", l.Status))
	}
	if !slices.Equal(got, want) {
		t.Errorf("logged are %q, want %q", got, want)
	}
}

// TestNodeTunnelsPlainHTTP is the same with a client that is not ours.
func TestNodeTunnelsPlainHTTP(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed; TestPlainHTTPInTunnels says the same by hand")
	}
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK(tunnelRules))
	g := startTunnelGateway(t, server, "connect tunnel")
	out, err := exec.CommandContext(t.Context(), node, filepath.Join("testdata", "connect.mjs"), g.addr,
		site.URL(openPage), site.URL(privatePage), site.URL(openPage)).CombinedOutput()
	if err != nil || string(out) != "200\n403\n200\n" {
		t.Errorf("node: %v: %q", err, out)
	}
}

// TestTunnelOfHTTP10 is CONNECT as Python's http.client sends it: without any header, not even Host.
func TestTunnelOfHTTP10(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{Scheme: "https"})
	site.SetRobots(testorigin.OK("User-agent: *\nDisallow:\n"))
	for _, policy := range []string{"intercept", "tunnel"} {
		g := startTunnelGateway(t, server, "connect "+policy)
		w := g.dial()
		if resp := w.handshake(t, "CONNECT "+site.Origin().Authority()+" HTTP/1.0\r\n\r\n"); resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: CONNECT: status %s", policy, resp.Status)
		}
		inner, err := w.over(t, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatalf("%s: TLS inside: %v", policy, err)
		}
		for range 2 { // the tunnel stays open, whatever 1.0 means for other requests
			a, err := inner.ask(http.MethodGet, "GET "+openPage+" HTTP/1.1\r\nHost: "+site.Origin().Authority()+"\r\n\r\n")
			if err != nil || a.status != http.StatusOK {
				t.Fatalf("%s: GET inside: status %d, %v", policy, a.status, err)
			}
		}
	}
}

// TestTunnelToAnotherName is domain fronting: the tunnel is to one host, the handshake inside names another.
func TestTunnelToAnotherName(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{Scheme: "https"})
	site.SetRobots(testorigin.OK(tunnelRules))
	for _, policy := range []string{"intercept", "tunnel"} {
		g := startTunnelGateway(t, server, "connect "+policy)
		w := g.dial()
		if resp := w.connect(t, site.Origin().Authority(), "Free/1.0"); resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: CONNECT: status %s", policy, resp.Status)
		}
		if _, err := w.over(t, &tls.Config{InsecureSkipVerify: true, ServerName: "other.example"}); err == nil {
			t.Errorf("%s: the handshake went through", policy)
		}
		if l := g.logs(1)[0]; l.Robots.Reason != enforce.ReasonMisdirected || l.Robots.Decision != "deny" {
			t.Errorf("%s: logged as %s", policy, l.raw)
		}
	}
	for _, e := range site.Exchanges() {
		if !e.Robots() {
			t.Errorf("the origin saw %+v", e)
		}
	}
}

// TestBlindTunnelWithoutServerName has handshakes name no host. A server of several sites would show one that nobody judged,
// so in a tunnel to a name they are refused; an address has no server name (RFC 6066 section 3).
func TestBlindTunnelWithoutServerName(t *testing.T) {
	t.Parallel()
	authority := newTestAuthority(t)
	site := startSecureSite(t, authority, nil)
	g := startGateway(t, gatewayConfig{Engine: unpaced, Site: "connect tunnel\nmode off"}.trusting(authority))
	for target, opens := range map[string]bool{site.authority(): false, "127.0.0.1:" + site.port: true} {
		w := g.tunnel(target)
		_ = w.SetDeadline(time.Now().Add(10 * time.Second))
		inner, err := w.over(t, &tls.Config{InsecureSkipVerify: true}) // without a name, no SNI is sent
		if opened := err == nil; opened != opens {
			t.Errorf("%s: %v", target, err)
		}
		if err == nil {
			if a, err := inner.ask(http.MethodGet, "GET / HTTP/1.1\r\nHost: "+target+"\r\n\r\n"); err != nil || a.status != http.StatusOK {
				t.Errorf("%s: %d, %v", target, a.status, err)
			}
		}
		_ = w.Close()
		if l := g.closedTunnel(target); l.Status != http.StatusOK || !opens && (l.Robots.Decision != "deny" ||
			l.Robots.Reason != enforce.ReasonMisdirected || l.Robots.Detail != "the TLS handshake names no host") {
			t.Errorf("logged as %s", l.raw)
		}
	}
	if n := len(site.arrived()); n != 1 {
		t.Errorf("%d requests reached the site, want 1", n)
	}
}

// TestTunnelToPort80 opens tunnels to the port of plain HTTP. What speaks TLS there is asked for its rules only when TLS comes:
// a plain server would leave the gateway waiting for its part of a handshake.
func TestTunnelToPort80(t *testing.T) {
	t.Parallel()
	const target = "127.0.0.1:80" // only the upstream knows it
	for _, policy := range []string{"tunnel", "deny"} {
		var handshakes atomic.Int64
		upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodConnect:
				handshakes.Add(1)
				w.WriteHeader(http.StatusBadGateway)
			case r.URL.Path == "/robots.txt":
				_, _ = io.WriteString(w, tunnelRules)
			default:
				_, _ = io.WriteString(w, "page")
			}
		}))
		defer upstream.Close()
		g := startGateway(t, gatewayConfig{Engine: unpaced, Site: "connect " + policy, Egress: "upstream " + upstream.URL})
		w := g.tunnel(target)
		for path, status := range map[string]int{openPage: http.StatusOK, privatePage: http.StatusForbidden} {
			a, err := w.ask(http.MethodGet, "GET "+path+" HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Tester/1.0\r\n\r\n")
			if err != nil || a.status != status {
				t.Errorf("%s: %s: %d, %v, want %d", policy, path, a.status, err, status)
			}
		}
		_ = w.Close()
		if n := handshakes.Load(); n > 0 {
			t.Errorf("%s: %d attempts at TLS before the client spoke any", policy, n)
		}
		if l := g.closedTunnel(target); l.Status != http.StatusOK || policy == "tunnel" && l.Robots.Reason != enforce.ReasonIntercepted {
			t.Errorf("%s: logged as %s", policy, l.raw)
		}

		reason := map[string]enforce.Reason{"tunnel": enforce.ReasonUnreachable, "deny": enforce.ReasonConnectDenied}[policy]
		w = g.tunnel(target)
		if _, err := w.over(t, &tls.Config{InsecureSkipVerify: true}); err == nil {
			t.Errorf("%s: the handshake went through", policy)
		}
		eventually(t, "the line of the tunnel with TLS", func() bool {
			return slices.ContainsFunc(g.readLogs(), func(l logLine) bool { return l.Request.Method == http.MethodConnect && l.Robots.Reason == reason })
		})
		if n := handshakes.Load(); n > 0 != (policy == "tunnel") {
			t.Errorf("%s: %d attempts at TLS when the client spoke it", policy, n)
		}
	}
}

// TestInterceptedTunnels is the default: requests inside TLS are judged by their paths.
func TestInterceptedTunnels(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{Scheme: "https"})
	site.SetRobots(testorigin.OK(tunnelRules))
	g := startTunnelGateway(t, server, "")
	client := g.client("Tester/1.0")
	client.Transport.(*agentTransport).base.TLSClientConfig = &tls.Config{RootCAs: g.authority()}
	for page, want := range map[string]int{openPage: http.StatusOK, privatePage: http.StatusForbidden} {
		if a := get(t, client, site.URL(page)); a.status != want {
			t.Errorf("%s: status %d, want %d: %s", page, a.status, want, a.body)
		}
	}
	if n := site.PageExchanges(); len(n) != 1 || n[0].Target != openPage {
		t.Errorf("the origin was asked %+v", n)
	}
	client.CloseIdleConnections()
	for _, l := range g.logs(3) {
		want := map[string]enforce.Reason{
			site.URL(openPage): enforce.ReasonNoRule, site.URL(privatePage): enforce.ReasonDisallowed, site.Origin().Authority(): enforce.ReasonIntercepted,
		}[l.Request.URI]
		if l.Robots.Reason != want || !l.Robots.PathVisible {
			t.Errorf("logged as %s", l.raw)
		}
	}
}

// startTunnelGateway trusts the CA of the origins.
func startTunnelGateway(t *testing.T, server *testorigin.Server, site string) *gateway {
	t.Helper()
	return startGateway(t, gatewayConfig{Site: site, Egress: "trust_ca " + caFile(t, server)})
}
