package report

import (
	"cmp"
	"slices"

	"github.com/crawlgate/crawlgate/audit"
)

// mostNames bounds what is kept by name: others are counted together.
const mostNames = 20_000

// collector sums up lines.
type collector struct {
	Report
	byKey []map[key]*Row // of each table
	gaps  map[string]*pace
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
	c := &collector{gaps: make(map[string]*pace), byKey: make([]map[key]*Row, len(tables))}
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
	c.Note(l.Time())
	if !l.Tunnel() {
		c.overTime.add(l.Time(), l.Robots.Decision)
	}
	for i, k := range keysOf(l, host) {
		if k.none {
			continue
		}
		row := c.row(c.byKey[i], key{audit.Label(k.name), audit.Label(k.agent), audit.Label(k.cause), false})
		row.add(l)
		if tables[i].dated() {
			row.Note(l.Time())
		}
	}
	c.noteGap(l, host)
}

// row finds that of a key, or that of all others where there are too many keys.
func (c *collector) row(m map[key]*Row, k key) *Row {
	row := m[k]
	if row == nil && len(m) >= mostNames {
		c.Beyond++
		k = key{name: audit.Others}
		row = m[k]
	}
	if row == nil {
		row = &Row{Name: k.name, Agent: k.agent, Cause: k.cause}
		m[k] = row
	}
	return row
}

// noteGap compares a request that was sent with those before and after it to its host.
func (c *collector) noteGap(l *audit.Line, host string) {
	if !l.Left() {
		return
	}
	p, at := c.gaps[host], l.Robots.SentAt
	switch {
	case at <= 0:
		c.Untimed++
		return
	case p == nil && len(c.gaps) >= mostNames:
		c.Beyond++
		return
	case p == nil:
		p = &pace{Gap: Gap{Host: host}}
		c.gaps[host] = p
	}
	p.add(sending{at, l.Robots.CrawlDelay})
}

func (p *pace) add(s sending) {
	i, _ := slices.BinarySearchFunc(p.last, s, func(a, b sending) int { return cmp.Compare(a.at, b.at) })
	if 0 < i && i < len(p.last) && max(p.last[i-1].delay, p.last[i].delay) > 0 {
		p.Pairs-- // it comes between them
	}
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

// report puts what was collected in order: the greatest numbers first, and hours as they came.
func (c *collector) report() Report {
	r := c.Report
	for i, t := range tables {
		rows := make([]Row, 0, len(c.byKey[i]))
		for _, row := range c.byKey[i] {
			rows = append(rows, *row)
		}
		slices.SortFunc(rows, func(a, b Row) int {
			byName := cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Cause, b.Cause))
			if t.by == hour {
				return byName
			}
			return cmp.Or(cmp.Compare(b.Asked, a.Asked), cmp.Compare(b.Tunnels.Asked, a.Tunnels.Asked), byName)
		})
		*r.rows()[i] = rows
	}
	r.Gaps = []Gap{}
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
