package enforce

import (
	"net/http"
	"slices"
	"testing"

	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotstxt"
)

const pathRules = `User-agent: *
Disallow: /private
Allow: /private/open
Disallow: /search?
Disallow: /*;session
Disallow: /a//b

User-agent: Shut
Disallow: /
Allow: /open
`

// A path that is disallowed in one form is refused by the rule for that form. A resolved form that
// no rule matches changes nothing.
func TestMatchPath(t *testing.T) {
	t.Parallel()
	rs := robotstxt.Parse([]byte(pathRules))
	for _, tt := range []struct {
		agent, path string
		line        int // the deciding line with strict, or 0
		allowed     bool
		form        PathForm
	}{
		{"", "/public", 0, true, ""},
		{"", "/private/x", 2, false, ""},
		{"", "/private/open/x", 3, true, ""},
		{"", "/priv%61te", 2, false, ""},
		{"", "/x%2ehtml?q=../private", 0, true, ""},
		{"", "/x/../private/s", 2, false, PathResolved},
		{"", "//private", 2, false, PathResolved},
		{"", "/x/..;/private?q", 2, false, PathResolved},
		{"", "/%c0%ae/private", 2, false, PathResolved},
		{"", "/x/../search?q", 4, false, PathResolved},
		{"", "/x/../search", 0, true, PathBoth},
		{"", "/x/../private/open", 0, true, PathBoth},
		{"", "/private/open/../x", 2, false, PathResolved},
		{"", "/private/../public", 2, false, PathAsSent},
		{"", "/private//open", 2, false, PathAsSent},
		{"", "/x;session=1", 5, false, PathAsSent},
		{"", "/a//b", 6, false, PathAsSent},
		{"", "/a/b", 0, true, ""},
		{"", "/x//y/./z;v=1", 0, true, PathBoth},
		{"", "//robots.txt", 0, true, PathBoth},
		{"Shut", "//robots.txt", 9, false, PathAsSent},
		{"Shut", "/open/../robots.txt", 10, true, PathBoth}, // robots.txt may be fetched
		{"Shut", "/open/../x", 9, false, PathResolved},
		{"Shut", "/open//x;v=1", 10, true, PathBoth},
		{"Shut", "/x/../open", 9, false, PathAsSent},
	} {
		g := rs.Select(robotstxt.Agent{Tokens: []string{tt.agent}})
		m, form, _ := MatchPath(g, http.MethodGet, tt.path, PathsStrict)
		if m.Allowed != tt.allowed || m.Line != tt.line || form != tt.form {
			t.Errorf("%s: allowed %t by line %d, form %q, want %t by line %d, form %q", tt.path, m.Allowed, m.Line, form, tt.allowed, tt.line, tt.form)
		}
		m, form, _ = MatchPath(g, http.MethodGet, tt.path, PathsAsSent)
		if want := g.Match(tt.path); m != want || form != "" && form != PathAsSent || (form == "") != (tt.form == "") {
			t.Errorf("%s with paths as sent: %+v, form %q, want %+v", tt.path, m, form, want)
		}
	}
	shut := rs.Select(robotstxt.Agent{Tokens: []string{"Shut"}})
	if m, form, _ := MatchPath(shut, http.MethodPost, "/open/../robots.txt", PathsStrict); m.Allowed || form != PathResolved {
		t.Errorf("POST: %+v, form %q", m, form)
	}
	if m, form, _ := MatchPath(robotstxt.Group{}, http.MethodGet, "//x", PathsStrict); m.Allowed || form != PathAsSent {
		t.Errorf("the zero Group: %+v, form %q", m, form)
	}
}

// FuzzMatchPath checks that strict refuses exactly the paths that are refused in some form, as sent
// or resolved.
func FuzzMatchPath(f *testing.F) {
	for _, path := range []string{"/x/../private/s", "//private", "/%2fprivate", "/x/..;y/private?q", "/private/open/../x", "/robots.txt", "/open/./robots.txt"} {
		f.Add(pathRules, path, true)
	}
	f.Fuzz(func(t *testing.T, file, path string, read bool) {
		g := robotstxt.Parse([]byte(file)).Select(robotstxt.Agent{Tokens: []string{"Shut"}})
		method, match := http.MethodPost, g.MatchRules
		if read {
			method, match = http.MethodGet, g.Match
		}
		m, form, judged := MatchPath(g, method, path, PathsStrict)
		sent := match(path)
		resolved, ok := origin.Resolve(path)
		want, by := sent, ""
		for _, form := range slices.Backward(resolved) {
			if second := match(form); sent.Allowed && !second.Allowed {
				want, by = second, form
			}
		}
		if !ok {
			if m.Allowed || sent.Allowed && form != PathResolved {
				t.Errorf("%q: %+v by form %q", path, m, form)
			}
			return
		}
		if m != want || judged != by || (judged != "") != (form == PathResolved) {
			t.Errorf("%q: %+v by form %q (%q), want %+v by %q", path, m, form, judged, want, by)
		}
		if (form == "") != (len(resolved) == 0) || (form == PathBoth) != (m.Allowed && len(resolved) > 0) {
			t.Errorf("%q: form %q, allowed %t", path, form, m.Allowed)
		}
	})
}

// The evidence of a decision names the form. It is empty without a lookup of rules.
func TestDecideByForms(t *testing.T) {
	t.Parallel()
	asSent := mustPolicy(t, PolicyConfig{Paths: PathsAsSent})
	exempt := mustPolicy(t, PolicyConfig{Exceptions: []Exception{{Hosts: []string{"example.com"}, Paths: []string{"/pub"}, Reason: "why"}}})
	for _, tt := range []struct {
		name   string
		lookup Lookup
		policy *Policy
		path   string
		want   Decision // the fields that are compared below
	}{
		{"nil policy", siteOf(rules(pathRules), defaults), nil, "/x/../private/s?q", Decision{Reason: ReasonDisallowed, Form: PathResolved, Judged: "/private/s?q"}},
		{"zero policy", siteOf(rules(pathRules), defaults), new(Policy), "//private", Decision{Reason: ReasonDisallowed, Form: PathResolved, Judged: "/private"}},
		{"as sent", siteOf(rules(pathRules), defaults), asSent, "/x/../private/s", Decision{Allowed: true, Reason: ReasonNoRule, Form: PathAsSent}},
		{"both", siteOf(rules(pathRules), defaults), nil, "/x/../y", Decision{Allowed: true, Reason: ReasonNoRule, Form: PathBoth}},
		{"too many forms", siteOf(rules(pathRules), defaults), nil, "/;../b/..;%2f%5c/..%2f../%5c%3b..//..%5c/..;", Decision{Reason: ReasonBadTarget, Form: PathResolved}},
		{"one form", siteOf(rules(pathRules), defaults), nil, "/private", Decision{Reason: ReasonDisallowed}},
		{"report", siteOf(rules(pathRules), defaults), mustPolicy(t, PolicyConfig{Mode: ModeReport}), "//private", Decision{Allowed: true, Reason: ReasonDisallowed, Form: PathResolved, Judged: "/private"}},
		{"off", nil, mustPolicy(t, PolicyConfig{Mode: ModeOff}), "//private", Decision{Allowed: true, Reason: ReasonRobotsOff}},
		{"absent", siteOf(absent(404), defaults), nil, "//private", Decision{Allowed: true, Reason: ReasonAbsent}},
		{"unreachable", siteOf(unreachable(0, ""), defaults), nil, "//private", Decision{Reason: ReasonUnreachable}},
		{"operator", nil, mustPolicy(t, PolicyConfig{Deny: []string{"*"}}), "//private", Decision{Reason: ReasonOperatorDeny}},
		{"exception", nil, exempt, "/pub/../pub/x", Decision{Allowed: true, Reason: ReasonException}},
		{"no exception", siteOf(rules(pathRules), defaults), exempt, "/pub/..;/private", Decision{Reason: ReasonDisallowed, Form: PathResolved, Judged: "/private"}},
		{"no exception to climb", siteOf(rules(pathRules), defaults), exempt, "/pub/%2e%2e;x/private", Decision{Reason: ReasonDisallowed, Form: PathResolved, Judged: "/private"}},
	} {
		got := ask(t, newEnforcer(tt.lookup, tt.policy, nil), crawler(t, "AnyBot"), "http://example.com"+tt.path)
		if w := tt.want; got.Allowed != w.Allowed || got.Reason != w.Reason || got.Form != w.Form || got.Judged != w.Judged {
			t.Errorf("%s: allowed %t, reason %s, form %q, judged %q; want %+v", tt.name, got.Allowed, got.Reason, got.Form, got.Judged, w)
		}
	}
	if forms := formsOf("//private", "other"); len(forms) != 2 {
		t.Errorf("an unknown option is not strict: %q", forms)
	}
}
