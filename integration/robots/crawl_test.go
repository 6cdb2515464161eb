//go:build slow

package robots

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// crawlSites are real files of robotstxt/testdata (INDEX.tsv has their sources and licences), and
// the number of pages of the site with each. Each file has rules for crawlers without their own
// group.
var crawlSites = []struct {
	file  string
	pages int
}{
	{"ropensci-amazon.txt", 150}, // allow inside disallow, stars, queries, escapes
	{"www.cartier.com.txt", 150}, // queries with escapes, stars at both ends
	{"pixabay.com.txt", 50},      // Crawl-delay: 1
}

// crawlAgent is the product token of both crawlers. No file names it.
const crawlAgent = "Reckless"

// TestCrawl lets two crawlers that obey nothing crawl sites with real robots.txt files, each
// through its own gateway.
func TestCrawl(t *testing.T) {
	t.Parallel()
	t.Run("curl", func(t *testing.T) {
		t.Parallel()
		checkCrawl(t, rig.Need(t, "curl"), crawlByCurl)
	})
	t.Run("Scrapy", func(t *testing.T) {
		t.Parallel()
		checkCrawl(t, rig.Need(t, "scrapy"), crawlByScrapy)
	})
}

// checkCrawl is the oracle. It knows the sites' pages, their robots.txt, and what the origins got.
func checkCrawl(t *testing.T, program string, crawl crawler) {
	t.Helper()
	server := testorigin.Start(t, testorigin.Config{})
	var sites []*testorigin.Site
	bodies := make(map[string][]byte) // by origin
	planned := make(map[string]bool)  // by URL: allowed
	for _, c := range crawlSites {
		body, err := os.ReadFile(testdocs.Path("robotstxt", "testdata", "wild", c.file))
		if err != nil {
			t.Fatal(err)
		}
		pages := pagesFor(body, c.pages)
		site := server.Site(t, testorigin.SiteConfig{Paths: pages})
		site.SetRobots(testorigin.OK(string(body)))
		sites, bodies[site.Origin().String()] = append(sites, site), body
		rules := robotstxt.Parse(body)
		for _, page := range append(pages, "/") {
			m, _ := judged(rules, []string{crawlAgent}, page)
			planned[site.URL(page)] = m.Allowed
		}
	}
	checkPlan(t, planned)

	g := rig.New(t, rig.Config{Engine: "pace {\nrate off\nwait 60s\n}"})
	began := time.Now()
	asked := crawl(t, program, g, sites)
	used := g.Usage()
	t.Logf("%d requests in %.1f s: gateway used %.0f ms of CPU (%.0f µs a request), at most %.1f MiB of memory", len(asked),
		time.Since(began).Seconds(), used.Cpu.Seconds()*1e3, used.Cpu.Seconds()*1e6/float64(len(asked)), float64(used.PeakRSS)/(1<<20))
	g.Stop()

	for url, allowed := range planned {
		want := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[allowed]
		if got, ok := asked[url]; !ok || got != want {
			t.Errorf("%s: the crawler got %d (requested: %t), want %d", url, got, ok, want)
		}
	}
	for url := range asked {
		if _, ok := planned[url]; !ok {
			t.Errorf("the crawler requested %s, which is not among the pages", url)
		}
	}
	for _, site := range sites {
		checkOrigin(t, site, planned)
		checkGaps(t, site, bodies[site.Origin().String()])
	}
	checkReplay(t, g.ReadLogs(), bodies, planned)
}

// checkPlan checks that the crawl has enough pages of both kinds.
func checkPlan(t *testing.T, planned map[string]bool) {
	t.Helper()
	allowed := 0
	for _, ok := range planned {
		if ok {
			allowed++
		}
	}
	if len(planned) < 200 || allowed < 80 || len(planned)-allowed < 80 {
		t.Fatalf("%d pages, %d of them allowed: too few of either kind", len(planned), allowed)
	}
}

// checkOrigin checks that every permitted page reached an origin once, and nothing else did.
func checkOrigin(t *testing.T, site *testorigin.Site, planned map[string]bool) {
	t.Helper()
	if site.Dropped() > 0 {
		t.Fatal("the origin's record is incomplete")
	}
	seen := make(map[string]int)
	for _, e := range site.PageExchanges() {
		seen[site.Origin().String()+e.Target]++
	}
	for url, n := range seen {
		if !planned[url] || n != 1 {
			t.Errorf("%s reached the origin %d times; allowed: %t", url, n, planned[url])
		}
	}
	for url, allowed := range planned {
		if allowed && strings.HasPrefix(url, site.Origin().String()+"/") && seen[url] == 0 {
			t.Errorf("%s is allowed but never reached the origin", url)
		}
	}
	if n := len(site.RobotsExchanges()); n != 1 {
		t.Errorf("%s: %d fetches of robots.txt, want 1", site.Origin(), n)
	}
}

// checkGaps checks the Crawl-delay by the origin's clock.
func checkGaps(t *testing.T, site *testorigin.Site, body []byte) {
	t.Helper()
	delay, ok := robotstxt.Parse(body).Select(robotstxt.Agent{Tokens: []string{crawlAgent}}).CrawlDelay()
	if !ok {
		return
	}
	least := rig.LeastGap(site.PageExchanges())
	t.Logf("%s: the shortest gap is %v, the Crawl-delay %v", site.Origin(), least, delay)
	if least < delay {
		t.Errorf("%s: two requests came %v apart, want at least the Crawl-delay of %v", site.Origin(), least, delay)
	}
}

// checkReplay decides each logged request again by the origin's file. Each request has one line,
// which agrees with the rules.
func checkReplay(t *testing.T, lines []rig.LogLine, bodies map[string][]byte, planned map[string]bool) {
	t.Helper()
	logged := make(map[string]int)
	for _, l := range lines {
		logged[l.Request.URI]++
		r := l.Robots
		body, ok := bodies[r.Origin]
		path, under := strings.CutPrefix(l.Request.URI, r.Origin)
		if !ok || !under {
			t.Errorf("the log line has the origin %q: %s", r.Origin, l.Raw)
			continue
		}
		m, form := judged(robotstxt.Parse(body), r.Tokens, path)
		want := map[bool]string{true: "allow", false: "deny"}[m.Allowed]
		if r.Decision != want || r.Rule != m.Rule || r.Line != m.Line || r.Group != m.Group || r.Form != form {
			t.Errorf("%s: the log has %s by %q (line %d, group %q, form %q), the rules give %s by %q (line %d, group %q, form %q)", path,
				r.Decision, r.Rule, r.Line, r.Group, r.Form, want, m.Rule, m.Line, m.Group, form)
		}
		if r.Agent != crawlAgent || !slices.Equal(r.Tokens, []string{crawlAgent}) || r.SHA256 != sum(body) || !r.PathVisible {
			t.Errorf("%s: evidence in the log: %+v", path, r)
		}
		if l.Status != map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[m.Allowed] {
			t.Errorf("%s: the log has the status %d", path, l.Status)
		}
	}
	for url := range planned {
		if logged[url] != 1 {
			t.Errorf("%s has %d log lines, want 1", url, logged[url])
		}
	}
	if len(logged) != len(planned) {
		t.Errorf("the log has %d URLs, want %d", len(logged), len(planned))
	}
}

// judged returns the rules' decision on a page, with the gateway's default forms.
func judged(rules *robotstxt.Ruleset, tokens []string, page string) (robotstxt.Match, enforce.PathForm) {
	m, form, _ := enforce.MatchPath(rules.Select(robotstxt.Agent{Tokens: tokens}), http.MethodGet, page, enforce.PathsStrict)
	return m, form
}

func sum(body []byte) string { return fmt.Sprintf("%x", sha256.Sum256(body)) }
