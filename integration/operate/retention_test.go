//go:build slow

package operate

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestRetention starts a gateway with each Caddyfile that promises a year of log, and with an older
// one. The number of files must not cut the year short, or else the start and the metrics say so
// (docs/operate.md).
func TestRetention(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	files := map[string]string{
		"older":  "roll_size 100MiB\nroll_keep 100\nroll_keep_for 8760h\n",
		"by day": "roll_at 00:00\nroll_keep 100\nroll_keep_for 8760h\n",
	}
	for _, name := range []string{"packaging", "examples/company"} {
		text, err := os.ReadFile(testdocs.Path(name, "Caddyfile"))
		if err != nil {
			t.Fatal(err)
		}
		_, block, _ := strings.Cut(string(text), "access.log} {\n")
		files[name], _, _ = strings.Cut(block, "}")
		if !strings.Contains(files[name], "roll_keep_for 8760h") {
			t.Fatalf("%s does not promise a year: %q", name, files[name])
		}
	}
	for name, block := range files {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := filepath.Join(rig.TempDir(t), "access.log")
			g := rig.New(t, rig.Config{Global: fmt.Sprintf(
				"log sealed {\noutput robots_evidence {\nfile %s {\n%s\n}\n}\ninclude http.log.access\n}", log, block)})
			if a := g.MustFetch("Tester/1.0", site.URL(rig.OpenPage)); a.Status != 200 {
				t.Fatalf("status %d, want 200: %s", a.Status, a.Body)
			}
			rig.Eventually(t, "the log to be looked at", func() bool { return strings.Contains(g.Admin("/metrics").Body, "crawlgate_evidence_kept{") })
			warned := strings.Contains(g.Stderr.String(), `"level":"warn"`) && strings.Contains(g.Stderr.String(), "roll_keep drops files")
			if want := strings.Contains(block, "roll_keep 100\n"); warned != want {
				t.Errorf("warned %t, want %t:\n%s", warned, want, g.Stderr.String())
			}
			if kept, want := g.Metric("crawlgate_evidence_kept"), map[bool]float64{true: 0, false: 1}[name == "by day"]; kept != want {
				t.Errorf("crawlgate_evidence_kept is %v, want %v", kept, want)
			}
		})
	}
}
