//go:build browser

package browser

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// TestReportPrinted prints the page of a report with Chromium. No text is cut off or overlaps
// another, and the print is black on white on a few pages.
func TestReportPrinted(t *testing.T) {
	t.Parallel()
	node, dir := rig.Need(t, "node"), rig.NodePrograms(t, ".")
	told, err := json.Marshal(browserPlan{
		Chromium: rig.Need(t, "chromium"), Report: "file://" + reportPage(t), Screenshots: os.Getenv("CRAWLGATE_SCREENSHOTS"),
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node, filepath.Join(dir, "report.mjs"), string(told))
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("report.mjs: %v: %s", err, out)
	}
	var printed struct {
		Statement     string
		Sections      []string
		Pages, Labels int
	}
	if err := json.Unmarshal(out, &printed); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !strings.HasPrefix(printed.Statement, "In the period from 2026-11-20 00:00:0") || !strings.Contains(printed.Statement, " By these lines, no request that robots.txt forbids was sent.") {
		t.Errorf("the printed report begins with %q", printed.Statement)
	}
	if i := slices.Index(printed.Sections, "Requests over time"); i != 4 || printed.Sections[0] != "Statement" || !slices.Contains(printed.Sections, "Hosts") {
		t.Errorf("the printed report has the sections %q", printed.Sections)
	}
	if printed.Pages < 3 || printed.Pages > 8 || printed.Labels < 7 {
		t.Errorf("%d pages, want 3 to 8; %d labels at the axes of the plot, want at least 7", printed.Pages, printed.Labels)
	}
	t.Logf("%d pages, %d sections", printed.Pages, len(printed.Sections))
}
