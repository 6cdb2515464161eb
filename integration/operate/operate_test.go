package operate

import (
	"crypto/x509"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestBackUpAndRestore follows docs/operate.md: the data of a stopped gateway, packed by tar, gives a fresh machine the same
// rulesets, orders and certificate authority.
func TestBackUpAndRestore(t *testing.T) {
	t.Parallel()
	rig.Need(t, "tar")
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	g := rig.New(t, rig.Config{Engine: rig.Unpaced})
	g.MustFetch("somebot", site.URL("/page"))
	if out, err := g.Robots("deny", "agent", "badbot", "--reason", "complaint 7"); err != nil {
		t.Fatalf("deny: %v: %s", err, out)
	}
	authority := g.Authority()
	g.Stop()
	archive := filepath.Join(rig.TempDir(t), "state.tgz")
	tar(t, "-czf", archive, "-C", g.Dir, "caddy")

	fetched := len(site.RobotsExchanges())
	fresh := &rig.Gateway{T: t, Dir: rig.TempDir(t), Addr: rig.FreePort(t)}
	tar(t, "-xzpf", archive, "-C", fresh.Dir)
	if err := fresh.Start(rig.Config{Engine: rig.Unpaced}); err != nil {
		t.Fatal(err)
	}
	if a := fresh.MustFetch("somebot", site.URL("/page")); a.Status != http.StatusOK || len(site.RobotsExchanges()) != fetched {
		t.Errorf("status %d, robots.txt fetched %d times before and %d after", a.Status, fetched, len(site.RobotsExchanges()))
	}
	if a := fresh.MustFetch("badbot", site.URL("/page")); a.Header.Get("Crawlgate-Decision") != "deny; reason=kill_switch" {
		t.Errorf("an order did not survive: %d %v", a.Status, a.Header)
	}
	if !fresh.Authority().Equal(authority) {
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
	origins := rig.NewTestCA(t)
	site := rig.StartSecureSite(t, origins, nil)
	config := rig.Config{Engine: rig.Unpaced}.Trusting(origins)
	g := rig.New(t, config)
	beside := rig.New(t, config)
	before, after := g.Authority(), beside.Authority()
	beside.Stop()
	both := x509.NewCertPool()
	for _, dir := range []string{g.Dir, beside.Dir} {
		pem, err := os.ReadFile(filepath.Join(dir, authorityFolder, "root.crt"))
		if err != nil || !both.AppendCertsFromPEM(pem) {
			t.Fatal(err)
		}
	}
	trusted := func(want string) {
		t.Helper()
		for name, pool := range map[string]*x509.CertPool{"old": before, "new": after, "both": both} {
			_, err := g.OneTunnel(site, pool)
			if ok := name == "both" || name == want; ok != (err == nil) {
				t.Errorf("clients that trust %s, with the %s authority in use: %v", name, want, err)
			}
		}
	}
	trusted("old")
	g.Stop()
	inUse := filepath.Join(g.Dir, authorityFolder)
	if err := os.Rename(inUse, inUse+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(beside.Dir, authorityFolder), inUse); err != nil {
		t.Fatal(err)
	}
	if err := g.Start(config); err != nil {
		t.Fatal(err)
	}
	trusted("new")
	if !g.Authority().Equal(after) {
		t.Error("/ca.crt is not the new root")
	}
}

// authorityFolder is where the gateway's authority lies below XDG_DATA_HOME.
const authorityFolder = "caddy/pki/authorities/robots"
