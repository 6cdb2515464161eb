package enforce

import (
	"net/http"
	"testing"
)

// TestPurposesOfVocabularies checks that an agent's purpose has a label in each vocabulary,
// whichever word its block uses. Search is separate: a request for search is decided by search
// alone (draft-ietf-aipref-vocab-08 section 4.3).
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
			t.Errorf("%q count as two purposes", twice)
		}
	}
}

// TestDeniesByPages checks which agents the tags of pages could refuse, for the case that tags are
// not read.
func TestDeniesByPages(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		mode     PreferenceMode
		purposes []string
		want     string
	}{
		{PreferencesDeny, []string{"train-ai"}, "a"},
		{PreferencesDeny, []string{"genai", "tdm"}, "a"},
		{PreferencesDeny, []string{"ai-input"}, ""}, // no tag is about it
		{PreferencesDeny, nil, ""},
		{PreferencesLog, []string{"train-ai"}, ""},
	} {
		id := mustIdentifier(t, IdentifierConfig{Agents: []Agent{{Name: "a", Preferences: tt.mode, Purposes: tt.purposes}}})
		if got := id.DeniesByPages(); got != tt.want {
			t.Errorf("DeniesByPages with %s, %q = %q, want %q", tt.mode, tt.purposes, got, tt.want)
		}
	}
}

// TestModeReportOfPreferences checks that in mode report a refusal by a preference only marks the
// decision, wherever the preference is. A page that was already sent is refused in no mode, and so
// is not marked.
func TestModeReportOfPreferences(t *testing.T) {
	t.Parallel()
	const says = "User-agent: *\nDisallow: /private\n"
	noai, page := http.Header{"X-Robots-Tag": {"noai"}}, []byte("<meta name=robots content=noai>")
	for _, tt := range []struct {
		name     string
		robots   string
		path     string
		unknown  bool // the agent denies unknown preferences
		header   http.Header
		page     []byte
		sent     bool // the page was sent before it was read
		reason   Reason
		conflict string
	}{
		{"nothing", says, "/", false, nil, nil, false, ReasonNoRule, ""},
		{"robots.txt", says + "Content-Signal: ai-train=no\n", "/", false, nil, nil, false, ReasonPreferenceDenied, "train-ai=n;from=robots;line=3"},
		{"unknown", says, "/", true, nil, nil, false, ReasonPreferenceDenied, "train-ai=unknown"},
		{"a field", says, "/", false, noai, nil, false, ReasonPreferenceDenied, "train-ai=n;from=x-robots-tag"},
		{"a page", says, "/", false, nil, page, false, ReasonPreferenceDenied, "train-ai=n;from=meta"},
		{"a page that was sent", says, "/", false, nil, page, true, ReasonNoRule, "train-ai=n;from=meta"},
		{"an earlier rule", says, "/private", false, noai, nil, false, ReasonDisallowed, "train-ai=n;from=x-robots-tag"},
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
				conflict = "" // no request was sent
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
