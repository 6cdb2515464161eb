package integration

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// direct makes a request for the gateway itself; fields are further lines of its head.
func (g *gateway) direct(method, path, userAgent string, fields ...string) answer {
	g.t.Helper()
	w := g.dial()
	defer w.Close()
	a, err := w.ask(method, method+" "+path+" HTTP/1.1\r\nHost: "+g.addr+"\r\nUser-Agent: "+userAgent+"\r\nContent-Length: 0\r\n"+
		strings.Join(append(fields, "\r\n"), "\r\n"))
	if err != nil {
		g.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// sitemapsOf asks for the sitemaps of an origin.
func (g *gateway) sitemapsOf(origin, userAgent string, fields ...string) answer {
	g.t.Helper()
	return g.direct(http.MethodGet, "/sitemaps?origin="+origin, userAgent, fields...)
}

// sitemapSites are a site with sitemaps at three origins, and the two others: one that is closed to
// all but AlphaBot, and one that no request asks for.
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

// TestSitemapsForCrawlers holds what a crawler is told that asks the gateway for the sitemaps of a
// site, and that no site is asked for one.
func TestSitemapsForCrawlers(t *testing.T) {
	t.Parallel()
	site, closed, never := sitemapSites(t)
	server := testorigin.Start(t, testorigin.Config{})
	none, plain, down := server.Site(t, testorigin.SiteConfig{}), server.Site(t, testorigin.SiteConfig{}), server.Site(t, testorigin.SiteConfig{})
	none.SetRobots(testorigin.Status(http.StatusNotFound))
	plain.SetRobots(testorigin.OK("User-agent: *\nDisallow: /private\n"))
	down.SetRobots(testorigin.Status(http.StatusServiceUnavailable))
	g := startGateway(t, gatewayConfig{Engine: unpaced, Site: whoAgents + "\ndeny denied.example"})
	g.mustFetch("AlphaBot/1.0", closed.URL(openPage))

	o := site.Origin().String()
	list := func(sites ...string) string { return strings.Join(sites, "\n") + "\n" }
	alpha := list(site.URL("/a%20b.xml"), closed.URL("/c.xml"), never.URL("/d.xml"))
	for name, tt := range map[string]struct {
		origin, userAgent string
		status            int
		body              string // its beginning
	}{
		"an agent":                  {o, "AlphaBot/1.0", http.StatusOK, alpha},
		"a path that stands for it": {o + "/robots.txt", "AlphaBot/1.0", http.StatusOK, alpha},
		"a page":                    {site.URL("/page"), "AlphaBot/1.0", http.StatusBadRequest, "origin"},
		"no origin":                 {"", "AlphaBot/1.0", http.StatusBadRequest, "origin is missing"},
		"two origins":               {o + "&origin=" + o, "AlphaBot/1.0", http.StatusBadRequest, "want one parameter"},
		"another parameter":         {o + "&agent=x", "AlphaBot/1.0", http.StatusBadRequest, "want one parameter"},
		"nobody":                    {o, "Python-urllib/3.11", http.StatusForbidden, ""},
		"from elsewhere":            {o, "FarBot/1.0", http.StatusForbidden, ""},
		"no robots.txt":             {none.Origin().String(), "AlphaBot/1.0", http.StatusNotFound, "The site has no robots.txt"},
		"no sitemap":                {plain.Origin().String(), "AlphaBot/1.0", http.StatusNotFound, "The site's robots.txt names no sitemap"},
		"unreachable":               {down.Origin().String(), "AlphaBot/1.0", http.StatusServiceUnavailable, "The site's robots.txt is unreachable: status 503"},
		"denied":                    {"http://denied.example", "AlphaBot/1.0", http.StatusForbidden, ""},
	} {
		a := g.sitemapsOf(tt.origin, tt.userAgent)
		if a.status != tt.status || !strings.HasPrefix(a.body, tt.body) || a.status == http.StatusOK && a.body != tt.body {
			t.Errorf("%s: %d %s, want %d %s", name, a.status, a.body, tt.status, tt.body)
		}
		if retry := a.header.Get("Retry-After"); (retry != "") != (tt.status == http.StatusServiceUnavailable) {
			t.Errorf("%s: Retry-After %q", name, retry)
		}
	}
	if a := g.direct(http.MethodHead, "/sitemaps?origin="+o, "AlphaBot/1.0"); a.status != http.StatusOK || a.header.Get("Content-Length") != fmt.Sprint(len(alpha)) {
		t.Errorf("HEAD: %d %v", a.status, a.header)
	}
	if a := g.direct(http.MethodPost, "/sitemaps?origin="+o, "AlphaBot/1.0"); a.status != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", a.status)
	}
	reporting := startGateway(t, gatewayConfig{Engine: unpaced, Site: "mode report\n" + whoAgents})
	reporting.mustFetch("AlphaBot/1.0", closed.URL(openPage))
	all := list(site.URL("/a%20b.xml"), site.URL("/private.xml"), closed.URL("/c.xml"), never.URL("/d.xml"))
	if a := reporting.sitemapsOf(o, "Python-urllib/3.11"); a.status != http.StatusOK || a.body != all {
		t.Errorf("mode report: %d %s, want %s", a.status, a.body, all)
	}
	if _, err := g.robots("deny", "agent", "AlphaBot"); err != nil {
		t.Error(err)
	}
	if a := g.sitemapsOf(o, "AlphaBot/1.0"); a.status != http.StatusForbidden {
		t.Errorf("of a stopped agent: %d %s", a.status, a.body)
	}
	for _, s := range []*testorigin.Site{site, closed, never} {
		for _, e := range s.Exchanges() {
			if strings.HasSuffix(e.Target, ".xml") || s == never {
				t.Errorf("%s was asked for %s", s.Origin(), e.Target)
			}
		}
	}
}

// TestSitemapsNeedCredentials: an agent that is told by its credentials shows them here as to an
// origin or as to a proxy.
func TestSitemapsNeedCredentials(t *testing.T) {
	t.Parallel()
	site, _, _ := sitemapSites(t)
	hash, err := exec.CommandContext(t.Context(), binary, "hash-password", "--plaintext", "right", "--algorithm", "bcrypt", "--bcrypt-cost", "10").Output()
	if err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, gatewayConfig{Engine: unpaced, Site: "agent CredBot {\ncredential cred " + strings.TrimSpace(string(hash)) + "\n}"})
	for _, field := range []string{"Authorization", "Proxy-Authorization"} {
		for password, want := range map[string]int{"": http.StatusUnauthorized, "wrong": http.StatusUnauthorized, "right": http.StatusOK} {
			var fields []string
			if password != "" {
				fields = append(fields, field+": Basic "+base64.StdEncoding.EncodeToString([]byte("cred:"+password)))
			}
			a := g.sitemapsOf(site.Origin().String(), "CredBot/1.0", fields...)
			if a.status != want || (a.header.Get("WWW-Authenticate") != "") != (want == http.StatusUnauthorized) || a.header.Get("Proxy-Authenticate") != "" {
				t.Errorf("%s, password %q: %d %v", field, password, a.status, a.header)
			}
		}
	}
}

// TestSitemapsForOperators holds the commands, whose output moves no cursor.
func TestSitemapsForOperators(t *testing.T) {
	t.Parallel()
	site, closed, never := sitemapSites(t)
	other := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	other.SetRobots(testorigin.OK("Sitemap: http://h.example/\x1b[2J\n"))
	g := startGateway(t, gatewayConfig{Engine: unpaced, Site: "agent AlphaBot\nagent BetaBot"})
	for _, s := range []*testorigin.Site{site, closed, other} {
		g.mustFetch("AlphaBot/1.0", s.URL(openPage))
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
		out, err := g.robots("sitemaps", tt.args...)
		if want := strings.Join(append(tt.want, ""), "\n"); err != nil || out != want {
			t.Errorf("%q: %v: %s, want %s", tt.args, err, out, want)
		}
	}
	out, err := g.robots("sitemaps", "--known", "--agent", "BetaBot")
	for _, want := range []string{
		`{"origin":"` + o + `","url":"` + all[0] + `","line":3,"in_scope":true,"access":"allow"}` + "\n",
		`{"origin":"` + o + `","url":"` + all[3] + `","line":6,"in_scope":false,"access":"unknown"}` + "\n",
		`{"origin":"` + other.Origin().String() + `","url":"http://h.example/\\x1b[2J","line":1,"in_scope":false,"access":"deny"}` + "\n",
	} {
		if other := strings.Contains(want, "h.example"); err != nil || strings.Contains(out, want) == other {
			t.Errorf("--known: %v: %s, want %s", err, out, want)
		}
	}
	out, err = g.robots("show", "--agent", "BetaBot", o)
	for _, want := range []string{
		all[0] + " (line 3, allow)", all[1] + " (line 4, deny)",
		all[2] + " (line 5, another origin, deny)", all[3] + " (line 6, another origin, unknown)",
	} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("show: %v: %s, want %s", err, out, want)
		}
	}
	if n := len(never.Exchanges()); n > 0 {
		t.Errorf("a site that nobody asked for was asked %d times", n)
	}
}

// TestPricesAndSignaturesStay holds which fields leave by whose word, and that an answer 402 is in
// the log and the metrics.
func TestPricesAndSignaturesStay(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetPages(testorigin.Respond(testorigin.Response{Status: http.StatusPaymentRequired, Header: http.Header{"Crawler-Price": {"USD 1"}}}))
	g := startGateway(t, gatewayConfig{Engine: unpaced, Site: "agent PayBot {\npass price\n}\nagent SignBot {\npass signature\n}\nagent BothBot {\npass price signature\n}\nagent PlainBot"})
	fields := []string{
		"Crawler-Max-Price: USD 2", "Crawler-Exact-Price: USD 1", "Authorization: License abc", "PAYMENT-SIGNATURE: eyJ4", "X-PAYMENT: eyJ4",
		"Signature: sig1=:YQ==:", `Signature-Input: sig1=("@authority")`, `Signature-Agent: sig1="https://bot.example"`,
	}
	want := map[string]int{"PayBot": 3, "SignBot": 5, "BothBot": 0, "PlainBot": 8}
	for agent, removed := range want {
		a := g.send(http.MethodGet, site.URL(openPage), agent+"/1.0", fields...)
		if a.status != http.StatusPaymentRequired || a.header.Get("Crawler-Price") != "USD 1" {
			t.Errorf("%s: %d %v", agent, a.status, a.header)
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
			t.Errorf("%s: %d fields arrived: %v", agent, left, header)
		}
	}
	for _, l := range g.logs(len(want)) {
		if l.Robots.Removed != want[l.Robots.Agent] || !l.Robots.PaymentRequired || l.Robots.Decision != "allow" {
			t.Errorf("the log: %s", l.raw)
		}
	}
	if n := g.metric("crawlgate_payment_required_total"); n != float64(len(want)) {
		t.Errorf("the metric is %v", n)
	}
}
