package report

import (
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/enforce"
)

// key is what a row of a table is about.
type key struct {
	name, agent, cause string
	none               bool // the table has no row for the line
}

// table describes a table: its name in CSV, its title, and the headings of its keys.
type table struct{ by, title, name, second string }

var tables = []table{
	{"owner", "Teams", "team", ""},
	{"agent", "Crawlers", "agent", ""},
	{"reason", "Reasons", "reason", ""},
	{"host", "Hosts", "host", ""},
	{"purpose", "Against a preference of the site", "purpose", ""},
	{"exception", "Exceptions in use", "exception", "agent"},
	{"mode", "Modes other than enforce in use", "mode", "agent"},
	{"unreachable", "Sites whose robots.txt was unreachable", "host", "cause"},
	{hour, "Hours", "hour", ""},
}

const hour = "hour"

func (t *table) dated() bool { return t.second == "cause" }

// rows returns the rows of each table.
func (r *Report) rows() []*[]Row {
	return []*[]Row{&r.Owners, &r.Agents, &r.Reasons, &r.Hosts, &r.Conflicts, &r.Exceptions, &r.Modes, &r.Unreachable, &r.Hours}
}

// keysOf returns the key of a line in each table.
func keysOf(l *audit.Line, host string) [9]key {
	r := l.Robots
	purpose, _, conflict := strings.Cut(r.Conflict, "=")
	return [...]key{
		{name: r.Owner},
		{name: r.Agent},
		{name: string(r.Reason)},
		{name: host},
		{name: purpose, none: !conflict},
		{name: r.Exception, agent: r.Agent, none: r.Exception == ""},
		{name: r.Mode, agent: r.Agent, none: r.Mode == string(enforce.ModeEnforce)},
		{name: host, cause: r.Cause, none: r.Reason != enforce.ReasonUnreachable},
		{name: moment(l.Time().Truncate(time.Hour)), none: l.Time().IsZero()},
	}
}
