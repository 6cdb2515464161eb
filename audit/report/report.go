package report

import (
	"context"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/origin"
)

// Filter says which lines count. An empty field matches all lines.
type Filter struct {
	// From and To bound when the request ended: not before From, and before To.
	From  time.Time `json:"from,omitzero"`
	To    time.Time `json:"to,omitzero"`
	Agent string    `json:"agent,omitempty"`
	Owner string    `json:"owner,omitempty"`
	Host  string    `json:"host,omitempty"`
}

func (f *Filter) passes(l *audit.Line, host string) bool {
	r := l.Robots
	return (f.From.IsZero() || !l.Time().Before(f.From)) && (f.To.IsZero() || l.Time().Before(f.To)) &&
		(f.Agent == "" || strings.EqualFold(f.Agent, r.Agent)) &&
		(f.Owner == "" || f.Owner == r.Owner) &&
		(f.Host == "" || strings.EqualFold(f.Host, host))
}

// lost returns how many lines before this one are missing. They may be about any agent, team and
// host. Only those that were lost before From, or after To, do not count.
func (f *Filter) lost(l *audit.Line) int64 {
	n, first, last := l.Lost()
	if n > 0 && (!f.From.IsZero() && last.Before(f.From) || !f.To.IsZero() && first.After(f.To)) {
		return 0
	}
	return n
}

// Counts count lines, and the waits of requests.
type Counts struct {
	audit.Counts
	// Held are the requests that waited for the pace of their host, WaitSeconds how long in total.
	Held        int64   `json:"held"`
	WaitSeconds float64 `json:"wait_s"`
}

func (c *Counts) add(l *audit.Line) {
	if c.Add(l); l.Robots.WaitMillis > 0 && !l.Tunnel() {
		c.Held++
		c.WaitSeconds += float64(l.Robots.WaitMillis) / 1e3
	}
}

// Row has the counts of a name. Crawlers, exceptions and modes have a row for each agent. Refusals
// have one for each reason, and hosts whose robots.txt was unreachable one for each cause.
type Row struct {
	Name  string `json:"name"`
	Agent string `json:"agent,omitempty"`
	Cause string `json:"cause,omitempty"`
	// BudgetLeft is the least number of requests that a gateway knew to be left; nil if there was
	// none, and in other tables than that of budgets.
	BudgetLeft *int64 `json:"budget_left,omitempty"`
	// Period is when the robots.txt was unreachable; other tables have none.
	audit.Period
	Counts
}

// WorstGap is the worst time between two requests to a host, in relation to the Crawl-delay of the
// agent's group. If the delays of the two differ, the longer one counts.
type WorstGap struct {
	Host string `json:"host"`
	// Delay is the Crawl-delay as the site wrote it, and Least the gap, both in seconds.
	Delay float64 `json:"crawl_delay_s"`
	Least float64 `json:"least_s"`
	// Pairs is how many such gaps there were.
	Pairs int64 `json:"pairs"`
}

// Report sums up logs.
type Report struct {
	// Statement says in a sentence what the lines show. A person can sign it.
	Statement string `json:"statement"`
	// Made and Version say when the report was made, and by which build. Whoever made it sets them.
	Made    time.Time `json:"made,omitzero"`
	Version string    `json:"version,omitempty"`
	Filter  Filter    `json:"filter"`
	// Period is from the first end of a request to the last.
	audit.Period
	// Lines counts all lines. Unreadable ones could not be read, and Foreign ones are about no request
	// through a gateway. Again are about a request that an earlier line is about, and do not count.
	// Sealed are the counted lines that have a seal.
	Lines      int64 `json:"lines"`
	Unreadable int64 `json:"unreadable"`
	Foreign    int64 `json:"not_ours"`
	Again      int64 `json:"again"`
	Sealed     int64 `json:"sealed"`
	// Untimed are requests in no gap, because their line does not say when they were sent.
	Untimed int64 `json:"untimed"`
	// Lost are lines that the log says are missing, of whatever agent, team and host.
	Lost int64 `json:"lost"`
	// Beyond counts names and hosts beyond the bound; rows have them as (others).
	Beyond int64  `json:"beyond"`
	Total  Counts `json:"total"`
	// PaymentRequired are the requests that a site answered with 402 (Payment Required).
	PaymentRequired int64 `json:"payment_required"`
	// Signed are the requests that left with a signature in the name of their agent.
	Signed int64 `json:"signed"`

	Gateways    []Row      `json:"gateways"`
	Owners      []Row      `json:"owners"`
	Crawlers    []Row      `json:"crawlers"` // by owner, which is the name, and agent
	Refusals    []Row      `json:"refusals"` // and failures, by owner, and by reason, which is the cause
	Agents      []Row      `json:"agents"`
	Hosts       []Row      `json:"hosts"`
	Reasons     []Row      `json:"reasons"`
	Conflicts   []Row      `json:"conflicts"` // by the purpose that a site denies
	Days        []Row      `json:"days"`      // by when they begin in UTC, in order
	Hours       []Row      `json:"hours"`     // so too
	Exceptions  []Row      `json:"exceptions"`
	Modes       []Row      `json:"modes"`   // other than enforce
	Budgets     []Row      `json:"budgets"` // of agents that have one, by day in UTC
	Unreachable []Row      `json:"unreachable"`
	Gaps        []WorstGap `json:"gaps"`

	overTime timeline
}

// Of reads logs and sums them up. It calls fault for what cannot be read. It ends early when ctx
// ends.
func Of(ctx context.Context, logs [][]audit.Source, f Filter, fault func(audit.Fault)) (Report, error) {
	c := newCollector()
	c.Filter = f
	err := audit.Read(ctx, logs, func(l *audit.Line) {
		c.Lines++
		c.Lost += f.lost(l)
		if l.Robots == nil {
			c.Foreign++
			return
		}
		if l.Again {
			c.Again++
			return
		}
		if o, _ := origin.Parse(l.Robots.Origin); f.passes(l, o.Host) {
			c.add(l, o.Host)
		}
	}, func(f audit.Fault) {
		if c.Unreadable++; f.Line > 0 {
			c.Lines++
		}
		fault(f)
	})
	return c.report(), err
}
