package report

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/enforce"
)

// What is kept by name is bounded: others are counted together.
const (
	mostNames = 20_000
	mostHours = 24 * 800
)

// collector sums up lines.
type collector struct {
	Report
	owners, agents, hosts, reasons map[string]*Counts
	hours                          map[time.Time]*Counts
	uses                           map[use]int64
	unreachable                    map[[2]string]*Unreachable
	gaps                           map[string]*pace
}

// use is what is counted for [Use].
type use struct {
	mode        bool
	what, agent string
}

// pace has the requests to a host that were sent last, in the order of their times. Lines come in
// the order in which requests ended.
type pace struct {
	Gap
	last []sending
}

// sending is when a request was sent, and the Crawl-delay that held for it, in seconds.
type sending struct{ at, delay float64 }

// window is how many requests to a host are remembered.
const window = 16

func newCollector() *collector {
	return &collector{
		owners: make(map[string]*Counts), agents: make(map[string]*Counts), hosts: make(map[string]*Counts), reasons: make(map[string]*Counts),
		hours: make(map[time.Time]*Counts), uses: make(map[use]int64), unreachable: make(map[[2]string]*Unreachable), gaps: make(map[string]*pace),
	}
}

func (c *collector) add(l *audit.Line, host string) {
	r := l.Robots
	c.Total.add(r)
	if l.Sealed {
		c.Sealed++
	}
	if t := l.Time().UTC(); !t.IsZero() {
		if c.First.IsZero() || t.Before(c.First) {
			c.First = t
		}
		if t.After(c.Last) {
			c.Last = t
		}
		hour := t.Truncate(time.Hour)
		if c.hours[hour] != nil || len(c.hours) < mostHours {
			at(c, c.hours, hour, hour).add(r)
		}
	}
	at(c, c.owners, r.Owner, audit.Others).add(r)
	at(c, c.agents, r.Agent, audit.Others).add(r)
	at(c, c.hosts, host, audit.Others).add(r)
	at(c, c.reasons, string(r.Reason), audit.Others).add(r)
	if r.Exception != "" {
		c.use(use{false, r.Exception, r.Agent})
	}
	if r.Mode != enforce.ModeEnforce.String() {
		c.use(use{true, r.Mode, r.Agent})
	}
	if r.Reason == enforce.ReasonUnreachable {
		c.noteUnreachable(l, host)
	}
	c.noteGap(r, host)
}

// at finds the counts of a name, and those of others where there are too many names.
func at[K comparable](c *collector, m map[K]*Counts, name, others K) *Counts {
	if m[name] == nil && len(m) >= mostNames {
		c.Beyond++
		name = others
	}
	if m[name] == nil {
		m[name] = new(Counts)
	}
	return m[name]
}

func (c *collector) use(u use) {
	if _, known := c.uses[u]; !known && len(c.uses) >= mostNames {
		c.Beyond++
		u.what, u.agent = audit.Others, ""
	}
	c.uses[u]++
}

func (c *collector) noteUnreachable(l *audit.Line, host string) {
	key := [2]string{host, l.Robots.Cause}
	x := c.unreachable[key]
	if x == nil {
		if len(c.unreachable) >= mostNames {
			c.Beyond++
			return
		}
		x = &Unreachable{Host: host, Cause: l.Robots.Cause, First: l.Time().UTC()}
		c.unreachable[key] = x
	}
	x.Refused++
	x.Last = l.Time().UTC()
}

// noteGap compares a request that was sent with those before and after it to its host.
func (c *collector) noteGap(r *enforce.Record, host string) {
	if r.Decision != enforce.OutcomeAllow || r.Reason == enforce.ReasonRobotsTxt || r.Reason == enforce.ReasonIntercepted {
		return
	}
	if r.SentAt <= 0 {
		c.Untimed++
		return
	}
	p := c.gaps[host]
	if p == nil {
		if len(c.gaps) >= mostNames {
			c.Beyond++
			return
		}
		p = &pace{Gap: Gap{Host: host}}
		c.gaps[host] = p
	}
	p.add(sending{r.SentAt, r.CrawlDelay})
}

func (p *pace) add(s sending) {
	i, _ := slices.BinarySearchFunc(p.last, s, func(a, b sending) int { return cmp.Compare(a.at, b.at) })
	p.last = slices.Insert(p.last, i, s)
	for second := max(i, 1); second <= i+1 && second < len(p.last); second++ {
		a, b := p.last[second-1], p.last[second]
		delay := max(a.delay, b.delay)
		if delay == 0 {
			continue
		}
		p.Pairs++
		// The worst is the gap that falls short of its delay by the most.
		if gap := b.at - a.at; p.Pairs == 1 || gap-delay < p.Least-p.Delay {
			p.Least, p.Delay = gap, delay
		}
	}
	if len(p.last) > window {
		p.last = slices.Delete(p.last, 0, 1)
	}
}

// report puts what was collected in order.
func (c *collector) report() Report {
	r := c.Report
	r.Owners, r.Agents, r.Hosts, r.Reasons = rows(c.owners), rows(c.agents), rows(c.hosts), rows(c.reasons)
	for _, begin := range slices.SortedFunc(maps.Keys(c.hours), time.Time.Compare) {
		r.Hours = append(r.Hours, Hour{begin, *c.hours[begin]})
	}
	for u, n := range c.uses {
		uses := &r.Exceptions
		if u.mode {
			uses = &r.Modes
		}
		*uses = append(*uses, Use{u.what, u.agent, n})
	}
	for _, uses := range [][]Use{r.Exceptions, r.Modes} {
		slices.SortFunc(uses, func(a, b Use) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.What, b.What), cmp.Compare(a.Agent, b.Agent))
		})
	}
	for _, x := range c.unreachable {
		r.Unreachable = append(r.Unreachable, *x)
	}
	slices.SortFunc(r.Unreachable, func(a, b Unreachable) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Cause, b.Cause))
	})
	for _, p := range c.gaps {
		if p.Pairs > 0 {
			r.Gaps = append(r.Gaps, p.Gap)
		}
	}
	slices.SortFunc(r.Gaps, func(a, b Gap) int {
		return cmp.Or(cmp.Compare(a.Least-a.Delay, b.Least-b.Delay), cmp.Compare(a.Host, b.Host))
	})
	return r
}

// rows are in the order of their numbers, the greatest first.
func rows(m map[string]*Counts) []Row {
	all := make([]Row, 0, len(m))
	for name, counts := range m {
		all = append(all, Row{name, *counts})
	}
	slices.SortFunc(all, func(a, b Row) int { return cmp.Or(cmp.Compare(b.Asked, a.Asked), cmp.Compare(a.Name, b.Name)) })
	return all
}
