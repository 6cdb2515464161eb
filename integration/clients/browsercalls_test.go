//go:build slow

package clients

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// browserCrawl crawls with a browser; another program is appended.
const browserCrawl = `cd FOLDER
curl -so ca.crt http://GATEWAY/ca.crt
mkdir -p ~/.pki/nssdb
certutil -d sql:$HOME/.pki/nssdb -N --empty-password
certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n crawlgate -i ca.crt
export https_proxy=http://GATEWAY
node PROGRAM URL
`

// browsersOwnCalls lets browsers crawl a site whose pages have a form, which makes a browser ask
// its maker about it. With the defaults of Crawlee the log has such calls, and the list in
// examples/browsers refuses each of them. TestClientPages checks that the projects of docs/clients
// make no such call on pages without forms.
func browsersOwnCalls(t *testing.T) {
	t.Parallel()
	needs(t, []string{"node", "npm", "chromium", "certutil", "curl"}, "")
	for _, c := range []struct {
		project, program string
		calls            bool
	}{
		{"crawlee-playwright", "plain-playwright.mjs", true},
		{"playwright", "crawl.mjs", false},
		{"puppeteer", "crawl.mjs", false},
	} {
		t.Run(c.project+" "+c.program, func(t *testing.T) {
			t.Parallel()
			site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{Host: "forms.test"})
			var links strings.Builder
			for i := range 8 {
				fmt.Fprintf(&links, "<a href=\"/page-%d\">%[1]d</a>\n", i)
			}
			page := `<!doctype html><title>Sign in</title><form action="/in"><input name="user"><input type="password" name="word"></form>` + links.String()
			site.SetPages(testorigin.Respond(testorigin.Response{
				Status: http.StatusOK, Header: http.Header{"Content-Type": {"text/html"}}, Body: []byte(page),
			}))
			r := &clientRig{plan: planCrawl(t), named: rig.StartDNS(t, "", map[string][]string{"forms.test": {"127.0.0.1"}})}
			r.Gateway = rig.New(t, rig.Config{
				Engine: "pace {\nrate 2/s\nburst 1\n}", Wrap: r.named.Command,
				Site: "import " + testdocs.Path("examples", "browsers", "browser-calls.caddy"),
			})
			folder := filepath.Join("examples", "clients", c.project)
			dir := project(t, folder, crawleeWithoutSettings)
			out := r.run(t, dir, strings.NewReplacer("FOLDER", folder, "GATEWAY", r.Addr, "PROGRAM", c.program, "URL", site.URL("/")).Replace(browserCrawl), r.named)
			if n := len(site.PageExchanges()); n < 9 {
				t.Errorf("%d pages were requested, want at least 9:\n%s", n, out)
			}
			checkBrowserCalls(t, r.Gateway, c.calls)
		})
	}
}

// checkBrowserCalls looks in the log for hosts that no crawl requested.
func checkBrowserCalls(t *testing.T, g *rig.Gateway, want bool) {
	t.Helper()
	calls := make(map[string]int)
	for _, line := range g.ReadLogs() {
		host := line.Request.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if strings.HasSuffix(host, ".test") || host == "127.0.0.1" {
			continue
		}
		if !want {
			t.Errorf("the browser called %s, although examples/browsers has switches against it: %s", host, line.Raw)
		}
		if line.Request.Method == http.MethodConnect {
			continue // accepted, because the refusal comes inside the tunnel
		}
		if calls[host]++; want && line.Robots.Reason != "operator_deny" {
			t.Errorf("the list in examples/browsers lacks %s: %s", host, line.Raw)
		}
	}
	t.Logf("calls of the browser's own: %v", calls)
	// A machine without a network has fewer calls, but always those about forms.
	if want && calls["content-autofill.googleapis.com"] == 0 {
		t.Errorf("without switches the browser called only %v, so this test shows nothing", slices.Sorted(maps.Keys(calls)))
	}
}
