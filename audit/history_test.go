package audit

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/evidence"
	"github.com/crawlgate/crawlgate/robotscache"
)

// answered returns a line about the robots.txt of an origin, some seconds after noon.
func answered(second int, a robotscache.Answer) object {
	a.Schema, a.At = robotscache.AnswerSchema, noon.Add(time.Duration(second)*time.Second)
	if a.Event == "" {
		a.Event = robotscache.EventFetched
	}
	return object{
		"level": "info", "ts": float64(noon.Unix() + int64(second)), "logger": "http.log.access.log0", "msg": "robots.txt", "robots_txt": a,
	}
}

// TestHistory checks that a line is based on the log's earlier lines about its origin, as of the
// time of its decision, and that a changed line is found. Without an earlier line about the origin,
// there is no finding.
func TestHistory(t *testing.T) {
	t.Parallel()
	store := memory{}
	lines := sampleLines(t, store)
	site := lines["disallowed"]["robots"].(object)["origin"].(string)
	sha, other := lines["disallowed"]["robots"].(object)["sha256"].(string), store.keep("User-agent: *\nDisallow:\n")
	text := func(second int, sha string) object {
		return answered(second, robotscache.Answer{Origin: site, Status: 200, State: "rules", SHA256: sha, FetchedAt: noon})
	}
	none := func(second int) object {
		return answered(second, robotscache.Answer{Origin: lines["absent"]["robots"].(object)["origin"].(string), Status: 404, Cause: "status", State: "absent"})
	}
	failed := func(second int, lastGood string) object {
		return answered(second, robotscache.Answer{Origin: site, Status: 503, Cause: "status", State: "unreachable", SHA256: lastGood})
	}
	changed := func(line object, change func(a *robotscache.Answer)) object {
		a := line["robots_txt"].(robotscache.Answer)
		change(&a)
		line["robots_txt"] = a
		return line
	}
	after := func(second int, line string) object {
		return lines[line].at(noon.Add(time.Duration(second) * time.Second))
	}
	decided := func(second float64, o object) object { // decided earlier before its end than the others
		return o.with("decided_at", float64(noon.Unix())+second)
	}
	var refreshed []object
	for second := -900; second < 0; second += 10 {
		refreshed = append(refreshed, changed(text(second, other), func(a *robotscache.Answer) { a.FreshUntil = noon }))
	}
	const found, nothing, unknown = true, false, "unknown"
	for _, tt := range []struct {
		name string
		log  []object
		want any // of the last line
	}{
		{"the present text", []object{text(0, sha), after(60, "disallowed")}, nothing},
		{"an older text", []object{text(-60, sha), text(0, other), after(60, "disallowed")}, found},
		{"an older text, soon", []object{text(-60, sha), text(0, other), after(4, "allowed")}, found},
		{"an older text, of a request that was decided before the change", []object{text(-60, sha), text(0, other), decided(-1, after(60, "allowed"))}, nothing},
		{"an older text, of a request that was decided about the time of the change", []object{text(-60, sha), text(0, other), decided(0.4, after(1, "allowed"))}, nothing},
		{"an older text, of a request that was decided just after the change", []object{text(-60, sha), text(0, other), after(1, "allowed")}, found},
		{"a text that came again", []object{text(-60, sha), text(-30, other), text(0, sha), after(9, "allowed")}, nothing},
		{"a text of another site", []object{text(-60, other), after(60, "allowed")}, found},
		{"a text in place of none", []object{answered(0, robotscache.Answer{Origin: site, Status: 404, Cause: "status", State: "absent"}), after(60, "allowed")}, found},
		{"a text in place of a failure", []object{failed(0, ""), after(60, "allowed")}, found},
		{"a later text, of a request that had left", []object{text(-60, other), text(30, sha), decided(0, after(60, "allowed")).with("sent_at", float64(noon.Unix()))}, found},
		{"a later text, of a request that was refused", []object{text(-60, other), text(30, sha), decided(0, after(60, "disallowed"))}, found},
		{"a later text, by a clock that was set back", []object{text(-9000, other), text(30, sha), after(-3600, "allowed").with("sent_at", float64(noon.Unix()-3600))}, nothing},
		{"a text that was refreshed in vain", []object{text(-60, sha), changed(text(0, sha), func(a *robotscache.Answer) { a.Status, a.Cause = 503, "status" }), after(9, "allowed")}, nothing},
		{"the last good text of a failing site", []object{failed(0, sha), after(60, "allowed").with("state", "unreachable")}, nothing},
		{"another text of a failing site", []object{failed(0, other), after(60, "allowed").with("state", "unreachable")}, found},
		{"a text whose time had ended", []object{changed(text(0, sha), func(a *robotscache.Answer) { a.FreshUntil = noon.Add(time.Minute) }), after(90, "allowed")}, found},
		{"a text that has expired since", []object{changed(text(0, sha), func(a *robotscache.Answer) { a.FreshUntil = noon.Add(time.Minute) }), decided(10, after(90, "allowed"))}, nothing},
		{"after a restart that lost the last answer", []object{text(-60, sha), text(0, other), changed(text(3, sha), func(a *robotscache.Answer) { a.Event = "known" }), after(60, "allowed")}, nothing},
		{"an answer that a purge overtook", []object{text(-60, other), changed(text(0, sha), func(a *robotscache.Answer) { a.Discarded = true }), decided(0.1, after(9, "allowed"))}, nothing},
		{"the rules in force in the meantime", []object{text(-60, sha), changed(text(0, other), func(a *robotscache.Answer) { a.Discarded = true }), after(60, "allowed")}, nothing},
		{"later, the rules that a purge overtook", []object{text(-60, other), changed(text(0, sha), func(a *robotscache.Answer) { a.Discarded = true }), after(60, "allowed")}, found},
		{"a purge", []object{text(0, sha), answered(5, robotscache.Answer{Origin: site, Event: "purged"}), after(60, "allowed")}, nothing},
		{"a fetch that was not kept", []object{text(0, sha), answered(5, robotscache.Answer{Origin: site, Cause: "canceled", Discarded: true, State: ""}), after(60, "allowed")}, nothing},
		{"a text that is refreshed all the time while a request lasts", slices.Concat([]object{text(-3600, sha), text(-1000, other)}, refreshed, []object{decided(-1940, after(60, "allowed"))}), nothing},
		{"an older text, refreshed since all the time", slices.Concat([]object{text(-3600, sha), text(-1000, other)}, refreshed, []object{after(60, "allowed")}), found},
		{"a variant", []object{text(0, sha), changed(text(5, other), func(a *robotscache.Answer) { a.FetchedAs = "AcmeBot" }), after(60, "allowed")}, nothing},
		{"another gateway in the log", []object{text(0, sha), changed(text(5, other), func(a *robotscache.Answer) { a.Gateway = "gw2" }), after(60, "allowed")}, nothing},
		{"none", []object{none(0), after(60, "absent")}, nothing},
		{"none in place of a text", []object{changed(none(0), func(a *robotscache.Answer) { a.Status, a.Cause, a.State, a.SHA256 = 200, "", "rules", sha }), after(60, "absent")}, found},
		{"before the first line about the origin", []object{text(0, other), decided(-1, after(60, "allowed"))}, unknown},
		{"no line about the origin", []object{none(0), after(60, "allowed")}, unknown},
		{"an unreachable site", []object{after(60, "unreachable")}, nothing},
		{"robots.txt itself rests on no text", []object{after(60, "robots.txt")}, nothing},
		{"a decision of an unknown time", []object{text(0, sha), after(60, "allowed").with("decided_at", nil)}, unknown},
		{"a decision of an unknown time, and another text", []object{text(0, other), after(60, "allowed").with("decided_at", "REDACTED")}, unknown},
		{"a decision and an end of unknown times", []object{text(0, sha), after(60, "allowed").with("decided_at", nil).with("ended_at", nil)}, unknown},
		{"an end of an unknown time", []object{text(0, sha), text(30, other), decided(10, after(60, "allowed")).with("ended_at", "REDACTED")}, nothing},
		{"an end of an unknown time, and an older text", []object{text(-60, sha), text(0, other), after(60, "allowed").with("ended_at", nil)}, found},
	} {
		r := auditLogs(t, Config{Texts: store}, logOf(t, tt.log...))
		got := any(len(r.findings) == 1 && r.findings[0].Kind == KindHistory && r.findings[0].Line == int64(len(tt.log)))
		if r.totals.NotProvable[CauseHistory] == 1 && len(r.findings) == 0 {
			got = unknown
		}
		if got != tt.want || len(r.findings) > 1 || len(r.faults) > 0 || r.totals.Answers != int64(len(tt.log)-1) || r.totals.Foreign != 0 || r.totals.Checked != 1 {
			t.Errorf("%s: %v, want %v: %+v, %+v", tt.name, got, tt.want, r.findings, r.totals)
		}
	}
}

// TestHistoryOfSeveralLogs checks that each log has its own history, in the same folder or in
// another.
func TestHistoryOfSeveralLogs(t *testing.T) {
	t.Parallel()
	store := memory{}
	l := sampleLines(t, store)["allowed"]
	site, sha := l["robots"].(object)["origin"].(string), l["robots"].(object)["sha256"].(string)
	other := store.keep("User-agent: *\nDisallow:\n")
	log := func(logger string, hour int, shas ...string) string {
		var lines []object
		for _, sha := range shas {
			a := answered(3600*hour-60, robotscache.Answer{Origin: site, Status: 200, State: "rules", SHA256: sha})
			a["logger"] = logger
			lines = append(lines, a)
		}
		line := l.at(noon.Add(time.Duration(hour) * time.Hour))
		line["logger"] = logger
		return logOf(t, append(lines, line)...)
	}
	for _, tt := range []struct {
		logs []string
		want int
	}{
		{[]string{log("a", 0, sha), log("b", 1, other, sha), log("a", 2)}, 0},
		{[]string{log("a", 2, other), log("b", 1, sha)}, 1},
		{[]string{log("a", 0, sha, other), log("b", 1, sha)}, 1},
		{[]string{log("a", 2, other, sha), log("b", -1, sha)}, 0},
	} {
		if r := auditLogs(t, Config{Texts: store}, tt.logs...); len(r.findings) != tt.want || r.totals.NotProvable[CauseHistory] != 0 {
			t.Errorf("%d findings, want %d: %+v", len(r.findings), tt.want, r.totals)
		}
	}
}

// TestHistoryOfASplitLog checks that the lines of a gateway may be in several logs, and that those
// of another gateway prove nothing.
func TestHistoryOfASplitLog(t *testing.T) {
	t.Parallel()
	store := memory{}
	l := sampleLines(t, store)["allowed"].at(noon.Add(time.Minute))
	site, sha := l["robots"].(object)["origin"].(string), l["robots"].(object)["sha256"].(string)
	other := store.keep("User-agent: *\nDisallow:\n")
	for gateway, want := range map[string]int{"": 0, "gw2": 1} {
		var logs [][]Source
		for _, text := range []string{
			logOf(t, answered(-60, robotscache.Answer{Origin: site, Status: 200, State: "rules", SHA256: other}), l),
			logOf(t, answered(0, robotscache.Answer{Origin: site, Status: 200, State: "rules", SHA256: sha, Gateway: gateway})),
		} {
			logs = append(logs, []Source{{"log", func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}})
		}
		var found []Finding
		_, err := Run(t.Context(), Config{Texts: store}, logs, func(f Finding) { found = append(found, f) }, func(f Fault) { t.Error(f) })
		if err != nil || len(found) != want {
			t.Errorf("gateway %q: %v, %+v, want %d findings", gateway, err, found, want)
		}
	}
}

// TestHistoryIsBounded checks that forgotten records are counted, and no longer prove anything.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	store := memory{}
	l := sampleLines(t, store)["allowed"]
	site, sha := l["robots"].(object)["origin"].(string), l["robots"].(object)["sha256"].(string)
	var lines []object
	for range 3 * keptVersions { // only the last versions of a record are kept
		lines = append(lines, answered(-60, robotscache.Answer{Origin: site, Status: 200, State: "rules", SHA256: sha}))
	}
	lines = append(lines, l)
	limits := defaultLimits
	limits.records = 1
	r := auditLogs(t, Config{Texts: store, limits: limits}, logOf(t, lines...))
	if r.totals.Caps.Records > 0 || r.totals.Replayed != 1 {
		t.Errorf("totals = %+v, want one line replayed", r.totals)
	}
	lines = append(lines[:1], answered(-30, robotscache.Answer{Origin: "https://b.example", Status: 404, Cause: "status", State: "absent"}), l)
	r = auditLogs(t, Config{Texts: store, limits: limits}, logOf(t, lines...))
	if r.totals.Caps.Records != 1 || r.totals.NotProvable[CauseHistory] != 1 {
		t.Errorf("totals = %+v, want one record forgotten and one line not provable", r.totals)
	}
}

// TestHistoryInAnyOrder checks that the times of lines tell which text was used, because a collector
// may change the order of lines that are close to one another.
func TestHistoryInAnyOrder(t *testing.T) {
	t.Parallel()
	store := memory{}
	line := sampleLines(t, store)["allowed"]
	robots := line["robots"].(object)
	own, other := robots["sha256"].(string), store.keep("User-agent: *\nDisallow:\n")
	text := func(second int, sha string) object {
		return answered(second, robotscache.Answer{Origin: robots["origin"].(string), Status: 200, State: "rules", SHA256: sha, FreshUntil: noon.Add(time.Hour)})
	}
	rests := func(second int) object { return line.at(noon.Add(time.Duration(second) * time.Second)) }
	lines := []object{text(-60, other), text(0, own), rests(30), text(60, other), rests(55)}
	for _, order := range [][5]int{{0, 1, 2, 4, 3}, {0, 2, 1, 3, 4}, {1, 0, 4, 2, 3}, {0, 3, 2, 4, 1}, {3, 2, 4, 0, 1}, {4, 3, 2, 1, 0}} {
		var log []object
		for _, i := range order {
			log = append(log, lines[i])
		}
		if r := auditLogs(t, Config{Texts: store}, logOf(t, log...)); len(r.findings) > 0 || r.totals.Checked != 2 {
			t.Errorf("%v: %+v", order, r.findings)
		}
		if order[0] != 0 || order[3] != 3 && order[4] != 3 {
			continue // in such an order, the clock may have been set back
		}
		if r := auditLogs(t, Config{Texts: store}, logOf(t, append(log, rests(90))...)); len(r.findings) != 1 || r.findings[0].Line != 6 {
			t.Errorf("%v, and one that rests on an older text: %+v", order, r.findings)
		}
	}
	held := rests(30).with("decided_at", float64(noon.Unix())+10)
	if r := auditLogs(t, Config{Texts: store}, logOf(t, text(-60, other), text(20, own), text(0, own), held)); len(r.findings) > 0 || r.totals.Replayed != 1 {
		t.Errorf("a later line about the same text first: %+v", r.findings)
	}
}

// TestAnswers checks that a line about a robots.txt that contradicts itself or its text is found.
func TestAnswers(t *testing.T) {
	t.Parallel()
	store := memory{}
	good := store.keep("User-agent: *\nDisallow:\n")
	altered := store.keep("User-agent: *\nDisallow: /\n")
	for sha, text := range store {
		if text.body[len(text.body)-2] == '/' {
			store[sha] = memoryText{body: []byte("User-agent: *\nDisallow: /a\n")}
		}
	}
	for want, tt := range map[string]robotscache.Answer{
		"schema 9 is not known":        {Schema: 9},
		`state "" cannot be at 0001`:   {Schema: robotscache.AnswerSchema},
		`state "rules" cannot be at 2`: {State: "rules", SHA256: "ABCD"},
		`state "rules" cannot be at`:   {State: "rules"},
		`state "open" cannot be`:       {State: "open"},
		`state "absent" cannot be`:     {State: "absent", Cause: "status", SHA256: good},
		`state "absent" cannot be at`:  {State: "absent", Status: 200},
		"the stored text has another":  {State: "rules", SHA256: altered},
		"":                             {State: "rules", SHA256: good},
	} {
		line := answered(0, tt)
		if tt.Schema != 0 {
			tt.Event = robotscache.EventFetched
			line["robots_txt"] = tt
		}
		r := auditLogs(t, Config{Texts: store}, logOf(t, line))
		if got := len(r.findings) == 1 && strings.HasPrefix(r.findings[0].Message, want); got != (want != "") || r.totals.Answers != 1 || r.totals.Checked != 0 {
			t.Errorf("want finding %q, got %+v", want, r.findings)
		}
	}
}

// If a log shows that lines are lost, lines about a robots.txt may be among them. Earlier lines about
// it then lead to no finding, until the log has newer ones.
func TestHistoryBehindLostLines(t *testing.T) {
	t.Parallel()
	store := memory{}
	lines := sampleLines(t, store)
	robots := lines["allowed"]["robots"].(object)
	text := func(second int, sha string) object {
		return answered(second, robotscache.Answer{Origin: robots["origin"].(string), Status: 200, State: "rules", SHA256: sha, FetchedAt: noon})
	}
	rests := func(second int) object { return lines["allowed"].at(noon.Add(time.Duration(second) * time.Second)) }
	older, lost := text(-60, store.keep("User-agent: *\nDisallow:\n")), rests(60).with("lost", 3)
	sealer := object{"logger": evidence.Logger, "msg": "lost", "lines": 7, "from": "2026-11-21T12:00:00Z", "to": "2026-11-21T12:01:00Z"}
	for i, tt := range []struct {
		log               []object
		findings, unknown int64
	}{
		{[]object{older, rests(60)}, 1, 0},
		{[]object{older, lost, rests(61)}, 0, 2},
		{[]object{older, lost, text(70, robots["sha256"].(string)), rests(90)}, 0, 1},
		{[]object{older, lost, text(70, older["robots_txt"].(robotscache.Answer).SHA256), rests(90)}, 1, 1},
	} {
		r := auditLogs(t, Config{Texts: store}, logOf(t, tt.log...))
		if r.totals.Findings[KindHistory] != tt.findings || r.totals.NotProvable[CauseHistory] != tt.unknown || len(r.findings) != int(tt.findings) {
			t.Errorf("case %d: findings %+v, not provable %+v", i, r.findings, r.totals.NotProvable)
		}
	}
	// Neither does a line that was cut off, that cannot be read, or that says so for the sealer.
	for between, errors := range map[string]int64{`{"level":"info","ts"` + "\n": 0, `{"level":"info","ts"`: 0, "\x01\n": 1, logOf(t, sealer): 1} {
		r := auditLogs(t, Config{Texts: store}, logOf(t, older)+between+logOf(t, rests(60)))
		if len(r.findings) > 0 || r.totals.NotProvable[CauseHistory] != 1 || r.totals.Errors != errors {
			t.Errorf("%q: %+v, %+v", between, r.findings, r.totals)
		}
	}
}
