package simulate

import (
	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/budget"
	"github.com/crawlgate/crawlgate/enforce"
)

// maxTallied bounds the hosts of an agent and a day that are counted. Requests to others have no
// budget of their host.
const maxTallied = 200_000

// tally is what an agent has used on a day: requests, and those to each host.
type tally struct {
	day      string
	requests int64
	hosts    map[string]int64
}

// spend takes the request of a line from the budget of its agent, by the time of the line, if it
// would be sent. It returns the limit that refuses it, or nil. Bytes are not counted, as lines do
// not have them. Requests that another log has are not known.
func (s *Simulator) spend(l *audit.Line, d *enforce.Decision) *budget.SpentError {
	allowance := s.budgets[d.Agent]
	if allowance == nil {
		return nil
	}
	r, wasDenied := l.Robots, l.Robots.Decision == enforce.OutcomeDeny
	sends := r.SentAt > 0 || d.Reason == enforce.ReasonRobotsTxt || wasDenied && (judged(r) || r.Reason == enforce.ReasonBudget)
	if !d.Allowed || d.Reason == enforce.ReasonIntercepted || !sends {
		return nil
	}
	at, host := r.DecidedAt.Time(), d.Origin.Host
	day, ends := allowance.Day(at)
	t := s.tallies[d.Agent]
	if t == nil || t.day < day {
		t = &tally{day: day, hosts: make(map[string]int64)}
		s.tallies[d.Agent] = t
	}
	if t.day > day {
		return nil // a request that took until after midnight: its day is not known any more
	}
	left := budget.Standing{
		Allowance:    budget.Allowance{Requests: allowance.Requests, PerHost: allowance.PerHost},
		RequestsLeft: allowance.Requests - t.requests, PerHostLeft: allowance.PerHost - t.hosts[host], Ends: ends,
	}
	if spent := left.Spent(at); spent != nil {
		return spent
	}
	t.requests++
	if _, known := t.hosts[host]; known || len(t.hosts) < maxTallied {
		t.hosts[host]++
	}
	return nil
}

// freed reports whether a line was refused by a budget, and its agent has none by the new policy.
func (s *Simulator) freed(r *enforce.LogRecord, d *enforce.Decision) bool {
	return r.Reason == enforce.ReasonBudget && s.budgets[d.Agent] == nil
}
