//go:build slow

package fleet

import (
	"net/http"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestHAProxyRecipe checks that each host goes to one gateway, in absolute form and by CONNECT,
// that all gateways have hosts, and that only the hosts of a failed gateway move.
func TestHAProxyRecipe(t *testing.T) {
	t.Parallel()
	var gateways []*rig.Gateway
	for range 3 {
		gateways = append(gateways, rig.New(t, rig.Config{Engine: "pace {\nrate off\n}"}))
	}
	balancer := rig.StartHAProxy(t, gateways, "")
	server := testorigin.Start(t, testorigin.Config{})
	sites := make([]*testorigin.Site, 60)
	for i := range sites {
		sites[i] = server.Site(t, testorigin.SiteConfig{})
	}
	rig.Eventually(t, "haproxy has all gateways", func() bool {
		a, err := balancer.Fetch("AcmeBot/1.0", sites[0].URL("/"))
		return err == nil && a.Status == http.StatusOK
	})
	// ask requests pages of each site several times, and returns the gateway of each site. Each
	// round has its own pages, because lines of an earlier round may be written late.
	ask := func(round string) map[string]int {
		t.Helper()
		asked := 0
		for _, site := range sites {
			for _, page := range []string{"/", "/a", "/b"} {
				for form, do := range balancer.Through(http.MethodGet, rig.HostOf(site.URL("")), page+round) {
					if a, err := do(); err != nil || a.Status != http.StatusOK {
						t.Errorf("%s by %s: status %d, error %v", site.URL(page), form, a.Status, err)
					}
					asked++
				}
			}
		}
		at := make(map[string]int)
		rig.Eventually(t, "the lines of all requests", func() bool {
			logged := 0
			for i, g := range gateways {
				for _, line := range g.ReadLogs() {
					if !strings.HasSuffix(line.Request.URI, round) {
						continue
					}
					logged++
					o := line.Robots.Origin
					if other, known := at[o]; known && other != i {
						t.Fatalf("%s went to two gateways", o)
					}
					at[o] = i
				}
			}
			return logged >= asked
		})
		return at
	}
	before := ask("?before")
	count := make([]int, len(gateways))
	for _, i := range before {
		count[i]++
	}
	if len(before) != len(sites) || min(count[0], count[1], count[2]) < len(sites)/10 {
		t.Errorf("the %d sites went to the gateways %v", len(before), count)
	}
	gateways[2].Stop()
	rig.Eventually(t, "haproxy has noticed", func() bool {
		for _, site := range sites {
			if a, err := balancer.Fetch("AcmeBot/1.0", site.URL("/")); err != nil || a.Status != http.StatusOK {
				return false
			}
		}
		return true
	})
	moved := 0
	for o, i := range ask("?after") {
		if before[o] == 2 {
			moved++
		} else if i != before[o] {
			t.Errorf("%s has moved from %d to %d", o, before[o], i)
		}
	}
	t.Logf("%d sites at %v; %d have moved", len(sites), count, moved)
	if moved != count[2] {
		t.Errorf("%d sites have moved, want the %d of the failed gateway", moved, count[2])
	}
}
