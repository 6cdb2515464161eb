//go:build slow

package audit

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestReport checks the report of a gateway's log in each format, and its page in a browser.
func TestReport(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK(rig.Rules))
	g := rig.New(t, rig.Config{Site: "agent newsbot {\nowner \"team <news>\"\n}\nagent other {\nuser_agent other*\n}"})
	for _, path := range []string{"/", "/page", "/private"} {
		g.MustFetch("newsbot/1.0", site.URL(path))
	}
	g.MustFetch("other/2.0", site.URL("/private"))
	g.Logs(4)
	made := func(format string) string {
		t.Helper()
		out, err := rig.RunBinary(t, "robots", "report", "--format", format, g.AccessLog())
		if err != nil {
			t.Fatalf("%s: %v: %s", format, err, out)
		}
		return out
	}
	var sums struct {
		Total struct{ Asked, Allowed, Refused int }
	}
	if err := json.Unmarshal([]byte(made("json")), &sums); err != nil || sums.Total.Asked != 4 || sums.Total.Allowed != 2 || sums.Total.Refused != 2 {
		t.Errorf("json: error %v, sums %+v", err, sums)
	}
	if rows, err := csv.NewReader(strings.NewReader(made("csv"))).ReadAll(); err != nil || rows[1][0] != "statement" || rows[4][2] != "4" {
		t.Errorf("csv: error %v, rows %v", err, rows)
	}
	if text := made("text"); !strings.Contains(text, "4 requests, 2 allowed, 2 refused") || !strings.Contains(text, "team <news>  3      75.0%") {
		t.Error(text)
	}
	page := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(page, []byte(made("html")), 0o600); err != nil {
		t.Fatal(err)
	}
	shown := rig.StartChromium(t, "http://127.0.0.1:1", "2").Visit("file://" + page)
	for _, s := range []string{"<h1>Crawling report</h1>", "team &lt;news&gt;", "Requests over time", `class="refused"`, "</svg>"} {
		if !strings.Contains(shown, s) {
			t.Errorf("the browser does not show %q: %s", s, shown)
		}
	}
}
