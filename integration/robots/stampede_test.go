//go:build slow

package robots

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestStampedeFetchesOnce sends 2,000 crawlers with different names to an unknown origin with a
// slow robots.txt. There must be one fetch for all of them.
func TestStampedeFetchesOnce(t *testing.T) {
	t.Parallel()
	const crawlers = 2000
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nDisallow: /private\n").After(time.Second))
	g := rig.New(t, rig.Config{Engine: "pace {\nrate off\nconcurrency 4000\nqueue 4000\nwait 60s\n}"})

	answers := make([]rig.Answer, crawlers)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range crawlers {
		client := g.Client(fmt.Sprintf("Crawler-%c/1.0 (%d)", 'a'+i%26, i))
		path := fmt.Sprintf("/page/%d", i)
		if i%2 == 1 {
			path = fmt.Sprintf("/private/%d", i)
		}
		wg.Go(func() {
			<-start
			var err error
			if answers[i], err = rig.TryGet(t.Context(), client, site.URL(path)); err != nil {
				t.Errorf("crawler %d: %v", i, err)
			}
		})
	}
	close(start)
	wg.Wait()

	for i, a := range answers {
		if want := []int{http.StatusOK, http.StatusForbidden}[i%2]; a.Status != want {
			t.Errorf("crawler %d: status %d, want %d: %s", i, a.Status, want, a.Body)
		}
	}
	if n := len(site.RobotsExchanges()); n != 1 {
		t.Errorf("robots.txt was fetched %d times, want once", n)
	}
	if n := len(site.PageExchanges()); n != crawlers/2 {
		t.Errorf("%d pages were requested, want the %d allowed ones", n, crawlers/2)
	}
	g.Stop()
	sources := make(map[string]int)
	for _, l := range g.ReadLogs() {
		sources[l.Robots.Source]++
	}
	// A request that came too late to wait got the rules from memory or, because the hot tier is
	// slow, from the store.
	if n := sources["fetch"] + sources["wait"] + sources["hot"] + sources["store"]; n != crawlers || sources["fetch"] != 1 {
		t.Errorf("sources in the log: %v, want %d in all and one fetch", sources, crawlers)
	}
}
