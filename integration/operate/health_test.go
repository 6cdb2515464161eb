//go:build slow

package operate

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestHealthBeforeTheStop sends SIGTERM with a shutdown_delay. /health must tell a load balancer
// that the gateway is about to stop, while requests still succeed. A reload, which keeps the
// listener, does not count as a stop.
func TestHealthBeforeTheStop(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK(rig.Rules))
	config := rig.Config{Engine: rig.Unpaced, Global: "shutdown_delay 4s"}
	g := rig.New(t, config)
	health := func() rig.Answer { return rig.Get(t, http.DefaultClient, "http://"+g.Addr+"/health") }
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	if a := health(); a.Status != http.StatusOK || !strings.HasPrefix(a.Body, "ok\n") {
		t.Errorf("before the stop: status %d, body %q", a.Status, a.Body)
	}
	if err := g.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var a rig.Answer
	rig.Eventually(t, "/health to turn", func() bool { a = health(); return a.Status != http.StatusOK })
	if a.Status != http.StatusServiceUnavailable || a.Body != "the gateway is about to stop\n" {
		t.Errorf("during shutdown_delay: status %d, body %q", a.Status, a.Body)
	}
	if a := g.MustFetch("Tester/1.0", site.URL(rig.OpenPage)); a.Status != http.StatusOK {
		t.Errorf("a page during shutdown_delay: status %d, want 200: %s", a.Status, a.Body)
	}
	if a := g.MustFetch("Tester/1.0", site.URL(rig.PrivatePage)); a.Status != http.StatusForbidden {
		t.Errorf("a private page during shutdown_delay: status %d, want 403: %s", a.Status, a.Body)
	}
	g.Stop()
}
