//go:build slow

package robots

import (
	"net/http"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

const someDisallowed = "User-agent: *\nDisallow: /private/\n"

// TestPlaceholders uses the decision in Caddy's own directives, for allowed and refused requests.
func TestPlaceholders(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK(someDisallowed))
	g := rig.New(t, rig.Config{
		Around: `header >X-Why "{http.robots.decision} {http.robots.reason} {http.robots.agent} {http.robots.line}"
	log_append state {http.robots.state}
	log_append rule {http.robots.rule}`,
	})
	for path, want := range map[string]struct{ why, decision string }{
		"/page":      {"allow no_rule Tester 0", "allow; reason=no_rule"},
		"/private/x": {"deny disallowed Tester 2", "deny; reason=disallowed; line=2"},
	} {
		a := g.MustFetch("Tester/1.0", site.URL(path))
		if why := a.Header.Get("X-Why"); why != want.why {
			t.Errorf("%s: the placeholders are %q, want %q", path, why, want.why)
		}
		if d := a.Header.Values("Crawlgate-Decision"); len(d) != 1 || rig.WithoutUntil(t, d[0]) != want.decision {
			t.Errorf("%s: Crawlgate-Decision is %q, want %q", path, d, want.decision)
		}
	}
	for _, line := range g.Logs(2) {
		path := strings.TrimPrefix(line.Request.URI, site.URL(""))
		want := map[string]string{"/page": `,"rule":"","state":"rules"}`, "/private/x": `,"rule":"/private/","state":"rules"}`}[path]
		if !strings.HasSuffix(line.Raw, want) {
			t.Errorf("%s: log_append has not added %s: %s", path, want, line.Raw)
		}
	}
}

// TestErrorRoutes answers the gateway's refusals with the routes of handle_errors. Programs can
// still tell that the gateway refused.
func TestErrorRoutes(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK(someDisallowed))
	g := rig.New(t, rig.Config{
		Around: "handle_errors {\nheader X-House yes\nrespond \"house rules: {http.robots.message}, {err.status_code}\"\n}",
	})
	a := g.MustFetch("Tester/1.0", site.URL("/private/x"))
	want := "house rules: Forbidden by robots.txt: Tester may not fetch " + site.URL("/private/x") + " (line 2), 403"
	if a.Status != http.StatusForbidden || a.Body != want {
		t.Errorf("status %d, body %q, want %q", a.Status, a.Body, want)
	}
	if d := a.Header.Get("Crawlgate-Decision"); rig.WithoutUntil(t, d) != "deny; reason=disallowed; line=2" || a.Header.Get("X-House") != "yes" || a.Header.Get("Proxy-Status") == "" {
		t.Errorf("the refusal has the header %v", a.Header)
	}
	g.Logs(1) // a line may come after the next request's
	if a := g.MustFetch("Tester/1.0", site.URL("/page")); a.Header.Get("X-House") != "" || a.Header.Get("Crawlgate-Decision") != "allow; reason=no_rule" {
		t.Errorf("an allowed answer has the header %v", a.Header)
	}
	if lines := g.Logs(2); lines[0].Status != http.StatusForbidden || lines[0].Robots.Reason != "disallowed" {
		t.Errorf("the log line is %s", lines[0].Raw)
	}
}
