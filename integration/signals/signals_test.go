package signals

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestPreferences checks that a site's preferences about the use of its content are shown to the
// crawler and logged. If the operator wants it, they refuse agents with such a purpose: before the
// request if they are in robots.txt, otherwise before the answer reaches the crawler. The audit
// computes them again.
func TestPreferences(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	site := func(robots string, header http.Header) *testorigin.Site {
		s := server.Site(t, testorigin.SiteConfig{})
		s.SetRobots(testorigin.OK(robots))
		s.SetPath("/page", testorigin.Respond(testorigin.Response{Status: http.StatusOK, Header: header, Body: []byte("the page")}))
		return s
	}
	byRobots := site("User-agent: *\nDisallow: /x\nContent-Signal: search=yes, ai-train=no\n", nil)
	byField := site("User-agent: *\nDisallow: /x\n", http.Header{
		"X-Robots-Tag": {"noarchive, noai"}, "Content-Usage": {"search=y"}, "Crawlgate-Signals": {"forged"},
	})
	silent := site("User-agent: *\nDisallow: /x\n", nil)
	control := site("User-agent: *\nDisallow: /x\n\nUser-agent: Google-Extended\nDisallow: /\n", nil)
	g := rig.New(t, rig.Config{Site: `
		agent trainer {
			purpose train-ai
			preferences deny
		}
		agent strict {
			purpose search
			preferences deny
			unknown deny
		}
		agent seeker {
			purpose search
			also_obey Google-Extended
		}
		agent watcher {
			purpose train-ai
		}`})
	for _, tt := range []struct {
		agent   string
		site    *testorigin.Site
		status  int
		signals string // the crawler's field
		says    string // in the body
		asked   bool   // whether the site was asked for the page
	}{
		{"trainer", byRobots, 403, "", "train-ai=n;from=robots;line=3", false},
		{"trainer", byField, 403, "", "train-ai=n;from=x-robots-tag", true},
		{"trainer", silent, 200, "", "the page", true},
		{"strict", silent, 403, "", "search=unknown", false},
		{"strict", byRobots, 200, "search=y;from=robots;line=3, train-ai=n;from=robots;line=3", "the page", true},
		{"seeker", byRobots, 200, "search=y;from=robots;line=3, train-ai=n;from=robots;line=3", "the page", true},
		{"seeker", control, 403, "", "line 5", false},
		{"watcher", control, 200, "", "the page", true},
		{"watcher", byRobots, 200, "search=y;from=robots;line=3, train-ai=n;from=robots;line=3", "the page", true},
		{"watcher", byField, 200, "noarchive", "the page", true},
	} {
		before := len(tt.site.PageExchanges())
		a := g.MustFetch(tt.agent+"/1.0", tt.site.URL("/page"))
		asked := len(tt.site.PageExchanges()) > before
		got := a.Header.Get("Crawlgate-Signals")
		exact := tt.signals != "noarchive"
		if a.Status != tt.status || !strings.Contains(a.Body, tt.says) || asked != tt.asked ||
			tt.status == 200 && (exact && got != tt.signals || !strings.Contains(got, tt.signals)) || strings.Contains(got, "forged") {
			t.Errorf("%s at %s: status %d, body %q, requested %t, signals %q", tt.agent, tt.site.Origin(), a.Status, a.Body, asked, got)
		}
	}
	g.Stop()
	r := rig.Audit(t, "--store", g.Store(), g.AccessLog())
	if r.Status != 0 || len(r.Findings) > 0 || len(r.Errors) > 0 {
		t.Errorf("the audit returned %+v", r)
	}
	text, err := os.ReadFile(g.AccessLog())
	if err != nil {
		t.Fatal(err)
	}
	forged := filepath.Join(rig.TempDir(t), "access.log")
	content := strings.ReplaceAll(string(text), `"train-ai=n;from=robots;line=3"`, `"train-ai=y;from=robots;line=3"`)
	if err := os.WriteFile(forged, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	r = rig.Audit(t, "--store", g.Store(), forged)
	found := 0
	for _, f := range r.Findings {
		if f.Kind == "preference" {
			found++
		}
	}
	if found < 3 {
		t.Errorf("the audit of a forged log returned %+v", r)
	}
}

// TestPreferencesOfErrors checks that a preference is about the content that is sent
// (draft-ietf-aipref-attach-05 section 2). Redirects, errors and prices reach the crawler unchanged,
// whatever their fields and tags say, and audit and simulation agree. A 304 has no body but is about
// content.
func TestPreferencesOfErrors(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	g := rig.New(t, rig.Config{Engine: rig.Unpaced + "\nsignals {\nhtml hold\n}", Site: `
		agent finder {
			purpose search
			preferences deny
		}`})
	for _, status := range []int{200, 203, 301, 304, 401, 402, 404, 410, 429, 500, 503} {
		s := server.Site(t, testorigin.SiteConfig{})
		header := http.Header{
			"X-Robots-Tag": {"noindex"}, "Content-Type": {"text/html"}, "Retry-After": {"7"}, "Location": {"/moved"}, "Www-Authenticate": {"Basic"},
		}
		s.SetPages(testorigin.Respond(testorigin.Response{Status: status, Header: header, Body: []byte("<head><meta name=robots content=noindex></head><body>")}))
		a := g.MustFetch("finder/1.0", s.URL("/page"))
		want := status
		if status < 300 || status == 304 {
			want = http.StatusForbidden
		}
		if a.Status != want || want == status && (a.Header.Get("Retry-After") != "7" || a.Header.Get("Location") != "/moved" || a.Header.Get("X-Robots-Tag") != "noindex") {
			t.Errorf("%d: the crawler got status %d, header %v", status, a.Status, a.Header)
		}
	}
	for _, l := range g.Logs(11) {
		if denied := l.Robots.Reason == enforce.ReasonPreferenceDenied; denied != (l.Status == http.StatusForbidden) || denied == (len(l.Robots.SignalFields) == 0) {
			t.Errorf("the log line is %s", l.Raw)
		}
	}
	g.Stop()
	if r := rig.Audit(t, "--store", g.Store(), g.AccessLog()); r.Status != 0 || len(r.Findings) > 0 || len(r.Errors) > 0 {
		t.Errorf("the audit returned %+v", r)
	}
}

// TestPreferencesInModeReport checks that in mode report an answer that a preference would refuse
// passes with its body, and that the log says so. Simulations of the log under the other mode, in
// both directions, have that mode's decisions.
func TestPreferencesInModeReport(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	s := server.Site(t, testorigin.SiteConfig{})
	s.SetRobots(testorigin.OK("User-agent: *\nDisallow: /x\nContent-Usage: /blog train-ai=n\n"))
	page := func(path, body string, header http.Header) {
		s.SetPath(path, testorigin.Respond(testorigin.Response{Status: http.StatusOK, Header: header, Body: []byte(body)}))
	}
	page("/", "the page", nil)
	page("/blog", "the page", nil)
	page("/field", "the page", http.Header{"Content-Usage": {"train-ai=n"}})
	page("/tag", "<html><head><meta name=robots content=noai></head><body>the page", http.Header{"Content-Type": {"text/html"}})
	config := func(mode string) rig.Config {
		return rig.Config{Engine: rig.Unpaced + "\nsignals {\nhtml hold\n}", Site: "mode " + mode + `
			agent trainer {
				purpose train-ai
				preferences deny
			}`}
	}
	report, enforces := rig.New(t, config("report")), rig.New(t, config("enforce"))
	for i, tt := range []struct{ path, conflict string }{
		{"/", ""},
		{"/blog", "train-ai=n;from=robots;line=3"},
		{"/field", "train-ai=n;from=content-usage"},
		{"/tag", "train-ai=n;from=meta"},
	} {
		path, conflict := tt.path, tt.conflict
		decision := "allow; reason=preference_denied; would-deny"
		status := http.StatusForbidden
		if conflict == "" {
			decision, status = "allow; reason=no_rule", http.StatusOK
		}
		a := report.MustFetch("trainer/1.0", s.URL(path))
		r := report.Logs(i + 1)[i].Robots
		if a.Status != http.StatusOK || !strings.HasSuffix(a.Body, "the page") || a.Header.Get("Crawlgate-Decision") != decision ||
			r.Decision != "allow" || r.WouldDeny != (conflict != "") || r.Conflict != conflict || r.SentAt == 0 {
			t.Errorf("%s: status %d, body %q, header %v, log %+v", path, a.Status, a.Body, a.Header, r)
		}
		if a := enforces.MustFetch("trainer/1.0", s.URL(path)); a.Status != status {
			t.Errorf("%s in mode enforce: status %d, want %d", path, a.Status, status)
		}
	}
	report.Stop()
	enforces.Stop()
	for _, tt := range []struct {
		log, by   *rig.Gateway
		different int64
	}{{report, report, 0}, {report, enforces, 3}, {enforces, enforces, 0}, {enforces, report, 3}} {
		r := rig.Simulate(t, "--store", tt.log.Store(), "--config", filepath.Join(tt.by.Dir, "Caddyfile"), tt.log.AccessLog())
		if r.Totals.Different != tt.different || r.Totals.Same != 4-tt.different || r.Totals.AsRecorded != 0 {
			t.Errorf("the simulation returned %+v", r)
		}
		for _, l := range r.Lines {
			if l.Type == "difference" && l.New.Reason != "preference_denied" {
				t.Errorf("the simulation has the line %+v", l)
			}
		}
		if r := rig.Audit(t, "--store", tt.log.Store(), tt.log.AccessLog()); r.Status != 0 || len(r.Findings) > 0 {
			t.Errorf("the audit returned %+v", r)
		}
	}
}

// TestPreferencesWithoutTags checks that a gateway that could refuse by the tags of pages, but
// reads none, warns once.
func TestPreferencesWithoutTags(t *testing.T) {
	t.Parallel()
	const agents = "agent finder {\npurpose search\npreferences deny\n}\nagent trainer {\npurpose train-ai\npreferences deny\n}"
	for signals, want := range map[string]int{"": 1, "\nsignals {\nhtml hold\n}": 0} {
		g := rig.New(t, rig.Config{Engine: rig.Unpaced + signals, Site: agents})
		g.Stop()
		if n := strings.Count(g.Stderr.String(), "preferences deny sees no tags of pages"); n != want {
			t.Errorf("with %q: %d warnings, want %d", signals, n, want)
		}
	}
}
