//go:build slow

package pace

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestPaceCountsWhoComesEarly sends one crawler that keeps Retry-After, one that does not, and one
// without a block of its own. Each is counted separately, and only requests before their time count
// as early.
func TestPaceCountsWhoComesEarly(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nCrawl-delay: 3\n"))
	g := rig.New(t, rig.Config{
		Engine: "pace {\nwait 0s\n}", Site: "agent patient {\nuser_agent patient\n}\nagent hasty {\nuser_agent hasty\nowner search\n}\nunidentified allow",
	})
	if a := g.MustFetch("stranger/1.0", site.URL("/first")); a.Status != http.StatusOK {
		t.Fatalf("status %d: %s", a.Status, a.Body)
	}
	a := g.MustFetch("patient/1.0", site.URL("/again"))
	after, err := strconv.Atoi(a.Header.Get("Retry-After"))
	if a.Status != http.StatusTooManyRequests || err != nil {
		t.Fatalf("status %d: %s", a.Status, a.Body)
	}
	time.Sleep(time.Duration(after) * time.Second) // the Retry-After
	page := g.MustFetch("patient/1.0", site.URL("/again"))
	if page.Status != http.StatusOK || page.Body == "" {
		t.Errorf("status %d: %s", page.Status, page.Body)
	}
	for _, agent := range []string{"hasty/1.0", "hasty/1.0", "hasty/1.0", "stranger/1.0", "stranger/1.0"} {
		if a := g.MustFetch(agent, site.URL("/again")); a.Status != http.StatusTooManyRequests {
			t.Fatalf("status %d: %s", a.Status, a.Body)
		}
	}
	if a := g.MustFetch("hasty/1.0", site.URL("/other")); a.Status != http.StatusTooManyRequests { // another page does not count as early
		t.Fatalf("status %d: %s", a.Status, a.Body)
	}
	metrics := g.Admin("/metrics").Body
	for _, want := range []string{
		`agent_decisions_total{agent="hasty",decision="deny",owner="search",reason="rate_limited"} 4`, `early_requests_total{agent="hasty",owner="search"} 2`,
		`agent_decisions_total{agent="patient",decision="deny",owner="",reason="rate_limited"} 1`, `early_requests_total{agent="patient",owner=""} 0`,
		`agent_decisions_total{agent="patient",decision="allow",owner="",reason="no_rule"} 1`,
		fmt.Sprintf(`agent_received_bytes_total{agent="patient",owner=""} %d`, len(page.Body)), `agent_received_bytes_total{agent="hasty",owner="search"} 0`,
		`agent_decisions_total{agent="other",decision="deny",owner="other",reason="rate_limited"} 2`, `early_requests_total{agent="other",owner="other"} 1`,
	} {
		if !strings.Contains(metrics, "\ncrawlgate_"+want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
}
