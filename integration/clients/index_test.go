package clients

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// TestClientIndex types the settings for every client of the index of docs/clients, and then the
// check that it names, on a machine without a direct way to the sites.
func TestClientIndex(t *testing.T) {
	t.Parallel()
	rig.Need(t, "curl")
	text := testdocs.Text(t, filepath.Join("clients", "README.md"))
	_, rest, _ := strings.Cut(text, "```sh\n")
	settings, rest, _ := strings.Cut(rest, "```\n")
	_, rest, _ = strings.Cut(rest, "Check the whole set-up: `")
	check, _, _ := strings.Cut(rest, "`")
	if settings == "" || !strings.HasSuffix(check, "/check.sh | sh") {
		t.Fatalf("the index has the settings %q and the check %q", settings, check)
	}
	r := startClientRig(t, rig.Config{Site: docAgents(t)}, "any")
	sites := r.sites["any"]
	check += " -s examplebot/1.0 '" + sites.slow.URL("/") + " " + sites.secure.URL("/") + "'"
	out := r.run(t, t.TempDir(), strings.ReplaceAll(settings+check, "GATEWAY:3128", r.Addr), r.blind)
	if !strings.Contains(out, "ok     agent over https: examplebot, known by user_agent") || strings.Contains(out, "WRONG") {
		t.Error(out)
	}
}
