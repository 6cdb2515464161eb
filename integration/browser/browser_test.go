//go:build browser

package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/boltstore"
)

const (
	shopRules = `# The shop's rules for crawlers.
User-agent: *
Disallow: /cart/
Disallow: /private/
Disallow: /search?
Allow: /

User-agent: OtherBot
Disallow: /
Sitemap: http://shop.example/sitemap.xml
`
	// hostileRule attacks a page that takes it for HTML, and reverses the direction of the text.
	hostileRule = "/\u202e<script>window.pwned=1</script><img src=x onerror=window.pwned=1>"
)

// hostileRules returns 10 MB of attacks on the readers of a site's rules.
func hostileRules() string {
	head := "User-agent: *\nDisallow: " + hostileRule + "\n# </code></li></ol><script>window.pwned=1</script>\nSitemap: http://x.example/\"><script>window.pwned=1</script>\n"
	return head + strings.Repeat("# <script>window.pwned=1</script> \u202e\n", 10<<20/40)
}

// reportPage writes the report of a made-up log of three days to a file.
func reportPage(t *testing.T) string {
	t.Helper()
	kinds := []enforce.LogRecord{ // the first are the most frequent
		{Decision: "allow", Reason: enforce.ReasonNoRule, Origin: "https://shop.example", Agent: "AcmeBot", Owner: "search"},
		{Decision: "allow", Reason: enforce.ReasonAllowedByRule, Origin: "https://news.example", Agent: "AcmeNews", Owner: "news", CrawlDelay: 10, WaitMillis: 700},
		{Decision: "deny", Reason: enforce.ReasonDisallowed, Origin: "https://shop.example", Agent: "PriceWatch", Owner: "search"},
		{Decision: "allow", Reason: enforce.ReasonNoRule, Origin: "https://library.of-a-department.university.example", Agent: "AcmeBot", Owner: "search"},
		{Decision: "error", Reason: "reset", Origin: "https://news.example", Agent: "AcmeNews", Owner: "news"},
		{Decision: "deny", Reason: enforce.ReasonUnreachable, Origin: "https://gone.example", Agent: "PriceWatch", Cause: "timeout"},
	}
	random := rand.New(rand.NewPCG(1, 2))
	var log bytes.Buffer
	for at := 1_795_132_800.0; at < 1_795_132_800+3*86400; at += 11 + 25*random.ExpFloat64()*(1.2+math.Cos(at/86400*2*math.Pi)) { // more at noon
		r := kinds[min(random.IntN(len(kinds)), random.IntN(len(kinds)))]
		r.Schema, r.Mode, r.PathVisible, r.SentAt = 2, "enforce", true, enforce.Seconds(at)
		r.EndedAt = r.SentAt
		if err := json.NewEncoder(&log).Encode(map[string]any{"ts": at, "robots": r}); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "access.log"), log.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	page, err := rig.RunBinary(t, "robots", "report", "--format", "html", dir)
	if err != nil {
		t.Fatalf("%v: %s", err, page)
	}
	if err := os.WriteFile(filepath.Join(dir, "report.html"), []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "report.html")
}

// browserPlan is what console.mjs is told.
type browserPlan struct {
	Chromium    string            `json:"chromium"`
	Console     string            `json:"console"`
	Proxy       string            `json:"proxy"`
	User        map[string]string `json:"user"`
	Site        string            `json:"site"`
	Allowed     string            `json:"allowed"`
	Refused     string            `json:"refused"`
	Rule        string            `json:"rule"`
	Hostile     string            `json:"hostile"`
	HostilePage string            `json:"hostilePage"`
	Resting     string            `json:"resting"`
	Gone        string            `json:"gone"`
	Report      string            `json:"report"`
	Seconds     int               `json:"seconds"`
	Screenshots string            `json:"screenshots,omitempty"`
}

// browserChecks are the checks that console.mjs must make.
var browserChecks = []string{
	"explain", "order", "lost", "hostile texts", "other sites", "another name", "no password", "no script", "keyboard",
	"stories", "axe and widths", "own pages", "size", "load",
}

// TestConsoleInABrowser checks the operator's page with Chromium. CRAWLGATE_SCREENSHOTS is a folder
// for pictures of it.
func TestConsoleInABrowser(t *testing.T) {
	rig.LoadsMachine(t)
	plan := browserPlan{Chromium: rig.Need(t, "chromium"), Seconds: 60, Screenshots: os.Getenv("CRAWLGATE_SCREENSHOTS")}
	node, dir := rig.Need(t, "node"), rig.NodePrograms(t, ".")
	startConsole(t, &plan)
	plan.Report = "file://" + reportPage(t)
	told, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 7*time.Minute+time.Duration(plan.Seconds)*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, filepath.Join(dir, "console.mjs"), string(told))
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("console.mjs: %v: %s", err, stderr.Bytes())
	}
	var made []string
	for line := range bytes.Lines(stdout.Bytes()) {
		var done struct {
			Name    string
			Error   string
			Figures json.RawMessage
		}
		if err := json.Unmarshal(line, &done); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		t.Run(done.Name, func(t *testing.T) {
			if t.Logf("%s", done.Figures); done.Error != "" {
				t.Error(done.Error)
			}
		})
		made = append(made, done.Name)
	}
	for _, name := range browserChecks {
		if !slices.Contains(made, name) {
			t.Errorf("the check %q was not made", name)
		}
	}
}

// startConsole runs a gateway whose page has a site of its own, and the sites that the page shows.
func startConsole(t *testing.T, plan *browserPlan) {
	t.Helper()
	origins := testorigin.Start(t, testorigin.Config{})
	shop := origins.Site(t, testorigin.SiteConfig{Host: "shop.example"})
	shop.SetRobots(testorigin.OK(shopRules))
	hostile := origins.Site(t, testorigin.SiteConfig{Host: "hostile.example"})
	hostile.SetRobots(testorigin.OK(hostileRules()))
	resting := origins.Site(t, testorigin.SiteConfig{Host: "news.example"})
	resting.SetPages(testorigin.Respond(testorigin.Response{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"3000"}}}))
	dns := rig.StartDNS(t, "", map[string][]string{
		"shop.example": {"127.0.0.1"}, "hostile.example": {"127.0.0.2"}, "news.example": {"127.0.0.3"}, // as they were started
	})

	addr := rig.FreePort(t)
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	redis := redistest.Start(t)
	engineOf := func(n int, store string) string {
		return fmt.Sprintf("%s\ngateway gw%d.acme.example\nstore %s\nfleet redis %s {\nexpect 3\n}", rig.Unpaced, n, store, redis.URL())
	}
	g := rig.New(t, rig.Config{
		Engine: engineOf(1, "file "+manyOrigins(t)), Wrap: dns.Command, Site: teams(),
		Sites: fmt.Sprintf("http://:%s {\nbind 127.0.0.1\nbasic_auth {\nada %s\n}\nrobots_console {\norders on\n}\n}\n",
			port, rig.Hashed(t, "bcrypt")),
	})
	for n := range 2 {
		rig.New(t, rig.Config{Engine: engineOf(n+2, "none"), Site: teams()})
	}
	plan.Console, plan.Proxy = "http://"+addr, "http://"+g.Addr
	plan.User = map[string]string{"username": "ada", "password": rig.RightPassword}
	plan.Site, plan.Allowed, plan.Refused = shop.Origin().String(), shop.URL("/news/today"), shop.URL("/private/accounts")
	plan.Rule = "Disallow: /private/"
	plan.Hostile, plan.HostilePage = hostile.Origin().String(), hostile.URL((&url.URL{Path: hostileRule}).EscapedPath())
	plan.Resting, plan.Gone = resting.URL("/today"), "http://gone.example"
}

// teams returns the 20 agents of three teams.
func teams() string {
	var lines strings.Builder
	for i, name := range []string{"AcmeBot", "AcmeNews", "PriceWatch"} {
		fmt.Fprintf(&lines, "agent %s {\nowner %s\n}\n", name, []string{"search", "news", "prices"}[i])
	}
	for i := range 17 {
		fmt.Fprintf(&lines, "agent Crawler%02d {\nowner %s\n}\n", i, []string{"search", "news", "prices"}[i%3])
	}
	return lines.String()
}

// manyOrigins makes a store with 10,000 origins. A few are unreachable, where a search of only the
// first records would miss them.
func manyOrigins(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "robots.db")
	store, err := boltstore.Open(boltstore.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	var records []fetch.Record
	policy, now := fetch.Policy{}.Complete(), time.Now()
	for i := range 10_000 {
		o, err := origin.FromAuthority("https", fmt.Sprintf("host-%05d.example", i))
		if err != nil {
			t.Fatal(err)
		}
		out, at := fetch.Outcome{Kind: fetch.KindAbsent, Cause: fetch.CauseStatus, Status: http.StatusNotFound}, now.Add(-time.Duration(i)*time.Second)
		if i > 9990 {
			out = fetch.Outcome{Kind: fetch.KindUnreachable, Cause: fetch.CauseTimeout}
		}
		records = append(records, policy.Next(fetch.Record{Origin: o}, out, at))
	}
	for batch := range slices.Chunk(records, robotscache.MaxList) {
		if err := store.Save(t.Context(), batch...); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}
