package adminapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/crawlgate/crawlgate" // the modules of the gateway
	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/linediff"
	"github.com/crawlgate/crawlgate/internal/testgateway"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

func TestMain(m *testing.M) { testgateway.Main(m) }

func originQuery(path, origin string) string {
	return adminapi.Prefix + path + "?" + url.Values{"origin": {origin}}.Encode()
}

// Each route accepts its own parameters and nothing else, and its error names the mistake.
func TestAdminErrors(t *testing.T) {
	g := testgateway.New(t, "", "")
	for _, tt := range []struct {
		name, method, path string
		body               any
		status             int
		want               string // in the message
	}{
		{"unknown path", "GET", "/robots/nothing", nil, 404, "/robots/explain"},
		{"root", "GET", "/robots/", nil, 404, "/robots/origins"},
		{"method", "DELETE", "/robots/origins", nil, 405, "want GET, HEAD"},
		{"method of three", "PUT", "/robots/deny", nil, 405, "want DELETE, GET, HEAD, POST"},
		{"get purges nothing", "GET", "/robots/purge", nil, 405, "want POST"},

		{"unknown parameter", "GET", "/robots/origins?page=2", nil, 400, `unknown parameter "page": want after, host, limit, state`},
		{"unknown parameter", "GET", "/robots/deny?x=1", nil, 400, "want none"},
		{"parameter twice", "GET", "/robots/origins?limit=1&limit=2", nil, 400, "given 2 times"},
		{"query", "GET", "/robots/origins?%zz", nil, 400, "cannot be read"},
		{"limit 0", "GET", "/robots/origins?limit=0", nil, 400, "from 1 to 1000"},
		{"limit text", "GET", "/robots/clocks?limit=x", nil, 400, "from 1 to 1000"},
		{"state of clocks", "GET", "/robots/clocks?state=rules", nil, 400, "want blocked, waiting or busy"},
		{"limit too large", "GET", "/robots/origins?limit=1001", nil, 400, "from 1 to 1000"},
		{"host", "GET", "/robots/origins?host=https://example.com", nil, 400, "host"},
		{"state", "GET", "/robots/origins?state=good", nil, 400, "want rules, absent, unreachable"},

		{"origin missing", "GET", "/robots/origin", nil, 400, "host is empty: want a host such as example.com"},
		{"host unknown", "GET", "/robots/origin?origin=example.com", nil, 404, "nothing is known about example.com: no request was made to it; name a new site by its URL"},
		{"no host", "GET", "/robots/origin?origin=shop+example", nil, 400, `host "shop example" has a byte that no host name has: want a host such as example.com, or a URL`},
		{"page of an origin", "GET", "/robots/origin?origin=https://example.com/a?b", nil, 404, "nothing is known about https://example.com: "},
		{"origin with user", "GET", "/robots/origin?origin=https://u@example.com/", nil, 400, "userinfo"},
		{"origin scheme", "GET", "/robots/origin?origin=gopher://example.com", nil, 400, `scheme "gopher" is not one of`},
		{"origin unknown", "GET", "/robots/origin?origin=https://example.com", nil, 404, "nothing is known"},

		{"hash short", "GET", "/robots/body?sha256=abc", nil, 400, "64 hexadecimal"},
		{"hash long", "GET", "/robots/body?sha256=" + strings.Repeat("a", 66), nil, 400, "64 hexadecimal"},
		{"hash letters", "GET", "/robots/body?sha256=" + strings.Repeat("x", 64), nil, 400, "64 hexadecimal"},
		{"hash unknown", "GET", "/robots/body?sha256=" + strings.Repeat("a", 64), nil, 404, "not found"},
		{"diff of nothing", "GET", "/robots/diff?origin=https://example.com", nil, 404, "no such version"},
		{"diff hash", "GET", "/robots/diff?origin=https://example.com&to=x", nil, 400, "64 hexadecimal"},

		{"explain agent missing", "GET", "/robots/explain?url=https://example.com/", nil, 400, "agent is missing"},
		{"explain agent", "GET", "/robots/explain?agent=a+b&url=https://example.com/", nil, 400, "not a product token"},
		{"explain url missing", "GET", "/robots/explain?agent=a", nil, 400, "url is missing"},
		{"explain url", "GET", "/robots/explain?agent=a&url=/x", nil, 400, "url"},
		{"explain url broken", "GET", "/robots/explain?agent=a&url=http://%25zz%20/", nil, 400, "want a URL such as"},
		{"explain site", "GET", "/robots/explain?agent=a&url=https://example.com/&site=:9", nil, 400, "has no gateway: there is unix/"},

		{"no body", "POST", "/robots/purge", nil, 400, "the body is empty"},
		{"no JSON", "POST", "/robots/purge", "origin=x", 400, "the body has the wrong form"},
		{"array", "POST", "/robots/purge", "[]", 400, "cannot unmarshal array"},
		{"wrong type", "POST", "/robots/refresh", `{"origin":1}`, 400, "cannot unmarshal number"},
		{"unknown field", "POST", "/robots/purge", `{"origin":"https://example.com","all":true}`, 400, `unknown field "all"`},
		{"repeated field", "POST", "/robots/deny", `{"scope":"host","value":"a.example","value":"b.example"}`, 400, `field "value" is given twice`},
		{"repeated field in other case", "POST", "/robots/deny", `{"scope":"host","value":"a.example","Value":"b.example"}`, 400, `field "Value" is given twice`},
		{"trailing text", "POST", "/robots/purge", `{"origin":"https://example.com"}x`, 400, "after the JSON object"},
		{"second object", "POST", "/robots/deny", `{"scope":"all"}{}`, 400, "after the JSON object"},
		{"large body", "POST", "/robots/deny", `{"reason":"` + strings.Repeat("x", 64<<10) + `"}`, 400, "more than 65536 bytes"},
		{"purge a page", "POST", "/robots/purge", `{"origin":"https://example.com/a"}`, 400, "alone"},
		{"purge with a query", "POST", "/robots/purge", `{"origin":"https://example.com/?a"}`, 400, "alone"},
		{"purge of an unknown origin", "POST", "/robots/purge", `{"origin":"example.com"}`, 404, "nothing is known"},
		{"refresh of an unknown origin", "POST", "/robots/refresh", `{"origin":"example.com"}`, 404, "such as https://example.com"},

		{"order scope", "POST", "/robots/deny", `{"scope":"planet"}`, 400, "not one of all, host, agent"},
		{"order without scope", "POST", "/robots/deny", `{}`, 400, "not one of all, host, agent"},
		{"order host", "POST", "/robots/deny", `{"scope":"host","value":"https://example.com"}`, 400, "host"},
		{"order all with value", "POST", "/robots/deny", `{"scope":"all","value":"x"}`, 400, "takes no value"},
		{"order reason", "POST", "/robots/deny", `{"scope":"all","reason":"a\nb"}`, 400, "lines of up to"},
		{"order dated", "POST", "/robots/deny", `{"scope":"all","at":"2020-01-01T00:00:00Z"}`, 400, `unknown field "at"`},
		{"order agent", "POST", "/robots/deny", `{"scope":"agent","value":"a b"}`, 400, "not a product token"},
		{"unblock nothing", "POST", "/robots/unblock", `{"key":"example.com"}`, 404, "is not blocked"},
		{"unblock without a key", "POST", "/robots/unblock", `{}`, 404, "is not blocked"},
		{"lift nothing", "DELETE", "/robots/deny?scope=all", nil, 404, "no such order: all; stopped: nothing"},
		{"lift scope", "DELETE", "/robots/deny?value=x", nil, 400, "not one of all, host, agent"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := g.Admin(tt.method, tt.path, tt.body)
			var fault struct {
				Error string `json:"error"`
			}
			if err := json.Unmarshal(a.Body, &fault); err != nil {
				t.Fatalf("the error is not JSON: %v: %s", err, a.Body)
			}
			if a.Status != tt.status || !strings.Contains(fault.Error, tt.want) {
				t.Errorf("got %d %q, want %d with %q", a.Status, fault.Error, tt.status, tt.want)
			}
			if allow := a.Header.Get("Allow"); (allow != "") != (tt.status == http.StatusMethodNotAllowed) {
				t.Errorf("Allow = %q, want it exactly with status 405", allow)
			}
		})
	}
	if list := testgateway.Ask[adminapi.Orders](g, "GET", "/robots/deny", nil); len(list.Orders) != 0 {
		t.Errorf("a refused order is in force: %v", list)
	}
}

// TestResolve checks that a host stands for its only known origin, that several are listed in an
// error, and that a URL stands for its own origin.
func TestResolve(t *testing.T) {
	g := testgateway.New(t, "agent Beta\nagent Alpha", "")
	server := testorigin.Start(t, testorigin.Config{})
	one, other := server.Site(t, testorigin.SiteConfig{}), server.Site(t, testorigin.SiteConfig{})
	host, port, _ := strings.Cut(one.Origin().Authority(), ":")
	show := func(origin string) (status int, text string) {
		a := g.Admin("GET", originQuery("origin", origin), nil)
		return a.Status, string(a.Body)
	}
	for _, s := range []*testorigin.Site{one, other} {
		s.SetRobots(testorigin.OK(testgateway.RulesA))
		testgateway.Ask[adminapi.Refreshed](g, "POST", "/robots/refresh", adminapi.OriginRequest{Origin: s.URL("/page?x#y")})
	}
	for text, want := range map[string]int{host: 200, host + ":" + port: 200, host + ":1": 404, one.Origin().String(): 200, one.URL("/x?y"): 200, strings.ToUpper(one.Origin().String()): 200} {
		if status, body := show(text); status != want || status == 200 && !strings.Contains(body, one.Origin().String()) {
			t.Errorf("origin %s: got status %d, %s", text, status, body)
		}
	}
	alias := strings.Replace(one.Origin().String(), "http://", "https://", 1)
	// A crawler finds a second origin of the host.
	second := fmt.Sprintf("http://%s:%d", host, testorigin.ReservePort(t))
	g.Visit(second+"/", "alpha")
	both := []string{second, one.Origin().String()}
	slices.Sort(both)
	if status, body := show(host); status != http.StatusConflict || !strings.Contains(body, "say which one is meant: "+strings.Join(both, ", ")) {
		t.Errorf("a host with two origins: got status %d, %s, want 409 and both", status, body)
	}

	// A mistyped origin must leave no record.
	r := testgateway.Ask[adminapi.Refreshed](g, "POST", "/robots/refresh", adminapi.OriginRequest{Origin: alias})
	if !r.Forgotten || !r.Undone() || r.Record.State != fetch.StateUnreachable {
		t.Errorf("refresh of a mistyped origin = %+v, want it forgotten", r)
	}
	if status, body := show(alias); status != http.StatusNotFound {
		t.Errorf("a mistyped origin: got status %d, %s, want 404", status, body)
	}
	if list := testgateway.Ask[adminapi.Agents](g, "GET", "/robots/agents", nil); !slices.Equal(list.Agents, []string{"Alpha", "Beta"}) {
		t.Errorf("agents = %q, want Alpha and Beta", list)
	}
}

func TestAdminWithoutGateway(t *testing.T) {
	g := testgateway.New(t, "", "")
	g.Stop()
	if a := engine.Current(); a != nil {
		t.Fatal("a stopped configuration is still current")
	}
	// The endpoint is removed with the configuration, so the handler is called directly.
	err := adminapi.HandlerOf("origins")(nil, &http.Request{Method: http.MethodGet})
	if err == nil || !strings.Contains(err.Error(), "no gateway runs") {
		t.Errorf("got %v", err)
	}
}

func TestAdminOrigins(t *testing.T) {
	g := testgateway.New(t, "", "")
	server := testorigin.Start(t, testorigin.Config{})
	states := map[string]string{}
	var all []string
	for i, b := range []testorigin.Behaviour{
		testorigin.OK(testgateway.RulesA), testorigin.Status(503), testorigin.Status(404), testorigin.OK(testgateway.RulesB), testorigin.CloseAtOnce(),
	} {
		s := server.Site(t, testorigin.SiteConfig{})
		s.SetRobots(b)
		g.Visit(s.URL("/page"), "alpha")
		o := s.Origin().String()
		states[o] = []string{"rules", "unreachable", "absent", "rules", "unreachable"}[i]
		all = append(all, o)
	}
	slices.Sort(all)
	for _, tt := range []struct {
		limit int
		state string
	}{{0, ""}, {1, ""}, {2, ""}, {5, ""}, {1, "rules"}, {1, "unreachable"}, {100, "absent"}} {
		t.Run(fmt.Sprint(tt.limit, tt.state), func(t *testing.T) {
			var got, want []string
			for _, o := range all {
				if tt.state == "" || states[o] == tt.state {
					want = append(want, o)
				}
			}
			query := url.Values{}
			if tt.limit > 0 {
				query.Set("limit", fmt.Sprint(tt.limit))
			}
			if tt.state != "" {
				query.Set("state", tt.state)
			}
			for pages := 0; ; pages++ {
				page := testgateway.Ask[adminapi.OriginList](g, "GET", "/robots/origins?"+query.Encode(), nil)
				for _, o := range page.Origins {
					got = append(got, o.Origin.String())
					if want := states[o.Origin.String()]; o.State.String() != want {
						t.Errorf("%s is %s, want %s", o.Origin, o.State, want)
					}
				}
				if page.Next == "" {
					break
				}
				if query.Set("after", page.Next); pages > len(all)+1 {
					t.Fatal("the pages do not end")
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// TestAdminOrigin checks the answers about an origin after two texts, a failure and a purge.
func TestAdminOrigin(t *testing.T) {
	g := testgateway.New(t, "", "")
	s := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	o := s.Origin().String()
	s.SetRobots(testorigin.OK(testgateway.RulesA))
	g.Visit(s.URL("/page"), "alpha")

	first := testgateway.Ask[adminapi.OriginDetail](g, "GET", originQuery("origin", o), nil)
	if r := first.Record; r.Origin.String() != o || r.State != fetch.StateRules || r.Status != 200 || r.SHA256.Hex() != testgateway.Hash(testgateway.RulesA) || r.RobotsURL != o+"/robots.txt" {
		t.Errorf("record = %+v", r)
	}
	if v := first.View; v.Access != "rules" || v.SHA256 != testgateway.Hash(testgateway.RulesA) || time.Until(v.FreshUntil) < 23*time.Hour {
		t.Errorf("view = %+v", v)
	}
	if h := first.History; len(h) != 1 || h[0].SHA256.Hex() != testgateway.Hash(testgateway.RulesA) || h[0].Size != len(testgateway.RulesA) {
		t.Errorf("history = %+v, want one version", h)
	}
	if a := g.Admin("GET", originQuery("diff", o), nil); a.Status != 404 || !strings.Contains(string(a.Body), "no earlier text") {
		t.Errorf("diff of one version: got status %d, %s, want 404", a.Status, a.Body)
	}

	s.SetRobots(testorigin.OK(testgateway.RulesB))
	second := testgateway.Ask[adminapi.OriginDetail](g, "POST", "/robots/refresh", adminapi.OriginRequest{Origin: o})
	if len(second.History) != 2 || second.Record.SHA256.Hex() != testgateway.Hash(testgateway.RulesB) {
		t.Errorf("origin after a refresh = %+v, want two versions", second)
	}
	checkDiff(t, g, o)

	body := g.Admin("GET", "/robots/body?sha256="+testgateway.Hash(testgateway.RulesB), nil)
	if string(body.Body) != testgateway.RulesB || body.Header.Get("Content-Type") != "text/plain; charset=utf-8" || body.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("body = %+v, want RulesB as plain text", body)
	}

	s.SetRobots(testorigin.Status(503))
	third := testgateway.Ask[adminapi.OriginDetail](g, "POST", "/robots/refresh", adminapi.OriginRequest{Origin: o})
	// A failure does not degrade a record before its TTL ends.
	if r := third.Record; r.State != fetch.StateRules || r.LastFailure.Status != 503 || r.Attempts != 1 || r.UnreachableSince.IsZero() {
		t.Errorf("record after a failure = %+v", r)
	}

	if p := testgateway.Ask[adminapi.Purged](g, "POST", "/robots/purge", adminapi.OriginRequest{Origin: o + "/robots.txt"}); !reflect.DeepEqual(p, adminapi.Purged{Origin: o, Known: true}) {
		t.Errorf("purge = %+v, want a known origin", p)
	}
	if a := g.Admin("GET", originQuery("origin", o), nil); a.Status != 404 {
		t.Errorf("origin after the purge: got status %d, %s, want 404", a.Status, a.Body)
	}
	if p := testgateway.Ask[adminapi.Purged](g, "POST", "/robots/purge", adminapi.OriginRequest{Origin: o}); p.Known {
		t.Error("a second purge finds the origin again")
	}
	for _, x := range s.RobotsExchanges() {
		if x.Header.Get("User-Agent") == "" {
			t.Error("robots.txt was requested without User-Agent")
		}
	}
}

func checkDiff(t *testing.T, g *testgateway.Gateway, o string) {
	t.Helper()
	want := []linediff.Hunk{{From: 1, FromCount: 2, To: 1, ToCount: 4, Lines: []string{
		" User-agent: *", " Disallow: /private/", "+Disallow: /new/", `+# \x1b[2J\xff`,
	}}}
	d := testgateway.Ask[adminapi.TextDiff](g, "GET", originQuery("diff", o), nil)
	if d.From.SHA256.Hex() != testgateway.Hash(testgateway.RulesA) || d.To.SHA256.Hex() != testgateway.Hash(testgateway.RulesB) || !reflect.DeepEqual(d.Hunks, want) {
		t.Errorf("diff = %+v", d)
	}
	backwards := testgateway.Ask[adminapi.TextDiff](g, "GET", originQuery("diff", o)+"&from="+testgateway.Hash(testgateway.RulesB)+"&to="+testgateway.Hash(testgateway.RulesA), nil)
	if backwards.From.SHA256.Hex() != testgateway.Hash(testgateway.RulesB) || len(backwards.Hunks) != 1 || backwards.Hunks[0].FromCount != 4 {
		t.Errorf("diff backwards = %+v", backwards)
	}
	same := testgateway.Ask[adminapi.TextDiff](g, "GET", originQuery("diff", o)+"&from="+testgateway.Hash(testgateway.RulesA)+"&to="+testgateway.Hash(testgateway.RulesA), nil)
	if same.Hunks == nil || len(same.Hunks) != 0 {
		t.Errorf("diff of a text with itself = %+v, want no hunks", same)
	}
	if a := g.Admin("GET", originQuery("diff", o)+"&from="+strings.Repeat("a", 64), nil); a.Status != 404 {
		t.Errorf("diff from a text of another site: got status %d, %s, want 404", a.Status, a.Body)
	}
}

// TestAdminExplain checks that explain gives the answer that a crawler gets, in the form of the
// log.
func TestAdminExplain(t *testing.T) {
	g := testgateway.New(t, "agent Alpha\nagent Beta {\ncredential b $2a$04$tfwzWqAqDmZvYSQxjYoGQOz0o7zx.qHVHq1VHTGpXMpSsxLmBMfAS\n}\ndeny denied.example", "")
	s := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	s.SetRobots(testorigin.OK("User-agent: alpha\nDisallow: /private/\nCrawl-delay: 2\n\nUser-agent: *\nDisallow: /\n"))
	explain := func(agent, page string) adminapi.Explanation {
		t.Helper()
		return testgateway.Ask[adminapi.Explanation](g, "GET", "/robots/explain?"+url.Values{"agent": {agent}, "url": {page}}.Encode(), nil)
	}
	if e := explain("alpha", s.URL("/page")); e.Refusal != nil || e.Robots.Reason != enforce.ReasonNoRule ||
		e.Robots.Group != "alpha" || e.Robots.CrawlDelay != 2 || e.Robots.Agent != "Alpha" || e.Site == "" {
		t.Errorf("explain of an allowed page = %+v", e)
	}
	if n := len(s.RobotsExchanges()); n != 1 {
		t.Errorf("robots.txt was fetched %d times, want once", n)
	}
	// Beta's crawler needs the password, but the caller of the admin API does not.
	if e := explain("Beta", s.URL("/page")); e.Refusal == nil || e.Robots.Reason != enforce.ReasonDisallowed || e.Robots.Group != "*" {
		t.Errorf("explain of a page that the group * disallows = %+v", e)
	}
	if e := explain("Alpha", "https://denied.example/"); e.Robots.Reason != enforce.ReasonOperatorDeny {
		t.Errorf("explain of a host that the operator denies = %+v", e)
	}
	if a := g.Admin("GET", "/robots/explain?agent=gamma&url=https://example.com/", nil); a.Status != 400 || !strings.Contains(string(a.Body), "there is Alpha, Beta") {
		t.Errorf("explain for an unknown agent: got status %d, %s, want 400 with the agents", a.Status, a.Body)
	}

	if e := explain("Alpha", s.URL("/x/../private/x")); e.Refusal == nil || e.Refusal.JudgedAs != "/private/x" || e.Robots.Form != enforce.PathResolved ||
		e.URL != s.URL("/x/../private/x") {
		t.Errorf("explain of a path with dot segments = %+v", e)
	}
	if e := explain("Alpha", s.URL("//page")); e.Refusal != nil || e.Robots.Form != enforce.PathBoth {
		t.Errorf("explain of //page = %+v", e)
	}

	e := explain("Alpha", s.URL("/private/x?q=1"))
	if e.Refusal == nil || e.Refusal.Status != 403 || e.Refusal.URL != s.URL("/private/x?q=1") || e.URL != e.Refusal.URL {
		t.Fatalf("explain of a refused URL = %+v", e)
	}
	if got := g.Visit(s.URL("/private/x?q=1"), "Alpha/1.0"); got != 403 {
		t.Fatalf("the crawler got status %d, want 403", got)
	}
	var told map[string]any
	text, err := json.Marshal(e.Robots)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &told); err != nil {
		t.Fatal(err)
	}
	logged := g.Lines(1)[0]
	for _, field := range []string{"user_agent", "identified_by", "age_s", "gateway", "version", "config", "decided_at", "ended_at"} { // explain has no request, sender or log entry
		delete(logged, field)
		delete(told, field)
	}
	if !reflect.DeepEqual(logged, told) {
		t.Errorf("explain returns %v\nlog has %v", told, logged)
	}
}

// TestAdminExplainSite asks one of two gateways.
func TestAdminExplainSite(t *testing.T) {
	g := testgateway.New(t, "deny one.example\n}\n}\nhttp://:81 {\nbind unix/%DIR%/second.sock\nrobots {\ndeny two.example", "")
	handlers := engine.Current().Sites()
	if len(handlers) != 2 {
		t.Fatalf("found %d gateways, want 2", len(handlers))
	}
	a := g.Admin("GET", "/robots/explain?agent=x&url=https://one.example/", nil)
	if a.Status != 400 || !strings.Contains(string(a.Body), "there are 2 gateways") {
		t.Errorf("without a site: got status %d, %s, want 400", a.Status, a.Body)
	}
	denied := 0
	for _, h := range handlers {
		for _, name := range []string{h.Name(), h.Server.Name()} {
			query := url.Values{"agent": {"x"}, "url": {"https://one.example/"}, "site": {name}}
			e := testgateway.Ask[adminapi.Explanation](g, "GET", "/robots/explain?"+query.Encode(), nil)
			if e.Robots.Reason == enforce.ReasonOperatorDeny {
				denied++
			}
			if e.Site != h.Name() {
				t.Errorf("got site %s for %s", e.Site, name)
			}
		}
	}
	if denied != 2 {
		t.Errorf("denied %d times of 4, want by one of the two gateways", denied)
	}
}

func TestAdminClocks(t *testing.T) {
	g := testgateway.New(t, "", "")
	server := testorigin.Start(t, testorigin.Config{})
	var keys []string
	for range 3 {
		s := server.Site(t, testorigin.SiteConfig{})
		s.SetPages(testorigin.Respond(testorigin.Response{Status: 429, Header: http.Header{"Retry-After": {"1000"}}}))
		g.Visit(s.URL("/page"), "alpha")
		keys = append(keys, s.Origin().Host)
	}
	slices.Sort(keys)
	info := testgateway.Ask[adminapi.Clocks](g, "GET", "/robots/clocks?state=blocked", nil)
	if info.Blocked != 3 || info.Keys != 3 || info.Waiting != 0 || info.Next != "" || len(info.Clocks) != 3 {
		t.Errorf("clocks = %+v, want 3 blocked ones", info)
	}
	if busy := testgateway.Ask[adminapi.Clocks](g, "GET", "/robots/clocks?state=busy", nil); len(busy.Clocks) != 0 {
		t.Errorf("busy clocks = %+v, want none", busy.Clocks)
	}
	var got []string
	for after := ""; ; {
		page := testgateway.Ask[adminapi.Clocks](g, "GET", "/robots/clocks?limit=1&after="+after, nil)
		for _, c := range page.Clocks {
			got = append(got, c.Key)
			if c.LeftSeconds < 900 || c.LeftSeconds > 1000 || c.WaitSeconds < 900 || c.WaitSeconds > 1000 || time.Until(c.BlockedUntil) < 900*time.Second {
				t.Errorf("clock = %+v, want it blocked for 900 to 1000 s", c)
			}
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if !slices.Equal(got, keys) {
		t.Errorf("got %v, want %v", got, keys)
	}
	if one := testgateway.Ask[adminapi.Clocks](g, "GET", "/robots/clocks?key="+keys[1], nil); len(one.Clocks) != 1 || one.Clocks[0].Key != keys[1] {
		t.Errorf("clocks by key = %+v, want that one", one)
	}
	part := keys[1][1:]
	if some := testgateway.Ask[adminapi.Clocks](g, "GET", "/robots/clocks?contains="+part, nil); len(some.Clocks) != 1 || some.Clocks[0].Key != keys[1] {
		t.Errorf("clocks with %q = %+v, want one", part, some.Clocks)
	}
	if none := testgateway.Ask[adminapi.Clocks](g, "GET", "/robots/clocks?key=nobody.example", nil); len(none.Clocks) != 0 {
		t.Errorf("clocks by an unknown key = %+v, want none", none)
	}
	// The explanation says that the host is blocked.
	s := server.Sites()[0]
	e := testgateway.Ask[adminapi.Explanation](g, "GET", "/robots/explain?agent=alpha&url="+url.QueryEscape(s.URL("/page")), nil)
	if left := time.Until(e.BlockedUntil); left < 900*time.Second || left > 1000*time.Second {
		t.Errorf("explain says blocked until %v, want 900 to 1000 s from now", e.BlockedUntil)
	}
}

// TestExplainKnown checks that explain does not fetch robots.txt, nor the TDM file if the agent has
// a purpose that needs it.
func TestExplainKnown(t *testing.T) {
	testgateway.New(t, "agent trainer {\npurpose train-ai\n}\nagent seeker", "")
	engine.Current().Sites()[0].Enforcer.Reads.TDMFile = true
	s := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	s.SetRobots(testorigin.OK("User-agent: *\nDisallow: /private/\n"))
	explain := func(agent string) (adminapi.Explanation, error) {
		return adminapi.ExplainKnown(t.Context(), engine.Current(), adminapi.ExplainRequest{Agent: agent, URL: s.URL("/page")})
	}
	if x, err := explain("seeker"); err == nil || !strings.Contains(err.Error(), "too little is known about "+s.Origin().String()) || len(s.Exchanges()) > 0 {
		t.Errorf("explain before a fetch = %+v, %v", x, err)
	}
	if _, err := engine.Current().Cache().Refresh(t.Context(), s.Origin()); err != nil {
		t.Fatal(err)
	}
	if x, err := explain("seeker"); err != nil || x.Robots.Reason != enforce.ReasonNoRule {
		t.Errorf("explain for a purpose without TDM file = %+v, %v", x, err)
	}
	if x, err := explain("trainer"); err == nil || !strings.Contains(err.Error(), "too little is known about") || len(s.Exchanges()) != 1 {
		t.Errorf("explain with an unknown TDM file = %+v, %v after %d requests", x, err, len(s.Exchanges()))
	}
}
