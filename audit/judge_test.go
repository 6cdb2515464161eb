package audit

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotstxt"
)

const sample = "User-agent: *\nDisallow: /private/\nAllow: /private/open\nCrawl-delay: 2\n\nUser-agent: Loner\nDisallow: /*?secret=\nDisallow: /end$\nDisallow: /plain\n\nUser-agent: Shut\nDisallow: /\n"

// sampleLines returns honest lines about a site with the sample file, and about one without.
func sampleLines(tb testing.TB, store memory) map[string]object {
	tb.Helper()
	store.keep(sample)
	rules := rulesOf(tb, sites{
		"site.example": goodText(sample), "free.example": {Kind: fetch.KindAbsent, Status: 404, Cause: fetch.CauseStatus},
	}, fetch.Policy{}.Complete())
	policy, _, err := enforce.NewPolicy(enforce.PolicyConfig{
		Exceptions: []enforce.Exception{{Hosts: []string{"site.example"}, Paths: []string{"/private/permitted"}, Reason: "ticket 7"}},
		Deny:       []string{"never.example"}, ConnectDefault: enforce.ConnectTunnel,
	}, noon)
	if err != nil {
		tb.Fatal(err)
	}
	e := &enforce.Enforcer{Rules: rules, Policy: policy}
	modes := map[string]enforce.Mode{"Reporter": enforce.ModeReport, "Free": enforce.ModeOff}
	lines := make(map[string]object)
	for name, c := range map[string]struct{ agent, url string }{
		"allowed":     {"AcmeBot", "http://site.example/page"},
		"by rule":     {"AcmeBot", "http://site.example/private/open"},
		"disallowed":  {"AcmeBot", "http://site.example/private/x"},
		"report":      {"Reporter", "http://site.example/private/x"},
		"off":         {"Free", "http://site.example/private/x"},
		"exception":   {"AcmeBot", "http://site.example/private/permitted/1"},
		"absent":      {"AcmeBot", "http://free.example/x"},
		"unreachable": {"AcmeBot", "http://gone.example/x"},
		"operator":    {"AcmeBot", "http://never.example/x"},
		"robots.txt":  {"AcmeBot", "http://site.example/robots.txt"},
		"loner":       {"Loner", "http://site.example/page"},
		"posted":      {"Shut", "http://site.example/robots.txt"},
		"resolved":    {"AcmeBot", "http://site.example/x/../private/x"},
		"both":        {"AcmeBot", "http://site.example/x/../page"},
		"as sent":     {"AcmeBot", "http://site.example/private/../page"},
	} {
		method := map[bool]string{true: http.MethodPost, false: http.MethodGet}[name == "posted"]
		id := crawler(tb, c.agent)
		id.Config = &enforce.Agent{Mode: modes[c.agent], Preferences: enforce.PreferencesLog}
		d := e.Decide(tb.Context(), enforce.Request{Method: method, Target: target(tb, c.url), Identity: id})
		lines[name] = lineOf(tb, d.Record(), method, c.url, noon)
		if name == "allowed" {
			lines["paced"] = lineOf(tb, d.Refuse(enforce.ReasonRateLimited, "", 0).Record(), "GET", c.url, noon)
			lines["failed"] = lineOf(tb, d.Refuse("reset", "", 0).Record(), "GET", c.url, noon)
		}
	}
	d := e.DecideTunnel(tb.Context(), crawler(tb, "AcmeBot"), target(tb, "https://free.example/").Origin)
	lines["tunnel to absent"] = lineOf(tb, d.Record(), "CONNECT", "free.example:443", noon)
	d = e.DecideTunnel(tb.Context(), crawler(tb, "AcmeBot"), target(tb, "https://site.example/").Origin)
	lines["tunnel"] = lineOf(tb, d.Record(), "CONNECT", "site.example:443", noon)
	return lines
}

// TestTampering changes one field or a few fields of honest lines. Each change must be found, with
// its kind.
func TestTampering(t *testing.T) {
	t.Parallel()
	store := memory{}
	lines := sampleLines(t, store)
	other := store.keep("User-agent: *\nDisallow: /page\n")
	lines["at run time"] = lines["exception"].with("exception_order", "A-1").with("exception_by", "ada").with("exception_ticket", "OPS-7").
		with("exception_until", float64(noon.Unix())+1).with("decided_at", float64(noon.Unix()))
	type changes map[string]any
	for _, tt := range []struct {
		line    string
		changes changes
		want    Kind
	}{
		{"disallowed", changes{"decision": "allow"}, KindImpossible},
		{"disallowed", changes{"decided_at": float64(noon.Unix()) + 1}, KindImpossible},
		{"allowed", changes{"sent_at": float64(noon.Unix()) - 1}, KindImpossible},
		{"allowed", changes{"sent_at": float64(noon.Unix()) + 1}, KindImpossible},
		{"disallowed", changes{"decision": "allow", "reason": "no_rule", "rule": nil, "line": nil}, KindVerdict},
		{"disallowed", changes{"decision": "allow", "reason": "allowed_by_rule"}, KindVerdict},
		{"disallowed", changes{"decision": "allow", "mode": "report", "would_deny": true, "reason": "unidentified", "group": "x"}, KindEvidence},
		{"disallowed", changes{"decision": "allow", "reason": "absent"}, KindImpossible},
		{"disallowed", changes{
			"decision": "allow", "reason": "no_rule", "rule": nil, "line": nil, "sha256": nil, "group": nil, "crawl_delay_s": nil,
		}, KindImpossible},
		{"disallowed", changes{"reason": "rate_limited"}, KindVerdict},
		{"disallowed", changes{"decision": "error", "reason": "reset"}, KindVerdict},
		{"disallowed", changes{"address": "192.0.2.1:80"}, KindImpossible},
		{"disallowed", changes{"mode": "off"}, KindImpossible},
		{"disallowed", changes{"mode": "report"}, KindImpossible},
		{"disallowed", changes{"rule": "/private/x"}, KindEvidence},
		{"disallowed", changes{"line": 3}, KindEvidence},
		{"disallowed", changes{"group": "AcmeBot"}, KindEvidence},
		{"disallowed", changes{"state": "absent"}, KindImpossible},
		{"disallowed", changes{"state": "nonsense"}, KindImpossible},
		{"allowed", changes{"decision": "deny"}, KindImpossible},
		{"allowed", changes{"decision": "deny", "reason": "disallowed"}, KindImpossible},
		{"allowed", changes{"decision": "deny", "reason": "disallowed", "rule": "/", "line": 2}, KindVerdict},
		{"allowed", changes{"decision": "deny", "reason": "unreachable"}, KindImpossible},
		{"allowed", changes{"crawl_delay_s": nil}, KindEvidence},
		{"allowed", changes{"crawl_delay_s": 1}, KindEvidence},
		{"allowed", changes{"sha256": other}, KindVerdict},
		{"allowed", changes{"sha256": "abc"}, KindImpossible},
		{"allowed", changes{"sha256": nil}, KindImpossible},
		{"allowed", changes{"tokens": []string{"Loner"}}, KindEvidence},
		{"allowed", changes{"group": nil}, KindEvidence},
		{"allowed", changes{"origin": "http://other.example"}, KindTarget},
		{"exception", changes{"origin": nil}, KindTarget},
		{"off", changes{"origin": nil}, KindTarget},
		{"operator", changes{"origin": nil}, KindTarget},
		{"allowed", changes{"robots_url": "http://other.example/robots.txt"}, KindTarget},
		{"allowed", changes{"path_visible": false}, KindImpossible},
		{"allowed", changes{"schema": 3}, KindSchema},
		{"allowed", changes{"schema": 1}, KindSchema},
		{"as sent", changes{"form": nil}, KindEvidence},
		{"both", changes{"form": nil}, KindEvidence},
		{"allowed", changes{"sent_at": float64(noon.Unix()) + 1}, KindImpossible},
		{"disallowed", changes{"sent_at": float64(noon.Unix())}, KindImpossible},
		{"allowed", changes{"schema": nil}, KindSchema},
		{"allowed", changes{"reason": "because"}, KindImpossible},
		{"allowed", changes{"decision": "perhaps"}, KindImpossible},
		{"allowed", changes{"mode": "strict"}, KindImpossible},
		{"allowed", changes{"wait_ms": -1}, KindImpossible},
		{"allowed", changes{"would_deny": true}, KindImpossible},
		{"allowed", changes{"reason": "robots_txt_itself"}, KindVerdict},
		{"allowed", changes{"reason": "robots_off"}, KindImpossible},
		{"allowed", changes{"exception": "site.example: ticket 7"}, KindImpossible},
		{"by rule", changes{"reason": "no_rule", "rule": nil, "line": nil}, KindVerdict},
		{"report", changes{"would_deny": false}, KindImpossible},
		{"report", changes{"would_deny": false, "reason": "no_rule", "rule": nil, "line": nil}, KindVerdict},
		{"report", changes{"reason": "kill_switch"}, KindImpossible},
		{"report", changes{"decision": "deny", "would_deny": false}, KindImpossible},
		{"off", changes{"mode": "enforce"}, KindImpossible},
		{"exception", changes{"exception": nil}, KindImpossible},
		{"at run time", changes{"exception_by": nil}, KindImpossible},
		{"at run time", changes{"exception_ticket": nil}, KindImpossible},
		{"at run time", changes{"exception_until": nil}, KindImpossible},
		{"at run time", changes{"exception_until": float64(noon.Unix())}, KindImpossible}, // the time of the decision
		{"at run time", changes{
			"decided_at": float64(noon.Unix()) - 9, "exception_until": float64(noon.Unix()) - 5, "sent_at": float64(noon.Unix()) - 4,
		}, KindImpossible}, // sent after the end
		{"at run time", changes{"exception": nil}, KindImpossible},
		{"off", changes{"exception_order": "A-1"}, KindImpossible},
		{"exception", changes{"mode": "off"}, KindImpossible},
		{"absent", changes{"state": "unreachable"}, KindImpossible},
		{"unreachable", changes{"decision": "allow", "reason": "absent"}, KindImpossible},
		{"unreachable", changes{"decision": "allow"}, KindImpossible},
		{"operator", changes{"decision": "allow"}, KindImpossible},
		{"paced", changes{"reason": "crawl_delay", "crawl_delay_s": nil}, KindImpossible},
		{"paced", changes{"group": "b"}, KindEvidence},
		{"failed", changes{"decision": "deny"}, KindImpossible},
		{"tunnel", changes{"decision": "allow", "reason": "unrestricted"}, KindVerdict},
		{"robots.txt", changes{"reason": "no_rule"}, KindImpossible},
		{"disallowed", changes{"form": "resolved"}, KindEvidence},
		{"disallowed", changes{"form": "as_sent"}, KindEvidence},
		{"disallowed", changes{"form": "both"}, KindImpossible},
		{"disallowed", changes{"form": "half"}, KindImpossible},
		{"allowed", changes{"form": "both"}, KindEvidence},
		{"allowed", changes{"form": "as_sent"}, KindEvidence},
		{"allowed", changes{"form": "resolved"}, KindImpossible},
		{"absent", changes{"form": "both"}, KindImpossible},
		{"tunnel", changes{"form": "as_sent"}, KindImpossible},
		{"robots.txt", changes{"form": "as_sent"}, KindImpossible},
		{"paced", changes{"form": "both"}, KindEvidence},
		{"resolved", changes{"form": "both"}, KindImpossible},
		{"resolved", changes{"form": "as_sent"}, KindVerdict},
		{"resolved", changes{"form": nil}, KindVerdict},
		{"resolved", changes{"decision": "allow", "reason": "no_rule", "rule": nil, "line": nil, "form": "both"}, KindVerdict},
		{"resolved", changes{"rule": "/", "line": 1}, KindEvidence},
		{"both", changes{"form": "resolved"}, KindImpossible},
		{"both", changes{"form": "resolved", "decision": "deny", "reason": "disallowed", "rule": "/private/", "line": 2}, KindVerdict},
		{"as sent", changes{"form": "resolved"}, KindEvidence},
		{"posted", changes{"reason": "robots_txt_itself", "decision": "allow", "rule": nil, "line": nil}, KindVerdict},
		{"posted", changes{"reason": "no_rule", "rule": nil, "line": nil, "decision": "allow"}, KindVerdict},
	} {
		l, ok := lines[tt.line]
		if !ok {
			t.Fatalf("found no line %q", tt.line)
		}
		name := fmt.Sprintf("%s with %v", tt.line, tt.changes)
		if r := auditLogs(t, Config{Texts: store}, logOf(t, l)); len(r.findings)+len(r.faults) > 0 || len(r.totals.NotProvable) > 0 {
			t.Fatalf("the honest line %q: findings %+v, totals %+v", tt.line, r.findings, r.totals)
		}
		for field, value := range tt.changes {
			l = l.with(field, value)
		}
		if tt.want == KindVerdict && tt.changes["decision"] == "deny" {
			l["status"] = http.StatusForbidden
		}
		r := auditLogs(t, Config{Texts: store}, logOf(t, lines["by rule"].at(noon.Add(-time.Hour)), l, lines["loner"].at(noon.Add(time.Hour))))
		if want := fmt.Sprintf("a:2 %s\n", tt.want); r.brief() != want || r.totals.Findings[tt.want] != 1 {
			t.Errorf("%s: found %q, want %q: %+v", name, r.brief(), want, r.findings)
		}
	}
}

// TestStatus checks that a refused request must not have the answer of a request that passed.
func TestStatus(t *testing.T) {
	t.Parallel()
	store := memory{}
	for status, want := range map[int]string{200: "a:1 impossible\n", 302: "a:1 impossible\n", 403: "", 404: "", 0: ""} {
		l := sampleLines(t, store)["disallowed"]
		l["status"] = status
		if r := auditLogs(t, Config{Texts: store}, logOf(t, l)); r.brief() != want {
			t.Errorf("status %d: %q, want %q", status, r.brief(), want)
		}
	}
	// A route for errors may choose the status of a refusal. Its header still has the refusal.
	for header, want := range map[any]string{"deny; reason=disallowed; line=2": "", "allow; reason=no_rule": "a:1 impossible\n", nil: ""} {
		l := sampleLines(t, store)["disallowed"]
		if l["status"], l["resp_headers"] = 200, (object{enforce.HeaderDecision: []any{header}}); header == nil {
			delete(l, "resp_headers") // by the log's filter
		}
		if r := auditLogs(t, Config{Texts: store}, logOf(t, l)); r.brief() != want {
			t.Errorf("header %v: %q, want %q", header, r.brief(), want)
		}
	}
}

// TestFormsOfOtherConfigurations checks that with "paths as_sent" a path is judged as sent,
// according to the line.
func TestFormsOfOtherConfigurations(t *testing.T) {
	t.Parallel()
	store := memory{}
	lines := sampleLines(t, store)
	for name, l := range map[string]object{
		"paths as_sent":                 lines["allowed"].asked("http://site.example/x/../private/x").with("form", "as_sent").with("path_sum", nil),
		"both, and only one was judged": lines["both"].with("form", "as_sent"),
	} {
		if r := auditLogs(t, Config{Texts: store}, logOf(t, l)); len(r.findings) > 0 || r.totals.Replayed != 1 {
			t.Errorf("%s: findings %+v", name, r.findings)
		}
	}
	// The message contains the form.
	r := auditLogs(t, Config{Texts: store}, logOf(t, lines["both"].asked("http://site.example/page")))
	if want := `logged with no_rule of group "*", form "both" of the path, the rules say no_rule of group "*"`; len(r.findings) != 1 || r.findings[0].Message != want {
		t.Errorf("findings = %+v", r.findings)
	}
}

// TestURLTampering checks that the URL of a line is compared with its origin, and matched against
// the rules.
func TestURLTampering(t *testing.T) {
	t.Parallel()
	store := memory{}
	lines := sampleLines(t, store)
	for url, want := range map[string]string{
		"http://site.example/private/x":  "a:1 verdict\n",
		"http://site.example/robots.txt": "a:1 verdict\n",
		"https://site.example/page":      "a:1 target\n",
		"http://site.example:8080/page":  "a:1 target\n",
		"/page":                          "a:1 target\n",
		"http://site.example/%zz":        "a:1 target\n",
		"http://site.example/other":      "",
	} {
		if r := auditLogs(t, Config{Texts: store}, logOf(t, lines["allowed"].asked(url))); r.brief() != want {
			t.Errorf("%s: %q, want %q", url, r.brief(), want)
		}
	}
}

// TestFinding checks the fields of a finding.
func TestFinding(t *testing.T) {
	t.Parallel()
	store := memory{}
	l := sampleLines(t, store)["disallowed"].with("decision", "allow").with("reason", "no_rule").with("rule", nil).with("line", nil)
	r := auditLogs(t, Config{Texts: store}, logOf(t, l))
	f := r.findings[0]
	if f.Message != `logged as no_rule, the rules say disallowed by line 2, "/private/" of group "*"` || f.Agent != "AcmeBot" ||
		f.URL != "http://site.example/private/x" || *f.Computed != (Verdict{"disallowed", "*", "/private/", 2, 2, ""}) ||
		*f.Recorded != (Verdict{"no_rule", "*", "", 0, 2, ""}) || f.SHA256 != store.keep(sample) {
		t.Errorf("finding = %+v", f)
	}
}

// TestTexts checks that an unavailable text is counted and listed, and that a text with another
// hash is a finding.
func TestTexts(t *testing.T) {
	t.Parallel()
	honest := memory{}
	lines := sampleLines(t, honest)
	honest.keep(sample)
	sha := sha256.Sum256([]byte(sample))
	broken := errors.New("the disk is on fire")
	for _, tt := range []struct {
		name  string
		store memory
		want  string
		cause Unprovable
	}{
		{"altered", memory{sha: {body: []byte(sample + "# more\n")}}, "a:1 text\na:3 text\n", ""},
		{"damaged", memory{sha: {err: fmt.Errorf("text: %w", robotscache.ErrCorrupt)}}, "a:1 text\na:3 text\n", ""},
		{"missing", memory{}, "", CauseTextMissing},
		{"unread", memory{sha: {err: broken}}, "a:1 error\n", CauseTextUnread},
		{"unavailable", memory{sha: {err: fmt.Errorf("%w: %w", robotscache.ErrUnavailable, robotscache.ErrCorrupt)}}, "a:1 error\n", CauseTextUnread},
	} {
		r := auditLogs(t, Config{Texts: tt.store}, logOf(t, lines["allowed"], lines["absent"], lines["disallowed"]))
		c := r.totals
		if r.brief() != tt.want || c.NotProvable[tt.cause] != map[bool]int64{true: 2}[tt.cause != ""] || c.ByState != 1 {
			t.Errorf("%s: %q, want %q: %+v", tt.name, r.brief(), tt.want, c)
		}
		if tt.cause == "" {
			continue
		}
		want := TextTotals{honest.keep(sample), "http://site.example", tt.cause, 2, Place{File: "a", Line: 1}}
		if len(c.Texts) != 1 || c.Texts[0] != want {
			t.Errorf("%s: texts = %+v", tt.name, c.Texts)
		}
	}
}

// TestCutText checks a text that is as long as the kept part of a longer one: its last line may be
// part of a rule or a whole one.
func TestCutText(t *testing.T) {
	t.Parallel()
	const head, tail = "User-agent: *\nDisallow: /a\n", "\nDisallow: /b"
	text := head + "#" + strings.Repeat("x", robotstxt.MaxSize-len(head)-len(tail)-1) + tail
	store := memory{}
	store.keep(text)
	for _, truncated := range []bool{false, true} {
		out := goodText(text)
		out.Truncated = truncated
		e := &enforce.Enforcer{Rules: rulesOf(t, sites{"long.example": out}, fetch.Policy{}.Complete())}
		d := e.Decide(t.Context(), enforce.Request{Method: http.MethodGet, Target: target(t, "http://long.example/b"), Identity: crawler(t, "AcmeBot")})
		if d.Allowed != truncated {
			t.Fatalf("truncated %t: decision %+v", truncated, d)
		}
		l := lineOf(t, d.Record(), "GET", "http://long.example/b", noon)
		if r := auditLogs(t, Config{Texts: store}, logOf(t, l)); len(r.findings) > 0 || r.totals.Replayed != 1 {
			t.Errorf("truncated %t: findings %+v", truncated, r.findings)
		}
		if r := auditLogs(t, Config{Texts: store}, logOf(t, l.asked("http://long.example/a"))); r.brief() != "a:1 verdict\n" && r.brief() != "a:1 evidence\n" {
			t.Errorf("truncated %t: findings for another path %q", truncated, r.brief())
		}
	}
}

// TestRedactedQueries checks that nothing is claimed if a rule could depend on a query that the log
// does not show.
func TestRedactedQueries(t *testing.T) {
	t.Parallel()
	store := memory{}
	lines := sampleLines(t, store)
	loner := lines["loner"]
	plain := lineOf(t, enforce.LogRecord{
		Schema: 2, Decision: "allow", Reason: enforce.ReasonNoRule, Mode: "enforce", Agent: "AcmeBot", Tokens: []string{"AcmeBot"},
		Origin: "http://plain.example", RobotsURL: "http://plain.example/robots.txt", State: "rules", Group: "*",
		SHA256: store.keep("User-agent: *\nDisallow: /private/\nDisallow: /x*y\n"), Source: "hot", PathVisible: true,
	}, "GET", "http://plain.example/page", noon)
	for _, tt := range []struct {
		line    object
		url     string
		want    string
		notSure bool
	}{
		{loner, "http://site.example/page?REDACTED", "", true},
		{loner, "http://site.example/page?a=REDACTED&b=1", "", true},
		{loner, "http://site.example/page?a=1", "", true}, // Caddy's query filter may have removed b
		{loner, "http://site.example/page?b=1&a=1", "", false},
		{plain, "http://plain.example/page?REDACTED", "", false},
		{plain, "http://plain.example/private/?REDACTED", "a:1 verdict\n", false},
		{plain, "http://plain.example/xyz?REDACTED", "", true},
		{plain, "http://plain.example/page/REDACTED", "", false},
		{plain.with("form", "both"), "http://plain.example//page?REDACTED", "", false},
		{plain.with("form", "both"), "http://plain.example/a/../xyz?REDACTED", "", true},
		{plain.with("form", "both"), "http://plain.example/a/../private/?REDACTED", "a:1 verdict\n", false},
	} {
		r := auditLogs(t, Config{Texts: store, Redacted: "REDACTED"}, logOf(t, tt.line.asked(tt.url)))
		if got := r.totals.NotProvable[CauseQuery] > 0; r.brief() != tt.want || got != tt.notSure {
			t.Errorf("%s: %q, not provable %t; want %q, %t", tt.url, r.brief(), got, tt.want, tt.notSure)
		}
	}
}

// TestAskers checks that a rule that could depend on the query is recognized by its beginning, in
// any spelling.
func TestAskers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text, path string
		indexHTML  bool
		asks       bool
	}{
		{"User-agent: *\nDisallow: /a\n", "/a", false, false},
		{"User-agent: *\nDisallow: /a?b\n", "/a", false, true},
		{"User-agent: *\nDisallow: /a?b\n", "/b", false, false},
		{"User-agent: *\rAllow: /a*b\r", "/a/c", false, true},
		{"user-agent: *\ndissallow: /a$\n", "/a", false, true},
		{"User-agent: *\nDisallow /a$ # x\n", "/a", false, true},
		{"User-agent: *\nDisallow: /a # ?\n", "/a", false, false},
		{"User-agent: *\nDisallow: *a\n", "/b", false, true},
		{"User-agent: *\nDisallow: ?a\n", "/b", false, false}, // not a rule, since it begins with neither / nor *
		{"User-agent: *\nDisallow: /%7Eu?b\n", "/~u/x", false, true},
		{"User-agent: *\nAllow: /d/index.html\n", "/d/", false, false},
		{"User-agent: *\nAllow: /d/index.html\n", "/d/", true, true},
	} {
		if got := !queryDependentRules([]byte(tt.text), tt.indexHTML).Match(nil, tt.path).Allowed; got != tt.asks {
			t.Errorf("%q on %s depends on the query: %t, want the opposite", tt.text, tt.path, got)
		}
	}
}

// TestBrokenURL checks bytes that JSON cannot represent, which are replaced in the log.
func TestBrokenURL(t *testing.T) {
	t.Parallel()
	store := memory{}
	l := sampleLines(t, store)["allowed"].asked("http://site.example/page/\uFFFD")
	if r := auditLogs(t, Config{Texts: store}, logOf(t, l)); r.totals.NotProvable[CauseURL] != 1 || len(r.findings) > 0 {
		t.Errorf("audit = %+v, want the line not provable", r)
	}
}

// TestOwnGroupOnly checks that only the configuration shows that the group * does not apply to an
// agent, unless the agent is a well-known one.
func TestOwnGroupOnly(t *testing.T) {
	t.Parallel()
	store := memory{}
	l := sampleLines(t, store)["disallowed"].with("decision", "allow").with("reason", "no_rule").with("rule", nil).
		with("line", nil).with("group", nil).with("crawl_delay_s", nil)
	for _, tt := range []struct {
		line object
		own  []string
		want string
	}{
		{l, nil, "a:1 verdict\n"},
		{l, []string{"Other"}, "a:1 verdict\n"},
		{l, []string{"acmebot"}, ""},
		{l.with("tokens", []string{"AdsBot-Google"}), nil, ""},
	} {
		r := auditLogs(t, Config{Texts: store, OwnGroupOnly: tt.own}, logOf(t, tt.line))
		if r.brief() != tt.want {
			t.Errorf("%q: %q, want %q", tt.own, r.brief(), tt.want)
		}
		if len(r.findings) > 0 && !strings.Contains(r.findings[0].Message, "name it with --ignore-wildcard-group") {
			t.Errorf("the message %q does not name the flag", r.findings[0].Message)
		}
	}
}

// TestTextsAreForgotten checks that the memory for rulesets is limited, and that a forgotten text
// is read again when it is needed.
func TestTextsAreForgotten(t *testing.T) {
	t.Parallel()
	store := memory{}
	counting := countingTexts{store, new(int)}
	c := newTexts(t.Context(), Config{Texts: counting, limits: limits{room: 3 * overhead}})
	var shas [][32]byte
	for i := range 50 {
		body := fmt.Sprintf("User-agent: *\nDisallow: /%d\n", i)
		store.keep(body)
		sha := sha256.Sum256([]byte(body))
		shas = append(shas, sha)
		if c.get(sha); len(c.known) > 3 || c.used > 3*overhead {
			t.Fatalf("%d texts of %d bytes are kept, want at most 3", len(c.known), c.used)
		}
	}
	before := *counting.n
	c.get(shas[49])
	if *counting.n != before {
		t.Error("the last text was read again")
	}
	if c.get(shas[0]).rules == nil || *counting.n != before+1 {
		t.Error("the first text was not read again")
	}
}

type countingTexts struct {
	Texts
	n *int
}

func (c countingTexts) Body(ctx context.Context, sha [32]byte) ([]byte, error) {
	*c.n++
	return c.Texts.Body(ctx, sha)
}
