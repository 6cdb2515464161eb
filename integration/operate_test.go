package integration

import (
	"crypto/x509"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestBackUpAndRestore follows docs/operate.md: the data of a stopped gateway, packed by tar, gives a fresh machine the same
// rulesets, orders and certificate authority.
func TestBackUpAndRestore(t *testing.T) {
	t.Parallel()
	need(t, "tar")
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	g := startGateway(t, gatewayConfig{Engine: unpaced})
	g.mustFetch("somebot", site.URL("/page"))
	if out, err := g.robots("deny", "agent", "badbot", "--reason", "complaint 7"); err != nil {
		t.Fatalf("deny: %v: %s", err, out)
	}
	authority := g.authority()
	g.stop()
	archive := filepath.Join(tempDir(t), "state.tgz")
	tar(t, "-czf", archive, "-C", g.dir, "caddy")

	fetched := len(site.RobotsExchanges())
	fresh := &gateway{t: t, dir: tempDir(t), addr: freePort(t)}
	tar(t, "-xzpf", archive, "-C", fresh.dir)
	if err := fresh.start(gatewayConfig{Engine: unpaced}); err != nil {
		t.Fatal(err)
	}
	if a := fresh.mustFetch("somebot", site.URL("/page")); a.status != http.StatusOK || len(site.RobotsExchanges()) != fetched {
		t.Errorf("status %d, robots.txt fetched %d times before and %d after", a.status, fetched, len(site.RobotsExchanges()))
	}
	if a := fresh.mustFetch("badbot", site.URL("/page")); a.header.Get("Crawlgate-Decision") != "deny; reason=kill_switch" {
		t.Errorf("an order did not survive: %d %v", a.status, a.header)
	}
	if !fresh.authority().Equal(authority) {
		t.Error("another authority")
	}
}

func tar(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "tar", args...).CombinedOutput(); err != nil {
		t.Fatalf("tar %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestRotateAuthority follows docs/operate.md: a new authority is made beside the gateway, clients trust both, the folders are
// swapped. Clients that trust both notice nothing, and those with the old root alone fail.
func TestRotateAuthority(t *testing.T) {
	t.Parallel()
	origins := newTestAuthority(t)
	site := startSecureSite(t, origins, nil)
	config := gatewayConfig{Engine: unpaced}.trusting(origins)
	g := startGateway(t, config)
	beside := startGateway(t, config)
	before, after := g.authority(), beside.authority()
	beside.stop()
	both := x509.NewCertPool()
	for _, dir := range []string{g.dir, beside.dir} {
		pem, err := os.ReadFile(filepath.Join(dir, authorityFolder, "root.crt"))
		if err != nil || !both.AppendCertsFromPEM(pem) {
			t.Fatal(err)
		}
	}
	trusted := func(want string) {
		t.Helper()
		for name, pool := range map[string]*x509.CertPool{"old": before, "new": after, "both": both} {
			_, err := oneTunnel(g, site, pool)
			if ok := name == "both" || name == want; ok != (err == nil) {
				t.Errorf("clients that trust %s, with the %s authority in use: %v", name, want, err)
			}
		}
	}
	trusted("old")
	g.stop()
	inUse := filepath.Join(g.dir, authorityFolder)
	if err := os.Rename(inUse, inUse+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(beside.dir, authorityFolder), inUse); err != nil {
		t.Fatal(err)
	}
	if err := g.start(config); err != nil {
		t.Fatal(err)
	}
	trusted("new")
	if !g.authority().Equal(after) {
		t.Error("/ca.crt is not the new root")
	}
}

// authorityFolder is where the gateway's authority lies below XDG_DATA_HOME.
const authorityFolder = "caddy/pki/authorities/robots"
