package integration

import (
	"net/http"
	"testing"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestAuditAfterPurge: an operator purges the robots.txt that a site has changed. The lines of before are not held against the
// answer that comes next (docs/audit.md, "What is not provable").
func TestAuditAfterPurge(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	open, closed := testorigin.OK("User-agent: *\nDisallow: /x\n"), testorigin.OK("User-agent: *\nDisallow: /a\n")
	absent, failing := testorigin.Status(http.StatusNotFound), testorigin.Status(http.StatusServiceUnavailable)
	g := startGateway(t, gatewayConfig{Engine: paceOff})
	lines := 0
	for _, change := range [][2]testorigin.Behaviour{{open, closed}, {closed, open}, {absent, closed}, {open, absent}, {open, failing}, {absent, failing}, {open, open}} {
		site := server.Site(t, testorigin.SiteConfig{})
		site.SetPages(testorigin.OK("the page"))
		for _, robots := range change {
			site.SetRobots(robots)
			for range 3 {
				g.mustFetch("AcmeBot/1.0", site.URL("/a"))
				lines++
			}
			if out, err := g.robots("purge", site.Origin().String()); err != nil {
				t.Fatal(out, err)
			}
		}
		g.mustFetch("AcmeBot/1.0", site.URL("/a"))
		lines++
	}
	g.logs(lines)
	if r := audit(t, "--gateway", "unix/"+g.adminSocket(), g.accessLog()); r.status != 0 || len(r.findings)+len(r.errors) > 0 || r.totals.Checked != int64(lines) {
		t.Errorf("status %d, %d lines of %d, found %+v, %v", r.status, r.totals.Checked, lines, r.findings, r.errors)
	}
}
