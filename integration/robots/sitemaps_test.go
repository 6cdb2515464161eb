//go:build slow

package robots

import (
	"net/http"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// sitemapSites returns a site with sitemaps at three origins, and the two other origins: one that
// is closed to all but AlphaBot, and one that must get no request.
func sitemapSites(t *testing.T) (site, closed, never *testorigin.Site) {
	t.Helper()
	server := testorigin.Start(t, testorigin.Config{})
	site, closed, never = server.Site(t, testorigin.SiteConfig{}), server.Site(t, testorigin.SiteConfig{}), server.Site(t, testorigin.SiteConfig{})
	closed.SetRobots(testorigin.OK("User-agent: *\nDisallow: /\nUser-agent: AlphaBot\nDisallow:\n"))
	site.SetRobots(testorigin.OK("User-agent: *\nDisallow: /private\n" +
		"Sitemap: " + site.URL("/a b.xml") + "\nSitemap: " + site.URL("/private.xml") + "\n" +
		"Sitemap: " + closed.URL("/c.xml") + "\nSitemap: " + never.URL("/d.xml") + "\nSitemap: /relative.xml\n"))
	return site, closed, never
}

// TestSitemapsForOperators checks the commands for sitemaps. They change no state.
func TestSitemapsForOperators(t *testing.T) {
	t.Parallel()
	site, closed, never := sitemapSites(t)
	other := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	other.SetRobots(testorigin.OK("Sitemap: http://h.example/\x1b[2J\n"))
	g := rig.New(t, rig.Config{Engine: rig.Unpaced, Site: "agent AlphaBot\nagent BetaBot"})
	for _, s := range []*testorigin.Site{site, closed, other} {
		g.MustFetch("AlphaBot/1.0", s.URL(rig.OpenPage))
	}
	o := site.Origin().String()
	all := []string{site.URL("/a b.xml"), site.URL("/private.xml"), closed.URL("/c.xml"), never.URL("/d.xml")}
	beta := []string{all[0], all[3]}
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{o}, all},
		{[]string{"--agent", "BetaBot", o}, beta},
		{[]string{"--agent", "AlphaBot", o}, []string{all[0], all[2], all[3]}},
		{[]string{other.Origin().String()}, []string{`http://h.example/\x1b[2J`}},
		{[]string{closed.Origin().String()}, nil},
	} {
		out, err := g.Robots("sitemaps", tt.args...)
		if want := strings.Join(append(tt.want, ""), "\n"); err != nil || out != want {
			t.Errorf("%q: error %v, output %s, want %s", tt.args, err, out, want)
		}
	}
	out, err := g.Robots("sitemaps", "--known", "--agent", "BetaBot")
	for _, want := range []string{
		`{"origin":"` + o + `","url":"` + all[0] + `","line":3,"in_scope":true,"access":"allow"}` + "\n",
		`{"origin":"` + o + `","url":"` + all[3] + `","line":6,"in_scope":false,"access":"unknown"}` + "\n",
		`{"origin":"` + other.Origin().String() + `","url":"http://h.example/\\x1b[2J","line":1,"in_scope":false,"access":"deny"}` + "\n",
	} {
		if other := strings.Contains(want, "h.example"); err != nil || strings.Contains(out, want) == other {
			t.Errorf("--known: error %v, output %s, want %s", err, out, want)
		}
	}
	out, err = g.Robots("show", "--agent", "BetaBot", o)
	for _, want := range []string{
		all[0] + " (line 3, allow)", all[1] + " (line 4, deny)",
		all[2] + " (line 5, another origin, deny)", all[3] + " (line 6, another origin, unknown)",
	} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("show: error %v, output %s, want %s", err, out, want)
		}
	}
	if n := len(never.Exchanges()); n > 0 {
		t.Errorf("a site that no command named got %d requests", n)
	}
}

// TestPricesAndSignaturesStay checks which fields of a request leave the gateway, and that the log
// and the metrics have a 402.
func TestPricesAndSignaturesStay(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetPages(testorigin.Respond(testorigin.Response{Status: http.StatusPaymentRequired, Header: http.Header{"Crawler-Price": {"USD 1"}}}))
	g := rig.New(t, rig.Config{Engine: rig.Unpaced, Site: "agent PayBot {\npass price\n}\nagent SignBot {\npass signature\n}\nagent BothBot {\npass price signature\n}\nagent PlainBot"})
	fields := []string{
		"Crawler-Max-Price: USD 2", "Crawler-Exact-Price: USD 1", "Authorization: License abc", "PAYMENT-SIGNATURE: eyJ4", "X-PAYMENT: eyJ4",
		"Signature: sig1=:YQ==:", `Signature-Input: sig1=("@authority")`, `Signature-Agent: sig1="https://bot.example"`,
	}
	want := map[string]int{"PayBot": 3, "SignBot": 5, "BothBot": 0, "PlainBot": 8}
	for agent, removed := range want {
		a := sendTo(g, http.MethodGet, site.URL(rig.OpenPage), agent+"/1.0", fields...)
		if a.Status != http.StatusPaymentRequired || a.Header.Get("Crawler-Price") != "USD 1" {
			t.Errorf("%s: status %d, header %v, want 402", agent, a.Status, a.Header)
		}
		exchanges := site.Exchanges()
		header := exchanges[len(exchanges)-1].Header
		left := 0
		for _, f := range fields {
			name, value, _ := strings.Cut(f, ": ")
			if header.Get(name) == value {
				left++
			}
		}
		if left != len(fields)-removed {
			t.Errorf("%s: %d fields arrived, want %d: %v", agent, left, len(fields)-removed, header)
		}
	}
	for _, l := range g.Logs(len(want)) {
		if l.Robots.Removed != want[l.Robots.Agent] || !l.Robots.PaymentRequired || l.Robots.Decision != "allow" {
			t.Errorf("the log line is %s", l.Raw)
		}
	}
	if n := g.Metric("crawlgate_payment_required_total"); n != float64(len(want)) {
		t.Errorf("the metric is %v, want %d", n, len(want))
	}
}
