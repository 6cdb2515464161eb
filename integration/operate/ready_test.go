//go:build slow

package operate

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// readyLine is the log line of a configuration whose servers listen.
type readyLine struct {
	Logger string   `json:"logger"`
	Msg    string   `json:"msg"`
	Proxy  []string `json:"proxy"`
	Listen []string `json:"listen"`
}

// readyLines returns these lines of the process's own log.
func readyLines(g *rig.Gateway) (lines []readyLine) {
	for line := range strings.Lines(g.Stderr.String()) {
		var l readyLine
		if json.Unmarshal([]byte(line), &l) == nil && l.Logger == "robots" && l.Msg == "ready" {
			lines = append(lines, l)
		}
	}
	return lines
}

// TestReadyLine checks that each configuration logs once where its gateway accepts requests, when
// it does. A rejected configuration logs nothing.
func TestReadyLine(t *testing.T) {
	origin := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	g := rig.New(t, rig.Config{})
	want := readyLine{"robots", "ready", []string{"http://" + g.Addr}, []string{g.Addr}}
	rig.Eventually(t, "the line", func() bool { return len(readyLines(g)) > 0 })
	if got := readyLines(g); !reflect.DeepEqual(got, []readyLine{want}) {
		t.Fatalf("got %+v, want %+v once", got, want)
	}
	if a := rig.Get(t, g.Client("AcmeBot"), origin.URL("/")); a.Status != http.StatusOK {
		t.Errorf("through that address: status %d, %s", a.Status, a.Body)
	}
	// Caddy cannot bind an address of no interface, so it rejects the configuration as it starts.
	if err := g.Reload(rig.Config{Around: "bind 192.0.2.1"}); err == nil || !strings.Contains(err.Error(), "listening on 192.0.2.1") {
		t.Errorf("a configuration that cannot listen: Reload = %v, want an error", err)
	}
	if err := g.Reload(rig.Config{}); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the line of the reload", func() bool { return len(readyLines(g)) > 1 })
	if got := readyLines(g); !reflect.DeepEqual(got, []readyLine{want, want}) {
		t.Errorf("got %+v, want %+v twice", got, want)
	}
}
