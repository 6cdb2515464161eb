package simulate

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/budget"
	"github.com/crawlgate/crawlgate/enforce"
)

// TestBudget checks that the requests of a log are counted by their own times against the budget of
// another policy.
func TestBudget(t *testing.T) {
	t.Parallel()
	line := func(after time.Duration, host string, change func(r *enforce.LogRecord)) string {
		r := disallowed()
		r.URI = "https://" + host + "/open"
		r.Robots.Origin, r.Robots.Decision, r.Robots.Reason, r.Robots.Rule, r.Robots.Line = "https://"+host, enforce.OutcomeAllow, enforce.ReasonNoRule, "", 0
		r.Robots.DecidedAt = enforce.SecondsOf(noon.Add(after))
		r.Robots.SentAt = r.Robots.DecidedAt
		if change != nil {
			change(&r.Robots)
		}
		return r.line(t)
	}
	unsent := func(r *enforce.LogRecord) { r.Decision, r.Reason, r.SentAt = enforce.OutcomeError, "dns", 0 }
	refused := func(r *enforce.LogRecord) {
		r.Decision, r.Reason, r.SentAt = enforce.OutcomeDeny, enforce.ReasonBudget, 0
	}
	text := line(0, "a.example", nil) + line(1, "b.example", unsent) + line(2, "a.example", nil) + line(3, "a.example", nil) +
		line(4, "b.example", nil) + line(5, "b.example", refused) + line(24*time.Hour, "a.example", nil)
	for _, tt := range []struct {
		config *budget.Config
		want   string
	}{
		{&budget.Config{Requests: "3/day"}, "4: deny budget"},
		{&budget.Config{PerHost: "2/day"}, "3: deny budget"},
		{&budget.Config{Requests: "100/day"}, ""},
		{nil, "5: allow no_rule"},
	} {
		agent := enforce.Agent{Name: "AcmeBot"}
		if tt.config != nil {
			var err error
			if agent.Budget, err = tt.config.Allowance(); err != nil {
				t.Fatal(err)
			}
		}
		source := audit.Source{Name: "a.log", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
		var got []string
		_, err := Run(t.Context(), Config{Policy: policy(t, []enforce.Agent{agent}, enforce.PolicyConfig{}), Texts: newStored()}, [][]audit.Source{{source}},
			func(l *audit.Line, r Result) {
				got = append(got, fmt.Sprintf("%d: %s%s", l.Line-1, r.Cause, r.New.short()))
			}, func(f audit.Fault) { t.Error(f.Err) })
		if err != nil || strings.Join(got, ", ") != tt.want {
			t.Errorf("%+v: %q, %v; want %q", tt.config, got, err, tt.want)
		}
	}
}
