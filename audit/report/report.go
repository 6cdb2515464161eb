// Package report sums up access logs for people who answer for crawlers: what was asked, allowed,
// refused and held, by team, agent, host and reason; what sites do not want; what was excepted;
// which sites could not be reached; how far apart requests were. It counts what lines say. That
// they say the truth is for package audit.
package report

import (
	"context"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/origin"
)

// Filter says which lines count. Empty fields let all lines pass.
type Filter struct {
	// From and To bound the end of the request: from From on, before To.
	From, To time.Time
	Agent    string
	Owner    string
	Host     string
}

func (f *Filter) passes(l *audit.Line, host string) bool {
	r := l.Robots
	return (f.From.IsZero() || !l.Time().Before(f.From)) && (f.To.IsZero() || l.Time().Before(f.To)) &&
		(f.Agent == "" || strings.EqualFold(f.Agent, r.Agent)) &&
		(f.Owner == "" || f.Owner == r.Owner) &&
		(f.Host == "" || strings.EqualFold(f.Host, host))
}

// Counts are of lines, and of the waits of requests.
type Counts struct {
	audit.Counts
	// Held are the requests that waited for their host's turn, WaitSeconds how long in all.
	Held        int64   `json:"held"`
	WaitSeconds float64 `json:"wait_s"`
}

func (c *Counts) add(l *audit.Line) {
	if c.Add(l); l.Robots.WaitMillis > 0 && !l.Tunnel() {
		c.Held++
		c.WaitSeconds += float64(l.Robots.WaitMillis) / 1e3
	}
}

// Row is the counts of a name: of an exception or a mode, with each agent; of a host whose
// robots.txt was unreachable, with each cause.
type Row struct {
	Name  string `json:"name"`
	Agent string `json:"agent,omitempty"`
	Cause string `json:"cause,omitempty"`
	// The period is that of an unreachable robots.txt.
	audit.Period
	Counts
}

// Gap is the time between two requests to a host that was least in relation to the Crawl-delay of
// the agent's group; of two delays the longer one counts.
type Gap struct {
	Host string `json:"host"`
	// Delay is that Crawl-delay as written, Least the gap; both in seconds.
	Delay float64 `json:"crawl_delay_s"`
	Least float64 `json:"least_s"`
	// Pairs is how many such gaps there were.
	Pairs int64 `json:"pairs"`
}

// Report sums up logs.
type Report struct {
	// The period is of the ends of the requests.
	audit.Period
	// Lines have been read, of which Unreadable could not be and Foreign are about no request through
	// a gateway. Sealed are those of the counted ones that have a seal.
	Lines      int64 `json:"lines"`
	Unreadable int64 `json:"unreadable"`
	Foreign    int64 `json:"not_ours"`
	Sealed     int64 `json:"sealed"`
	// Untimed were sent at a time that their line does not have: they are in no gap.
	Untimed int64 `json:"untimed"`
	// Beyond are the names and hosts that were more than are kept; rows have them as (others).
	Beyond int64  `json:"beyond"`
	Total  Counts `json:"total"`
	// PaymentRequired are the requests to which a site answered 402 (Payment Required).
	PaymentRequired int64 `json:"payment_required"`

	Owners      []Row `json:"owners"`
	Agents      []Row `json:"agents"`
	Hosts       []Row `json:"hosts"`
	Reasons     []Row `json:"reasons"`
	Conflicts   []Row `json:"conflicts"` // by the purpose that a site does not want
	Hours       []Row `json:"hours"`     // by their beginnings, in order
	Exceptions  []Row `json:"exceptions"`
	Modes       []Row `json:"modes"` // other than enforce
	Unreachable []Row `json:"unreachable"`
	Gaps        []Gap `json:"gaps"`

	overTime timeline
}

// Of reads logs. fault is told of what cannot be read. It ends early when ctx ends or fault returns
// an error.
func Of(ctx context.Context, logs [][]audit.Source, f Filter, fault func(audit.Fault) error) (Report, error) {
	c := newCollector()
	err := audit.Read(ctx, logs, func(l *audit.Line) error {
		c.Lines++
		if l.Robots == nil {
			c.Foreign++
		} else if o, _ := origin.Parse(l.Robots.Origin); f.passes(l, o.Host) {
			c.add(l, o.Host)
		}
		return nil
	}, func(f audit.Fault) error {
		if c.Unreadable++; f.Line > 0 {
			c.Lines++
		}
		return fault(f)
	})
	return c.report(), err
}
