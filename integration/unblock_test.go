package integration

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestUnblock: an operator lifts a site's back-off after talking to the site, and it stays lifted after a
// restart.
func TestUnblock(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetPages(testorigin.Respond(testorigin.Response{Status: 429, Header: http.Header{"Retry-After": {"3000"}}}))
	host := site.Origin().Host
	config := gatewayConfig{Site: "max_wait 1s"}
	g := startGateway(t, config)
	if a := g.mustFetch("AcmeBot/1.0", site.URL(openPage)); a.status != http.StatusTooManyRequests {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := g.mustFetch("AcmeBot/1.0", site.URL(openPage)); a.header.Get("Crawlgate-Decision") != "deny; reason=backoff" {
		t.Errorf("a host that asked for a pause: %d %v", a.status, a.header)
	}
	site.SetPages(testorigin.Status(http.StatusOK))
	if out, err := g.robots("unblock", site.URL("/page")); err != nil || !strings.HasPrefix(out, host+" was blocked until ") {
		t.Errorf("unblock: %v: %s", err, out)
	}
	if a := g.mustFetch("AcmeBot/1.0", site.URL(openPage)); a.status != http.StatusOK {
		t.Errorf("after unblock: %d %s", a.status, a.body)
	}
	if out, err := g.robots("unblock", host); err == nil || !strings.Contains(out, "is not blocked") {
		t.Errorf("unblock of a host that is not blocked: %v: %s", err, out)
	}
	if log := g.stderr.String(); !strings.Contains(log, "back-off lifted by the operator") {
		t.Errorf("the log does not tell: %s", log)
	}
	g.stop()
	if err := g.start(config); err != nil {
		t.Fatal(err)
	}
	if a := g.mustFetch("AcmeBot/1.0", site.URL(openPage)); a.status != http.StatusOK {
		t.Errorf("after a restart: %d %s", a.status, a.body)
	}
}

// TestUnblockIsWrittenDown: the end of a block that was acknowledged outlives a kill at that moment.
func TestUnblockIsWrittenDown(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetPages(overloaded(http.StatusServiceUnavailable, "3000"))
	g := startGateway(t, gatewayConfig{})
	g.mustFetch("AcmeBot/1.0", site.URL(openPage))
	eventually(t, "the block to be on the disk", func() bool {
		file, _ := os.ReadFile(filepath.Join(filepath.Dir(g.store()), "blocks.json"))
		return strings.Contains(string(file), "until")
	})
	site.SetPages(testorigin.Status(http.StatusOK))
	out, err := g.robots("unblock", site.Origin().Host)
	g.kill()
	if err != nil {
		t.Fatalf("unblock: %v: %s", err, out)
	}
	if err := g.start(gatewayConfig{}); err != nil {
		t.Fatal(err)
	}
	if a := g.mustFetch("AcmeBot/1.0", site.URL(openPage)); a.status != http.StatusOK {
		t.Errorf("after a kill: %d %s", a.status, a.body)
	}
}
