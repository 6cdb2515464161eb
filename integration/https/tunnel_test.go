//go:build slow

package https

import (
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
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

func TestTunnelOpensForTheUnrestricted(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{Scheme: "https"})
	site.SetRobots(testorigin.OK(rig.TunnelRules))
	g := rig.NewTunnelGateway(t, server, "connect tunnel")

	w := g.Dial()
	if resp := w.Connect(t, site.Origin().Authority(), "Free/1.0"); resp.StatusCode != http.StatusOK {
		t.Fatalf("CONNECT: status %s", resp.Status)
	}
	inner, err := w.Over(t, &tls.Config{RootCAs: server.CAPool(), ServerName: site.Origin().Host})
	if err != nil {
		t.Fatalf("TLS with the origin through the tunnel: %v", err)
	}
	request := "GET " + rig.PrivatePage + " HTTP/1.1\r\nHost: " + site.Origin().Authority() + "\r\n\r\n"
	a, err := inner.Ask(http.MethodGet, request)
	if err != nil || a.Status != http.StatusOK {
		t.Fatalf("GET inside the tunnel: status %d, error %v", a.Status, err)
	}
	_ = w.Close()

	l := g.Logs(1)[0]
	if l.Request.Method != http.MethodConnect || l.Status != http.StatusOK || l.Robots.Reason != enforce.ReasonUnrestricted ||
		l.Robots.PathVisible || l.Robots.Address != site.Origin().HostPort() {
		t.Errorf("the log line is %s", l.Raw)
	}
	// TLS adds some kilobytes for its handshake.
	if l.BytesRead < int64(len(request)) || l.BytesRead > 16<<10 || l.Size < int64(len(a.Body)) || l.Size > 16<<10 {
		t.Errorf("the line has %d bytes read and %d written, want at least %d and %d", l.BytesRead, l.Size, len(request), len(a.Body))
	}
}

func TestTunnelOpensForCurl(t *testing.T) {
	t.Parallel()
	curl := rig.Need(t, "curl")
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{Scheme: "https"})
	site.SetRobots(testorigin.OK(rig.TunnelRules))
	g := rig.NewTunnelGateway(t, server, "connect tunnel")
	for agent, want := range map[string]string{"Free/1.0": "200 200", "Tester/1.0": "403 000"} {
		out, _ := exec.CommandContext(t.Context(), curl, "--disable", "--silent", "--insecure", "--noproxy", "", "--proxy", "http://"+g.Addr,
			"--user-agent", agent, "--output", filepath.Join(t.TempDir(), "body"), "--write-out", "%{http_connect} %{http_code}",
			site.URL(rig.PrivatePage)).Output() // curl fails if the tunnel is refused; its output has the cause
		if string(out) != want {
			t.Errorf("%s: curl printed %q, want %q", agent, out, want)
		}
	}
}

func TestTunnelIsRefusedToTheRestricted(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{Scheme: "https"})
	site.SetRobots(testorigin.OK(rig.TunnelRules))
	g := rig.NewTunnelGateway(t, server, "connect tunnel")
	const tries = 30 // some clients repeat it that often
	for range tries {
		resp := g.Dial().Connect(t, site.Origin().Authority(), "Tester/1.0")
		a, err := rig.ReadAnswer(resp)
		if err != nil || a.Status != http.StatusForbidden || !strings.HasPrefix(a.Reason, "Forbidden by robots.txt") || len(a.Reason) > 100 ||
			!strings.Contains(a.Header.Get("Proxy-Status"), "crawlgate; error=") || !strings.Contains(a.Body, site.URL("/robots.txt")) {
			t.Fatalf("CONNECT: status %q, header %v, error %v: %s", resp.Status, a.Header, err, a.Body)
		}
	}
	if n := len(site.RobotsExchanges()); n != 1 || len(site.PageExchanges()) > 0 {
		t.Errorf("%d fetches of robots.txt and %d pages, want 1 and 0", n, len(site.PageExchanges()))
	}
	if l := g.Logs(1)[0]; l.Status != http.StatusForbidden || l.Robots.Reason != enforce.ReasonTunnelRestricted {
		t.Errorf("the log line is %s", l.Raw)
	}
}

func TestTunnelsDenied(t *testing.T) {
	t.Parallel()
	g := rig.NewTunnelGateway(t, testorigin.Start(t, testorigin.Config{}), "connect deny")
	a, err := rig.ReadAnswer(g.Dial().Connect(t, "127.0.0.1:443", "Free/1.0"))
	if err != nil || a.Status != http.StatusForbidden || a.Reason == http.StatusText(http.StatusForbidden) {
		t.Errorf("CONNECT: status %d, reason phrase %q, error %v", a.Status, a.Reason, err)
	}
	if l := g.Logs(1)[0]; l.Robots.Reason != enforce.ReasonConnectDenied {
		t.Errorf("the log line is %s", l.Raw)
	}
}

// TestPlainHTTPInTunnels sends http:// requests through tunnels, like undici, got and linkinator.
// Each request inside is enforced, whatever the gateway does with TLS.
func TestPlainHTTPInTunnels(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"intercept", "tunnel", "deny"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			server := testorigin.Start(t, testorigin.Config{})
			site := server.Site(t, testorigin.SiteConfig{})
			site.SetRobots(testorigin.OK(rig.TunnelRules))
			g := rig.NewTunnelGateway(t, server, "connect "+policy)
			w := g.Dial()
			if resp := w.Connect(t, site.Origin().Authority(), ""); resp.StatusCode != http.StatusOK {
				t.Fatalf("CONNECT: status %s", resp.Status)
			}
			for _, tt := range []struct {
				path, host, agent string
				status            int
			}{
				{rig.OpenPage, site.Origin().Authority(), "Tester/1.0", http.StatusOK},
				{rig.PrivatePage, site.Origin().Authority(), "Tester/1.0", http.StatusForbidden},
				{rig.PrivatePage, site.Origin().Authority(), "Free/1.0", http.StatusOK},
				{rig.OpenPage, "other.example", "Free/1.0", http.StatusMisdirectedRequest},
				{site.URL(rig.OpenPage), site.Origin().Authority(), "Tester/1.0", http.StatusOK},
			} {
				a, err := w.Ask(http.MethodGet, "GET "+tt.path+" HTTP/1.1\r\nHost: "+tt.host+"\r\nUser-Agent: "+tt.agent+"\r\n\r\n")
				if err != nil || a.Status != tt.status {
					t.Fatalf("%s of %s for %s: status %d, error %v, want %d", tt.path, tt.host, tt.agent, a.Status, err, tt.status)
				}
			}
			_ = w.Close()
			var got []string
			for _, e := range site.PageExchanges() {
				got = append(got, e.Target)
			}
			if want := []string{rig.OpenPage, rig.PrivatePage, rig.OpenPage}; !slices.Equal(got, want) {
				t.Errorf("the origin got %q, want %q", got, want)
			}
			checkPlainLog(t, g.Logs(6), site)
		})
	}
}

// checkPlainLog checks that each request inside has a line, and then the tunnel.
func checkPlainLog(t *testing.T, lines []rig.LogLine, site *testorigin.Site) {
	t.Helper()
	want := []string{
		"GET " + site.URL(rig.OpenPage) + " 200", "GET " + site.URL(rig.PrivatePage) + " 403", "GET " + site.URL(rig.PrivatePage) + " 200",
		"GET http://other.example" + rig.OpenPage + " 421", "GET " + site.URL(rig.OpenPage) + " 200",
		"CONNECT " + site.Origin().Authority() + " 200",
	}
	var got []string
	for _, l := range lines {
		got = append(got, fmt.Sprint(l.Request.Method, " ", l.Request.URI, " ", l.Status))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the log has %q, want %q", got, want)
	}
}

// TestNodeTunnelsPlainHTTP is TestPlainHTTPInTunnels with Node as the client.
func TestNodeTunnelsPlainHTTP(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed; TestPlainHTTPInTunnels tests the same with its own client")
	}
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK(rig.TunnelRules))
	g := rig.NewTunnelGateway(t, server, "connect tunnel")
	out, err := exec.CommandContext(t.Context(), node, filepath.Join("testdata", "connect.mjs"), g.Addr,
		site.URL(rig.OpenPage), site.URL(rig.PrivatePage), site.URL(rig.OpenPage)).CombinedOutput()
	if err != nil || string(out) != "200\n403\n200\n" {
		t.Errorf("node: error %v, output %q", err, out)
	}
}

// TestTunnelOfHTTP10 sends CONNECT like Python's http.client: without any header, not even Host.
func TestTunnelOfHTTP10(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{Scheme: "https"})
	site.SetRobots(testorigin.OK("User-agent: *\nDisallow:\n"))
	for _, policy := range []string{"intercept", "tunnel"} {
		g := rig.NewTunnelGateway(t, server, "connect "+policy)
		w := g.Dial()
		if resp := w.Handshake(t, "CONNECT "+site.Origin().Authority()+" HTTP/1.0\r\n\r\n"); resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: CONNECT: status %s", policy, resp.Status)
		}
		inner, err := w.Over(t, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatalf("%s: TLS inside: %v", policy, err)
		}
		for range 2 { // the tunnel stays open, unlike connections of other HTTP/1.0 requests
			a, err := inner.Ask(http.MethodGet, "GET "+rig.OpenPage+" HTTP/1.1\r\nHost: "+site.Origin().Authority()+"\r\n\r\n")
			if err != nil || a.Status != http.StatusOK {
				t.Fatalf("%s: GET inside: status %d, error %v", policy, a.Status, err)
			}
		}
	}
}

// TestTunnelToAnotherName tries domain fronting: the handshake inside a tunnel names another host.
func TestTunnelToAnotherName(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{Scheme: "https"})
	site.SetRobots(testorigin.OK(rig.TunnelRules))
	for _, policy := range []string{"intercept", "tunnel"} {
		g := rig.NewTunnelGateway(t, server, "connect "+policy)
		w := g.Dial()
		if resp := w.Connect(t, site.Origin().Authority(), "Free/1.0"); resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: CONNECT: status %s", policy, resp.Status)
		}
		if _, err := w.Over(t, &tls.Config{InsecureSkipVerify: true, ServerName: "other.example"}); err == nil {
			t.Errorf("%s: the handshake succeeded", policy)
		}
		if l := g.Logs(1)[0]; l.Robots.Reason != enforce.ReasonMisdirected || l.Robots.Decision != "deny" {
			t.Errorf("%s: the log line is %s", policy, l.Raw)
		}
	}
	for _, e := range site.Exchanges() {
		if !e.Robots() {
			t.Errorf("the origin got %+v, want only robots.txt", e)
		}
	}
}

// TestBlindTunnelWithoutServerName sends handshakes without a server name. A server with several
// sites would show one that no decision was about, so the gateway refuses them in a tunnel to a
// name. An address has no server name (RFC 6066 section 3).
func TestBlindTunnelWithoutServerName(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	site := rig.StartSecureSite(t, authority, nil)
	g := rig.New(t, rig.Config{Engine: rig.Unpaced, Site: "connect tunnel\nmode off"}.Trusting(authority))
	for target, opens := range map[string]bool{site.Authority(): false, "127.0.0.1:" + site.Port: true} {
		w := g.Tunnel(target)
		_ = w.SetDeadline(time.Now().Add(10 * time.Second))
		inner, err := w.Over(t, &tls.Config{InsecureSkipVerify: true}) // without a name, no SNI is sent
		if opened := err == nil; opened != opens {
			t.Errorf("%s: the handshake returned %v, want success %t", target, err, opens)
		}
		if err == nil {
			if a, err := inner.Ask(http.MethodGet, "GET / HTTP/1.1\r\nHost: "+target+"\r\n\r\n"); err != nil || a.Status != http.StatusOK {
				t.Errorf("%s: status %d, error %v", target, a.Status, err)
			}
		}
		_ = w.Close()
		if l := g.ClosedTunnel(target); l.Status != http.StatusOK || !opens && (l.Robots.Decision != "deny" ||
			l.Robots.Reason != enforce.ReasonMisdirected || l.Robots.Detail != "the TLS handshake names no host") {
			t.Errorf("the log line is %s", l.Raw)
		}
	}
	if n := len(site.Arrived()); n != 1 {
		t.Errorf("%d requests reached the site, want 1", n)
	}
}

// TestTunnelToPort80 opens tunnels to the port of plain HTTP. The gateway fetches the rules of a
// TLS server there only when TLS comes, because a plain server would never answer its handshake.
func TestTunnelToPort80(t *testing.T) {
	t.Parallel()
	const target = "127.0.0.1:80" // only the upstream can reach it
	for _, policy := range []string{"tunnel", "deny"} {
		var handshakes atomic.Int64
		upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodConnect:
				handshakes.Add(1)
				w.WriteHeader(http.StatusBadGateway)
			case r.URL.Path == "/robots.txt":
				_, _ = io.WriteString(w, rig.TunnelRules)
			default:
				_, _ = io.WriteString(w, "page")
			}
		}))
		defer upstream.Close()
		g := rig.New(t, rig.Config{Engine: rig.Unpaced, Site: "connect " + policy, Egress: "upstream " + upstream.URL})
		w := g.Tunnel(target)
		for path, status := range map[string]int{rig.OpenPage: http.StatusOK, rig.PrivatePage: http.StatusForbidden} {
			a, err := w.Ask(http.MethodGet, "GET "+path+" HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Tester/1.0\r\n\r\n")
			if err != nil || a.Status != status {
				t.Errorf("%s: %s: status %d, error %v, want %d", policy, path, a.Status, err, status)
			}
		}
		_ = w.Close()
		if n := handshakes.Load(); n > 0 {
			t.Errorf("%s: %d TLS handshakes of the gateway before any of the client, want 0", policy, n)
		}
		if l := g.ClosedTunnel(target); l.Status != http.StatusOK || policy == "tunnel" && l.Robots.Reason != enforce.ReasonIntercepted {
			t.Errorf("%s: the log line is %s", policy, l.Raw)
		}

		reason := map[string]enforce.Reason{"tunnel": enforce.ReasonUnreachable, "deny": enforce.ReasonConnectDenied}[policy]
		w = g.Tunnel(target)
		if _, err := w.Over(t, &tls.Config{InsecureSkipVerify: true}); err == nil {
			t.Errorf("%s: the handshake succeeded", policy)
		}
		rig.Eventually(t, "the line of the tunnel with TLS", func() bool {
			return slices.ContainsFunc(g.ReadLogs(), func(l rig.LogLine) bool { return l.Request.Method == http.MethodConnect && l.Robots.Reason == reason })
		})
		if n := handshakes.Load(); n > 0 != (policy == "tunnel") {
			t.Errorf("%s: %d TLS handshakes of the gateway after the client's", policy, n)
		}
	}
}

// TestInterceptedTunnels checks the default: requests inside TLS are decided by their paths.
func TestInterceptedTunnels(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{Scheme: "https"})
	site.SetRobots(testorigin.OK(rig.TunnelRules))
	g := rig.NewTunnelGateway(t, server, "")
	client := g.Client("Tester/1.0")
	client.Transport.(*rig.AgentTransport).Base.TLSClientConfig = &tls.Config{RootCAs: g.Authority()}
	for page, want := range map[string]int{rig.OpenPage: http.StatusOK, rig.PrivatePage: http.StatusForbidden} {
		if a := rig.Get(t, client, site.URL(page)); a.Status != want {
			t.Errorf("%s: status %d, want %d: %s", page, a.Status, want, a.Body)
		}
	}
	if n := site.PageExchanges(); len(n) != 1 || n[0].Target != rig.OpenPage {
		t.Errorf("the origin got %+v, want one page", n)
	}
	client.CloseIdleConnections()
	for _, l := range g.Logs(3) {
		want := map[string]enforce.Reason{
			site.URL(rig.OpenPage): enforce.ReasonNoRule, site.URL(rig.PrivatePage): enforce.ReasonDisallowed, site.Origin().Authority(): enforce.ReasonIntercepted,
		}[l.Request.URI]
		if l.Robots.Reason != want || !l.Robots.PathVisible {
			t.Errorf("the log line is %s", l.Raw)
		}
	}
}
