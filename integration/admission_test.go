package integration

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
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// turnedAway fails the test unless the client was told that it may not use the gateway.
func turnedAway(t *testing.T, what string, a answer, err error) {
	t.Helper()
	if err != nil || a.status != http.StatusForbidden || !strings.Contains(a.header.Get("Crawlgate-Decision"), string(enforce.ReasonClientNotAllowed)) {
		t.Errorf("%s: status %d, %v, %v: %s", what, a.status, a.header, err, a.body)
	}
}

// forwarded asks in any form, as a proxy in front of the gateway does for a client.
func (g *gateway) forwarded(method, target, client string) (answer, error) {
	w := g.dial()
	defer w.Close()
	head := method + " " + target + " HTTP/1.1\r\nHost: " + g.addr + "\r\nUser-Agent: Tester/1.0\r\n"
	if client != "" {
		head += "X-Forwarded-For: " + client + "\r\n"
	}
	return w.ask(method, head+"\r\n")
}

// TestClients asks from addresses that may use the gateway and from others, for all that the gateway answers.
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
			g := startGateway(t, gatewayConfig{Site: tt.site, Global: tt.global})
			for i, target := range []string{"GET " + site.URL("/"), "HEAD " + site.URL("/robots.txt"), "GET /", "GET /health", "GET /proxy.pac", "POST /x"} {
				method, url, _ := strings.Cut(target, " ")
				a, err := g.forwarded(method, url, tt.client)
				if !tt.allowed {
					turnedAway(t, target, a, err)
					l := g.logs(i + 1)[i]
					if l.Status != http.StatusForbidden || l.Robots.Reason != enforce.ReasonClientNotAllowed || l.Robots.Decision != "deny" {
						t.Errorf("%s is logged as %s", target, l.raw)
					}
				} else if err != nil || a.status == http.StatusForbidden {
					t.Errorf("%s: status %d, %v: %s", target, a.status, err, a.body)
				}
			}
			if tt.allowed {
				return
			}
			a, err := g.forwarded(http.MethodConnect, site.Origin().Authority(), tt.client)
			turnedAway(t, "CONNECT", a, err)
			if !strings.HasPrefix(a.reason, "Forbidden: clients at this address") {
				t.Errorf("CONNECT: %q", a.reason)
			}
		})
	}
}

// TestClientsInTunnels reloads a gateway to other clients while tunnels are open. Fields inside a tunnel are the client's
// own: no proxy in front has set them.
func TestClientsInTunnels(t *testing.T) {
	t.Parallel()
	authority := newTestAuthority(t)
	site := startSecureSite(t, authority, nil)
	const front = "servers {\ntrusted_proxies static 127.0.0.1/32\nlistener_wrappers {\nrobots\n}\n}"
	config := gatewayConfig{Engine: unpaced, Global: front, Site: "mode off\nconnect tunnel localhost\nconnect intercept"}.trusting(authority)
	g := startGateway(t, config)
	open := func(target string) *wire {
		w := g.dial()
		if resp := w.handshake(t, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\nUser-Agent: Tester/1.0\r\nX-Forwarded-For: 10.1.2.3\r\n\r\n"); resp.StatusCode != http.StatusOK {
			t.Fatalf("CONNECT: %s", resp.Status)
		}
		return w
	}
	direct := "127.0.0.1:" + site.port
	const request = "GET /news/a.html HTTP/1.1\r\nHost: %HOST%\r\nUser-Agent: Tester/1.0\r\nX-Forwarded-For: %FOR%\r\n\r\n"
	ask := func(w *wire, host, client string) (answer, error) {
		return w.ask(http.MethodGet, strings.NewReplacer("%HOST%", host, "%FOR%", client).Replace(request))
	}
	intercepted, err := open(direct).over(t, &tls.Config{RootCAs: g.authority(), ServerName: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority.cert)
	blind, err := open(site.authority()).over(t, &tls.Config{RootCAs: roots, ServerName: "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	for host, w := range map[string]*wire{direct: intercepted, site.authority(): blind} {
		if a, err := ask(w, host, "203.0.113.9"); err != nil || a.status != http.StatusOK {
			t.Errorf("%s, before: %d, %v: %s", host, a.status, err, a.body)
		}
	}
	config.Site += "\nclients 127.0.0.1 172.16.0.0/12"
	if err := g.reload(config); err != nil {
		t.Fatal(err)
	}
	a, err := ask(intercepted, direct, "127.0.0.1")
	turnedAway(t, "intercepted, after", a, err)
	if _, err := blind.r.ReadByte(); err == nil {
		t.Error("the blind tunnel is still open after the reload")
	}
	if l := g.closedTunnel(site.authority()); !strings.Contains(l.Robots.Detail, "would not open it") {
		t.Errorf("logged as %s", l.raw)
	}
}

// TestClientsOverUnixSockets: a client without an address is one of this machine.
func TestClientsOverUnixSockets(t *testing.T) {
	t.Parallel()
	for clients, want := range map[string]int{"": http.StatusOK, "clients 10.0.0.0/8": http.StatusForbidden, "clients 127.0.0.1": http.StatusOK} {
		socket := filepath.Join(tempDir(t), "proxy.sock")
		startGateway(t, gatewayConfig{Sites: "http://:80 {\nbind unix/" + socket + "\nlog\nrobots {\n" + clients + "\n}\n}"})
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}}
		if a := get(t, client, "http://gateway/health"); a.status != want {
			t.Errorf("%q: status %d, want %d: %s", clients, a.status, want, a.body)
		}
	}
}
