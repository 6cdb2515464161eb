package signals

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestPage types the first example of docs/signals.md: its configuration, a site's robots.txt, and
// what two crawlers get.
func TestPage(t *testing.T) {
	t.Parallel()
	curl := rig.Need(t, "curl")
	section := testdocs.Sections(t, "signals.md")["One answer"]
	between := func(begin, end string) string {
		t.Helper()
		_, rest, found := strings.Cut(section, begin)
		text, _, ended := strings.Cut(rest, end)
		if !found || !ended {
			t.Fatalf("docs/signals.md has nothing between %q and %q", begin, end)
		}
		return text
	}
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\n" + between("```\nUser-agent: *\n", "```")))
	g := rig.New(t, rig.Config{Site: between("robots {\n", "\n\t}\n")})
	commands := strings.Split(between("```\n$ ", "```"), "\n$ ")
	if len(commands) != 2 {
		t.Fatalf("docs/signals.md has %d commands, want 2", len(commands))
	}
	typed := strings.NewReplacer("curl ", curl+" --noproxy '' ", "localhost:3128", g.Addr, "http://news.example", strings.TrimSuffix(site.URL("/"), "/"))
	for _, command := range commands {
		line, want, _ := strings.Cut(command, "\n")
		out, err := exec.CommandContext(t.Context(), "sh", "-c", typed.Replace(line)).Output()
		got := strings.TrimSpace(strings.ReplaceAll(string(out), strings.TrimSuffix(site.URL("/"), "/"), "http://news.example"))
		if want = strings.TrimSpace(want); err != nil || got != want {
			t.Errorf("%s printed %q, error %v; the page shows %q", line, got, err, want)
		}
	}
}
