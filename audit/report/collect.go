package report

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/enforce"
)

// mostNames bounds how many names are kept. Further ones are counted together.
const mostNames = 20_000

type collector struct {
	Report
	byKey []map[key]*Row // one map for each table
	gaps  *audit.Gaps
	least map[string]*WorstGap // by host
}

func newCollector() *collector {
	c := &collector{gaps: audit.NewGaps(mostNames), least: make(map[string]*WorstGap), byKey: make([]map[key]*Row, len(tables))}
	for i := range c.byKey {
		c.byKey[i] = make(map[key]*Row)
	}
	return c
}

func (c *collector) add(l *audit.Line, host string) {
	host = audit.Label(host)
	c.Total.add(l)
	if l.Sealed {
		c.Sealed++
	}
	if l.Robots.PaymentRequired {
		c.PaymentRequired++
	}
	if l.Robots.Signed != "" {
		c.Signed++
	}
	c.Note(l.Time())
	if !l.Tunnel() {
		c.overTime.add(l.Time(), l.Robots.Decision)
	}
	for i, k := range keysOf(l, host) {
		if k.none {
			continue
		}
		k = key{audit.Label(k.name), audit.Label(k.agent), audit.Label(k.cause), false}
		row := audit.Bounded(c.byKey[i], k, key{name: audit.Others}, mostNames, &c.Beyond)
		row.add(l)
		if left := l.Robots.BudgetLeft; tables[i].by == budgets && left != nil && (row.BudgetLeft == nil || *left < *row.BudgetLeft) {
			row.BudgetLeft = left
		}
		if tables[i].dated() {
			row.Note(l.Time())
		}
	}
	c.noteGap(l, host)
}

// noteGap compares a request with those sent to its host before and after it.
func (c *collector) noteGap(l *audit.Line, host string) {
	s, left := l.Sending()
	switch {
	case !left:
		return
	case s.At.IsZero():
		c.Untimed++
		return
	}
	c.gaps.Add(host, s, func(p audit.Pair, n int64) {
		g := audit.Bounded(c.least, host, audit.Others, mostNames, &c.Beyond)
		g.Pairs += n
		// The worst gap is the one that falls short of its delay by the most.
		if gap, delay := p.Gap.Seconds(), p.Delay.Seconds(); g.Delay == 0 || gap-delay < g.Least-g.Delay {
			g.Least, g.Delay = gap, delay
		}
	})
}

// report sorts the rows: days and hours by time, and others by their numbers, the greatest first.
// Rows of a team stay together.
func (c *collector) report() Report {
	r := c.Report
	r.Beyond += c.gaps.Forgotten
	for i, t := range tables {
		rows := make([]Row, 0, len(c.byKey[i]))
		for k, row := range c.byKey[i] {
			row.Name, row.Agent, row.Cause = k.name, k.agent, k.cause
			rows = append(rows, *row)
		}
		slices.SortFunc(rows, func(a, b Row) int {
			byName := cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Cause, b.Cause))
			if t.by == hour || t.by == "day" || t.by == budgets || t.ofTeams() && a.Name != b.Name {
				return byName
			}
			return cmp.Or(cmp.Compare(b.Asked, a.Asked), cmp.Compare(b.Tunnels.Asked, a.Tunnels.Asked), byName)
		})
		*t.rows(&r) = rows
	}
	r.Gaps = []WorstGap{}
	for host, g := range c.least {
		g.Host = host
		r.Gaps = append(r.Gaps, *g)
	}
	slices.SortFunc(r.Gaps, func(a, b WorstGap) int {
		return cmp.Or(cmp.Compare(a.Least-a.Delay, b.Least-b.Delay), cmp.Compare(a.Host, b.Host))
	})
	r.Statement = r.Parts()[0].Text[0]
	return r
}

// key is what a row of a table is about.
type key struct {
	name, agent, cause string
	none               bool // the table has no row for the line
}

// table describes a table: its name in CSV, its title, the headings of its keys, and its rows.
type table struct {
	by, title, name, second string
	rows                    func(*Report) *[]Row
}

var tables = []table{
	{"owner", "Teams", "team", "", func(r *Report) *[]Row { return &r.Owners }},
	{"crawler", "Crawlers by team", "team", "agent", func(r *Report) *[]Row { return &r.Crawlers }},
	{"refusal", "Refusals and failures by team", "team", "reason", func(r *Report) *[]Row { return &r.Refusals }},
	{"agent", "Crawlers", "agent", "", func(r *Report) *[]Row { return &r.Agents }},
	{"reason", "Reasons", "reason", "", func(r *Report) *[]Row { return &r.Reasons }},
	{"host", "Hosts", "host", "", func(r *Report) *[]Row { return &r.Hosts }},
	{"purpose", "Against a preference of the site", "purpose", "", func(r *Report) *[]Row { return &r.Conflicts }},
	{"exception", "Exceptions in use", "exception", "agent", func(r *Report) *[]Row { return &r.Exceptions }},
	{"mode", "Modes other than enforce in use", "mode", "agent", func(r *Report) *[]Row { return &r.Modes }},
	{budgets, "Budgets", "day", "agent", func(r *Report) *[]Row { return &r.Budgets }},
	{"unreachable", "Sites whose robots.txt was unreachable", "host", "cause", func(r *Report) *[]Row { return &r.Unreachable }},
	{"gateway", "Gateways", "gateway", "", func(r *Report) *[]Row { return &r.Gateways }},
	{"day", "Days", "day", "", func(r *Report) *[]Row { return &r.Days }},
	{hour, "Hours", "hour", "", func(r *Report) *[]Row { return &r.Hours }},
}

const (
	hour    = "hour"
	budgets = "budget"
)

func (t *table) dated() bool { return t.second == "cause" }

// ofTeams tables have several rows for each team.
func (t *table) ofTeams() bool { return t.name == "team" && t.second != "" }

// coded tables have reasons as their last key.
func (t *table) coded() bool { return t.name == "reason" || t.second == "reason" }

// keysOf returns the key of a line in each table.
func keysOf(l *audit.Line, host string) [14]key {
	r := l.Robots
	purpose, _, conflict := strings.Cut(r.Conflict, "=")
	began := moment(l.Time().Truncate(time.Hour))
	day, _, dated := strings.Cut(began, "T")
	return [...]key{
		{name: r.Owner},
		{name: r.Owner, agent: r.Agent},
		{name: r.Owner, cause: string(r.Reason), none: r.Decision == enforce.OutcomeAllow},
		{name: r.Agent},
		{name: string(r.Reason)},
		{name: host},
		{name: purpose, none: !conflict},
		{name: r.Exception, agent: r.Agent, none: r.Exception == ""},
		{name: r.Mode, agent: r.Agent, none: r.Mode == string(enforce.ModeEnforce)},
		{name: day, agent: r.Agent, none: !dated || r.BudgetLeft == nil && r.Reason != enforce.ReasonBudget},
		{name: host, cause: r.Cause, none: r.Reason != enforce.ReasonUnreachable},
		{name: r.Gateway},
		{name: day, none: !dated},
		{name: began, none: !dated},
	}
}
