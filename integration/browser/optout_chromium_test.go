//go:build browser

package browser

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestOptOutInABrowser opts a site out with Chromium and a file. The other gateway must refuse
// soon.
func TestOptOutInABrowser(t *testing.T) {
	t.Parallel()
	node, dir := rig.Need(t, "node"), rig.NodePrograms(t, ".")
	b := startBots(t)
	control := http.NewServeMux()
	control.HandleFunc("POST /publish", func(_ http.ResponseWriter, r *http.Request) {
		token, _ := io.ReadAll(r.Body) // a token that was cut off proves nothing
		b.site.SetPath(proofPath, testorigin.OK(string(token)))
	})
	control.HandleFunc("GET /statuses", func(w http.ResponseWriter, _ *http.Request) {
		var statuses []int
		for _, g := range b.gateways {
			a, _ := g.Fetch("AcmeBot/1.0", shopPage) // the status of an error is 0
			statuses = append(statuses, a.Status)
		}
		_ = json.NewEncoder(w).Encode(statuses) // the program reports a missing status
	})
	server := httptest.NewServer(control)
	t.Cleanup(server.Close)
	told, err := json.Marshal(map[string]string{
		"chromium": rig.Need(t, "chromium"), "page": b.pages[1], "control": server.URL, "screenshots": os.Getenv("CRAWLGATE_SCREENSHOTS"),
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(node, filepath.Join(dir, "optout.mjs"), string(told))
	cmd.Dir = dir
	var done struct {
		Ticket string
		After  float64 // milliseconds until both gateways had answered
	}
	out := rig.RunBounded(t, cmd)
	if err := json.Unmarshal([]byte(out), &done); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("both gateways refuse %.0f ms after the page said so", done.After)
	if list := b.orders(0); len(list) != 1 || list[0].ID != done.Ticket || !strings.HasPrefix(done.Ticket, "optout-") || done.After > float64(soon().Milliseconds()) {
		t.Errorf("ticket %q after %.0f ms, orders in force %+v, want one with that ticket", done.Ticket, done.After, list)
	}
}
