package cli_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/boltstore"
)

// auditText is the robots.txt of the site of the example in docs/audit.md.
const auditText = "User-agent: *\nDisallow: /private/\nCrawl-delay: 2\n"

// auditStore makes a store with that text.
func auditStore(t *testing.T) (path string, sha [32]byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "robots.db")
	s, err := boltstore.Open(boltstore.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	r := fetch.Policy{}.Complete().Next(fetch.Record{Origin: origin.Origin{Scheme: "https", Host: "example.com", Port: 443}},
		fetch.Outcome{Kind: fetch.KindRules, Status: 200, Body: []byte(auditText)}, time.Date(2026, 11, 21, 11, 59, 0, 0, time.UTC))
	if err := errors.Join(s.Save(t.Context(), r), s.Close()); err != nil {
		t.Fatal(err)
	}
	return path, r.SHA256
}

// auditLine returns the access-log line of a request that took 40 ms and ended the given number of
// milliseconds after noon.
func auditLine(t *testing.T, d enforce.Decision, rawURL string, after int) string {
	t.Helper()
	end := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC).Add(time.Duration(after) * time.Millisecond)
	rec := d.Record()
	rec.DecidedAt, rec.EndedAt = enforce.SecondsOf(end.Add(-40*time.Millisecond)), enforce.SecondsOf(end)
	if d.Allowed {
		rec.SentAt = enforce.SecondsOf(end.Add(-40 * time.Millisecond))
	}
	line, err := json.Marshal(map[string]any{
		"level": "info", "ts": float64(end.UnixMilli()) / 1e3, "logger": "http.log.access", "msg": "handled request",
		"request":  map[string]any{"method": "GET", "uri": rawURL},
		"duration": 0.04, "status": d.Reason.Info().Status, "robots": rec,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(line) + "\n"
}

// auditAnswer returns the line about a robots.txt that was fetched a minute before noon.
func auditAnswer(t *testing.T, site string, sha [32]byte) string {
	t.Helper()
	at := time.Date(2026, 11, 21, 11, 59, 0, 0, time.UTC)
	line, err := json.Marshal(map[string]any{
		"level": "info", "ts": float64(at.UnixMilli()) / 1e3, "logger": "http.log.access", "msg": "robots.txt",
		"robots_txt": robotscache.Answer{
			Schema: robotscache.AnswerSchema, Event: robotscache.EventFetched, At: at, Origin: site, Status: 200, State: "rules",
			SHA256: fetch.Sum(sha).Hex(), FetchedAt: at, FreshUntil: at.Add(24 * time.Hour),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(line) + "\n"
}

// auditDecision returns an honest decision about a page of the site.
func auditDecision(t *testing.T, sha [32]byte, rawURL string) enforce.Decision {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	to, err := origin.NewTarget(u)
	if err != nil {
		t.Fatal(err)
	}
	d := enforce.Decision{
		Allowed: true, Reason: enforce.ReasonNoRule, Agent: "AcmeBot", Tokens: []string{"AcmeBot"}, IdentifiedBy: "user_agent",
		Origin: to.Origin, PathVisible: true, Group: "*", State: fetch.StateRules, SHA256: sha,
		CrawlDelay: 2 * time.Second, Source: 1,
	}
	if strings.HasPrefix(to.Path, "/private/") {
		d.Allowed, d.Reason, d.Rule, d.Line = false, enforce.ReasonDisallowed, "/private/", 2
	}
	return d
}

// exampleLog returns the log of docs/audit.md: a changed verdict, a gap, a missing text, and honest
// lines.
func exampleLog(t *testing.T, sha [32]byte) string {
	t.Helper()
	const site = "https://example.com"
	flipped := auditDecision(t, sha, site+"/private/x")
	flipped.Allowed, flipped.Reason, flipped.Rule, flipped.Line = true, enforce.ReasonNoRule, "", 0
	excepted := enforce.Decision{
		Allowed: true, Reason: enforce.ReasonException, Agent: "AcmeNews", Tokens: []string{"AcmeNews"}, Owner: "team news",
		Contact: "news@acme.example", Exception: "example.com: ticket 7",
		Origin: flipped.Origin, PathVisible: true,
	}
	other := auditDecision(t, [32]byte{0xab, 0xcd}, "https://example.net/")
	return auditLine(t, auditDecision(t, sha, site+"/"), site+"/", 0) +
		auditLine(t, auditDecision(t, sha, site+"/private/x"), site+"/private/x", 1000) +
		auditLine(t, auditDecision(t, sha, site+"/page"), site+"/page", 2500) +
		auditLine(t, flipped, site+"/private/x", 5000) +
		auditLine(t, auditDecision(t, sha, site+"/next"), site+"/next", 6200) +
		auditLine(t, excepted, site+"/private/y", 9000) +
		auditLine(t, other, "https://example.net/", 9000)
}

// shownAudit returns the output of an audit of the example, with the parts that differ between runs
// replaced.
func shownAudit(t *testing.T, args ...string) commandRun {
	t.Helper()
	store, sha := auditStore(t)
	dir := t.TempDir()
	log := filepath.Join(dir, "access.log")
	if err := os.WriteFile(log, []byte(auditAnswer(t, "https://example.com", sha)+auditAnswer(t, "https://example.net", [32]byte{0xab, 0xcd})+exampleLog(t, sha)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := runCommand(t.Context(), t, "", append([]string{"audit", "--store", store, log}, args...)...)
	r.out = strings.ReplaceAll(r.out, dir+"/", "")
	return r
}

// TestAuditExample checks that docs/audit.md shows the output of the command, and
// docs/access-log.md two of its lines.
func TestAuditExample(t *testing.T) {
	t.Parallel()
	text, isJSON := shownAudit(t), shownAudit(t, "--json")
	if text.status != 1 || isJSON.status != 1 || text.err != "" || isJSON.err != "" {
		t.Errorf("got status %d and %d, want 1: %s%s", text.status, isJSON.status, text.err, isJSON.err)
	}
	_, sha := auditStore(t)
	request := strings.SplitAfter(exampleLog(t, sha), "\n")[1]
	testdocs.Shows(t, "access-log.md", auditAnswer(t, "https://example.com", sha)+request)
	testdocs.Shows(t, "audit.md", text.out)
}

// TestAuditDocs checks that docs/audit.md has exactly one row per kind of finding and per cause.
func TestAuditDocs(t *testing.T) {
	t.Parallel()
	sections := testdocs.Sections(t, "audit.md")
	kinds, causes := map[string]bool{}, map[string]bool{}
	for _, k := range audit.Kinds() {
		kinds[string(k)] = true
	}
	for _, c := range audit.Causes() {
		causes[string(c)] = true
	}
	testdocs.Same(t, "kind of finding", kinds, testdocs.Named(sections["Findings"]))
	testdocs.Same(t, "cause", causes, testdocs.Named(sections["What is not provable"]))
}

// TestAuditErrors checks the messages about bad lines, files and arguments.
func TestAuditErrors(t *testing.T) {
	t.Parallel()
	store, sha := auditStore(t)
	dir := t.TempDir()
	log := filepath.Join(dir, "access.log")
	line := auditLine(t, auditDecision(t, sha, "https://example.com/"), "https://example.com/", 0)
	if err := os.WriteFile(log, []byte(line+"half a li\n"+line[:50]+"\x1b[31m\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args   []string
		stdin  string
		status int
		err    string
	}{
		{[]string{"--store", store, log}, "", 2, log + ":2: it is not a JSON object\n" + log + ":3: it is not a JSON object: "},
		{[]string{"--store", store, "-"}, line + line[:60], 0, "-:2: the line was cut off"},
		{[]string{"--strict", "--store", store, "-"}, line + line[:60], 1, "-:2: the line was cut off"},
		{[]string{"--store", store, "-"}, line + line[60:], 2, "-:2: it is not a JSON object"},
		{[]string{"--store", store, "-"}, exampleLog(t, sha) + "half a li\n", 1, ":8: it is not a JSON object"},
		{[]string{"--store", store, "-"}, line, 0, ""},
		{[]string{"--store", store}, "", 2, "no access log is given"},
		{[]string{"--store", store, "--gateway", "localhost:1", log}, "", 2, "exclude each other"},
		{[]string{"--store", store, "--tolerance", "-1s", log}, "", 2, "no time may be below 0"},
		{[]string{"--store", store, filepath.Join(dir, "none.log")}, "", 2, "no such file"},
		{[]string{"--store", filepath.Join(dir, "none.db"), log}, "", 2, "opening the robots.txt store " + dir + "/none.db: no such file"},
		{[]string{"--gateway", "unix/" + filepath.Join(dir, "none.sock"), log}, "", 2, "asking the gateway"},
		{[]string{"--gateway", "nonsense:nonsense", log}, "", 2, "--gateway: address"},
	} {
		r := runCommand(t.Context(), t, tt.stdin, append([]string{"audit"}, tt.args...)...)
		if r.status != tt.status || !strings.Contains(r.err, tt.err) || (tt.err == "") != (r.err == "") {
			t.Errorf("%q: got status %d, %s", tt.args, r.status, r.err)
		}
	}
	r := runCommand(t.Context(), t, "", "audit", "--json", "--store", store, log)
	if want := fmt.Sprintf(`{"type":"error","file":%q,"line":2,"error":"it is not a JSON object"}`, log); !strings.HasPrefix(r.out, want+"\n") {
		t.Errorf("output = %s, want it to begin with the error", r.out)
	}
}

// TestAuditLockedStore checks that the error says what to do while a gateway has the store open.
func TestAuditLockedStore(t *testing.T) {
	t.Parallel()
	store, _ := auditStore(t)
	s, err := boltstore.Open(boltstore.Config{Path: store})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if r := runCommand(t.Context(), t, "", "audit", "--store", store, "-"); r.status != 2 || !strings.Contains(r.err, "--gateway localhost:2019") {
		t.Errorf("got status %d, %s, want 2 and the flag --gateway", r.status, r.err)
	}
}
