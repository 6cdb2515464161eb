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
		"named":            {"servers {\nlistener_wrappers {\nrobots\ntls\n}\n}", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := server.Site(t, testorigin.SiteConfig{})
			g := startGateway(t, gatewayConfig{Global: test.global})
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
