//go:build slow

package pace

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestUnblock lifts a site's back-off as an operator does after talking to the site. It stays
// lifted after a restart.
func TestUnblock(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetPages(testorigin.Respond(testorigin.Response{Status: 429, Header: http.Header{"Retry-After": {"3000"}}}))
	host := site.Origin().Host
	config := rig.Config{Engine: "pace {\nwait 1s\n}"}
	g := rig.New(t, config)
	if a := g.MustFetch("AcmeBot/1.0", site.URL(rig.OpenPage)); a.Status != http.StatusTooManyRequests {
		t.Fatalf("status %d, want 429: %s", a.Status, a.Body)
	}
	if a := g.MustFetch("AcmeBot/1.0", site.URL(rig.OpenPage)); a.Header.Get("Crawlgate-Decision") != "deny; reason=backoff" {
		t.Errorf("a blocked host: status %d, header %v", a.Status, a.Header)
	}
	site.SetPages(testorigin.Status(http.StatusOK))
	if out, err := g.Robots("unblock", site.URL("/page")); err != nil || !strings.HasPrefix(out, host+" was blocked until ") {
		t.Errorf("unblock: error %v, output %s", err, out)
	}
	if a := g.MustFetch("AcmeBot/1.0", site.URL(rig.OpenPage)); a.Status != http.StatusOK {
		t.Errorf("after unblock: status %d, %s", a.Status, a.Body)
	}
	if out, err := g.Robots("unblock", host); err == nil || !strings.Contains(out, "is not blocked") {
		t.Errorf("unblock of a host that is not blocked: error %v, output %s", err, out)
	}
	if log := g.Stderr.String(); !strings.Contains(log, "back-off lifted by the operator") {
		t.Errorf("the log has no line about unblock: %s", log)
	}
	g.Stop()
	if err := g.Start(config); err != nil {
		t.Fatal(err)
	}
	if a := g.MustFetch("AcmeBot/1.0", site.URL(rig.OpenPage)); a.Status != http.StatusOK {
		t.Errorf("after a restart: status %d, %s", a.Status, a.Body)
	}
}

// TestUnblockIsWrittenDown checks that an acknowledged unblock survives an immediate kill.
func TestUnblockIsWrittenDown(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetPages(rig.Overloaded(http.StatusServiceUnavailable, "3000"))
	g := rig.New(t, rig.Config{})
	g.MustFetch("AcmeBot/1.0", site.URL(rig.OpenPage))
	rig.Eventually(t, "the block to be on the disk", func() bool {
		file, _ := os.ReadFile(filepath.Join(filepath.Dir(g.Store()), "blocks.json"))
		return strings.Contains(string(file), "until")
	})
	site.SetPages(testorigin.Status(http.StatusOK))
	out, err := g.Robots("unblock", site.Origin().Host)
	g.Kill()
	if err != nil {
		t.Fatalf("unblock: %v: %s", err, out)
	}
	if err := g.Start(rig.Config{}); err != nil {
		t.Fatal(err)
	}
	if a := g.MustFetch("AcmeBot/1.0", site.URL(rig.OpenPage)); a.Status != http.StatusOK {
		t.Errorf("after a kill: status %d, %s", a.Status, a.Body)
	}
}
