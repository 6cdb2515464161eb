//go:build slow

package fleet

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// TestFailoverBehindOneName demotes a Redis, which keeps its connections, and gives its name to
// another one. While there is no primary, the first line of a command says so. Afterwards commands
// work again without a reload.
func TestFailoverBehindOneName(t *testing.T) {
	t.Parallel()
	old, next := redistest.Start(t), redistest.Start(t)
	relay := startRelay(t, strings.TrimPrefix(old.URL(), "redis://"))
	f := &orderFleet{t: t, redis: old, relay: relay}
	for i := range 3 {
		f.gateways = append(f.gateways, rig.New(t, rig.Config{Engine: rig.FleetEngine(fmt.Sprint("gw", i), "redis://"+relay.addr, 3)}))
	}
	f.meet()
	host, port, _ := net.SplitHostPort(strings.TrimPrefix(next.URL(), "redis://"))
	old.Say("REPLICAOF " + host + " " + port)
	rig.Eventually(t, "the demotion is noticed", func() bool { return f.gateways[0].Metric("crawlgate_fleet_up") == 0 })
	out, err := f.gateways[0].Robots("deny", "host", "one.example")
	if first, _, _ := strings.Cut(out, "\n"); err == nil || !strings.HasPrefix(first, "1 of 3 gateways, 0 requests ended: redis does not answer") {
		t.Errorf("error %v, output %s", err, out)
	}
	relay.move(strings.TrimPrefix(next.URL(), "redis://"))
	f.meet()
	f.run(0, 0, "3 of 3 gateways", "deny", "host", "two.example")
	for _, g := range f.gateways {
		if out, err := g.Robots("deny"); err != nil || !strings.Contains(out, "one.example") || !strings.Contains(out, "two.example") {
			t.Errorf("error %v, want both orders in %s", err, out)
		}
	}
}

// TestAStopHoldsFromTheFirstRequest starts a gateway that was down when a stop was ordered, and
// that is far from Redis.
func TestAStopHoldsFromTheFirstRequest(t *testing.T) {
	t.Parallel()
	f := startOrderFleet(t, true)
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	page := site.URL(rig.OpenPage)
	for range 2 {
		f.gateways[2].Kill()
		f.run(0, 1, "2 of 3 gateways", "deny", "host", strings.TrimPrefix(site.Origin().String(), "http://"))
		f.relay.delay = 80 * time.Millisecond // no gateway uses the relay now
		if err := f.gateways[2].Start(f.gateways[2].Config); err != nil {
			t.Fatal(err)
		}
		if status := f.gateways[2].MustFetch("AcmeBot/1.0", page).Status; status != http.StatusForbidden {
			t.Errorf("the first request got status %d, want 403", status)
		}
		f.run(1, 0, "gateways", "undeny", "host", strings.TrimPrefix(site.Origin().String(), "http://"))
	}
	if n := len(site.RobotsExchanges()); n != 0 {
		t.Errorf("%d fetches of robots.txt, want 0", n)
	}
}
