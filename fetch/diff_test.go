package fetch

import (
	"slices"
	"testing"
	"time"
)

// TestExt_Diff checks which steps from one record to the next are reported.
func TestExt_Diff(t *testing.T) {
	t.Parallel()
	p := Policy{}.Complete()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rules := Outcome{Kind: KindRules, Status: 200, Body: []byte("User-agent: *\nDisallow: /a\n")}
	other := Outcome{Kind: KindRules, Status: 200, Body: []byte("User-agent: *\nDisallow: /b\n")}
	absent := Outcome{Kind: KindAbsent, Cause: CauseStatus, Status: 404}
	failed := Outcome{Cause: CauseDNS, Detail: "no such host"}
	unknown := Record{Origin: mustOrigin(t, "https://example.com")}
	known := p.Next(unknown, rules, start)
	// run returns a record after failures at these hours.
	run := func(hours ...int) Record {
		r := known
		for _, h := range hours {
			r = p.Next(r, failed, start.Add(time.Duration(h)*time.Hour))
		}
		return r
	}
	newRun := p.Next(p.Next(run(1, 9), rules, start.Add(10*time.Hour)), failed, start.Add(11*time.Hour))
	for _, tt := range []struct {
		name   string
		before Record
		out    Outcome
		hour   int
		want   []string
	}{
		{"a new origin", unknown, rules, 1, nil},
		{"a new origin that is unreachable", unknown, failed, 1, nil},
		{"the same text", known, rules, 1, nil},
		{"another text", known, other, 1, []string{"rules"}},
		{"a file that is gone", known, absent, 1, []string{"state"}},
		{"a file that was never there", p.Next(unknown, absent, start), rules, 1, []string{"state"}},
		{"a failure inside the TTL", known, failed, 1, nil},
		{"a failure behind the TTL", known, failed, 25, []string{"state"}},
		{"one that was given up", known, Outcome{Cause: CauseCanceled}, 25, nil},
		{"less than 6 hours", run(1, 2), failed, 6, nil},
		{"6 hours", run(1, 2, 6), failed, 7, []string{"alarm"}},
		{"6 hours at once", run(1), failed, 7, []string{"alarm"}},
		{"told already", run(1, 7), failed, 8, nil},
		{"told already, and given up", run(1, 7), Outcome{Cause: CauseCanceled}, 8, nil},
		{"a new run", newRun, failed, 17, []string{"alarm"}},
		// The answer's 24 hours had ended, so it was unreachable before this failure.
		{"6 hours behind the TTL", run(20), failed, 27, []string{"alarm"}},
		{"back with the same text", run(20, 26), rules, 27, []string{"state"}},
		{"back with another text", run(20, 26), other, 27, []string{"state", "rules"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := p.Diff(tt.before, tt.out, start.Add(time.Duration(tt.hour)*time.Hour))
			var got []string
			if d.StateChanged() {
				got = append(got, "state")
			}
			if d.RulesChanged() {
				got = append(got, "rules")
			}
			if d.Alarmed() {
				got = append(got, "alarm")
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
