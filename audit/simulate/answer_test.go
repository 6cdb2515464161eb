package simulate

import (
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
)

// TestAnswers checks that the signals of an answer come from the fields and tags in the line, and
// are compared with the purposes of the other policy. If the line lacks something that could refuse
// the request, it is not reported as different.
func TestAnswers(t *testing.T) {
	t.Parallel()
	const field, page = "X-Robots-Tag: noai", "meta robots: noai"
	agent := func(mode enforce.PreferenceMode, purposes ...string) enforce.Agent {
		return enforce.Agent{Name: "AcmeBot", Preferences: mode, Purposes: purposes}
	}
	trainer := agent(enforce.PreferencesDeny, "train-ai")
	line := func(reason enforce.Reason, conflict, read string, fields ...string) enforce.LogRecord {
		r := disallowed().Robots
		r.Decision, r.Reason, r.Rule, r.Line = enforce.OutcomeAllow, reason, "", 0
		if reason == enforce.ReasonPreferenceDenied {
			r.Decision = enforce.OutcomeDeny
		}
		r.SignalsRead, r.SignalFields, r.Conflict, r.Purposes = read, fields, conflict, []string{"train-ai"}
		if !strings.Contains(conflict, "from=robots") {
			r.SentAt = enforce.SecondsOf(noon)
		}
		return r
	}
	refused := func(conflict, read string, fields ...string) enforce.LogRecord {
		return line(enforce.ReasonPreferenceDenied, conflict, read, fields...)
	}
	passed := func(read string, fields ...string) enforce.LogRecord {
		return line(enforce.ReasonNoRule, "", read, fields...)
	}
	const both, all = "robots_txt+headers", "robots_txt+headers+html"
	byField, byPage := "train-ai=n;from=x-robots-tag", "train-ai=n;from=meta"
	byFile, file := "train-ai=n;from=tdmrep", `tdm file: {"location":"/","tdm-reservation":1}`
	headers := enforce.Signals{RobotsTxt: true, Headers: true}
	files := headers
	files.TDMFile = true
	none, logs, holds := enforce.Signals{RobotsTxt: true}, headers, headers
	logs.HTML, holds.HTML = enforce.HTMLLog, enforce.HTMLHold
	const same, passes, denied = "as before", "allow no_rule AcmeBot", "deny preference_denied AcmeBot"
	for _, tt := range []struct {
		name       string
		agent      enforce.Agent
		reads      enforce.Signals
		line       enforce.LogRecord
		want       string
		asRecorded int64
	}{
		{"a field refuses still", trainer, headers, refused(byField, both, field), same, 0},
		{"a field, and conflicts are logged", agent(enforce.PreferencesLog, "train-ai"), headers, refused(byField, both, field), passes, 0},
		{"a field, and another purpose", agent(enforce.PreferencesDeny, "search"), headers, refused(byField, both, field), passes, 0},
		{"a field, and no purpose", agent(enforce.PreferencesDeny), headers, refused(byField, both, field), passes, 0},
		{"a field, and none is read", trainer, none, refused(byField, both, field), passes, 0},
		{"a field would refuse", trainer, headers, passed(both, field), denied, 0},
		{"a field would refuse, in lines that were logged", trainer, headers, line(enforce.ReasonNoRule, byField, both, field), denied, 0},
		{"no field refuses", trainer, headers, passed(both, "Content-Usage: train-ai=y"), same, 0},
		{"fields were not read", trainer, headers, passed("robots_txt"), same, 1},
		{"fields were not read, and nothing refuses", agent(enforce.PreferencesLog, "train-ai"), headers, passed("robots_txt"), same, 0},
		{"a page refuses still", trainer, holds, refused(byPage, all, page), same, 0},
		{"a page would refuse", trainer, holds, passed(all, page), denied, 0},
		{"a page passes before it is read", trainer, logs, refused(byPage, all, page), passes, 0},
		{"a page, and none is read", trainer, headers, refused(byPage, all, page), passes, 0},
		{"pages were not read", trainer, holds, passed(both), same, 1},
		{"a field kept the page back", agent(enforce.PreferencesDeny, "search"), holds, refused(byField, all, field), same, 1},
		{"a field kept the page back, and does so still", trainer, holds, refused(byField, all, field), same, 0},
		{"a field goes before a page", trainer, holds, passed(all, "Tdm-Reservation: 1", "meta tdm-reservation: 0"), denied, 0},
		{
			"tags for other names were not looked for",
			enforce.Agent{Name: "AcmeBot", Purposes: []string{"search"}, AlsoObey: []string{"Other"}},
			holds, passed(all, page), same, 1,
		},
		{"a line of robots.txt, which the text does not have", trainer, headers, refused("train-ai=n;from=robots;line=3", both), passes, 0},
		{"nothing stated", trainer, headers, refused("train-ai=unknown", both), passes, 0},
		{"a TDM file refuses still", trainer, files, refused(byFile, both+"+tdm_file", file), same, 0},
		{"a TDM file, and conflicts are logged", agent(enforce.PreferencesLog, "train-ai"), files, refused(byFile, both+"+tdm_file", file), passes, 0},
		{"a TDM file, and another purpose", agent(enforce.PreferencesDeny, "search"), files, refused(byFile, both+"+tdm_file", file), passes, 0},
		{"a TDM file, and none is read", trainer, headers, refused(byFile, both+"+tdm_file", file), passes, 0},
		{"a TDM file would refuse", trainer, files, passed(both+"+tdm_file", file), denied, 0},
		{"a TDM file refuses nothing", trainer, files, passed(both+"+tdm_file", `tdm file: {"location":"/","tdm-reservation":0}`), same, 0},
		{"a rule of a TDM file that the log has changed", trainer, files, refused(byFile, both+"+tdm_file", `tdm file: {"location":"/\xff"}`), same, 1},
		{"a value that the log has changed", trainer, headers, refused(byField, both, `X-Robots-Tag: noai \xff`), same, 1},
		{"a value that the log has changed, and it passed", trainer, headers, passed(both, `X-Robots-Tag: noai \xff`), same, 1},
	} {
		r := disallowed()
		r.URI, r.Robots = "https://example.com/open", tt.line
		p := policy(t, []enforce.Agent{tt.agent}, enforce.PolicyConfig{})
		p.Signals = tt.reads
		got, totals := run(t, Config{Policy: p, Texts: newStored()}, r)
		if got != tt.want || totals.AsRecorded != tt.asRecorded {
			t.Errorf("%s: %s, %d as recorded; want %s, %d", tt.name, got, totals.AsRecorded, tt.want, tt.asRecorded)
		}
	}
	t.Run("cut", func(t *testing.T) {
		t.Parallel()
		r := disallowed()
		r.URI, r.Robots = "https://example.com/open", passed(both, field)
		r.Robots.SignalsCut = true
		p := policy(t, []enforce.Agent{trainer}, enforce.PolicyConfig{})
		p.Signals = headers
		if got, totals := run(t, Config{Policy: p, Texts: newStored()}, r); got != same || totals.AsRecorded != 1 {
			t.Error(got, totals)
		}
	})
	t.Run("an error has no content", func(t *testing.T) {
		t.Parallel()
		r := disallowed()
		r.URI, r.Robots, r.Status = "https://example.com/open", passed(both, field), 404
		p := policy(t, []enforce.Agent{trainer}, enforce.PolicyConfig{})
		p.Signals = headers
		if got, totals := run(t, Config{Policy: p, Texts: newStored()}, r); got != same || totals.AsRecorded != 0 {
			t.Error(got, totals)
		}
	})
	t.Run("mode report", func(t *testing.T) {
		t.Parallel()
		r := disallowed()
		r.URI, r.Robots = "https://example.com/open", refused(byField, both, field)
		p := policy(t, []enforce.Agent{trainer}, enforce.PolicyConfig{Mode: enforce.ModeReport})
		p.Signals = headers
		if got, _ := run(t, Config{Policy: p, Texts: newStored()}, r); got != "allow (would deny) preference_denied AcmeBot" {
			t.Error(got)
		}
		r.Robots.Decision, r.Robots.WouldDeny, r.Robots.Mode = enforce.OutcomeAllow, true, "report"
		if got, totals := run(t, Config{Policy: p, Texts: newStored()}, r); got != same || totals.AsRecorded != 0 {
			t.Error(got, totals)
		}
	})
}
