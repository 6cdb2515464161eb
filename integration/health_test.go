package integration

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestHealthBeforeTheStop sends SIGTERM with a shutdown_delay: a load balancer learns from /health that the gateway is about
// to stop, while requests are served as before. A reload, over which the listener stays, is no stop.
func TestHealthBeforeTheStop(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK(rules))
	config := gatewayConfig{Engine: unpaced, Global: "shutdown_delay 4s"}
	g := startGateway(t, config)
	health := func() answer { return get(t, http.DefaultClient, "http://"+g.addr+"/health") }
	if err := g.reload(config); err != nil {
		t.Fatal(err)
	}
	if a := health(); a.status != http.StatusOK || !strings.HasPrefix(a.body, "ok\n") {
		t.Errorf("before the stop: %d %q", a.status, a.body)
	}
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var a answer
	eventually(t, "/health to turn", func() bool { a = health(); return a.status != http.StatusOK })
	if a.status != http.StatusServiceUnavailable || a.body != "the gateway is about to stop\n" {
		t.Errorf("during shutdown_delay: %d %q", a.status, a.body)
	}
	if a := g.mustFetch("Tester/1.0", site.URL(openPage)); a.status != http.StatusOK {
		t.Errorf("a page during shutdown_delay: %d %s", a.status, a.body)
	}
	if a := g.mustFetch("Tester/1.0", site.URL(privatePage)); a.status != http.StatusForbidden {
		t.Errorf("a private page during shutdown_delay: %d %s", a.status, a.body)
	}
	g.stop()
}
