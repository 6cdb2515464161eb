package integration

import (
	"net/http"
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
)

// TestRFC9309_2_3_1_4_DNSCause asks for a host under .onion, which resolvers refuse by themselves (RFC 7686).
func TestRFC9309_2_3_1_4_DNSCause(t *testing.T) {
	t.Parallel()
	g := startGateway(t, gatewayConfig{})
	a := g.mustFetch("Tester/1.0", "http://crawlgate.onion/")
	if a.status != http.StatusForbidden || a.header.Get("Retry-After") == "" {
		t.Errorf("status %d, Retry-After %q: %s", a.status, a.header.Get("Retry-After"), a.body)
	}
	if l := g.logs(1)[0]; l.Robots.Reason != enforce.ReasonUnreachable || l.Robots.Cause != string(fetch.CauseDNS) {
		t.Errorf("logged as %+v", l.Robots)
	}
}
