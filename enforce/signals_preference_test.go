package enforce

import (
	"net/http"
	"testing"
)

// TestPurposesOfVocabularies: an agent is bound by the label of its purpose in each vocabulary, by whatever
// word its block names it. Search is separate: a request for search is judged by search alone
// (draft-ietf-aipref-vocab-08 section 4.3).
func TestPurposesOfVocabularies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ purpose, says, conflict string }{
		{"ai-input", "Content-Usage: ai-use=n", "ai-input=n;from=robots;line=3"},
		{"ai-use", "Content-Usage: ai-use=n", "ai-input=n;from=robots;line=3"},
		{"ai-use", "Content-Signal: ai-input=no", "ai-input=n;from=robots;line=3"},
		{"ai-input", "Content-Usage: ai-use=y, train-ai=n, search=n", ""},
		{"ai-train", "Content-Usage: train-ai=n", "train-ai=n;from=robots;line=3"},
		{"train-ai", "Content-Usage: train-ai=n", "train-ai=n;from=robots;line=3"},
		{"train-ai", "Content-Usage: ai-use=n", ""},
		{"search", "Content-Usage: search=y, ai-use=n, train-ai=n", ""},
		{"search", "Content-Usage: ai-use=n", ""},
		{"search", "Content-Usage: search=n, ai-use=y", "search=n;from=robots;line=3"},
		{"ai-input", "Content-Usage: search=y, ai-use=n", "ai-input=n;from=robots;line=3"},
	} {
		e := newEnforcer(siteOf(rules("User-agent: *\nAllow: /\n"+tt.says+"\n"), defaults), nil, nil)
		e.Reads = Signals{RobotsTxt: true}
		d := ask(t, e, trainer(t, PreferencesDeny, false, tt.purpose), "http://example.com/")
		if d.Conflict != tt.conflict || d.Allowed != (tt.conflict == "") {
			t.Errorf("%s, %s: allowed %t, conflict %q", tt.purpose, tt.says, d.Allowed, d.Conflict)
		}
	}
	for _, twice := range [][]string{{"ai-use", "ai-input"}, {"search", "search"}} {
		if _, _, err := NewIdentifier(IdentifierConfig{Agents: []Agent{{Name: "a", Purposes: twice}}}); err == nil {
			t.Errorf("%q are two purposes", twice)
		}
	}
}

// TestDeniesByPages: where tags of pages are not read, the agents are named that they could refuse.
func TestDeniesByPages(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		mode     PreferenceMode
		purposes []string
		want     string
	}{
		{PreferencesDeny, []string{"train-ai"}, "a"},
		{PreferencesDeny, []string{"genai", "tdm"}, "a"},
		{PreferencesDeny, []string{"ai-input"}, ""}, // no tag speaks of it
		{PreferencesDeny, nil, ""},
		{PreferencesLog, []string{"train-ai"}, ""},
	} {
		id := mustIdentifier(t, IdentifierConfig{Agents: []Agent{{Name: "a", Preferences: tt.mode, Purposes: tt.purposes}}})
		if got := id.DeniesByPages(); got != tt.want {
			t.Errorf("%s %q: %q", tt.mode, tt.purposes, got)
		}
	}
}

// TestModeReportOfPreferences: what a preference would refuse passes in mode report, and is marked,
// wherever it stands. A page that the crawler has is refused in no mode, and so is not marked.
func TestModeReportOfPreferences(t *testing.T) {
	t.Parallel()
	const says = "User-agent: *\nDisallow: /private\n"
	noai, page := http.Header{"X-Robots-Tag": {"noai"}}, []byte("<meta name=robots content=noai>")
	for _, tt := range []struct {
		name     string
		robots   string
		path     string
		unknown  bool // deny if the preference is unknown
		header   http.Header
		page     []byte
		sent     bool // before the page is read
		reason   Reason
		conflict string
	}{
		{"nothing", says, "/", false, nil, nil, false, ReasonNoRule, ""},
		{"robots.txt", says + "Content-Signal: ai-train=no\n", "/", false, nil, nil, false, ReasonPreferenceDenied, "train-ai=n;from=robots;line=3"},
		{"unknown", says, "/", true, nil, nil, false, ReasonPreferenceDenied, "train-ai=unknown"},
		{"a field", says, "/", false, noai, nil, false, ReasonPreferenceDenied, "train-ai=n;from=x-robots-tag"},
		{"a page", says, "/", false, nil, page, false, ReasonPreferenceDenied, "train-ai=n;from=meta"},
		{"a page that was sent", says, "/", false, nil, page, true, ReasonNoRule, "train-ai=n;from=meta"},
		{"a rule before", says, "/private", false, noai, nil, false, ReasonDisallowed, "train-ai=n;from=x-robots-tag"},
	} {
		for _, mode := range []Mode{ModeEnforce, ModeReport} {
			id := crawler(t, "AcmeBot/1")
			id.Config = &Agent{Purposes: []string{"train-ai"}, DenyUnknown: tt.unknown}
			e := newEnforcer(siteOf(rules(tt.robots), defaults), mustPolicy(t, PolicyConfig{Mode: mode}), nil)
			e.Reads = Signals{RobotsTxt: true, Headers: true, HTML: HTMLHold}
			d := ask(t, e, id, "http://example.com"+tt.path)
			shown := ""
			if d.Allowed && tt.header != nil {
				shown = d.ReadAnswer(http.StatusOK, tt.header)
			}
			if d.Allowed && tt.page != nil {
				shown = d.ReadPage(Page{Head: tt.page, Whole: true, Type: "text/html", Sent: tt.sent})
			}
			refuses, conflict := !tt.reason.Allows(), tt.conflict
			if mode == ModeEnforce && tt.reason == ReasonDisallowed {
				conflict = "" // nothing was sent
			}
			if d.Reason != tt.reason || d.Conflict != conflict || d.Allowed != (mode == ModeReport || !refuses) ||
				d.WouldDeny != (mode == ModeReport && refuses) {
				t.Errorf("%s, mode %s: allowed %t, would deny %t, %s, %q", tt.name, mode, d.Allowed, d.WouldDeny, d.Reason, d.Conflict)
			}
			if read := tt.header != nil || tt.page != nil; d.Allowed && (shown != "") != read {
				t.Errorf("%s, mode %s: the crawler reads %q", tt.name, mode, shown)
			}
		}
	}
}
