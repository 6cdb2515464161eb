//go:build slow

package pace

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestPaceSharesBetweenFrameworks lets Scrapy, with 8 open requests to a host, and curl, with 2,
// crawl one site. While both crawl, each gets at least two fifths of the slots, and the Crawl-delay
// holds. The proxy is the only setting.
func TestPaceSharesBetweenFrameworks(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"scrapy", "curl"} {
		rig.Need(t, tool)
	}
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nCrawl-delay: 1\n"))
	g := rig.New(t, rig.Config{Site: "agent greedy {\nuser_agent Scrapy\n}\nagent modest {\nuser_agent curl\n}"})
	urls := func(name string, n int) (list []string) {
		for i := range n {
			list = append(list, site.URL(fmt.Sprintf("/%s/%d", name, i)))
		}
		return list
	}
	const modest, greedy = 12, 20
	var both sync.WaitGroup
	run := func(name string, args ...string) {
		both.Go(func() {
			cmd := exec.CommandContext(t.Context(), name, args...)
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), "http_proxy=http://"+g.Addr, "no_proxy=", "NO_PROXY=", "HOME="+cmd.Dir)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Run(); err != nil {
				t.Errorf("%s: %v: %s", name, err, out.String())
			}
		})
	}
	run("scrapy", "runspider", testdocs.Path("examples", "clients", "scrapy", "pages.py"), "-a", "urls="+strings.Join(urls("greedy", greedy), " "))
	rig.Eventually(t, "the greedy one to begin", func() bool { return len(site.PageExchanges()) > 0 })
	run("curl", append([]string{"--disable", "--silent", "--show-error", "--fail", "--parallel", "--parallel-max", "2", "--remote-name-all"}, urls("modest", modest)...)...)
	both.Wait()
	if least := rig.Shortest(rig.Arrivals(site), 1); least < time.Second {
		t.Errorf("two requests came %v apart, want at least 1s", least)
	}

	got, of := sharesWhileBothAsk(site)
	t.Logf("%v of %d slots while both asked", got, of)
	if of < modest || 5*got["scrapy"] < 2*of || 5*got["curl"] < 2*of {
		t.Errorf("the shares of %d slots are %v, want two fifths for each", of, got)
	}
	if n := len(site.PageExchanges()); n < modest+greedy {
		t.Errorf("the site got %d pages, want %d", n, modest+greedy)
	}
}

// sharesWhileBothAsk counts requests by agent while both agents send requests.
func sharesWhileBothAsk(site *testorigin.Site) (got map[string]int, of int) {
	all := site.PageExchanges()
	of = len(all)
	name := func(i int) string {
		agent, _, _ := strings.Cut(all[i].Header.Get("User-Agent"), "/")
		return strings.ToLower(agent)
	}
	first, last := make(map[string]int), make(map[string]int)
	for i := range all {
		if _, seen := first[name(i)]; !seen {
			first[name(i)] = i
		}
		last[name(i)] = i
	}
	begin, end := 0, of-1
	for agent := range first {
		begin, end = max(begin, first[agent]), min(end, last[agent])
	}
	got = make(map[string]int)
	for i := begin; i <= end; i++ {
		got[name(i)]++
	}
	return got, end - begin + 1
}
