//go:build slow

package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// turnedAway fails the test unless the client was told that it must not use the gateway.
func turnedAway(t *testing.T, what string, a rig.Answer, err error) {
	t.Helper()
	if err != nil || a.Status != http.StatusForbidden || !strings.Contains(a.Header.Get("Crawlgate-Decision"), string(enforce.ReasonClientNotAllowed)) {
		t.Errorf("%s: status %d, header %v, error %v, want a refusal of the client: %s", what, a.Status, a.Header, err, a.Body)
	}
}

// forwarded sends a request in any form, as a proxy in front of the gateway forwards it for a
// client.
func forwarded(g *rig.Gateway, method, target, client string) (rig.Answer, error) {
	w := g.Dial()
	defer w.Close()
	head := method + " " + target + " HTTP/1.1\r\nHost: " + g.Addr + "\r\nUser-Agent: Tester/1.0\r\n"
	if client != "" {
		head += "X-Forwarded-For: " + client + "\r\n"
	}
	return w.Ask(method, head+"\r\n")
}

// TestTrustedProxies checks that the gateway warns if Caddy believes what clients say of their
// address.
func TestTrustedProxies(t *testing.T) {
	t.Parallel()
	for options, want := range map[string]int{
		"trusted_proxies static 127.0.0.1/32":                         1,
		"trusted_proxies static 127.0.0.1/32\ntrusted_proxies_strict": 0,
		"trusted_proxies_unix":                                        1,
		"trusted_proxies_unix\ntrusted_proxies_strict":                0,
		"timeouts {\nread_header 30s\n}":                              0,
	} {
		g := rig.New(t, rig.Config{Global: "servers {\n" + options + "\n}"})
		if n := strings.Count(g.Stderr.String(), "set trusted_proxies_strict"); n != want {
			t.Errorf("%q: %d warnings, want %d", options, n, want)
		}
	}
}

// TestClients sends each kind of request from addresses that may use the gateway and from others.
func TestClients(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	const front = "servers {\ntrusted_proxies static 127.0.0.1/32\nlistener_wrappers {\nrobots\n}\n}"
	for _, tt := range []struct {
		name, site, global, client string
		allowed                    bool
	}{
		{"the default, loopback", "", "", "", true},
		{"another range", "clients 10.0.0.0/8", "", "", false},
		{"another range, mode off", "clients 10.0.0.0/8 ::1\nmode off", "", "", false},
		{"the very address", "clients 10.0.0.0/8 127.0.0.1", "", "", true},
		{"two lines", "clients 10.0.0.0/8\nclients 127.0.0.0/8", "", "", true},
		{"any", "clients any", "", "", true},
		{"the field of a client that is no proxy", "", "", "203.0.113.9", true},
		{"the field of a client that is no proxy, for itself", "clients 10.0.0.0/8", "", "10.1.2.3", false},
		{"from outside", "", front, "203.0.113.9", false},
		{"from outside by IPv6", "", front, "2001:db8::9", false},
		{"from a carrier's shared range", "", front, "100.64.0.9", false},
		{"from a private range", "", front, "10.1.2.3", true},
		{"from a private range by IPv6", "", front, "fd12::9", true},
		{"from a link-local address", "", front, "fe80::9", true},
		{"from a shared range that is named", "clients 100.64.0.0/10", front, "100.64.0.9", true},
		{"from outside, any", "clients any", front, "203.0.113.9", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := rig.New(t, rig.Config{Site: tt.site, Global: tt.global})
			for i, target := range []string{"GET " + site.URL("/"), "HEAD " + site.URL("/robots.txt"), "GET /", "GET /health", "GET /proxy.pac", "POST /x"} {
				method, url, _ := strings.Cut(target, " ")
				a, err := forwarded(g, method, url, tt.client)
				if !tt.allowed {
					turnedAway(t, target, a, err)
					l := g.Logs(i + 1)[i]
					if l.Status != http.StatusForbidden || l.Robots.Reason != enforce.ReasonClientNotAllowed || l.Robots.Decision != "deny" {
						t.Errorf("%s: the log line is not a refusal of the client: %s", target, l.Raw)
					}
				} else if err != nil || a.Status == http.StatusForbidden {
					t.Errorf("%s: status %d, error %v, want no refusal: %s", target, a.Status, err, a.Body)
				}
			}
			if tt.allowed {
				return
			}
			a, err := forwarded(g, http.MethodConnect, site.Origin().Authority(), tt.client)
			turnedAway(t, "CONNECT", a, err)
			if !strings.HasPrefix(a.Reason, "Forbidden: clients at this address") {
				t.Errorf(`CONNECT: reason phrase %q, want "Forbidden: clients at this address…"`, a.Reason)
			}
		})
	}
}

// TestClientsInTunnels changes the permitted clients by a reload while tunnels are open. Fields
// inside a tunnel come from the client, never from a proxy in front.
func TestClientsInTunnels(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	site := rig.StartSecureSite(t, authority, nil)
	const front = "servers {\ntrusted_proxies static 127.0.0.1/32\nlistener_wrappers {\nrobots\n}\n}"
	config := rig.Config{Engine: rig.Unpaced, Global: front, Site: "mode off\nconnect tunnel localhost\nconnect intercept"}.Trusting(authority)
	g := rig.New(t, config)
	open := func(target string) *rig.Wire {
		w := g.Dial()
		if resp := w.Handshake(t, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\nUser-Agent: Tester/1.0\r\nX-Forwarded-For: 10.1.2.3\r\n\r\n"); resp.StatusCode != http.StatusOK {
			t.Fatalf("CONNECT: %s", resp.Status)
		}
		return w
	}
	direct := "127.0.0.1:" + site.Port
	const request = "GET /news/a.html HTTP/1.1\r\nHost: %HOST%\r\nUser-Agent: Tester/1.0\r\nX-Forwarded-For: %FOR%\r\n\r\n"
	ask := func(w *rig.Wire, host, client string) (rig.Answer, error) {
		return w.Ask(http.MethodGet, strings.NewReplacer("%HOST%", host, "%FOR%", client).Replace(request))
	}
	intercepted, err := open(direct).Over(t, &tls.Config{RootCAs: g.Authority(), ServerName: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority.Cert)
	blind, err := open(site.Authority()).Over(t, &tls.Config{RootCAs: roots, ServerName: "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	for host, w := range map[string]*rig.Wire{direct: intercepted, site.Authority(): blind} {
		if a, err := ask(w, host, "203.0.113.9"); err != nil || a.Status != http.StatusOK {
			t.Errorf("%s, before the reload: status %d, error %v: %s", host, a.Status, err, a.Body)
		}
	}
	config.Site += "\nclients 127.0.0.1 172.16.0.0/12"
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	a, err := ask(intercepted, direct, "127.0.0.1")
	turnedAway(t, "intercepted, after", a, err)
	if _, err := blind.Reader.ReadByte(); err == nil {
		t.Error("the blind tunnel is still open after the reload")
	}
	if l := g.ClosedTunnel(site.Authority()); !strings.Contains(l.Robots.Detail, "would not open it") {
		t.Errorf("the log line does not say why the tunnel ended: %s", l.Raw)
	}
}

// TestClientsOverUnixSockets checks that a client without an address counts as one of this machine.
func TestClientsOverUnixSockets(t *testing.T) {
	t.Parallel()
	for clients, want := range map[string]int{"": http.StatusOK, "clients 10.0.0.0/8": http.StatusForbidden, "clients 127.0.0.1": http.StatusOK} {
		socket := filepath.Join(rig.TempDir(t), "proxy.sock")
		rig.New(t, rig.Config{Sites: "http://:80 {\nbind unix/" + socket + "\nlog\nrobots {\n" + clients + "\n}\n}"})
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}}
		if a := rig.Get(t, client, "http://gateway/health"); a.Status != want {
			t.Errorf("%q: status %d, want %d: %s", clients, a.Status, want, a.Body)
		}
	}
}
