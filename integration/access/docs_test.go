//go:build slow

package access

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestDocs reads the documentation without credentials, on each way to the gateway itself. The same
// path on another host, or on another spelling of this one, is decided like any other request.
func TestDocs(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nDisallow: /docs/\n"))
	g := rig.New(t, rig.Config{Engine: rig.Unpaced, Egress: rig.Everywhere})
	proxied, inside := g.Client("Tester/1.0"), g.SecureClient("Tester/1.0", 2)
	direct := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, way := range []struct {
		client *http.Client
		base   string
	}{
		{direct, "http://" + g.Addr},
		{proxied, "http://" + g.Addr},
		{proxied, "http://" + enforce.OwnHost},
		{inside, "https://" + enforce.OwnHost},
	} {
		for path, begin := range map[string]string{"/docs/": "# ", "/docs/problems/disallowed": "# ", "/docs/cli.md": "# ", "/docs/?q=redis": "30 of"} {
			a := rig.Get(t, way.client, way.base+path)
			if a.Status != http.StatusOK || !strings.HasPrefix(a.Body, begin) {
				t.Errorf("%s%s: status %d, body %.100q", way.base, path, a.Status, a.Body)
			}
		}
		if a := rig.Get(t, way.client, way.base+"/docs/../ca.crt/nothing"); a.Status == http.StatusOK {
			t.Errorf("%s: status 200 for a path outside the documentation: %.100s", way.base, a.Body)
		}
	}
	page := g.Browse("/docs/cli")
	if page.Status != http.StatusOK || page.Header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(page.Body, `<form action="/docs/"`) {
		t.Errorf("in a browser: status %d, header %v, want a page of HTML", page.Status, page.Header)
	}
	head, err := g.Dial().Ask(http.MethodHead, "HEAD /docs/ HTTP/1.1\r\nHost: "+g.Addr+"\r\n\r\n")
	if err != nil || head.Status != http.StatusOK || head.Body != "" || head.Header.Get("ETag") == "" {
		t.Errorf("HEAD: error %v, status %d, header %v", err, head.Status, head.Header)
	}
	_, port, _ := strings.Cut(g.Addr, ":")
	for target, want := range map[string]string{
		site.URL("/docs/"):                    "deny; reason=disallowed",
		"http://localhost:" + port + "/docs/": "deny; reason=own_listener",
		"http://127.0.0.2:" + port + "/docs/": "deny; reason=own_listener",
		"http://" + g.Addr + "/health":        "deny; reason=own_listener",
	} {
		if a := g.MustFetch("Tester/1.0", target); !strings.HasPrefix(a.Header.Get("Crawlgate-Decision"), want) {
			t.Errorf("%s: status %d, header %v, want the decision %q", target, a.Status, a.Header, want)
		}
	}
	g.Stop()
	for _, l := range g.ReadLogs() {
		if strings.HasPrefix(l.Request.URI, "http://"+g.Addr+"/docs") {
			t.Errorf("a log line about the documentation has an absolute URL: %s", l.Raw)
		}
	}
	log, err := os.ReadFile(g.AccessLog())
	if own := strings.Count(string(log), `"uri":"/docs/`); err != nil || own != 12 {
		t.Errorf("%d lines about the documentation at the gateway's address, want 12: %v", own, err)
	}
}
