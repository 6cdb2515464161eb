//go:build slow

package https

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
)

// TestHTTPSHandshakes opens tunnels and then behaves like a broken, hostile or misconfigured
// client. Each tunnel ends in bounded time with one line that gives the cause, and nothing reaches
// the site.
func TestHTTPSHandshakes(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	g := rig.New(t, rig.Config{
		Engine: rig.Unpaced,
		Global: "servers {\ntimeouts {\nread_header 2s\nidle 2s\n}\n}",
	}.Trusting(authority))
	trusted := g.Authority()
	handshake := func(c *tls.Config, want string) func(*testing.T, *rig.Wire) {
		c.RootCAs = trusted
		return func(t *testing.T, w *rig.Wire) {
			t.Helper()
			if c.ServerName == "" {
				c.ServerName = "localhost"
			}
			if _, err := w.Over(t, c); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the handshake ended with %v, want %q", err, want)
			}
		}
	}
	say := func(raw string) func(*testing.T, *rig.Wire) {
		return func(t *testing.T, w *rig.Wire) {
			t.Helper()
			if _, err := io.WriteString(w, raw); err != nil {
				t.Error(err)
			}
			wantEnd(t, w)
		}
	}
	for _, tt := range []struct {
		name     string
		client   func(*testing.T, *rig.Wire)
		decision string
		reason   enforce.Reason
		detail   string
	}{
		{"TLS 1.0", handshake(&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}, "protocol version"), "allow", enforce.ReasonIntercepted, "version"},
		{"TLS 1.1", handshake(&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, "protocol version"), "allow", enforce.ReasonIntercepted, "version"},
		{"no common application protocol", handshake(&tls.Config{NextProtos: []string{"smtp"}}, "no application protocol"), "allow", enforce.ReasonIntercepted, "protocol"},
		{"another name", handshake(&tls.Config{ServerName: "other.example"}, "unrecognized name"), "deny", enforce.ReasonMisdirected, "another host"},
		{"distrust", distrust, "allow", enforce.ReasonIntercepted, "untrusted"},
		{"half a handshake", halfHello, "allow", enforce.ReasonIntercepted, "closed"},
		{"half a handshake and then silence", silentHello, "allow", enforce.ReasonIntercepted, "timeout"},
		{"begins like TLS but is not", say("\x16 is not a handshake, and long enough to be sure of it"), "allow", enforce.ReasonIntercepted, "not_tls"},
		{"garbage", say("\x00\x01\x02\xff"), "deny", enforce.ReasonBadTarget, "neither TLS nor HTTP"},
		{"SSH", say("SSH-2.0-OpenSSH_9.2\r\n"), "allow", enforce.ReasonIntercepted, "plain HTTP"},
		{"HTTP/2 without TLS", say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "allow", enforce.ReasonIntercepted, "plain HTTP"},
		{"closed at once", func(_ *testing.T, w *rig.Wire) { _ = w.Close() }, "allow", enforce.ReasonIntercepted, "nothing"},
		{"half-closed at once", halfClosed, "allow", enforce.ReasonIntercepted, "nothing"},
		{"silence", wantEnd, "allow", enforce.ReasonIntercepted, "nothing"},
		{"silence after the handshake", silentInside, "allow", enforce.ReasonIntercepted, ""},
		{"half a request inside", halfRequest, "allow", enforce.ReasonIntercepted, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			site := rig.StartSecureSite(t, authority, nil)
			began := time.Now()
			g := g.Of(t)
			w := g.Tunnel(site.Authority())
			tt.client(t, w)
			_ = w.Close()
			if took := time.Since(began); took > 40*time.Second {
				t.Errorf("the tunnel took %v to end, want at most 40s", took)
			}
			l := g.ClosedTunnel(site.Authority())
			if l.Status != http.StatusOK || l.Robots.Decision != tt.decision || l.Robots.Reason != tt.reason || !strings.Contains(l.Robots.Detail, tt.detail) {
				t.Errorf("the log line is %s", l.Raw)
			}
			if l.Size < int64(len("HTTP/1.1 200 Connection established\r\n\r\n")) || l.BytesRead > 8<<10 || l.Size > 8<<10 {
				t.Errorf("the line has %d bytes read and %d written", l.BytesRead, l.Size)
			}
			if reached := site.Arrived(); len(reached) > 0 {
				t.Errorf("requests reached the site: %+v", reached)
			}
		})
	}
}

// wantEnd reads until the gateway ends the tunnel.
func wantEnd(t *testing.T, w *rig.Wire) {
	t.Helper()
	_, err := io.Copy(io.Discard, w)
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		t.Errorf("the gateway did not end the tunnel: %v", err)
	}
}

func distrust(t *testing.T, w *rig.Wire) {
	t.Helper()
	if _, err := w.Over(t, &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}); err == nil {
		t.Error("the handshake succeeded")
	}
}

func halfHello(t *testing.T, w *rig.Wire) {
	t.Helper()
	_, _ = io.WriteString(w, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 the rest of 512 bytes never comes")
}

func silentHello(t *testing.T, w *rig.Wire) {
	t.Helper()
	halfHello(t, w)
	wantEnd(t, w)
}

func halfClosed(t *testing.T, w *rig.Wire) {
	t.Helper()
	if err := w.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Error(err)
	}
	wantEnd(t, w)
}

func silentInside(t *testing.T, w *rig.Wire) {
	t.Helper()
	wantEnd(t, rig.Inside(t, w))
}

func halfRequest(t *testing.T, w *rig.Wire) {
	t.Helper()
	inner := rig.Inside(t, w)
	_, _ = io.WriteString(inner, "GET /news/a.html HTTP/1.1\r\nHost: loc")
	wantEnd(t, inner)
}

// TestHTTPSInnerAuthority sends requests for other authorities than the tunnel's.
func TestHTTPSInnerAuthority(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	g := rig.New(t, rig.Config{Engine: rig.Unpaced}.Trusting(authority))
	site := rig.StartSecureSite(t, authority, nil)
	for _, tt := range []struct {
		name    string
		request string // PORT is the site's
		status  int
		reason  enforce.Reason
	}{
		{"the tunnel's authority", "GET /news/a.html HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n", 200, enforce.ReasonNoRule},
		{"Host without port", "GET /news/a.html HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, enforce.ReasonNoRule},
		{"Host in capitals", "GET /news/a.html HTTP/1.1\r\nHost: LOCALHOST:PORT\r\n\r\n", 200, enforce.ReasonNoRule},
		{"Host with the dot of the root", "GET /news/a.html HTTP/1.1\r\nHost: localhost.:PORT\r\n\r\n", 200, enforce.ReasonNoRule},
		{"absolute form", "GET https://localhost:PORT/news/a.html HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n", 200, enforce.ReasonNoRule},
		{"absolute form of plain HTTP", "GET http://localhost:PORT/news/a.html HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n", 200, enforce.ReasonNoRule},
		{"disallowed in absolute form", "GET https://localhost:PORT/private/page.html HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n", 403, enforce.ReasonDisallowed},
		{"another Host", "GET /news/a.html HTTP/1.1\r\nHost: other.example\r\n\r\n", 421, enforce.ReasonMisdirected},
		{"another port", "GET /news/a.html HTTP/1.1\r\nHost: localhost:1\r\n\r\n", 421, enforce.ReasonMisdirected},
		{"the site by its address", "GET /news/a.html HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n", 421, enforce.ReasonMisdirected},
		{"absolute form of another host", "GET https://other.example/news/a.html HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n", 421, enforce.ReasonMisdirected},
		{"userinfo", "GET https://user:secret@localhost:PORT/news/a.html HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n", 400, enforce.ReasonBadTarget},
	} {
		w := g.Tunnel(site.Authority())
		inner := rig.Inside(t, w)
		before := len(site.Arrived())
		request := strings.ReplaceAll(tt.request, "PORT", site.Port)
		a, err := inner.Ask(strings.Fields(request)[0], request)
		if err != nil || a.Status != tt.status {
			t.Errorf("%s: status %d, %v, want %d: %s", tt.name, a.Status, err, tt.status, a.Body)
		}
		if n := len(site.Arrived()) - before; n > 0 != (tt.status == http.StatusOK) {
			t.Errorf("%s: %d requests reached the site", tt.name, n)
		}
		if tt.status != http.StatusOK && !strings.Contains(a.Header.Get("Proxy-Status"), "crawlgate; error=") {
			t.Errorf("%s: Proxy-Status is %q, want an error of the gateway", tt.name, a.Header["Proxy-Status"])
		}
		// A refused request does not end the tunnel: the next one passes.
		if next, err := inner.Ask(http.MethodGet, "GET /news/b.html HTTP/1.1\r\nHost: "+site.Authority()+"\r\n\r\n"); err != nil || next.Status != http.StatusOK {
			t.Errorf("%s: the next request: status %d, error %v", tt.name, next.Status, err)
		}
		_ = w.Close()
	}
	g.Stop()
	var reasons []enforce.Reason
	for _, l := range g.ReadLogs() {
		if strings.Contains(l.Raw, "secret") {
			t.Errorf("the log contains a password: %s", l.Raw)
		}
		if l.Status == http.StatusMisdirectedRequest && !strings.HasPrefix(l.Request.URI, "https://") {
			t.Errorf("the log line has no https URL: %s", l.Raw)
		}
		reasons = append(reasons, l.Robots.Reason)
	}
	// Each case has three lines: its own request, the next one, and the tunnel.
	if rig.CountReason(reasons, enforce.ReasonIntercepted) != 12 || rig.CountReason(reasons, enforce.ReasonMisdirected) != 4 || len(reasons) != 3*12 {
		t.Errorf("the log has the reasons %q", reasons)
	}
}

// TestHTTPSNestedConnect sends a CONNECT inside a tunnel. It is refused like a CONNECT, which ends
// the connection.
func TestHTTPSNestedConnect(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	g := rig.New(t, rig.Config{Engine: rig.Unpaced}.Trusting(authority))
	site := rig.StartSecureSite(t, authority, nil)
	w := g.Tunnel(site.Authority())
	a, err := rig.Inside(t, w).Ask(http.MethodConnect, "CONNECT "+site.Authority()+" HTTP/1.1\r\nHost: "+site.Authority()+"\r\n\r\n")
	if err != nil || a.Status != http.StatusBadRequest || !strings.Contains(a.Body, "CONNECT inside a tunnel") {
		t.Errorf("status %d, %v: %s", a.Status, err, a.Body)
	}
	wantEnd(t, w)
	g.Stop()
	for _, l := range g.ReadLogs() {
		if want := map[int]enforce.Reason{400: enforce.ReasonBadTarget, 200: enforce.ReasonIntercepted}[l.Status]; l.Robots.Reason != want {
			t.Errorf("the log line is %s", l.Raw)
		}
	}
}

// TestHTTPSInnerAuthorityOverHTTP2 tries domain fronting within one HTTP/2 connection.
func TestHTTPSInnerAuthorityOverHTTP2(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	g := rig.New(t, rig.Config{Engine: rig.Unpaced}.Trusting(authority))
	site := rig.StartSecureSite(t, authority, nil)
	client := g.SecureClient("Tester/1.0", 2)
	for host, status := range map[string]int{
		"": 200, "other.example": 421, "localhost:1": 421, "LOCALHOST:" + site.Port: 200,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, site.At("/news/a.html"), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		a, err := rig.ReadAnswer(resp)
		if err != nil || a.Status != status || resp.ProtoMajor != 2 {
			t.Errorf("Host %q: status %d over %s, error %v, want %d: %s", host, a.Status, resp.Proto, err, status, a.Body)
		}
		if status == http.StatusMisdirectedRequest && !strings.Contains(a.Body, "another authority than its tunnel") {
			t.Errorf("Host %q: the refusal does not name the cause: %s", host, a.Body)
		}
	}
	if n := len(site.Arrived()); n != 2 {
		t.Errorf("%d requests reached the site, want 2", n)
	}
}

// TestHTTPSLiteralAddresses requests a site by its address, for which SNI has no form; some clients
// send it anyway (RFC 6066 section 3). The certificate must contain the address.
func TestHTTPSLiteralAddresses(t *testing.T) {
	t.Parallel()
	openssl := rig.Need(t, "openssl")
	authority := rig.NewTestCA(t)
	g := rig.New(t, rig.Config{Engine: rig.Unpaced}.Trusting(authority))
	site := rig.StartSecureSite(t, authority, nil)
	target := "127.0.0.1:" + site.Port
	base := []string{"s_client", "-quiet", "-proxy", g.Addr, "-connect", target, "-CAfile", g.RootFile(), "-verify_return_error"}
	for name, args := range map[string][]string{
		"no SNI":                      {"-noservername", "-verify_ip", "127.0.0.1"},
		"the address as SNI":          {"-servername", "127.0.0.1", "-verify_ip", "127.0.0.1"},
		"no ALPN":                     {"-noservername"},
		"ALPN of HTTP/1.1 alone":      {"-noservername", "-alpn", "http/1.1"},
		"ALPN of HTTP/1.0 and 1.1":    {"-noservername", "-alpn", "http/1.0,http/1.1"},
		"TLS 1.2":                     {"-noservername", "-tls1_2"},
		"a name for the address: no!": {"-servername", "localhost"},
	} {
		for path, want := range map[string]string{"/news/a.html": " 200 ", "/private/page.html": " 403 "} {
			cmd := exec.CommandContext(t.Context(), openssl, append(slices.Clone(base), args...)...)
			cmd.Stdin = strings.NewReader("GET " + path + " HTTP/1.1\r\nHost: " + target + "\r\nUser-Agent: Tester/1.0\r\nConnection: close\r\n\r\n")
			out, _ := cmd.Output() // its status is about the end of TLS, not about the answer
			status, _, _ := strings.Cut(string(out), "\r\n")
			if strings.HasSuffix(name, "no!") {
				if status != "" {
					t.Errorf("%s: the handshake succeeded: %s", name, status)
				}
			} else if !strings.Contains(status+" ", want) {
				t.Errorf("%s: %s: %q, want%s", name, path, status, want)
			}
		}
	}
	for _, target := range site.Targets() {
		if target != "/news/a.html" {
			t.Errorf("%s reached the site", target)
		}
	}
}

// TestHTTPSOriginCertificates uses origins whose TLS a client must not accept. The client does not
// see the origin's certificate, so the gateway must refuse on its behalf, with the cause.
func TestHTTPSOriginCertificates(t *testing.T) {
	t.Parallel()
	authority, stranger := rig.NewTestCA(t), rig.NewTestCA(t)
	names := []string{"localhost"}
	expired := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	early := func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }
	client := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }
	g := rig.New(t, rig.Config{Engine: rig.Unpaced}.Trusting(authority))
	for _, tt := range []struct {
		name   string
		spoil  func(*rig.SecureSite)
		status string // of Proxy-Status
		says   string // in the body
	}{
		{"expired", func(s *rig.SecureSite) { s.Show(authority.Issue(t, names, expired)) }, "tls_certificate_error", "expired"},
		{"not yet valid", func(s *rig.SecureSite) { s.Show(authority.Issue(t, names, early)) }, "tls_certificate_error", "not yet valid"},
		{"of an unknown authority", func(s *rig.SecureSite) { s.Show(stranger.Issue(t, names, nil)) }, "tls_certificate_error", "unknown authority"},
		{"self-signed", func(s *rig.SecureSite) { s.Show(selfSigned(t)) }, "tls_certificate_error", "unknown authority"},
		{"for another host", func(s *rig.SecureSite) { s.Show(authority.Issue(t, []string{"other.example"}, nil)) }, "tls_certificate_error", "other.example"},
		{"for clients", func(s *rig.SecureSite) { s.Show(authority.Issue(t, names, client)) }, "tls_certificate_error", "usage"},
		{"TLS 1.1", func(s *rig.SecureSite) {
			old := s.Tls.Load().Clone()
			old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
			s.Tls.Store(old)
		}, "tls_", "version"},
	} {
		for version := 1; version <= 2; version++ {
			site := rig.StartSecureSite(t, authority, nil)
			site.Config.SetKeepAlivesEnabled(false) // a handshake for each request
			site.Tls.Load().SessionTicketsDisabled = true
			c := g.SecureClient("Tester/1.0", version)
			if a := rig.Get(t, c, site.At("/news/a.html")); a.Status != http.StatusOK {
				t.Fatalf("before: status %d, %s", a.Status, a.Body)
			}
			tt.spoil(site)
			a := rig.Get(t, c, site.At("/news/b.html"))
			if s := a.Header.Get("Proxy-Status"); a.Status != http.StatusBadGateway || !strings.HasPrefix(s, "crawlgate; error="+tt.status) ||
				!strings.Contains(a.Body, tt.says) {
				t.Errorf("%s, HTTP %d inside: status %d, Proxy-Status %q, want 502: %s", tt.name, version, a.Status, s, a.Body)
			}
			if n := len(site.Arrived()); n != 1 {
				t.Errorf("%s: %d requests reached the site, want only the first", tt.name, n)
			}
			rig.Eventually(t, "a line that says why", func() bool {
				return slices.ContainsFunc(g.ReadLogs(), func(l rig.LogLine) bool {
					return l.Request.URI == site.At("/news/b.html") && l.Status == http.StatusBadGateway && l.Robots.Decision == "error" &&
						strings.HasPrefix(string(l.Robots.Reason), "tls") && strings.Contains(l.Robots.Detail, tt.says)
				})
			})
		}
	}
}

// TestHTTPSHalfClosed lets clients close their half of a tunnel. A blind tunnel forwards the close,
// and the rest of the answer comes. In an intercepted tunnel the client has left, as in all of
// net/http.
func TestHTTPSHalfClosed(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	left := make(chan struct{})
	site := rig.StartSecureSite(t, authority, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		close(left)
	}))
	g := rig.New(t, rig.Config{Engine: rig.Unpaced, Site: "connect tunnel 127.0.0.1\nexcept 127.0.0.1 {\nreason test\n}"}.Trusting(authority))
	t.Run("blind", func(t *testing.T) {
		t.Parallel()
		g := g.Of(t)
		// This is not all of TLS: the two ends agree on the rest.
		target := startEcho(t)
		w := g.Tunnel(target)
		hello := rig.ClientHello(t, "127.0.0.1")
		_, _ = io.WriteString(w, hello+"and what follows")
		if err := w.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(w); err != nil || string(got) != "after the end: "+hello+"and what follows" {
			t.Errorf("read %q, error %v", got, err)
		}
		if l := g.ClosedTunnel(target); l.Status != http.StatusOK || l.Robots.Detail != "" {
			t.Errorf("the log line is %s", l.Raw)
		}
	})
	t.Run("intercepted", func(t *testing.T) {
		t.Parallel()
		g := g.Of(t)
		w := g.Tunnel(site.Authority())
		inner := rig.Inside(t, w)
		_, _ = io.WriteString(inner, "GET /news/a.html HTTP/1.1\r\nHost: "+site.Authority()+"\r\n\r\n")
		rig.Eventually(t, "the request to arrive", func() bool { return len(site.Arrived()) == 1 })
		if err := inner.Conn.(*tls.Conn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		<-left
		wantEnd(t, inner)
		rig.Eventually(t, "the line of the request", func() bool {
			return slices.ContainsFunc(g.ReadLogs(), func(l rig.LogLine) bool {
				return l.Request.URI == site.At("/news/a.html") && l.Robots.Reason == enforce.ReasonCanceled
			})
		})
		if l := g.ClosedTunnel(site.Authority()); l.Status != http.StatusOK {
			t.Errorf("the log line is %s", l.Raw)
		}
	})
}

// startEcho starts a server that sends back all bytes when the other end has closed its side.
func startEcho(t *testing.T) (authority string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(rig.Patience))
		said, _ := io.ReadAll(conn)
		_, _ = io.WriteString(conn, "after the end: "+string(said))
	}()
	return l.Addr().String()
}

func selfSigned(t *testing.T) *tls.Certificate {
	t.Helper()
	key := rig.NewKey(t)
	cert := rig.Sign(t, &x509.Certificate{DNSNames: []string{"localhost"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, nil, key, key)
	return &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}
