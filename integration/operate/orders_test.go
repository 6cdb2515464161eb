//go:build slow

package operate

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestDenyAgentOfAnotherName checks that an order on an unknown agent is an error that names
// similar ones. Such an order would stop nothing, and an operator in a hurry would not notice.
func TestDenyAgentOfAnotherName(t *testing.T) {
	t.Parallel()
	g := rig.New(t, rig.Config{Site: "agent AcmeBot\nagent AcmeNews\nagent Zeta"})
	out, err := g.Robots("deny", "agent", "AcmeBto")
	if err == nil || !strings.Contains(out, `no agent "AcmeBto" is configured`) || !strings.Contains(out, "AcmeBot") || strings.Contains(out, "Zeta") {
		t.Errorf("a misspelled name: error %v, output %s", err, out)
	}
	if out, err := g.Robots("deny", "agent", "Quux"); err == nil || !strings.Contains(out, "AcmeBot, AcmeNews, Zeta") {
		t.Errorf("an unknown name: error %v, output %s", err, out)
	}
	if out, err := g.Robots("deny"); err != nil || !strings.Contains(out, "nothing is stopped") {
		t.Errorf("after a refused order: error %v, output %s", err, out)
	}
	for _, order := range [][]string{{"agent", "acmebot"}, {"agent", "Quux", "--force"}} {
		if out, err := g.Robots("deny", order...); err != nil {
			t.Errorf("deny %q: error %v, output %s", order, err, out)
		}
	}
	if a := g.MustFetch("AcmeBot/1.0", "http://127.0.0.1:1024/"); a.Header.Get("Crawlgate-Decision") != "deny; reason=kill_switch" {
		t.Errorf("status %d, header %v, want a stop", a.Status, a.Header)
	}

	// Without agents, every product token is a name, so there is no such error.
	g = rig.New(t, rig.Config{})
	if out, err := g.Robots("deny", "agent", "Quux"); err != nil {
		t.Errorf("without agents: error %v, output %s", err, out)
	}
	g = rig.New(t, rig.Config{Site: "agent AcmeBot\nunidentified allow"})
	if out, err := g.Robots("deny", "agent", "Quux"); err != nil {
		t.Errorf("with unidentified allow: error %v, output %s", err, out)
	}
}

// TestUndenyOnAFullDisk checks that an order stays in force if its end cannot be saved, so that a
// restart changes nothing. The same command works when there is space. A folder in the place of the
// file simulates a full disk.
func TestUndenyOnAFullDisk(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	g := rig.New(t, rig.Config{})
	page := filepath.Join(filepath.Dir(g.Store()), "stops.json")
	full := func() {
		t.Helper()
		if err := os.RemoveAll(page); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(page, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	stopped := func(want bool) {
		t.Helper()
		if a := g.MustFetch("AcmeBot/1.0", site.URL(rig.OpenPage)); (a.Status == http.StatusForbidden) != want {
			t.Errorf("status %d, %s, want stopped %v", a.Status, a.Body, want)
		}
	}
	full()
	out, err := g.Robots("deny", "host", site.Origin().Host)
	if err == nil || !strings.Contains(out, "the order is in force, but a restart will forget it") || !strings.Contains(out, "give it again") {
		t.Errorf("deny: error %v, output %s", err, out)
	}
	stopped(true)
	out, err = g.Robots("undeny", "host", site.Origin().Host)
	if err == nil || !strings.Contains(out, "the order is still in force") || !strings.Contains(out, "stops.json") || strings.Contains(out, "in force, but not kept") {
		t.Errorf("undeny: error %v, output %s", err, out)
	}
	stopped(true)
	if err := os.RemoveAll(page); err != nil {
		t.Fatal(err)
	}
	if out, err := g.Robots("undeny", "host", site.Origin().Host); err != nil {
		t.Errorf("undeny with space: error %v, output %s", err, out)
	}
	stopped(false)
}

// TestDamagedStateFiles checks that a gateway that cannot read its state files does not start. It
// names the file and its contents, distinguishes an empty file from a damaged one, and tells how to
// continue.
func TestDamagedStateFiles(t *testing.T) {
	t.Parallel()
	const shared = "pace {\nshared redis redis://127.0.0.1:1/0\n}"
	for _, tt := range []struct {
		file, text, engine string
		want               []string
	}{
		{"stops.json", "", "", []string{"the stops of the operator", "is empty (0 bytes)", "crash of the machine", "crawlgate robots deny"}},
		{"stops.json", `{"version":2,"stops":[{"sco`, "", []string{"the stops of the operator", "is damaged", "crawlgate robots deny"}},
		{"kills.json", `{"version":1,"kills":[{"sco`, "", []string{"the stops of the operator", "kills.json is damaged", "crawlgate robots deny"}},
		{"stops.json", `{"version":9,"stops":[]}`, "", []string{"version 9 is not 2"}},
		{"blocks.json", "", "", []string{"the hosts that asked to be left alone", "is empty (0 bytes)", "remove it"}},
		{"blocks.json", "[[", "", []string{"the hosts that asked to be left alone", "is damaged", "remove it"}},
		{"gateways.json", "x", shared, []string{"the number of gateways", "is damaged", "remove it"}},
		{"gateways.json", "", shared, []string{"the number of gateways", "is empty (0 bytes)", "remove it"}},
	} {
		g := &rig.Gateway{T: t, Dir: rig.TempDir(t), Addr: rig.FreePort(t)}
		path := filepath.Join(filepath.Dir(g.Store()), tt.file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = g.Start(rig.Config{Engine: tt.engine}) // Caddy may listen before it exits
		select {
		case <-g.Exited:
		case <-time.After(rig.Patience):
			t.Fatalf("%s %q: the gateway started", tt.file, tt.text)
		}
		log := g.Stderr.String()
		for _, want := range append(tt.want, path) {
			if !strings.Contains(log, want) {
				t.Errorf("%s %q: %s; want %q", tt.file, tt.text, log, want)
			}
		}
	}
}
