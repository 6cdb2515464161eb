package integration

import (
	"net/http"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestTurns holds which listeners take connections in by turns: the directive sees to it, the global option servers
// replaces what it set and has to name it, and the gateway says so when nobody did.
func TestTurns(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	for name, test := range map[string]struct {
		global  string
		without bool
	}{
		"by the directive": {"", false},
		"replaced":         {"servers {\ntimeouts {\nidle 1m\n}\n}", true},
		"of one protocol":  {"servers {\nprotocols h1\n}", true},
		"named":            {"servers {\nlistener_wrappers {\nrobots\ntls\n}\n}", false},
		"and one protocol": {"servers {\nprotocols h1\nlistener_wrappers {\nrobots\n}\n}", false},
		"before another":   {"servers {\nlistener_wrappers {\nrobots\nproxy_protocol\n}\n}", false},
		"behind another":   {"servers {\nlistener_wrappers {\nproxy_protocol\nrobots\n}\n}", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := server.Site(t, testorigin.SiteConfig{})
			g := startGateway(t, gatewayConfig{Global: test.global})
			g.dial() // who says nothing keeps nobody waiting
			if a := g.mustFetch("Acme/1.0", site.URL("/")); a.status != http.StatusOK {
				t.Errorf("status %d: %s", a.status, a.body)
			}
			g.stop()
			if got := strings.Contains(g.stderr.String(), "not taken in by turns"); got != test.without {
				t.Errorf("warned: %v: %s", got, g.stderr)
			}
		})
	}
}

// TestTurnsBehindTLS holds that the gateway says so too where the directive alone cannot see to it.
func TestTurnsBehindTLS(t *testing.T) {
	t.Parallel()
	authority := newTestAuthority(t)
	for global, without := range map[string]bool{"": true, "servers {\nlistener_wrappers {\nrobots\ntls\n}\n}": false} {
		c, port := gatewayConfig{Engine: unpaced, Global: global}.trusting(authority).withTLSPort(t, authority, "")
		g := startGateway(t, c)
		site := startSecureSite(t, authority, nil)
		x := &secureCrawl{t: t, g: g, root: site.at("/"), ca: g.rootFile(), http: "1.1"}
		checkSecureCrawl(t, site, x.byGoOverTLS(port))
		g.stop()
		if got := strings.Contains(g.stderr.String(), "not taken in by turns"); got != without {
			t.Errorf("%q: warned: %v: %s", global, got, g.stderr)
		}
	}
}

// TestTurnsBeforeTLS holds that connections to a port that speaks TLS have turns before their handshake too.
func TestTurnsBeforeTLS(t *testing.T) {
	t.Parallel()
	authority := newTestAuthority(t)
	c := gatewayConfig{Engine: unpaced, Global: "servers {\nlistener_wrappers {\nrobots\ntls\n}\n}"}
	c, port := c.trusting(authority).withTLSPort(t, authority, "")
	g := startGateway(t, c)
	for inner, crawl := range map[string]func(*secureCrawl, *tlsPort) []visited{
		"1.1": (*secureCrawl).byGoOverTLS,
		"2":   (*secureCrawl).byGoOverHTTP2,
	} {
		site := startSecureSite(t, authority, nil)
		x := &secureCrawl{t: t, g: g, root: site.at("/"), ca: g.rootFile(), http: inner}
		checkSecureCrawl(t, site, crawl(x, port))
		checkSecureLog(t, g, site, inner)
	}
}
