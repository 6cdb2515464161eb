//go:build slow

package robots

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestRefusalsNameTheCause checks that a refusal for an unreachable robots.txt names the cause, in
// its first line, its header and the log, and that the audit counts it.
func TestRefusalsNameTheCause(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	site := func(scheme string, b testorigin.Behaviour) string {
		s := server.Site(t, testorigin.SiteConfig{Scheme: scheme})
		s.SetRobots(b)
		return s.URL(rig.OpenPage)
	}
	expired := time.Now().Add(-time.Hour).UTC().Format(time.DateOnly)
	cases := []struct{ url, cause, want, told string }{ // told is the text for the client, if it differs from the log
		{site("http", testorigin.Status(503)), "status", "status 503", ""},
		{site("http", testorigin.Status(429)), "status", "status 429", ""},
		{site("https", testorigin.BadCertificate(testorigin.CertificateExpired, rig.Rules)), "tls", "certificate has expired on " + expired, ""},
		{site("https", testorigin.BadCertificate(testorigin.CertificateSelfSigned, rig.Rules)), "tls", "certificate signed by unknown authority", ""},
		{site("https", testorigin.BadCertificate(testorigin.CertificateWrongHost, rig.Rules)), "tls", "certificate is not valid for 127.0.", ""},
		{site("http", testorigin.Refuse()), "connect", "connection refused", ""},
		{site("http", testorigin.CloseAtOnce()), "reset", "connection closed before the header ended", ""},
		{site("http", testorigin.Redirect(302, "http://2130706433/")), "redirects", "Location not usable", ""},
		{site("http", testorigin.Redirect(302, "http://10.0.0.1/")), "forbidden_address", "is not public", "it leads to a forbidden address or port"},
		{"http://crawlgate.onion/", "dns", "no such host", "the name does not resolve"},
	}
	g := rig.New(t, rig.Config{Egress: "trust_ca " + rig.CAFile(t, server)})
	for _, c := range cases {
		a := g.MustFetch("AcmeBot/1.0", c.url)
		first, _, _ := strings.Cut(a.Body, "\n")
		told := cmp.Or(c.told, c.want)
		if a.Status != http.StatusForbidden || !strings.Contains(first, told) || !strings.Contains(a.Header.Get("Proxy-Status"), told) {
			t.Errorf("%s: status %d, first line %q, Proxy-Status %q, want %q", c.want, a.Status, first, a.Header.Get("Proxy-Status"), told)
		}
		if len(first) > 120 || a.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d bytes, Retry-After %q", first, len(first), a.Header.Get("Retry-After"))
		}
	}
	g.Stop()
	logged := map[string]enforce.LogRecord{}
	for _, l := range g.ReadLogs() {
		logged[l.Request.URI] = l.Robots
	}
	for _, c := range cases {
		if r := logged[c.url]; r.Reason != enforce.ReasonUnreachable || r.Cause != c.cause || !strings.Contains(r.Detail, c.want) {
			t.Errorf("%s: the log has the reason %s, cause %q, detail %q", c.want, r.Reason, r.Cause, r.Detail)
		}
	}
	if out, err := robotsAudit(t, g); err != nil {
		t.Errorf("the audit: %v: %s", err, out)
	}
	out, err := rig.RunBinary(t, "robots", "report", "--format", "json", g.AccessLog())
	var report struct {
		Unreachable []struct {
			Cause   string
			Refused int
		}
	}
	if jsonErr := json.Unmarshal([]byte(out), &report); err != nil || jsonErr != nil {
		t.Fatalf("the report: error %v, %v: %s", err, jsonErr, out)
	}
	counted := map[string]int{}
	for _, row := range report.Unreachable {
		counted[row.Cause] += row.Refused
	}
	want := map[string]int{"connect": 1, "dns": 1, "forbidden_address": 1, "redirects": 1, "reset": 1, "status": 2, "tls": 3}
	if !maps.Equal(counted, want) {
		t.Errorf("the report has %v, want %v", counted, want)
	}
}

// robotsAudit audits the log of a stopped gateway.
func robotsAudit(t *testing.T, g *rig.Gateway) (string, error) {
	t.Helper()
	return rig.RunBinary(t, "robots", "audit", "--json", "--store", g.Store(), g.AccessLog())
}

// TestCrawlDelayRefusalNamesTheLimit checks that a refusal for a long Crawl-delay names both
// numbers.
func TestCrawlDelayRefusalNamesTheLimit(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nCrawl-delay: 3600\n"))
	g := rig.New(t, rig.Config{Engine: "pace {\ncrawl_delay 0s 30s refuse\n}"})
	a := g.MustFetch("AcmeBot/1.0", site.URL(rig.OpenPage))
	const want = "Crawl-delay 1h is above the limit of 30s"
	first, _, _ := strings.Cut(a.Body, "\n")
	if a.Status != http.StatusForbidden || !strings.Contains(first, want) || a.Header.Get("Retry-After") != "" {
		t.Errorf("status %d, first line %q, want %q", a.Status, first, want)
	}
	if l := g.Logs(1)[0]; l.Robots.Reason != enforce.ReasonCrawlDelay || l.Robots.Detail != want {
		t.Errorf("the log line is %+v", l.Robots)
	}
}

// TestForbiddenOriginIsNoOutage checks the refusal if the gateway itself must not connect. This is
// not the site's outage, so no record is kept, and a reload that permits the address is enough.
func TestForbiddenOriginIsNoOutage(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK(rig.Rules))
	config := rig.Config{Egress: "ports 80 443"}
	g := rig.New(t, config)
	_, own, _ := strings.Cut(g.Addr, ":")
	cases := []struct {
		origin string
		reason enforce.Reason
	}{
		{"http://10.0.0.1", enforce.ReasonForbiddenAddress},
		{"http://169.254.169.254", enforce.ReasonForbiddenAddress},
		{"http://127.0.0.1:25", enforce.ReasonForbiddenPort},
		{site.Origin().String(), enforce.ReasonForbiddenPort},
		{"http://127.0.0.1:" + own, enforce.ReasonOwnListener},
	}
	for _, c := range cases {
		for _, page := range []string{c.origin + rig.OpenPage, c.origin + "/robots.txt"} {
			a := g.MustFetch("AcmeBot/1.0", page)
			decision := fmt.Sprintf("deny; reason=%s", c.reason)
			if a.Status != http.StatusForbidden || a.Header.Get("Crawlgate-Decision") != decision || a.Header.Get("Retry-After") != "" {
				t.Errorf("%s: status %d, decision %q, Retry-After %q, want %s: %s", page, a.Status, a.Header.Get("Crawlgate-Decision"), a.Header.Get("Retry-After"), decision, a.Body)
			}
		}
	}
	if out, err := g.Robots("origins"); err != nil || out != "" {
		t.Errorf("records of forbidden origins: error %v, output %s", err, out)
	}
	if out, err := g.Robots("refresh", site.Origin().String()); err == nil || !strings.Contains(out, "is not open for egress") {
		t.Errorf("a refresh: error %v, output %s", err, out)
	}
	config.Egress = fmt.Sprintf("ports 80 443 %d", site.Origin().Port)
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	if a := g.MustFetch("AcmeBot/1.0", site.URL(rig.OpenPage)); a.Status != http.StatusOK {
		t.Errorf("after the reload: status %d, want 200: %s", a.Status, a.Body)
	}
	for _, l := range g.Logs(2*len(cases) + 1)[:2*len(cases)] {
		if l.Robots.State != "unknown" || l.Robots.Detail == "" {
			t.Errorf("the log line is %+v", l.Robots)
		}
	}
}

// TestFetchTimeoutIsOneBudget checks that the header of a robots.txt may take as long as the whole
// fetch, independent of the limits for answers to crawlers, and no longer.
func TestFetchTimeoutIsOneBudget(t *testing.T) {
	t.Parallel()
	g := rig.New(t, rig.Config{Engine: rig.Unpaced + "\nfetch {\ntimeout 3s\n}", Egress: rig.Everywhere + "\nresponse_header_timeout 500ms"})
	server := testorigin.Start(t, testorigin.Config{})
	slow, slower := server.Site(t, testorigin.SiteConfig{}), server.Site(t, testorigin.SiteConfig{})
	slow.SetRobots(testorigin.OK(rig.Rules).After(time.Second))
	slower.SetRobots(testorigin.OK(rig.Rules).After(6 * time.Second))
	if a := g.MustFetch("Tester/1.0", slow.URL(rig.OpenPage)); a.Status != http.StatusOK {
		t.Errorf("after a second: status %d, want 200: %s", a.Status, a.Body)
	}
	if a := g.MustFetch("Tester/1.0", slower.URL(rig.OpenPage)); a.Status != http.StatusForbidden || !strings.Contains(a.Body, "(timeout)") {
		t.Errorf("after six seconds: status %d, want 403: %s", a.Status, a.Body)
	}
}

// TestUpstreamAnswersForItself checks that an upstream proxy's own answer does not count as the
// site's (RFC 9110 section 15.5.8). It permits nothing and leaves no record of the site.
func TestUpstreamAnswersForItself(t *testing.T) {
	t.Parallel()
	var own atomic.Bool
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !own.Load():
			_, _ = io.WriteString(w, map[string]string{"/robots.txt": rig.Rules}[r.URL.Path])
		case r.URL.Hostname() == "127.0.0.2":
			w.WriteHeader(http.StatusProxyAuthRequired)
		default:
			w.Header().Set("X-Squid-Error", "ERR_ACCESS_DENIED 0")
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	defer proxy.Close()
	g := rig.New(t, rig.Config{Engine: rig.Unpaced, Egress: "upstream " + proxy.URL})
	own.Store(true)
	for _, site := range []string{"http://127.0.0.2:8080", "http://127.0.0.3:8080"} {
		if a := g.MustFetch("Tester/1.0", site+rig.OpenPage); a.Status != http.StatusForbidden || !strings.Contains(a.Body, "unreachable (upstream)") {
			t.Errorf("%s: status %d, want 403: %s", site, a.Status, a.Body)
		}
		if out, err := g.Robots("show", site); err == nil || !strings.Contains(out, "nothing is known") {
			t.Errorf("show %s: error %v, output %s", site, err, out)
		}
	}
	own.Store(false)
	rig.Eventually(t, "the site to be asked again", func() bool {
		return g.MustFetch("Tester/1.0", "http://127.0.0.2:8080"+rig.OpenPage).Status == http.StatusOK
	})
	if a := g.MustFetch("Tester/1.0", "http://127.0.0.2:8080"+rig.PrivatePage); a.Status != http.StatusForbidden {
		t.Errorf("by the site's own rules: status %d, want 403: %s", a.Status, a.Body)
	}
}
