package integration

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// readyLine is the line of a configuration whose servers listen.
type readyLine struct {
	Logger string   `json:"logger"`
	Msg    string   `json:"msg"`
	Proxy  []string `json:"proxy"`
	Listen []string `json:"listen"`
}

// readyLines reads them from the process's own log.
func (g *gateway) readyLines() (lines []readyLine) {
	for line := range strings.Lines(g.stderr.String()) {
		var l readyLine
		if json.Unmarshal([]byte(line), &l) == nil && l.Logger == "robots" && l.Msg == "ready" {
			lines = append(lines, l)
		}
	}
	return lines
}

// TestReadyLine holds that each configuration tells once where its gateway takes requests, as soon as
// it does, and one that is refused does not.
func TestReadyLine(t *testing.T) {
	origin := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	g := startGateway(t, gatewayConfig{})
	want := readyLine{"robots", "ready", []string{"http://" + g.addr}, []string{g.addr}}
	eventually(t, "the line", func() bool { return len(g.readyLines()) > 0 })
	if got := g.readyLines(); !reflect.DeepEqual(got, []readyLine{want}) {
		t.Fatalf("got %+v, want %+v once", got, want)
	}
	if a := get(t, g.client("AcmeBot"), origin.URL("/")); a.status != http.StatusOK {
		t.Errorf("through that address: %d %s", a.status, a.body)
	}
	// Caddy cannot bind an address of no interface, and so refuses the configuration as it starts.
	if err := g.reload(gatewayConfig{Around: "bind 192.0.2.1"}); err == nil || !strings.Contains(err.Error(), "listening on 192.0.2.1") {
		t.Errorf("a configuration that cannot listen: %v", err)
	}
	if err := g.reload(gatewayConfig{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the line of the reload", func() bool { return len(g.readyLines()) > 1 })
	if got := g.readyLines(); !reflect.DeepEqual(got, []readyLine{want, want}) {
		t.Errorf("got %+v", got)
	}
}
