package integration

import (
	"net/http"
	"testing"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestDollarInsideARule holds RFC 9309 section 2.2.2 for the octet $: raw and as %24 it is the same in a rule and in a
// target, but for a $ that closes the rule (section 2.2.3).
func TestDollarInsideARule(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nDisallow: /raw$inside\nDisallow: /escaped%24inside\nDisallow: /closing$\n"))
	g := startGateway(t, gatewayConfig{Engine: unpaced})
	for path, want := range map[string]int{
		"/raw$inside": http.StatusForbidden, "/raw%24inside/x": http.StatusForbidden,
		"/escaped$inside": http.StatusForbidden, "/escaped%24inside/x": http.StatusForbidden,
		"/closing": http.StatusForbidden, "/closing$": http.StatusOK, "/closing%24": http.StatusOK, "/raw": http.StatusOK,
	} {
		if a := g.mustFetch("Tester/1.0", site.URL(path)); a.status != want {
			t.Errorf("%s: status %d, want %d: %s", path, a.status, want, a.body)
		}
	}
}
