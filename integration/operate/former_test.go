//go:build slow

package operate

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// former returns a copy of the files of release 0.1.0 in a folder of testdata/upgrade-0.1.0.
func former(t *testing.T, folder string) string {
	t.Helper()
	dir := rig.TempDir(t)
	if err := os.CopyFS(dir, os.DirFS(testdocs.Path("testdata", "upgrade-0.1.0", folder))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// upgraded starts a gateway with the state in dir. No name resolves, so the gateway knows only what
// 0.1.0 fetched, at any age.
func upgraded(t *testing.T, dir string, c rig.Config) *rig.Gateway {
	t.Helper()
	c.Wrap = rig.StartDNS(t, "", nil).Command
	c.Engine += "\nfetch {\nunreachable stale\n}\n"
	g := &rig.Gateway{T: t, Dir: dir, Addr: rig.FreePort(t)}
	if err := g.Start(c); err != nil {
		t.Fatal(err)
	}
	return g
}

// goesOn checks that the rules and stops of 0.1.0 are in force, and that a lifted stop is not.
func goesOn(t *testing.T, g *rig.Gateway) {
	t.Helper()
	for _, tt := range []struct{ agent, url, decision, body string }{
		{"somebot", "http://fresh.example/private/page", "deny; reason=disallowed; line=2", "Disallow: /private/"},
		{"somebot", "http://fresh.example/page", "error; reason=dns", "state:       rules"},
		{"somebot", "http://held.example/page", "deny; reason=kill_switch", "host held.example, by dora"},
		{"badbot", "http://fresh.example/page", "deny; reason=kill_switch", "agent badbot, by dora"},
		{"somebot", "http://lifted.example/page", "deny; reason=unreachable", "the name does not resolve"},
	} {
		a := g.MustFetch(tt.agent, tt.url)
		if got := a.Header.Get("Crawlgate-Decision"); !strings.HasPrefix(got, tt.decision) || !strings.Contains(a.Body, tt.body) {
			t.Errorf("%s %s: %q, want %q and %q\n%s", tt.agent, tt.url, got, tt.decision, tt.body, a.Body)
		}
	}
	out, err := g.Robots("deny")
	if err != nil || strings.Count(out, "dora") != 2 {
		t.Errorf("robots deny: error %v, output %s", err, out)
	}
}

// TestUpgradeOfFiles checks that a gateway continues with the store, the stops, the blocks and the
// sealed log of 0.1.0.
func TestUpgradeOfFiles(t *testing.T) {
	t.Parallel()
	log, dir := &rig.SealedLog{T: t, Dir: former(t, "file")}, rig.TempDir(t)
	if err := os.Rename(filepath.Join(log.Dir, "caddy"), filepath.Join(dir, "caddy")); err != nil {
		t.Fatal(err)
	}
	blockAgain(t, filepath.Join(dir, "caddy", "crawlgate", "blocks.json"))
	config, audits := log.Config(""), []string{"--seal", "--store", filepath.Join(dir, "caddy", "crawlgate", "robots.db"), log.Dir}
	config.Engine += "\nstore file " + audits[2] + " {\nretain 36500d\n}"
	// The lines have no times of decisions, so the audit cannot prove them by the history.
	if r := rig.Audit(t, audits...); r.Status != 0 || len(r.Findings)+len(r.Errors) > 0 || r.Totals.Checked != 4 {
		t.Errorf("the audit before the upgrade returned %+v", r)
	}
	for range 2 {
		g := upgraded(t, dir, config)
		goesOn(t, g)
		if a := g.MustFetch("somebot", "http://busy.example/page"); a.Header.Get("Crawlgate-Decision") != "deny; reason=backoff" {
			t.Errorf("the host that answered 429: header %v, %s", a.Header, a.Body)
		}
		g.Stop()
	}
	for name, want := range map[string]string{"stops.json": `"badbot"`, "kills.json": "a later release keeps the stops in stops.json"} {
		text, err := os.ReadFile(filepath.Join(dir, "caddy", "crawlgate", name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: error %v, want %q in %s", name, err, want, text)
		}
	}
	r := rig.Audit(t, audits...)
	if r.Status != 0 || len(r.Findings)+len(r.Errors) > 0 || r.Totals.Checked != 16 || len(r.Verified.Generations) != 2 {
		t.Errorf("the audit after the upgrade returned %+v", r)
	}
	text, err := os.ReadFile(filepath.Join(log.Dir, "access.log"))
	if n := strings.Count(string(text), `"reason":"release 0.1 sealed the lines before, and its state has another form"`); err != nil || n != 1 {
		t.Errorf("error %v, %d lines with the reason of the second generation, want 1", err, n)
	}
}

// blockAgain moves the end of the only block in a file to an hour from now.
func blockAgain(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	end := regexp.MustCompile(`"until":"[^"]+"`)
	if len(end.FindAll(text, -1)) != 1 {
		t.Fatalf("not one block in %s", text)
	}
	text = end.ReplaceAll(text, []byte(`"until":"`+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)+`"`))
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestUpgradeOfRedis checks that a new gateway reads the records and orders that 0.1.0 shared, and
// that one with the files of 0.1.0 does so too. Its plain log has no findings.
func TestUpgradeOfRedis(t *testing.T) {
	t.Parallel()
	dir := former(t, "redis")
	url := redistest.Start(t, "--dir", dir).URL()
	config := rig.Config{Engine: "redis " + url + "\nstore redis " + url + " {\nretain 36500d\n}"}
	g := upgraded(t, rig.TempDir(t), config)
	goesOn(t, g)
	r := rig.Audit(t, "--gateway", "unix/"+g.AdminSocket(), filepath.Join(dir, "access.log"))
	if r.Status != 0 || len(r.Findings)+len(r.Errors) > 0 || r.Totals.Checked != 4 {
		t.Errorf("the audit returned %+v", r)
	}
	g.Stop()
	if err := os.Rename(filepath.Join(dir, "access.log"), filepath.Join(dir, "former.log")); err != nil { // the gateway writes access.log
		t.Fatal(err)
	}
	g = upgraded(t, dir, config)
	goesOn(t, g)
	g.Stop()
}
