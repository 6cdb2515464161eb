package console_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/budget"
	"github.com/crawlgate/crawlgate/console"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/testgateway"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

const teams = "agent acmebot {\nowner \"search team\"\n}\nagent newsbot {\nowner \"news team\"\nbudget {\nrequests 3/day\n}\n}\nunidentified allow\n"

// newTeams returns a rig with agents of two teams. A site has refused one of them, and another site
// is unreachable.
func newTeams(t *testing.T) (r *rig, site, gone string) {
	t.Helper()
	g := testgateway.New(t, teams+siteOf(auth(""), "orders on"), "")
	transport := &http.Transport{DialContext: g.Dial("console.sock"), MaxIdleConns: 1}
	t.Cleanup(transport.CloseIdleConnections)
	r = &rig{g, t, &http.Client{Transport: transport}}
	server := testorigin.Start(t, testorigin.Config{})
	shop, dead := server.Site(t, testorigin.SiteConfig{}), server.Site(t, testorigin.SiteConfig{})
	shop.SetRobots(testorigin.OK("User-agent: *\nDisallow: /private\n"))
	dead.SetRobots(testorigin.Respond(testorigin.Response{Status: http.StatusInternalServerError}))
	r.Visit(shop.URL("/private/page?id=7"), "acmebot")
	r.Visit(shop.URL("/page"), "newsbot")
	r.Visit(shop.URL("/page"), "stranger")
	r.Visit(dead.URL("/page"), "newsbot")
	return r, shop.Origin().String(), dead.Origin().String()
}

// TestTroubleFirst checks that the page starts with current refusals, unreachable sites, and
// requests without an agent block.
func TestTroubleFirst(t *testing.T) {
	r, _, gone := newTeams(t)
	_, body := r.ask("GET", "/", nil, ada)
	_, main, _ := strings.Cut(body, "<h2>")
	for _, want := range []string{
		"Trouble now</h2>", `href="/origins?state=unreachable">Origins with an unreachable robots.txt</a>`,
		`href="/refusals?reason=disallowed">` + enforce.ReasonDisallowed.Info().Title + "</a>", " % of requests", "1 of them in the last hour",
		`href="/agents?name=other">Requests of no named crawler</a>`, "Unreachable robots.txt</h2>", `>` + gone + "</a>",
		`<datalist id="agents"><option value="acmebot"><option value="newsbot"></datalist>`, `list="agents"`,
	} {
		at := strings.Index(main, want)
		if at < 0 {
			t.Fatalf("the page lacks %q, or has it elsewhere:\n%s", want, body)
		}
		if !strings.HasPrefix(want, "<datalist") {
			continue
		}
		main = body
	}
}

// TestBudgetTrouble checks that an agent whose budget is nearly used up comes first, and is marked
// on its page.
func TestBudgetTrouble(t *testing.T) {
	r, site, _ := newTeams(t)
	for range 3 {
		r.Visit(site+"/page", "newsbot")
	}
	for path, want := range map[string]string{
		"/": `less than a tenth of their budget left</a></td><td class="n" data-of="Count">1</td>`, "/agents": "nearly used up", "/agents?name=newsbot": "0 of 3</td>",
	} {
		if _, body := r.ask("GET", path, nil, ada); !strings.Contains(body, want) {
			t.Errorf("%s: the page lacks %q:\n%s", path, want, body)
		}
	}
}

// TestLeastLeft checks that the budgets with the smallest share left come first.
func TestLeastLeft(t *testing.T) {
	t.Parallel()
	of := func(name string, requests, left, bytes, bytesLeft int64) engine.AgentBudget {
		return engine.AgentBudget{Agent: name, Standing: budget.Standing{
			Allowance: budget.Allowance{Requests: requests, Bytes: bytes}, RequestsLeft: left, BytesLeft: bytesLeft,
		}}
	}
	list := []engine.AgentBudget{of("a", 10, 10, 0, 0), of("b", 10, 9, 0, 0), of("c", 0, 0, 100, 2), of("d", 10, 10, 100, 1), of("e", 0, 0, 0, 0), of("f", 3, 0, 0, 0)}
	slices.SortStableFunc(list, console.LeastLeft)
	got := ""
	for _, b := range list {
		got += b.Agent
	}
	if got != "fdcbae" {
		t.Errorf("order = %s, want fdcbae", got)
	}
}

// TestManyAgents checks that with thousands of agents the pages remain small, and that each agent
// can be found.
func TestManyAgents(t *testing.T) {
	var blocks strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&blocks, "agent crawler-of-the-company-%d {\nowner team-%d\n", i, i%100)
		if i%50 == 0 {
			blocks.WriteString("budget {\nrequests 3/day\n}\n")
		}
		blocks.WriteString("}\n")
	}
	g := testgateway.New(t, blocks.String()+siteOf(auth(""), "orders on"), "")
	transport := &http.Transport{DialContext: g.Dial("console.sock"), MaxIdleConns: 1}
	t.Cleanup(transport.CloseIdleConnections)
	r := &rig{g, t, &http.Client{Transport: transport}}
	for path, want := range map[string]string{
		"/": "", "/stops": "", "/refusals": "", "/find?q=company-2999": ">crawler-of-the-company-2999</a>",
		"/agents": "Next page", "/agents?q=company": "50 of 60, those with the least left.", "/agents?q=TEAM-77": ">crawler-of-the-company-77</a>", "/agents?q=company-2998&from=0": "1 of 1.", "/agents?q=company-29&from=100": "11 of 111.",
	} {
		resp, body := r.ask("GET", path, nil, ada)
		if resp.StatusCode != http.StatusOK || len(body) > maxPage || !strings.Contains(body, want) {
			t.Errorf("%s: got status %d with %d bytes, want %q", path, resp.StatusCode, len(body), want)
		}
	}
}

// TestEveryLinkLeads follows all links of the page, without script. Each must lead to a page, and
// among them must be the explanation of the refusal with its line, the history of its origin, the
// clock of its host and the sites of the agent.
func TestEveryLinkLeads(t *testing.T) {
	r, site, gone := newTeams(t)
	link := regexp.MustCompile(`href="([/?][^"]*)"`)
	steps, queue := map[string]int{"/": 0, "/find?q=127.": 0}, []string{"/", "/find?q=127."}
	pages := map[string]string{}
	for len(queue) > 0 && len(pages) < 300 {
		path := queue[0]
		queue = queue[1:]
		resp, body := r.ask("GET", path, nil, ada)
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: got status %d, want 200", path, resp.StatusCode)
		}
		pages[path] = body
		for _, found := range link.FindAllStringSubmatch(body, -1) {
			next, _, _ := strings.Cut(html.UnescapeString(found[1]), "#")
			if strings.HasPrefix(next, "?") {
				next = path[:strings.IndexByte(path+"?", '?')] + next
			}
			if _, ofOthers := strings.CutPrefix(next, "/origin?"); ofOthers && !strings.Contains(next, url.QueryEscape(site)) && !strings.Contains(next, url.QueryEscape(gone)) {
				continue // a record of an earlier test in this process
			}
			if _, known := steps[next]; !known {
				steps[next] = steps[path] + 1
				queue = append(queue, next)
			}
		}
	}
	host := strings.TrimPrefix(site, "http://")
	host, _, _ = strings.Cut(host, ":")
	for _, tt := range []struct {
		path, want string
		steps      int
	}{
		{"/?agent=acmebot&url=" + url.QueryEscape(site+"/private/page?id=7") + "&was=disallowed", "<mark>Disallow: /private</mark>", 1},
		{"/origin?origin=" + url.QueryEscape(site), "History", 2},
		{"/agents?name=acmebot", "search team", 1},
		{"/agents?name=newsbot", ">" + gone + "</a>", 2},
		{"/refusals?reason=disallowed", enforce.ReasonDisallowed.Info().Hint, 1},
		{"/find?q=" + host, host + "</a></td><td data-of=\"State\">", 1},
		{"/gateways", "This gateway alone", 1},
	} {
		body, reached := pages[tt.path]
		if !reached || steps[tt.path] > tt.steps || !strings.Contains(html.UnescapeString(body), tt.want) {
			t.Errorf("%s: reached: %t by %d links, want %q: %s", tt.path, reached, steps[tt.path], tt.want, body[:min(len(body), 3000)])
		}
	}
}

// TestLists checks that each list can be searched and paged, and shows its size.
func TestLists(t *testing.T) {
	r, site, gone := newTeams(t)
	for i := range 120 {
		engine.RecordRecent(&enforce.LogRecord{Decision: enforce.OutcomeDeny, Reason: enforce.ReasonDisallowed, Agent: "lister", Origin: fmt.Sprintf("https://h%d.example", i)},
			"GET", "acmebot", false, func() string { return fmt.Sprintf("https://h%d.example/", i) })
	}
	for _, tt := range []struct{ path, want, not string }{
		{"/origins", "2 found of 2", "Next page"},
		{"/origins?state=unreachable", gone, site + "<"},
		{"/origins?state=unreachable&from=9223372036854775807", "1 found of 2", "Next page"},
		{"/origins?state=unreachable&age=6h", "0 found of 2", gone + "<"},
		{"/origins?state=rules&q=" + url.QueryEscape(strings.ToUpper(site[7:])), "1 found of 2", gone + "<"},
		{"/refusals", "50 of", "No request"},
		{"/refusals?q=h7.example", "1 of 1,", "h8.example"},
		{"/refusals?agent=newsbot&q=" + url.QueryEscape(gone), "1 of 1,", "acmebot</a>"},
		{"/refusals?agent=lister&from=100", "20 of 120", "Next page"},
		{"/refusals?from=-7&agent=lister", "50 of 120", "No request"},
		{"/hosts?q=nobody", "None.", `class="blocked"`},
		{"/hosts?state=nonsense", "want blocked, waiting or busy", "<td"},
		{"/agents", "<td>news team</td>", "<td>stranger"},
		{"/agents?name=newsbot", `of 3</td>`, "nearly used up"},
		{"/agents?name=acmebot", `Agent`, "Budgets of today"},
		{"/agents?name=nobody", "It was not refused.", "search team"},
		{"/agents?name=acmebot", "Those below go back to", "It was not refused."},
		{"/find?q=SEARCH+team", ">acmebot</a>", ">newsbot</a>"},
		{"/find?q=crawl-delay", "The Crawl-delay is too long", ">acmebot</a></td><td data"},
		{"/find", "Type a part", "<h2>Agents"},
	} {
		_, body := r.ask("GET", tt.path, nil, ada)
		if _, main, _ := strings.Cut(body, "<main>"); !strings.Contains(main, tt.want) || strings.Contains(main, tt.not) {
			t.Errorf("%s: want %q and not %q in\n%s", tt.path, tt.want, tt.not, main[:min(len(main), 3000)])
		}
	}
}

// TestTrendText checks the comparison in words with an hour ago.
func TestTrendText(t *testing.T) {
	t.Parallel()
	for want, trend := range map[string]engine.Trend{
		"not known yet": {Now: 5}, "new": {Now: 5, Known: true}, "as an hour ago": {Now: 10, Before: 11, Known: true}, "2.3 times": {Now: 23, Before: 10, Known: true},
		"0.5 times": {Now: 5, Before: 10, Known: true},
	} {
		if got := console.TrendText(trend); got != want {
			t.Errorf("%+v: %q, want %q", trend, got, want)
		}
	}
	now := time.Now()
	for want, at := range map[string]time.Time{"just now": now, "4 min ago": now.Add(-4*time.Minute - time.Second), "in 4 min": now.Add(4*time.Minute + time.Second), "3 days ago": now.AddDate(0, 0, -3)} {
		if got := console.Ago(at); got != want {
			t.Errorf("%v: %q, want %q", at, got, want)
		}
	}
}

// TestNothingIsKnown checks that the page does not say "none" if it does not know.
func TestNothingIsKnown(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, want string
		full       bool
	}{
		{"trouble", "Unreachable origins are not known yet.", false},
		{"refused", "No request and no tunnel was refused.", false},
		{"refused", "None of the last 2,000 that are kept.", true},
	} {
		if got := console.Rendered(tt.name, engine.Recent{Full: tt.full}); !strings.Contains(got, tt.want) {
			t.Errorf("%s: the page lacks %q: %s", tt.name, tt.want, got)
		}
	}
}
