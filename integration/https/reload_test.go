//go:build slow

package https

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
)

// TestHTTPSReload reloads the configuration while clients crawl over kept and new tunnels. No
// request fails, and requests under way end in their own time.
func TestHTTPSReload(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	release := make(chan struct{})
	site := rig.StartSecureSite(t, authority, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			_, _ = io.WriteString(w, "begun, ")
			_ = http.NewResponseController(w).Flush()
			<-release
			_, _ = io.WriteString(w, "ended")
			return
		}
		rig.ServePages(w, r)
	}))
	config := func(version int) rig.Config {
		return rig.Config{Engine: fmt.Sprintf("user_agent Version/%d\n%s", version, rig.Unpaced)}.Trusting(authority)
	}
	g := rig.New(t, config(0))
	roots := g.Authority()

	long := make(chan string, 2)
	for version := 1; version <= 2; version++ {
		client := g.SecureClient("Tester/1.0", version)
		go func() { long <- rig.Get(t, client, site.At("/long")).Body }()
	}
	rig.Eventually(t, "the long requests to begin", func() bool { return countOf(site.Targets(), "/long") == 2 })

	ctx, stop := context.WithCancel(t.Context())
	var asked atomic.Int64
	var crawl sync.WaitGroup
	for version := 1; version <= 2; version++ {
		client := g.SecureClient("Tester/1.0", version)
		crawl.Go(func() {
			for ; ctx.Err() == nil; asked.Add(1) {
				if a, err := rig.TryGet(t.Context(), client, site.At("/news/a.html")); err != nil || a.Status != http.StatusOK {
					t.Errorf("HTTP %d over a kept tunnel: status %d, error %v", version, a.Status, err)
				}
			}
		})
	}
	var unread atomic.Int64
	for range 2 {
		crawl.Go(func() {
			for ; ctx.Err() == nil; asked.Add(1) {
				switch _, err := g.OneTunnel(site, roots); {
				case errors.Is(err, rig.ErrUnread):
					// A reload does this to connections that the old server was about to accept or
					// to read from, even with Caddy's own `respond`. The server closes its socket,
					// and net/http drops the data that it reads after Shutdown began.
					unread.Add(1)
				case err != nil:
					t.Errorf("over a new tunnel: %v", err)
				}
			}
		})
	}
	more := func() {
		enough := asked.Load() + 40
		rig.Eventually(t, "more requests", func() bool { return asked.Load() >= enough })
	}
	for version := 1; version <= 4; version++ {
		more()
		if err := g.Reload(config(version)); err != nil {
			t.Error(err)
		}
	}
	more()
	stop()
	crawl.Wait()
	close(release)
	for range 2 {
		if body := <-long; body != "begun, ended" {
			t.Errorf("a long answer is %q", body)
		}
	}
	if n := unread.Load(); n > 2*4*5 { // clients × reloads × connections at one moment
		t.Errorf("%d connections were closed before the gateway read their CONNECT", n)
	}
	t.Logf("%d requests over 4 reloads, %d of them closed before they were read", asked.Load(), unread.Load())
}

// TestHTTPSReloadInTheMiddleOfATunnel reloads after each step of a tunnel: CONNECT, handshake,
// first and second request.
func TestHTTPSReloadInTheMiddleOfATunnel(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	site := rig.StartSecureSite(t, authority, nil)
	config := rig.Config{Engine: rig.Unpaced}.Trusting(authority)
	g := rig.New(t, config)
	tls12 := &tls.Config{RootCAs: g.Authority(), ServerName: "localhost"}
	request := "GET /news/a.html HTTP/1.1\r\nHost: " + site.Authority() + "\r\nUser-Agent: Tester/1.0\r\n\r\n"
	reload := func() {
		if err := g.Reload(config); err != nil {
			t.Fatal(err)
		}
	}
	for step := range 2 {
		w := g.Tunnel(site.Authority())
		if step == 0 {
			reload()
		}
		inner, err := w.Over(t, tls12)
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		if step == 1 {
			reload()
		}
		if a, err := inner.Ask(http.MethodGet, request); err != nil || a.Status != http.StatusOK {
			t.Errorf("step %d: status %d, error %v", step, a.Status, err)
		}
	}
}

// TestHTTPSReloadBindsOldTunnels changes the policy while a tunnel is open. The new policy applies
// to requests after the reload, in old tunnels too.
func TestHTTPSReloadBindsOldTunnels(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	site := rig.StartSecureSite(t, authority, nil)
	g := rig.New(t, rig.Config{Engine: rig.Unpaced}.Trusting(authority))
	for version := 1; version <= 2; version++ {
		client := g.SecureClient("Tester/1.0", version)
		if a := rig.Get(t, client, site.At("/news/a.html")); a.Status != http.StatusOK {
			t.Fatalf("before the reload: status %d, want 200", a.Status)
		}
		if err := g.Reload(rig.Config{Engine: rig.Unpaced, Site: "deny localhost"}.Trusting(authority)); err != nil {
			t.Fatal(err)
		}
		if a := rig.Get(t, client, site.At("/news/a.html")); a.Status != http.StatusForbidden || !strings.Contains(a.Body, string(enforce.ReasonOperatorDeny)) {
			t.Errorf("HTTP %d: after the reload: status %d, want 403: %s", version, a.Status, a.Body)
		}
		if err := g.Reload(rig.Config{Engine: rig.Unpaced}.Trusting(authority)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHTTPSReloadBlindTunnels keeps blind tunnels over HTTP/1.1 and HTTP/2 open through reloads,
// until a configuration comes that would not have opened them.
func TestHTTPSReloadBlindTunnels(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]string{
		"denied":          "connect tunnel\ndeny localhost",
		"restricted":      "connect tunnel",
		"intercepted":     "connect intercept",
		"no tunnels":      "connect deny",
		"no such crawler": "connect tunnel\nexcept localhost {\nreason test\n}\nagent Somebody\nunidentified deny",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reloadBlindTunnels(t, last)
		})
	}
}

// reloadBlindTunnels ends with a configuration of the site that permits none of the tunnels.
func reloadBlindTunnels(t *testing.T, last string) {
	t.Helper()
	authority := rig.NewTestCA(t)
	site := rig.StartSecureSite(t, authority, nil)
	base := rig.Config{Engine: rig.Unpaced}.Trusting(authority)
	first := base
	first.Site = "connect tunnel\nexcept localhost {\nreason test\n}"
	config, port := first.WithTLSPort(t, authority, "")
	g := rig.New(t, config)
	roots := x509.NewCertPool()
	roots.AddCert(authority.Cert)
	h2, err := rig.ConnectOver(t.Context(), port.H2(t), site.Authority())
	if err != nil {
		t.Fatal(err)
	}
	tunnels := map[string]*tls.Conn{
		"HTTP/1.1": tls.Client(g.Tunnel(site.Authority()), &tls.Config{RootCAs: roots, ServerName: "localhost"}),
		"HTTP/2":   tls.Client(h2, &tls.Config{RootCAs: roots, ServerName: "localhost"}),
	}
	ask := func(when string) {
		for name, conn := range tunnels {
			inner := &rig.Wire{Conn: conn, Reader: bufio.NewReader(conn)}
			a, err := inner.Ask(http.MethodGet, "GET /news/a.html HTTP/1.1\r\nHost: "+site.Authority()+"\r\n\r\n")
			if err != nil || a.Status != http.StatusOK {
				t.Errorf("%s, %s: status %d, error %v", name, when, a.Status, err)
			}
		}
	}
	ask("before")
	for _, when := range []string{"after a reload", "after another"} {
		if err := g.Reload(config); err != nil {
			t.Fatal(err)
		}
		ask(when)
	}
	config.Site = strings.ReplaceAll(config.Site, first.Site, last)
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	for name, conn := range tunnels {
		if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the tunnel is still open: %v", name, err)
		}
	}
	rig.Eventually(t, "the lines of the tunnels", func() bool {
		n := 0
		for _, l := range g.ReadLogs() {
			if strings.Contains(l.Robots.Detail, "would not open it") && l.Robots.Reason == enforce.ReasonException {
				n++
			}
		}
		return n == len(tunnels)
	})
}

// TestHTTPSReloadWithoutSuccessor removes the gateway from its port. Clients with an open tunnel
// get an answer that says so.
func TestHTTPSReloadWithoutSuccessor(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	site := rig.StartSecureSite(t, authority, nil)
	config := rig.Config{Engine: rig.Unpaced}.Trusting(authority)
	g := rig.New(t, config)
	inner := rig.Inside(t, g.Tunnel(site.Authority()))
	g.Addr = rig.FreePort(t)
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	a, err := inner.Ask(http.MethodGet, "GET /news/a.html HTTP/1.1\r\nHost: "+site.Authority()+"\r\n\r\n")
	if err != nil || a.Status != http.StatusServiceUnavailable || !strings.Contains(a.Body, "no gateway") {
		t.Errorf("status %d, body %s, error %v, want 503", a.Status, a.Body, err)
	}
	wantEnd(t, inner)
	if n := len(site.Arrived()); n != 0 {
		t.Errorf("%d requests reached the site, want 0", n)
	}
}

// TestHTTPSReloadOfLimits changes the server's limits for clients. They apply to later tunnels; the
// old ones stay open.
func TestHTTPSReloadOfLimits(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	site := rig.StartSecureSite(t, authority, nil)
	config := rig.Config{Engine: rig.Unpaced}.Trusting(authority)
	g := rig.New(t, config)
	before := rig.Inside(t, g.Tunnel(site.Authority()))
	config.Global = "servers {\ntimeouts {\nidle 1s\n}\n}"
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	after := rig.Inside(t, g.Tunnel(site.Authority()))
	request := "GET /news/a.html HTTP/1.1\r\nHost: " + site.Authority() + "\r\n\r\n"
	for _, w := range []*rig.Wire{before, after} {
		if a, err := w.Ask(http.MethodGet, request); err != nil || a.Status != http.StatusOK {
			t.Errorf("a new tunnel: status %d, error %v", a.Status, err)
		}
	}
	wantEnd(t, after)
	if a, err := before.Ask(http.MethodGet, request); err != nil || a.Status != http.StatusOK {
		t.Errorf("the old tunnel: status %d, error %v", a.Status, err)
	}
}

// TestHTTPSStop stops the process while requests run inside tunnels. Requests that end soon are
// finished; the others delay the stop no longer than its bound.
func TestHTTPSStop(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		global string
		takes  time.Duration // of the answer
		whole  bool          // the answer arrives as a whole
		blind  bool          // also with blind tunnels, which the gateway cannot know to be idle
		within time.Duration // bound on the stop
	}{
		{"an answer that ends soon", "", time.Second, true, false, 5 * time.Second},
		{"an answer without end", "", time.Hour, false, true, 15 * time.Second},
		{"an answer without end and a grace period", "grace_period 2s", time.Hour, false, true, 6 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			authority := rig.NewTestCA(t)
			site := rig.StartSecureSite(t, authority, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "begun, ")
				_ = http.NewResponseController(w).Flush()
				select {
				case <-time.After(tt.takes):
					_, _ = io.WriteString(w, "ended")
				case <-r.Context().Done():
				}
			}))
			config, port := rig.Config{
				Engine: rig.Unpaced, Global: tt.global, Site: "connect tunnel 127.0.0.1\nexcept 127.0.0.1 {\nreason test\n}",
			}.Trusting(authority).WithTLSPort(t, authority, "")
			g := rig.New(t, config)
			answers := make(chan string, 2)
			for version := 1; version <= 2; version++ {
				client := g.SecureClient("Tester/1.0", version)
				go func() {
					a, _ := rig.TryGet(t.Context(), client, site.At("/"))
					answers <- a.Body
				}()
			}
			// An idle tunnel.
			if a, err := rig.Inside(t, g.Tunnel(site.Authority())).Ask(http.MethodGet, "GET /private/page.html HTTP/1.1\r\nHost: "+site.Authority()+"\r\n\r\n"); err != nil || a.Status != http.StatusForbidden {
				t.Fatal(a.Status, err)
			}
			if tt.blind {
				openBlind(t, g, port, "127.0.0.1:"+site.Port)
			}
			rig.Eventually(t, "the requests to begin", func() bool { return len(site.Arrived()) == 2 })
			began := time.Now()
			g.Stop()
			if took := time.Since(began); took > tt.within {
				t.Errorf("the stop took %v, want at most %v", took, tt.within)
			}
			for range 2 {
				if body := <-answers; tt.whole != (body == "begun, ended") {
					t.Errorf("the answer is %q", body)
				}
			}
			lines := map[string]int{}
			for _, l := range g.ReadLogs() {
				lines[l.Request.Method]++
			}
			if want := map[bool]int{false: 3, true: 5}[tt.blind]; lines[http.MethodConnect] != want || lines[http.MethodGet] != 3 {
				t.Errorf("lines by method: %v, want %d tunnels and 3 requests", lines, want)
			}
		})
	}
}

// TestHTTPSRefusalIsLoggedAtOnce stops the process while a client has not yet closed a refused
// CONNECT.
func TestHTTPSRefusalIsLoggedAtOnce(t *testing.T) {
	t.Parallel()
	g := rig.New(t, rig.Config{Engine: rig.Unpaced, Site: "connect deny"})
	if resp := g.Dial().Connect(t, "localhost:443", "Tester/1.0"); resp.StatusCode != http.StatusForbidden {
		t.Fatal(resp.Status)
	}
	g.Stop()
	if lines := g.ReadLogs(); len(lines) != 1 || lines[0].Status != http.StatusForbidden || lines[0].Robots.Reason != enforce.ReasonConnectDenied {
		t.Errorf("the log lines are %+v", lines)
	}
}

// openBlind opens a blind tunnel over each version of HTTP.
func openBlind(t *testing.T, g *rig.Gateway, port *rig.TLSPort, authority string) {
	t.Helper()
	h2, err := rig.ConnectOver(t.Context(), port.H2(t), authority)
	if err != nil {
		t.Fatal(err)
	}
	for _, conn := range []net.Conn{g.Tunnel(authority), h2} {
		if err := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
