//go:build slow

package robots

import (
	"net/http"
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/integration/rig"
)

// TestRFC9309_2_3_1_4_DNSCause requests a host under .onion, which resolvers refuse by themselves
// (RFC 7686).
func TestRFC9309_2_3_1_4_DNSCause(t *testing.T) {
	t.Parallel()
	g := rig.New(t, rig.Config{})
	a := g.MustFetch("Tester/1.0", "http://crawlgate.onion/")
	if a.Status != http.StatusForbidden || a.Header.Get("Retry-After") == "" {
		t.Errorf("status %d, Retry-After %q: %s", a.Status, a.Header.Get("Retry-After"), a.Body)
	}
	if l := g.Logs(1)[0]; l.Robots.Reason != enforce.ReasonUnreachable || l.Robots.Cause != string(fetch.CauseDNS) {
		t.Errorf("the log line is %+v", l.Robots)
	}
}
