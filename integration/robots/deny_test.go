//go:build slow

package robots

import (
	"net/http"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestDenyHoldsForRobotsFetches checks that hosts on the operator's deny list get no request at
// all, not even for robots.txt: no redirect of another site, no refresh by order, and none in the
// background.
func TestDenyHoldsForRobotsFetches(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	site := func() *testorigin.Site {
		s := server.Site(t, testorigin.SiteConfig{})
		s.SetRobots(testorigin.OK(rig.Rules))
		return s
	}
	denied, leading, known, control := site(), site(), site(), site()
	leading.SetRobots(testorigin.Redirect(http.StatusFound, denied.URL("/robots.txt")))
	leading.SetPath("/open", testorigin.OK("page"))
	config := rig.Config{Engine: "cache {\nttl 6s\n}", Site: "deny " + denied.Origin().Host}
	g := rig.New(t, config)

	if a := g.MustFetch("AcmeBot/1.0", denied.URL("/robots.txt")); a.Status != http.StatusForbidden || !strings.Contains(a.Body, "operator_deny") {
		t.Errorf("robots.txt of a denied host: status %d, want 403: %s", a.Status, a.Body)
	}
	if a := g.MustFetch("AcmeBot/1.0", leading.URL(rig.OpenPage)); a.Status != http.StatusForbidden {
		t.Errorf("a site whose robots.txt is at a denied host: status %d, want 403: %s", a.Status, a.Body)
	}
	out, err := g.Robots("refresh", denied.Origin().String())
	if err == nil || !strings.Contains(out, "deny "+denied.Origin().Host) {
		t.Errorf("a refresh of a denied host: error %v, output %s", err, out)
	}

	// Both sites get requests after their fetch, and so a refresh is due.
	for range 2 {
		for _, s := range []*testorigin.Site{known, control} {
			g.MustFetch("AcmeBot/1.0", s.URL(rig.OpenPage))
		}
	}
	config.Site += " " + known.Origin().Host
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the refresh of another site", func() bool { return len(control.RobotsExchanges()) > 1 })
	if n := len(known.RobotsExchanges()); n != 1 {
		t.Errorf("%d fetches of robots.txt from a host that a reload denied, want only the one before", n)
	}
	if all := denied.Exchanges(); len(all) != 0 {
		t.Errorf("requests reached the denied host: %+v", all)
	}
}
