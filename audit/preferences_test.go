package audit

import (
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
)

// TestTDMFileLines checks that a line with the rule of a TDM file is computed from it. If the rule
// was longer than a line, or the log does not show the whole URL, nothing is claimed.
func TestTDMFileLines(t *testing.T) {
	t.Parallel()
	const (
		rule = `tdm file: {"location":"/a","tdm-reservation":1}`
		free = `tdm file: {"location":"/a","tdm-reservation":0}`
		url  = "http://plain.example/a"
	)
	line := lineOf(t, enforce.LogRecord{
		Schema: 2, Decision: "allow", Reason: enforce.ReasonAbsent, Mode: "enforce", Agent: "AcmeBot", Tokens: []string{"AcmeBot"},
		Origin: "http://plain.example", RobotsURL: "http://plain.example/robots.txt", State: "absent", Source: "hot", PathVisible: true,
		SignalsRead: "robots_txt+headers+tdm_file", Vocabulary: enforce.Vocabulary, SignalFields: []string{rule}, Purposes: []string{"tdm"},
		Preferences: []string{"train-ai=n;from=tdmrep", "tdm=n;from=tdmrep"}, Conflict: "tdm=n;from=tdmrep",
	}, "GET", url, noon)
	for _, tt := range []struct {
		name string
		line object
		want string
	}{
		{"as logged", line, ""},
		{"a field supersedes the file", line.with("signal_fields", []string{rule, "Tdm-Reservation: 0"}).with("preferences", []string{"tdm=y;from=tdm-reservation"}), ""},
		{"another rule", line.with("signal_fields", []string{free}), "a:1 preference\n"},
		{"no rule", line.with("signal_fields", nil), "a:1 preference\n"},
		{"a rule for another path", line.asked("http://plain.example/b"), "a:1 preference\n"},
		{"a line of another vocabulary", line.with("signal_fields", nil).with("vocabulary", "aipref-07"), ""},
		{"the rule was cut", line.with("signal_fields", nil).with("signals_cut", true), ""},
		{"a query that is not shown", line.asked("http://plain.example/b?REDACTED"), ""},
		{"a path that JSON does not hold", line.asked("http://plain.example/\uFFFD"), ""},
	} {
		if r := auditLogs(t, Config{Texts: memory{}, Redacted: "REDACTED"}, logOf(t, tt.line)); r.brief() != tt.want {
			t.Errorf("%s: findings %q", tt.name, r.brief())
		}
	}
}
