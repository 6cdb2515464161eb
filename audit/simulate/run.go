package simulate

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/enforce"
)

// Totals sum up a simulation.
type Totals struct {
	// Lines are the lines with a decision. Each counts as "same", "different", "not_computed", or
	// an error.
	Lines int64 `json:"lines"`
	// Same are the lines with the same decision.
	Same int64 `json:"same"`
	// Different are the lines with another decision.
	Different int64 `json:"different"`
	// Tunnels are the lines about tunnels (CONNECT), which are not requests. They have changes of
	// their own.
	Tunnels int64 `json:"tunnels"`
	// AsRecorded are lines with the same decision if it, or what their robots.txt permitted, was taken
	// from the line (docs/simulate.md#what-is-computed).
	AsRecorded int64 `json:"as_recorded"`
	// NotComputed are the lines that could not be decided, by their causes.
	NotComputed map[Uncomputed]int64 `json:"not_computed"`
	// Errors are lines, files and texts that could not be read.
	Errors int64 `json:"errors"`
	// Changes are the differences by old and new decision, the most frequent first.
	Changes []Change `json:"changes"`
	// Agents are the differences by the agent of the log. Beyond 10,000 agents, they count as
	// "(others)".
	Agents map[string]int64 `json:"agents"`
}

// Change is a change of the decision.
type Change struct {
	// Old is the decision and the reason of the log in words, after "tunnel" if it is about one.
	Old string `json:"old"`
	// New is the decision and the reason of the policy, in the same way.
	New string `json:"new"`
	// Lines is how many lines have this change.
	Lines int64 `json:"lines"`
}

// Verdict are the fields of the access log that are compared, and the line of the rule.
type Verdict struct {
	// Decision is "allow", "deny", or another word of the access log.
	Decision string `json:"decision"`
	// Reason is the reason of the decision.
	Reason enforce.Reason `json:"reason"`
	// WouldDeny says that the mode "report" let a refused request pass.
	WouldDeny bool `json:"would_deny"`
	// Agent is the name of the agent block.
	Agent string `json:"agent"`
	// Group is the User-agent of the group that decided.
	Group string `json:"group,omitempty"`
	// Rule is the pattern of the rule that decided.
	Rule string `json:"rule,omitempty"`
	// Line is the line of the rule in robots.txt.
	Line int `json:"line,omitempty"`
	// Form is the form of the path that decided.
	Form enforce.PathForm `json:"form,omitempty"`
	// Exception is the exception that let the request pass.
	Exception string `json:"exception,omitempty"`
}

func outcomeOf(r *enforce.LogRecord) Verdict {
	return Verdict{r.Decision, r.Reason, r.WouldDeny, r.Agent, r.Group, r.Rule, r.Line, r.Form, r.Exception}
}

// differs reports whether two outcomes differ. It ignores the form of the path and the line of the
// rule, which moves when a text gets longer.
func (o Verdict) differs(other Verdict) bool {
	o.Line, o.Form = other.Line, other.Form
	return o != other
}

// String describes the decision and the rule.
func (o Verdict) String() string {
	s := o.short()
	if o.Line > 0 {
		s += fmt.Sprintf(" by line %d, %q of group %q", o.Line, o.Rule, o.Group)
	}
	if o.Exception != "" {
		s += fmt.Sprintf(" by %q", o.Exception)
	}
	return s
}

func (o Verdict) short() string {
	if o.WouldDeny {
		return o.Decision + " (would deny) " + string(o.Reason)
	}
	return o.Decision + " " + string(o.Reason)
}

const mostAgents = 10_000

// Run decides the lines of logs. It calls report, in order, for lines that differ and lines that
// cannot be computed, and fault for what cannot be read. It ends early when ctx ends.
func Run(
	ctx context.Context, cfg Config, logs [][]audit.Source, report func(*audit.Line, Result), fault func(audit.Fault),
) (Totals, error) {
	s, t := New(cfg), Totals{NotComputed: make(map[Uncomputed]int64), Agents: make(map[string]int64), Changes: []Change{}}
	changes := make(map[Change]int64) // of a closed set
	failed := func(f audit.Fault) {
		if !f.Torn {
			t.Errors++
		}
		fault(f)
	}
	err := audit.Read(ctx, logs, func(l *audit.Line) {
		if l.Robots == nil || l.Again {
			return
		}
		t.Lines++
		if l.Tunnel() {
			t.Tunnels++
		}
		switch r, err := s.Decide(ctx, l); {
		case ctx.Err() != nil:
		case err != nil:
			failed(audit.Fault{Place: l.Place, Err: err})
		case t.count(l, &r, changes):
			report(l, r)
		}
	}, failed)
	for c, n := range changes {
		c.Lines = n
		t.Changes = append(t.Changes, c)
	}
	slices.SortFunc(t.Changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(b.Lines, a.Lines), cmp.Compare(a.Old, b.Old), cmp.Compare(a.New, b.New))
	})
	return t, err
}

// count counts the result of a line, and reports whether the line is to be reported.
func (t *Totals) count(l *audit.Line, r *Result, changes map[Change]int64) (tell bool) {
	switch {
	case r.Cause != "":
		t.NotComputed[r.Cause]++
	case r.Differs:
		what := ""
		if l.Tunnel() {
			what = "tunnel "
		}
		t.Different++
		changes[Change{Old: what + r.Old.short(), New: what + r.New.short()}]++
		agent := audit.Label(l.Robots.Agent)
		if t.Agents[agent] == 0 && len(t.Agents) >= mostAgents {
			agent = audit.Others
		}
		t.Agents[agent]++
	default:
		t.Same++
		if r.AsRecorded {
			t.AsRecorded++
		}
		return false
	}
	return true
}
