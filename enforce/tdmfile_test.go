package enforce

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotstxt"
	"github.com/crawlgate/crawlgate/signals/preferences"
)

// tdmFile gives every lookup of a TDM file the same answer; the empty text is no file.
type tdmFile struct {
	text    string
	lookups int
}

func (f *tdmFile) TDMFile(context.Context, origin.Origin) (rules preferences.TDMRules, ok bool, unread string) {
	f.lookups++
	rules, err := preferences.ParseTDMFile([]byte(f.text))
	if err != nil && f.text != "" {
		unread = "no JSON"
	}
	return rules, err == nil, unread
}

const (
	someTDM  = `[{"location":"/free","tdm-reservation":0},{"location":"/a","tdm-reservation":1,"tdm-policy":"https://example.com/p"}]`
	somePath = `tdm file: {"location":"/a","tdm-reservation":1,"tdm-policy":"https://example.com/p"}`
	tdmSays  = "train-ai=n;from=tdmrep"
)

// trainer returns the identity of an agent with the given purposes.
func trainer(tb testing.TB, mode PreferenceMode, denyUnknown bool, purposes ...string) Identity {
	tb.Helper()
	agent := Agent{Name: "trainer", Purposes: purposes, Preferences: mode, DenyUnknown: denyUnknown}
	return mustIdentifier(tb, IdentifierConfig{Agents: []Agent{agent}}).Identify(tb.Context(), Sender{UserAgent: "trainer/1.0"})
}

// TestTDMFile checks that the file is fetched only if it can concern a purpose of the agent and no
// earlier step has decided. It refuses if it reserves rights, and says nothing if it is missing
// (TDMRep, "TDM File on the Origin Server"). From the log the decision can be computed again.
func TestTDMFile(t *testing.T) {
	t.Parallel()
	const open, reserved = "User-agent: *\nDisallow: /x\n", "User-agent: *\nDisallow: /x\nContent-Signal: ai-train=no\n"
	for _, tt := range []struct {
		name     string
		robots   string
		file     string
		identity Identity
		path     string
		asked    bool
		allowed  bool
		read     bool
		conflict string
	}{
		{"reserved", open, someTDM, trainer(t, PreferencesDeny, false, "train-ai"), "/a/b", true, false, true, tdmSays},
		{"reserved, purpose tdm", open, someTDM, trainer(t, PreferencesDeny, false, "tdm"), "/a", true, false, true, "tdm=n;from=tdmrep"},
		{"reserved in a form that servers resolve", open, someTDM, trainer(t, PreferencesDeny, false, "train-ai"), "/y/../a", true, false, true, tdmSays},
		{"reserved, logged only", open, someTDM, trainer(t, PreferencesLog, false, "train-ai"), "/a", true, true, true, tdmSays},
		{"not reserved", open, someTDM, trainer(t, PreferencesDeny, false, "tdm"), "/free", true, true, true, ""},
		{"not reserved, where the unknown is refused", open, someTDM, trainer(t, PreferencesDeny, true, "tdm"), "/free", true, true, true, ""},
		{"silent, where the unknown is refused", open, someTDM, trainer(t, PreferencesDeny, true, "tdm"), "/b", true, false, true, "tdm=unknown"},
		{"no rule", open, someTDM, trainer(t, PreferencesDeny, false, "train-ai"), "/b", true, true, true, ""},
		{"no robots.txt", "", someTDM, trainer(t, PreferencesDeny, false, "train-ai"), "/a", true, false, true, tdmSays},
		{"no file", open, "", trainer(t, PreferencesDeny, false, "train-ai"), "/a", true, true, false, ""},
		{"another purpose", open, someTDM, trainer(t, PreferencesDeny, false, "search", "archive"), "/a", false, true, false, ""},
		{"no agent block", open, someTDM, crawler(t, "other/1.0"), "/a", false, true, false, ""},
		{"refused by robots.txt before", reserved, someTDM, trainer(t, PreferencesDeny, false, "train-ai"), "/a", false, false, false, "train-ai=n;from=robots;line=3"},
		{"disallowed", open, someTDM, trainer(t, PreferencesDeny, false, "train-ai"), "/x", false, false, false, ""},
		{"robots.txt itself", open, someTDM, trainer(t, PreferencesDeny, false, "train-ai"), "/robots.txt", false, true, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			record := rules(tt.robots)
			if tt.robots == "" {
				record = absent(404)
			}
			file := &tdmFile{text: tt.file}
			e := newEnforcer(siteOf(record, defaults), nil, nil)
			e.Reads, e.Files = Signals{RobotsTxt: true, Headers: true, TDMFile: true}, file
			d := e.Decide(t.Context(), Request{
				Method: "GET", Target: origin.Target{Origin: mustOrigin(t, "http://example.com"), Path: tt.path}, Identity: tt.identity,
			})
			r := d.Record()
			if file.lookups > 0 != tt.asked || d.Allowed != tt.allowed || strings.Contains(r.SignalsRead, "tdm_file") != tt.read || d.Conflict != tt.conflict {
				t.Errorf("%d lookups; decision %s, reason %s, read %s, conflict %q", file.lookups, r.Decision, r.Reason, r.SignalsRead, d.Conflict)
			}
			var text *robotstxt.Ruleset
			if tt.robots != "" {
				text = robotstxt.Parse([]byte(tt.robots))
			}
			if _, wishes, ok := Reread(&r, text, tt.identity.Robots, tt.path); tt.read && (!ok || !slices.Equal(wishes, r.Preferences)) {
				t.Errorf("the log has %q with %q; Reread returned %q, %t", r.Preferences, r.SignalFields, wishes, ok)
			}
		})
	}
}

// TestTDMFileAndAnswer checks that the field supersedes the file (TDMRep, "Processing priority"),
// in the log and on pages. A refusal by the file stays, because the field never came. The log has
// the rule beside the fields.
func TestTDMFileAndAnswer(t *testing.T) {
	t.Parallel()
	e := newEnforcer(siteOf(absent(404), defaults), nil, nil)
	e.Reads, e.Files = Signals{Headers: true, TDMFile: true}, &tdmFile{text: someTDM}
	d := e.Decide(t.Context(), Request{
		Method: "GET", Target: origin.Target{Origin: mustOrigin(t, "http://example.com"), Path: "/a"}, Identity: trainer(t, PreferencesLog, false, "train-ai"),
	})
	shown := d.ReadAnswer(200, map[string][]string{"Tdm-Reservation": {"0"}})
	r := d.Record()
	if want := []string{somePath, "Tdm-Reservation: 0"}; !slices.Equal(r.SignalFields, want) {
		t.Errorf("the log has the fields %q, want %q", r.SignalFields, want)
	}
	if want := "tdm=y;from=tdm-reservation"; shown != want || !slices.Equal(r.Preferences, []string{want}) || r.Conflict != tdmSays {
		t.Errorf("shown %q, logged %q, conflict %q", shown, r.Preferences, r.Conflict)
	}
	if _, wishes, ok := Reread(&r, nil, robotstxt.Agent{}, "/a"); !ok || !slices.Equal(wishes, r.Preferences) {
		t.Errorf("Reread returned %q, %t", wishes, ok)
	}
	r.SignalFields[0] = `tdm file: {"location":"/b","tdm-reservation":1}`
	r.SignalFields = r.SignalFields[:1]
	if _, wishes, ok := Reread(&r, nil, robotstxt.Agent{}, "/a"); !ok || len(wishes) > 0 {
		t.Errorf("Reread returned %q, %t for a rule for another path", wishes, ok)
	}
	for _, bad := range []string{`tdm file: {`, `tdm file: {"location":"/\u0026","tdm-reservation":1}`} {
		r.SignalFields[0] = bad
		if _, _, ok := Reread(&r, nil, robotstxt.Agent{}, "/a"); ok {
			t.Errorf("Reread accepted %s", bad)
		}
	}
}

// TestPreferencesOfTunnel checks that a blind tunnel is refused for a line that applies to the
// agent and denies one of its purposes on any path, and for no other line.
func TestPreferencesOfTunnel(t *testing.T) {
	t.Parallel()
	const everybody = "User-agent: *\nAllow: /\n"
	for _, tt := range []struct {
		name, robots string
		alsoObey     []string
		unknown      bool
		restricted   bool
	}{
		{"nothing", everybody, nil, false, false},
		{"a licence", everybody + "License: https://a.example/l.xml\n", nil, false, false},
		{"another crawler's group", everybody + "\nUser-agent: OtherBot\nContent-Usage: train-ai=n\n", nil, false, false},
		{"a group that it obeys as well", everybody + "\nUser-agent: OtherBot\nContent-Usage: train-ai=n\n", []string{"OtherBot"}, false, true},
		{"the agent's own group", everybody + "Content-Usage: train-ai=n\n\nUser-agent: trainer\nAllow: /\n", nil, false, false},
		{"yes", everybody + "Content-Signal: ai-train=yes, search=yes\n", nil, false, false},
		{"yes, where the unknown is refused", everybody + "Content-Signal: ai-train=yes\n", nil, true, true},
		{"another purpose", everybody + "Content-Usage: search=n\n", nil, false, false},
		{"an invalid value", everybody + "Content-Usage: train-ai=\"n\"\n", nil, false, false},
		{"a line outside of groups", "Content-Usage: train-ai=n\n" + everybody, nil, false, false},
		{"no", everybody + "Content-Usage: train-ai=n\n", nil, false, true},
		{"no to a signal", everybody + "Content-Signal: search=yes, ai-train=no\n", nil, false, true},
		{"no to a signal for all", "Content-Signal: ai-train=no\n" + everybody, nil, false, true},
		{"no to one path", everybody + "Content-Usage: train-ai=y\nContent-Usage: /a train-ai=n\n", nil, false, true},
		{"more lines than are read", everybody + strings.Repeat("Content-Usage: search=n\n", 1001), nil, false, true},
		{"no behind many lines", everybody + strings.Repeat("Content-Usage: search=n\n", 900) + "Content-Usage: /b train-ai=n\n", nil, false, true},
	} {
		e := newEnforcer(siteOf(rules(tt.robots), defaults), mustPolicy(t, PolicyConfig{ConnectDefault: ConnectTunnel}), nil)
		e.Reads = Signals{RobotsTxt: true}
		agent := Agent{Name: "trainer", Purposes: []string{"train-ai"}, DenyUnknown: tt.unknown, AlsoObey: tt.alsoObey}
		id := mustIdentifier(t, IdentifierConfig{Agents: []Agent{agent}}).Identify(t.Context(), Sender{UserAgent: "trainer/1.0"})
		d := e.DecideTunnel(t.Context(), id, mustOrigin(t, "https://example.com"))
		if restricted := d.Reason == ReasonTunnelRestricted; restricted != tt.restricted || d.Allowed == tt.restricted {
			t.Errorf("%s: %s, allowed %t", tt.name, d.Reason, d.Allowed)
		}
	}
}

// TestTDMFileUnread checks that a file that cannot be read does not hold back the page, and that
// the line says so. Neither an audit nor a simulation claims to know its rules.
func TestTDMFileUnread(t *testing.T) {
	t.Parallel()
	for _, mode := range []PreferenceMode{PreferencesDeny, PreferencesLog} {
		e := newEnforcer(siteOf(absent(404), defaults), nil, nil)
		e.Reads, e.Files = Signals{Headers: true, TDMFile: true}, &tdmFile{text: `[{"location":"/","tdm-reservation":1},]`}
		d := e.Decide(t.Context(), Request{
			Method: "GET", Target: origin.Target{Origin: mustOrigin(t, "http://example.com"), Path: "/a"}, Identity: trainer(t, mode, false, "train-ai"),
		})
		d.ReadAnswer(200, map[string][]string{"Tdm-Reservation": {"0"}})
		r := d.Record()
		if want := []string{"tdm file unread: no JSON", "Tdm-Reservation: 0"}; !d.Allowed || !r.SignalsCut || !slices.Equal(r.SignalFields, want) || r.SignalsRead != "headers" {
			t.Errorf("allowed %t, cut %t, %q, read %q", d.Allowed, r.SignalsCut, r.SignalFields, r.SignalsRead)
		}
		if _, _, ok := Reread(&r, nil, robotstxt.Agent{}, "/a"); ok {
			t.Error("Reread accepted a line without the file")
		}
		if _, known := d.Recall(&r); known == (mode == PreferencesDeny) {
			t.Error("a simulation claims to know the file")
		}
	}
}

// TestTDMFileTooLong checks that a rule that is too long for a log line still decides, and that the
// line says that it was cut.
func TestTDMFileTooLong(t *testing.T) {
	t.Parallel()
	e := newEnforcer(siteOf(absent(404), defaults), nil, nil)
	e.Reads, e.Files = Signals{Headers: true, TDMFile: true}, &tdmFile{text: `[{"location":"/","tdm-reservation":1,"tdm-policy":"` + strings.Repeat("p", maxSignalFields) + `"}]`}
	d := e.Decide(t.Context(), Request{
		Method: "GET", Target: origin.Target{Origin: mustOrigin(t, "http://example.com"), Path: "/a"}, Identity: trainer(t, PreferencesLog, false, "tdm"),
	})
	d.ReadAnswer(200, nil)
	if r := d.Record(); r.Conflict != "tdm=n;from=tdmrep" || !r.SignalsCut {
		t.Errorf("the record is %+v", r)
	}
}

// TestTDMFileOfTunnel checks that without a path any rule that reserves rights refuses under
// `deny`. Without `deny` the file is not fetched.
func TestTDMFileOfTunnel(t *testing.T) {
	t.Parallel()
	const restricted = "User-agent: *\nDisallow: /x\n"
	for _, tt := range []struct {
		record   fetch.Record
		file     string
		mode     PreferenceMode
		asked    bool
		reason   Reason
		conflict string
	}{
		{rules(""), someTDM, PreferencesDeny, true, ReasonPreferenceDenied, tdmSays},
		{absent(404), someTDM, PreferencesDeny, true, ReasonPreferenceDenied, tdmSays},
		{rules(""), `[{"location":"/","tdm-reservation":0}]`, PreferencesDeny, true, ReasonUnrestricted, ""},
		{rules(""), "", PreferencesDeny, true, ReasonUnrestricted, ""},
		{rules(""), someTDM, "", true, ReasonPreferenceDenied, tdmSays},
		{rules(""), someTDM, PreferencesLog, false, ReasonUnrestricted, ""},
		{absent(404), someTDM, PreferencesLog, false, ReasonAbsent, ""},
		{rules(restricted), someTDM, PreferencesDeny, false, ReasonTunnelRestricted, ""},
	} {
		file := &tdmFile{text: tt.file}
		e := newEnforcer(siteOf(tt.record, defaults), mustPolicy(t, PolicyConfig{ConnectDefault: ConnectTunnel}), nil)
		e.Reads, e.Files = Signals{RobotsTxt: true, TDMFile: true}, file
		d := e.DecideTunnel(t.Context(), trainer(t, tt.mode, false, "train-ai"), mustOrigin(t, "https://example.com"))
		if d.Reason != tt.reason || d.Conflict != tt.conflict || file.lookups > 0 != tt.asked {
			t.Errorf("%s, %s, %s: reason %s, conflict %q, %d lookups", tt.record.State, tt.file, tt.mode, d.Reason, d.Conflict, file.lookups)
		}
	}
}
