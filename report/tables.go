package report

import (
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/enforce"
)

// key is what a row of a table is about.
type key struct{ name, agent, cause string }

// table is one of the tables of rows.
type table struct {
	by      string // its name in CSV
	title   string
	heading []string // of the parts of a key
	rows    func(*Report) *[]Row
	// of gives the key of a line; false leaves the line out.
	of func(l *audit.Line, host string) (key, bool)
}

var tables = []table{
	{"owner", "Teams", []string{"team"}, func(r *Report) *[]Row { return &r.Owners }, func(l *audit.Line, _ string) (key, bool) {
		return key{name: l.Robots.Owner}, true
	}},
	{"agent", "Crawlers", []string{"agent"}, func(r *Report) *[]Row { return &r.Agents }, func(l *audit.Line, _ string) (key, bool) {
		return key{name: l.Robots.Agent}, true
	}},
	{"reason", "Reasons", []string{"reason"}, func(r *Report) *[]Row { return &r.Reasons }, func(l *audit.Line, _ string) (key, bool) {
		return key{name: string(l.Robots.Reason)}, true
	}},
	{"host", "Hosts", []string{"host"}, func(r *Report) *[]Row { return &r.Hosts }, func(_ *audit.Line, host string) (key, bool) {
		return key{name: host}, true
	}},
	{"purpose", "Against a preference of the site", []string{"purpose"}, func(r *Report) *[]Row { return &r.Conflicts }, func(l *audit.Line, _ string) (key, bool) {
		purpose, _, ok := strings.Cut(l.Robots.Conflict, "=")
		return key{name: purpose}, ok
	}},
	{"exception", "Exceptions in use", []string{"exception", "agent"}, func(r *Report) *[]Row { return &r.Exceptions }, func(l *audit.Line, _ string) (key, bool) {
		return key{name: l.Robots.Exception, agent: l.Robots.Agent}, l.Robots.Exception != ""
	}},
	{"mode", "Modes other than enforce in use", []string{"mode", "agent"}, func(r *Report) *[]Row { return &r.Modes }, func(l *audit.Line, _ string) (key, bool) {
		return key{name: l.Robots.Mode, agent: l.Robots.Agent}, l.Robots.Mode != enforce.ModeEnforce.String()
	}},
	{"unreachable", "Sites whose robots.txt was unreachable", []string{"host", "cause"}, func(r *Report) *[]Row { return &r.Unreachable }, func(l *audit.Line, host string) (key, bool) {
		return key{name: host, cause: l.Robots.Cause}, l.Robots.Reason == enforce.ReasonUnreachable
	}},
	{hour, "Hours", []string{"hour"}, func(r *Report) *[]Row { return &r.Hours }, func(l *audit.Line, _ string) (key, bool) {
		return key{name: moment(l.Time().Truncate(time.Hour))}, !l.Time().IsZero()
	}},
}

const hour = "hour"

func (t *table) dated() bool { return t.by == "unreachable" }
