package audit

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// wild returns the real files of the parser's tests.
func wild(tb testing.TB) (texts []string) {
	tb.Helper()
	names, err := filepath.Glob("../robotstxt/testdata/wild/*.txt")
	if err != nil || len(names) < 100 {
		tb.Fatalf("found %d files, %v, want at least 100", len(names), err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		texts = append(texts, string(data))
	}
	return texts
}

// pathsOf returns targets that the rules of a text match, and some that no rule matches.
func pathsOf(text string, r *rand.Rand) []string {
	paths := []string{"/", "/robots.txt", "/robots.txt?x", "/a/b?c=d", "/%7Euser/\u00e9?q=%2F", "//a;b/../c"}
	for i, start := 0, 0; i < len(text); i++ {
		switch {
		case text[i] == '/':
			start = i
		case (text[i] == '\n' || text[i] == '\r') && start > 0:
			if p := cleaned(text[start:i]); r.IntN(4) == 0 && len(p) < 200 {
				paths = append(paths, p, p+"x", p+"?x=1", "/x/.."+p, p+"/..;/")
			}
			start = 0
		}
	}
	return paths[:min(len(paths), 30)]
}

// cleaned turns a rule into a path.
func cleaned(rule string) string {
	b := []byte(rule)
	for i, c := range b {
		if c <= ' ' || c == '*' || c == '$' || c == '#' || c == '%' || c >= 0x7f || c == '\\' || c == '^' || c == '"' || c == '<' || c == '>' || c == '`' || c == '{' || c == '|' || c == '}' {
			b[i] = 'y'
		}
	}
	return string(b)
}

// TestWhatTheEnforcerSaysFollows makes the enforcer decide on real files, in each mode, for agents
// with and without their own group, and audits its lines.
func TestWhatTheEnforcerSaysFollows(t *testing.T) {
	t.Parallel()
	texts, store, hosts := wild(t), memory{}, sites{"absent.example": {Kind: fetch.KindAbsent, Status: 404, Cause: fetch.CauseStatus}}
	for i, text := range texts[:80] {
		store.keep(text)
		hosts[fmt.Sprintf("n%d.example", i)] = goodText(text)
	}
	policy, _, err := enforce.NewPolicy(enforce.PolicyConfig{
		HostModes:  []enforce.HostMode{{Hosts: []string{"n1.example", "n2.example", "down.example"}, Mode: enforce.ModeReport}, {Hosts: []string{"n3.example"}, Mode: enforce.ModeOff}},
		Exceptions: []enforce.Exception{{Hosts: []string{"n4.example"}, Reason: "permitted"}},
		Deny:       []string{"n5.example"}, ConnectDefault: enforce.ConnectTunnel,
	}, noon)
	if err != nil {
		t.Fatal(err)
	}
	e := &enforce.Enforcer{Rules: rulesOf(t, hosts, fetch.Policy{}.Complete()), Policy: policy}
	script := rand.New(rand.NewPCG(1, 2))
	var lines []object
	add := func(d enforce.Decision, method, uri string) {
		lines = append(lines, lineOf(t, d.Record(), method, uri, noon.Add(time.Duration(len(lines))*time.Minute)))
	}
	seen := map[enforce.Reason]bool{}
	for _, agent := range []string{"AcmeBot", "Googlebot-News", "AdsBot-Google", "bingbot"} {
		id := crawler(t, agent)
		for host, site := range hosts {
			paths := pathsOf(string(site.Body), script)
			for _, path := range paths {
				to := target(t, "https://"+host+path)
				d := e.Decide(t.Context(), enforce.Request{Method: http.MethodGet, Target: to, Identity: id})
				seen[d.Reason] = true
				add(d, "GET", to.String())
			}
			o := origin.Origin{Scheme: "https", Host: host, Port: 443}
			d := e.DecideTunnel(t.Context(), id, o)
			seen[d.Reason] = true
			add(d, "CONNECT", o.HostPort())
		}
		for _, host := range []string{"down.example", "down2.example"} { // a site that does not exist is unreachable
			to := target(t, "https://"+host+"/x")
			d := e.Decide(t.Context(), enforce.Request{Method: http.MethodGet, Target: to, Identity: id})
			seen[d.Reason] = true
			add(d, "GET", to.String())
		}
	}
	for _, want := range []enforce.Reason{
		enforce.ReasonAllowedByRule, enforce.ReasonNoRule, enforce.ReasonDisallowed, enforce.ReasonRobotsTxt, enforce.ReasonAbsent,
		enforce.ReasonUnreachable, enforce.ReasonException, enforce.ReasonRobotsOff, enforce.ReasonOperatorDeny,
		enforce.ReasonUnrestricted, enforce.ReasonTunnelRestricted,
	} {
		if !seen[want] {
			t.Errorf("found no line with the reason %s", want)
		}
	}
	r := auditLogs(t, Config{Texts: store, Redacted: "REDACTED"}, logOf(t, lines...))
	if len(r.findings) > 0 || len(r.faults) > 0 {
		t.Errorf("%d of %d lines have findings: %s%+v", len(r.findings), len(lines), r.brief(), r.findings[0])
	}
	if c := r.totals; c.Checked != int64(len(lines)) || c.Replayed < c.Checked*9/10 || len(c.NotProvable) > 0 ||
		c.Replayed+c.ByState+c.AsRecorded != c.Checked {
		t.Errorf("totals = %+v", c)
	}
}

// TestUnreachableExpired checks that a site that was unreachable for long enough counts as absent.
func TestUnreachableExpired(t *testing.T) {
	t.Parallel()
	p := fetch.Policy{}.Complete()
	p.UnreachableFor = 1
	e := &enforce.Enforcer{Rules: rulesOf(t, sites{}, p)}
	d := e.Decide(t.Context(), enforce.Request{Method: http.MethodGet, Target: target(t, "http://away.example/x"), Identity: crawler(t, "AcmeBot")})
	if d.Reason != enforce.ReasonUnreachableExpired {
		t.Fatalf("reason = %s, want unreachable_expired", d.Reason)
	}
	r := auditLogs(t, Config{Texts: memory{}}, logOf(t, lineOf(t, d.Record(), "GET", "http://away.example/x", noon)))
	if len(r.findings) > 0 || r.totals.ByState != 1 {
		t.Errorf("audit of the line: findings %s, totals %+v", r.brief(), r.totals)
	}
	// The log has the failures. Where it has none, the line is false.
	forged := lineOf(t, d.Record(), "GET", "http://away.example/x", noon)
	for since, want := range map[time.Time]int{noon.Add(-time.Hour): 0, {}: 1} {
		known := answered(-60, robotscache.Answer{Origin: "http://away.example", Status: 404, Cause: "status", State: "absent", UnreachableSince: since})
		if r := auditLogs(t, Config{Texts: memory{}}, logOf(t, known, forged)); r.totals.Findings[KindHistory] != int64(want) || len(r.findings) != want {
			t.Errorf("failing since %v: %+v", since, r.findings)
		}
	}
}

// TestEveryReasonHasABasis checks that each reason for a decision without rules is known. Otherwise
// an audit would accept any line with it.
func TestEveryReasonHasABasis(t *testing.T) {
	t.Parallel()
	later := []enforce.Reason{
		enforce.ReasonBadTarget, enforce.ReasonMethod, enforce.ReasonBadRequest, enforce.ReasonURLSize, enforce.ReasonMisdirected,
		enforce.ReasonForbiddenAddress, enforce.ReasonForbiddenPort, enforce.ReasonOwnListener, enforce.ReasonRateLimited,
		enforce.ReasonConcurrency, enforce.ReasonQueueFull, enforce.ReasonOverloaded, enforce.ReasonBackoff, enforce.ReasonCrawlDelay, enforce.ReasonBudget,
		"loop", enforce.ReasonPreferenceDenied,
	}
	for _, reason := range enforce.Reasons() {
		_, before := bases[reason]
		if after := !before && reason.Failure() || slices.Contains(later, reason); before == after {
			t.Errorf("reason %s has a basis: %t, comes after the rules: %t, want one of them", reason, before, after)
		}
	}
}
