package audit

import (
	"fmt"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
)

// request is a request to a host with a Crawl-delay of 2 s. Its times are in milliseconds after
// noon.
type request struct {
	began, took, waited int
	sent                int    // when it was sent; 0: at the end of its wait; below 0: not in the line
	agent               string // default AcmeBot; Free has no delay
	reason              enforce.Reason
	decision            string
	host                string
	method, path        string // default GET /x
}

func (q request) line(tb testing.TB, store memory) object {
	tb.Helper()
	set := func(s *string, def string) {
		if *s == "" {
			*s = def
		}
	}
	set(&q.agent, "AcmeBot")
	set(&q.decision, "allow")
	set(&q.host, "slow.example")
	if q.reason == "" {
		q.reason = enforce.ReasonNoRule
	}
	rec := enforce.LogRecord{
		Schema: 2, Decision: q.decision, Reason: q.reason, Mode: "enforce", Agent: q.agent, Tokens: []string{q.agent},
		Origin: "http://" + q.host, RobotsURL: "http://" + q.host + "/robots.txt", State: "rules", Group: "*", CrawlDelay: 2,
		SHA256: store.keep("User-agent: *\nCrawl-delay: 2\n\nUser-agent: Free\nDisallow:\n"), Source: "hot", PathVisible: true,
		WaitMillis: int64(q.waited), Address: "192.0.2.1:80",
	}
	if q.sent == 0 {
		q.sent = q.began + q.waited
	}
	if q.sent >= 0 {
		rec.SentAt = enforce.SecondsOf(noon.Add(time.Duration(q.sent) * time.Millisecond))
	}
	if q.agent == "Free" {
		rec.Group, rec.CrawlDelay = "Free", 0
	}
	set(&q.method, "GET")
	set(&q.path, "/x")
	uri := "http://" + q.host + q.path
	if q.reason == enforce.ReasonRobotsTxt {
		uri, rec.Group, rec.CrawlDelay = rec.RobotsURL, "", 0
	}
	l := lineOf(tb, rec, q.method, uri, noon.Add(time.Duration(q.began+q.took)*time.Millisecond))
	return l.with("decided_at", enforce.SecondsOf(noon.Add(time.Duration(q.began)*time.Millisecond)))
}

// TestGaps checks what a log proves about the time between two requests.
func TestGaps(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		requests []request
		want     string
		gaps     GapTotals
	}{
		{"kept", []request{{began: 0, took: 50}, {began: 2000, took: 50}}, "", GapTotals{Pairs: 1, Kept: 1}},
		{"kept by waiting", []request{{began: 0, took: 50}, {began: 100, took: 1950, waited: 1900}}, "", GapTotals{Pairs: 1, Kept: 1}},
		{"short", []request{{began: 0, took: 50}, {began: 1000, took: 50}}, "a:2 gap\n", GapTotals{Pairs: 1, Short: 1}},
		{"within the tolerance", []request{{began: 0, took: 50}, {began: 1901, took: 50}}, "", GapTotals{Pairs: 1, Kept: 1}},
		{"short with a slow answer", []request{{began: 0, took: 50}, {began: 1000, took: 1500}}, "a:2 gap\n", GapTotals{Pairs: 1, Short: 1}},
		{"short in spite of a slow answer before", []request{{began: 0, took: 900}, {began: 1000, took: 50}}, "a:2 gap\n", GapTotals{Pairs: 1, Short: 1}},
		{"order of sending, not of the log", []request{{began: 2100, took: 100}, {began: 0, took: 2300}}, "", GapTotals{Pairs: 1, Kept: 1}},
		{"in order of sending the later one is too early", []request{{began: 500, took: 100}, {began: 0, took: 700}}, "a:1 gap\n", GapTotals{Pairs: 1, Short: 1}},
		{"the longer delay of two agents", []request{{began: 0, took: 50, agent: "Free"}, {began: 1000, took: 50}}, "a:2 gap\n", GapTotals{Pairs: 1, Short: 1}},
		{"no delay", []request{{began: 0, took: 50, agent: "Free"}, {began: 10, took: 50, agent: "Free"}}, "", GapTotals{}},
		{"another host", []request{{began: 0, took: 50}, {began: 10, took: 50, host: "other.example"}}, "", GapTotals{}},
		{"another port of the host", []request{{began: 0, took: 50}, {began: 10, took: 50, host: "slow.example:8080"}}, "a:2 gap\n", GapTotals{Pairs: 1, Short: 1}},
		{"a refused one", []request{{began: 0, took: 50}, {began: 10, took: 50, sent: -1, decision: "deny", reason: enforce.ReasonRateLimited}}, "", GapTotals{}},
		{"one that was stopped afterwards", []request{{began: 0, took: 50}, {began: 10, took: 50, decision: "deny", reason: enforce.ReasonKillSwitch}}, "a:2 gap\n", GapTotals{Pairs: 1, Short: 1}},
		{"one that failed before it left", []request{{began: 0, took: 50}, {began: 10, took: 50, sent: -1, decision: "error", reason: "dns"}}, "", GapTotals{}},
		{"one that failed afterwards", []request{{began: 0, took: 50}, {began: 10, took: 50, decision: "error", reason: "timeout"}}, "a:2 gap\n", GapTotals{Pairs: 1, Short: 1}},
		{"robots.txt itself", []request{{began: 0, took: 50}, {began: 10, took: 50, reason: enforce.ReasonRobotsTxt}}, "", GapTotals{}},
		{"POST of robots.txt is paced", []request{{began: 0, took: 50}, {began: 10, took: 50, method: "POST", path: "/robots.txt"}}, "a:2 gap\n", GapTotals{Pairs: 1, Short: 1}},
		{"it does not say when", []request{{began: 0, took: 50}, {began: 10, took: 50, method: "POST", path: "/robots.txt", sent: -1}}, "", GapTotals{Untimed: 1}},
		{"robots.txt with a query too", []request{{began: 0, took: 50}, {began: 10, took: 50, path: "/robots.txt?x"}}, "a:2 gap\n", GapTotals{Pairs: 1, Short: 1}},
		{"HEAD of robots.txt", []request{{began: 0, took: 50}, {began: 10, took: 50, method: "HEAD", path: "/robots.txt", reason: enforce.ReasonRobotsTxt, sent: -1}}, "", GapTotals{}},
		{"the time of sending decides: kept", []request{{began: 0, took: 3000, sent: 100}, {began: 0, took: 3000, sent: 2100}}, "", GapTotals{Pairs: 1, Kept: 1}},
		{"the time of sending decides: short", []request{{began: 0, took: 9000, sent: 1000}, {began: 0, took: 9000, sent: 2800}}, "a:2 gap\n", GapTotals{Pairs: 1, Short: 1}},
		{"the time of sending decides the order", []request{{began: 0, took: 9000, sent: 2800}, {began: 0, took: 9000, sent: 1000}}, "a:1 gap\n", GapTotals{Pairs: 1, Short: 1}},
		{"a line without a time after one with it", []request{{began: 0, took: 900, sent: 800}, {began: 2000, took: 900, sent: -1}}, "", GapTotals{Untimed: 1}},
		{
			"three",
			[]request{{began: 0, took: 50}, {began: 4000, took: 50}, {began: 2000, took: 2100}},
			"",
			GapTotals{Pairs: 2, Kept: 2}, // the first and the second are not neighbours
		},
		{
			"two too close to one",
			[]request{{began: 0, took: 50}, {began: 1000, took: 50}, {began: 500, took: 600}},
			"a:2 gap\na:3 gap\na:2 gap\n",
			GapTotals{Pairs: 3, Short: 3},
		},
	} {
		store := memory{}
		var lines []object
		for _, q := range tt.requests {
			lines = append(lines, q.line(t, store))
		}
		r := auditLogs(t, Config{Texts: store, MaxDelay: 30 * time.Second, Tolerance: 100 * time.Millisecond}, logOf(t, lines...))
		if r.brief() != tt.want || r.totals.Gaps != tt.gaps {
			t.Errorf("%s: %q, %+v; want %q, %+v", tt.name, r.brief(), r.totals.Gaps, tt.want, tt.gaps)
		}
	}
}

// TestGapFinding checks the finding about a gap.
func TestGapFinding(t *testing.T) {
	t.Parallel()
	store := memory{}
	r := auditLogs(t, Config{Texts: store}, logOf(t, request{took: 50}.line(t, store)), logOf(t, request{began: 700, took: 50, agent: "Other"}.line(t, store)))
	f := r.findings[0]
	if f.Place != (Place{File: "b", Line: 1}) || f.Agent != "Other" || f.URL != "http://slow.example/x" ||
		f.Message != "sent 700ms after a:1, the Crawl-delay is 2s" || *f.Gap != (Gap{Place{File: "a", Line: 1}, "slow.example", 0.7, 2}) {
		t.Errorf("finding = %+v, gap = %+v", f, f.Gap)
	}
	for _, a := range r.totals.Agents {
		if want := map[string]int64{"Other": 1}[a.Agent]; a.Findings != want {
			t.Errorf("agent %s has %d findings, want none but Other's", a.Agent, a.Findings)
		}
	}
}

// TestOperatorsBounds checks that a gap is compared with the delay within the operator's limits.
func TestOperatorsBounds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cfg  Config
		want GapTotals
	}{
		{Config{}, GapTotals{Pairs: 1, Kept: 1}},
		{Config{MinDelay: 5 * time.Second}, GapTotals{Pairs: 1, Short: 1}},
		{Config{MaxDelay: time.Second}, GapTotals{Pairs: 1, Kept: 1, Clamped: 2}},
		{Config{MinDelay: time.Second, MaxDelay: 2 * time.Second}, GapTotals{Pairs: 1, Kept: 1}},
	} {
		store := memory{}
		tt.cfg.Texts = store
		r := auditLogs(t, tt.cfg, logOf(t, request{took: 50}.line(t, store), request{began: 3000, took: 50}.line(t, store)))
		if r.totals.Gaps != tt.want {
			t.Errorf("%v to %v: %+v, want %+v", tt.cfg.MinDelay, tt.cfg.MaxDelay, r.totals.Gaps, tt.want)
		}
	}
}

// TestUntimed checks that a line without the time of sending is not compared, but counted. No other
// time of the line replaces it.
func TestUntimed(t *testing.T) {
	t.Parallel()
	store := memory{}
	first, second := request{took: 50}.line(t, store), request{began: 3000, took: 50, sent: -1}.line(t, store)
	if r := auditLogs(t, Config{Texts: store}, logOf(t, first, second)); r.totals.Gaps != (GapTotals{Untimed: 1}) {
		t.Errorf("gaps without sent_at = %+v, want one untimed", r.totals.Gaps)
	}
	for _, field := range []string{"decided_at", "ended_at"} {
		l := request{began: 3000, took: 50}.line(t, store).with(field, nil)
		if r := auditLogs(t, Config{Texts: store}, logOf(t, first, l)); r.totals.Gaps != (GapTotals{Pairs: 1, Kept: 1}) {
			t.Errorf("gaps without %s = %+v, want one kept", field, r.totals.Gaps)
		}
	}
}

// TestTwins checks that a request that several lines are about is no gap to itself and counts once,
// that each of its lines is checked, and that another request at the same time is a gap.
func TestTwins(t *testing.T) {
	t.Parallel()
	store := memory{}
	line := func(began int, port string) object {
		l := request{began: began, took: 50}.line(t, store)
		l["request"].(object)["remote_port"] = port
		return l
	}
	first, second := line(0, "1024"), line(2000, "1025")
	filtered := second.asked("http://slow.example/REDACTED")
	filtered["resp_headers"] = "REDACTED"
	for i, tt := range []struct {
		lines    []object
		findings string
		again    int64
		kept     int64
	}{
		{[]object{first, second}, "", 0, 1},
		{[]object{first, second, first, second, filtered}, "", 3, 1},
		{[]object{first, second, second.with("group", "x")}, "a:3 evidence\n", 1, 1},
		{[]object{first, second, line(2000, "1026")}, "a:3 gap\n", 0, 1},
		{[]object{first, second, second.with("sent_at", float64(noon.Unix()+3))}, "a:3 impossible\n", 0, 1},
	} {
		r := auditLogs(t, Config{Texts: store, Redacted: "REDACTED"}, logOf(t, tt.lines...))
		asked := r.totals.Agents[0].Asked
		if r.brief() != tt.findings || r.totals.Again != tt.again || r.totals.Gaps.Kept != tt.kept || asked+tt.again != int64(len(tt.lines)) {
			t.Errorf("%d: %q %+v", i, r.brief(), r.totals)
		}
	}
}

// TestTwinsAreBounded checks that the last requests are remembered, and no others.
func TestTwinsAreBounded(t *testing.T) {
	t.Parallel()
	var s twins
	line := func(i int) *Line {
		l := &Line{entry: entry{Robots: &enforce.LogRecord{DecidedAt: 1, EndedAt: enforce.Seconds(2 + i)}}}
		l.Request.RemotePort = "1024"
		return l
	}
	for i := range 3 * mostTwins {
		if s.again(line(i)) || len(s.last)+len(s.before) > 2*mostTwins {
			t.Fatalf("%d: %d and %d", i, len(s.last), len(s.before))
		}
	}
	if s.again(line(0)) || !s.again(line(2*mostTwins)) {
		t.Error("the first one is remembered, or one of the last is not")
	}
}

// TestLateLines checks that a request that ended long after others were sent is compared with the
// remembered requests, and counted if its neighbours are forgotten.
func TestLateLines(t *testing.T) {
	t.Parallel()
	store := memory{}
	var lines []object
	for i := range 2 * window {
		lines = append(lines, request{began: 2000 * i, took: 10}.line(t, store))
	}
	for _, tt := range []struct {
		began int
		want  GapTotals
	}{
		{2000 * 2 * window, GapTotals{Kept: 1}},
		{2000*2*window - 3000, GapTotals{Kept: -1, Short: 2}}, // between two remembered requests
		{1000, GapTotals{Kept: 1, Late: 1}},                   // quiet after it; the requests before it are forgotten
	} {
		end := 2000*2*window + 5001 // whole seconds are printed without unit
		r := auditLogs(t, Config{Texts: store}, logOf(t, append(lines[:2*window:2*window], request{began: tt.began, took: end - tt.began}.line(t, store))...))
		tt.want.Kept += 2*window - 1
		tt.want.Pairs = tt.want.Kept + tt.want.Short
		if r.totals.Gaps != tt.want {
			t.Errorf("began after %d ms: %+v, want %+v", tt.began, r.totals.Gaps, tt.want)
		}
	}
}

// TestHostsAreForgotten checks that the number of hosts is limited. The least recently requested
// host is dropped, and the totals report it.
func TestHostsAreForgotten(t *testing.T) {
	t.Parallel()
	store := memory{}
	var lines []object
	for i := range 10 {
		lines = append(lines, request{began: i, took: 1, host: fmt.Sprintf("n%d.example", i)}.line(t, store))
		lines = append(lines, request{began: 3000 * i, took: 1, host: "always.example"}.line(t, store))
	}
	cfg := Config{Texts: store, limits: limits{agents: 1, texts: 1, hosts: 3, records: 20}}
	r := auditLogs(t, cfg, logOf(t, append(lines, request{began: 30, took: 1, host: "n9.example"}.line(t, store))...))
	if r.totals.Caps != (CapTotals{Hosts: 8}) || r.totals.Gaps.Kept != 9 || r.totals.Gaps.Short != 1 {
		t.Errorf("limits = %+v, gaps = %+v", r.totals.Caps, r.totals.Gaps)
	}
}
