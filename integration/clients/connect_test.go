//go:build slow

package clients

import (
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// TestConnect types the settings of docs/connect.md, and then its check, on a machine that cannot
// reach the sites directly.
func TestConnect(t *testing.T) {
	t.Parallel()
	rig.Need(t, "curl")
	blocks := strings.Split(testdocs.Text(t, "connect.md"), "```sh\n")
	if len(blocks) != 3 {
		t.Fatalf("docs/connect.md has %d blocks to type, want 2", len(blocks)-1)
	}
	settings, _, _ := strings.Cut(blocks[1], "```\n")
	check, _, _ := strings.Cut(blocks[2], "```\n")
	if !strings.HasSuffix(check, "/check.sh | sh -s -- AcmeBot/1.0\n") {
		t.Fatalf("the check of docs/connect.md is %q", check)
	}
	r := startClientRig(t, rig.Config{Site: docAgents(t)}, "any")
	sites := r.sites["any"]
	check = strings.ReplaceAll(check, "AcmeBot/1.0", "examplebot/1.0 '"+sites.slow.URL("/")+" "+sites.secure.URL("/")+"'")
	out := r.run(t, t.TempDir(), strings.ReplaceAll(settings+check, "GATEWAY:3128", r.Addr), r.blind)
	if !strings.Contains(out, "ok     agent over https: examplebot, known by user_agent") || strings.Contains(out, "WRONG") {
		t.Error(out)
	}
}

// TestConnectInstallsTheRoot types the command of docs/connect.md for Debian, on a copy of this
// machine's certificate store. curl trusts the gateway only after the command.
func TestConnectInstallsTheRoot(t *testing.T) {
	t.Parallel()
	rig.Need(t, "curl")
	rig.Need(t, "update-ca-certificates")
	_, row, _ := strings.Cut(testdocs.Line(t, "connect.md", "| Debian"), "`")
	command, _, _ := strings.Cut(row, "`")
	if !strings.HasSuffix(command, "update-ca-certificates") {
		t.Fatalf("the command is %q, want update-ca-certificates at its end", command)
	}
	r := startClientRig(t, rig.Config{Site: docAgents(t)}, "any")
	get := "curl -sS -D - -o page -A examplebot/1.0 -x http://" + r.Addr + " " + r.sites["any"].secure.URL("/")
	out := r.run(t, t.TempDir(), "cp -a /etc/ssl/certs store && mkdir local\n"+
		"mount --bind store /etc/ssl/certs && mount --bind local /usr/local/share/ca-certificates\n"+
		"curl -fso ca.crt --noproxy '*' http://"+r.Addr+"/ca.crt\n"+
		"if "+get+"; then echo trusted without the root; fi\n"+
		command+"\n"+get+"\n", r.blind)
	if !strings.Contains(out, "SSL certificate problem") || strings.Contains(out, "trusted without") || !strings.Contains(out, "rawlgate-decision: allow") &&
		!strings.Contains(out, "rawlgate-Decision: allow") {
		t.Error(out)
	}
}
