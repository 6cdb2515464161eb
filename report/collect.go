package report

import (
	"cmp"
	"slices"
	"strings"
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
	owners, agents, hosts, reasons map[string]*Row
	conflicts                      map[string]*Row
	hours                          map[time.Time]*Hour
	exceptions, modes              map[[2]string]*Use
	unreachable                    map[[2]string]*Unreachable
	gaps                           map[string]*pace
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
		owners: make(map[string]*Row), agents: make(map[string]*Row), hosts: make(map[string]*Row), reasons: make(map[string]*Row),
		conflicts: make(map[string]*Row),
		hours:     make(map[time.Time]*Hour), exceptions: make(map[[2]string]*Use), modes: make(map[[2]string]*Use),
		unreachable: make(map[[2]string]*Unreachable), gaps: make(map[string]*pace),
	}
}

func (c *collector) add(l *audit.Line, host string) {
	r := l.Robots
	host = audit.Label(host)
	c.Total.add(r)
	if l.Sealed {
		c.Sealed++
	}
	c.Note(l.Time())
	if begin := l.Time().UTC().Truncate(time.Hour); !l.Time().IsZero() && (c.hours[begin] != nil || len(c.hours) < mostHours) {
		hour := at(c, c.hours, begin, Hour{Begin: begin})
		hour.add(r)
	}
	c.row(c.owners, r.Owner).add(r)
	c.row(c.agents, r.Agent).add(r)
	c.row(c.hosts, host).add(r)
	c.row(c.reasons, string(r.Reason)).add(r)
	if purpose, _, isConflict := strings.Cut(r.Conflict, "="); isConflict {
		c.row(c.conflicts, purpose).add(r)
	}
	if r.PaymentRequired {
		c.PaymentRequired++
	}
	if r.Exception != "" {
		c.use(c.exceptions, r.Exception, r.Agent)
	}
	if r.Mode != enforce.ModeEnforce.String() {
		c.use(c.modes, r.Mode, r.Agent)
	}
	if r.Reason == enforce.ReasonUnreachable {
		cause := audit.Label(r.Cause)
		first := Unreachable{Host: host, Cause: cause, First: l.Time().UTC()}
		if x := at(c, c.unreachable, [2]string{host, cause}, first); x != nil {
			x.Refused++
			x.Last = l.Time().UTC()
		}
	}
	c.noteGap(r, host)
}

// at finds what is kept under a key, from its beginning on. It is nil where there are too many keys.
func at[K comparable, V any](c *collector, m map[K]*V, key K, beginning V) *V {
	v := m[key]
	switch {
	case v != nil:
	case len(m) >= mostNames:
		c.Beyond++
	default:
		v = &beginning
		m[key] = v
	}
	return v
}

// atOr is at, with what is kept of all others where there are too many keys.
func atOr[K comparable, V any](c *collector, m map[K]*V, key K, beginning V, others K, ofOthers V) *V {
	if v := at(c, m, key, beginning); v != nil {
		return v
	}
	if m[others] == nil {
		m[others] = &ofOthers
	}
	return m[others]
}

func (c *collector) row(m map[string]*Row, name string) *Row {
	name = audit.Label(name)
	return atOr(c, m, name, Row{Name: name}, audit.Others, Row{Name: audit.Others})
}

func (c *collector) use(m map[[2]string]*Use, what, agent string) {
	what, agent = audit.Label(what), audit.Label(agent)
	atOr(c, m, [2]string{what, agent}, Use{What: what, Agent: agent}, [2]string{audit.Others}, Use{What: audit.Others}).Count++
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
	if p := at(c, c.gaps, host, pace{Gap: Gap{Host: host}}); p != nil {
		p.add(sending{r.SentAt, r.CrawlDelay})
	}
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

// report puts what was collected in order: the greatest numbers first, and hours as they came.
func (c *collector) report() Report {
	r := c.Report
	rows := func(a, b Row) int { return cmp.Or(cmp.Compare(b.Asked, a.Asked), cmp.Compare(a.Name, b.Name)) }
	uses := func(a, b Use) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.What, b.What), cmp.Compare(a.Agent, b.Agent))
	}
	r.Owners, r.Agents, r.Hosts, r.Reasons = sorted(c.owners, rows), sorted(c.agents, rows), sorted(c.hosts, rows), sorted(c.reasons, rows)
	r.Conflicts = sorted(c.conflicts, rows)
	r.Hours = sorted(c.hours, func(a, b Hour) int { return a.Begin.Compare(b.Begin) })
	r.Exceptions, r.Modes = sorted(c.exceptions, uses), sorted(c.modes, uses)
	r.Unreachable = sorted(c.unreachable, func(a, b Unreachable) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Cause, b.Cause))
	})
	paces := sorted(c.gaps, func(a, b pace) int {
		return cmp.Or(cmp.Compare(a.Least-a.Delay, b.Least-b.Delay), cmp.Compare(a.Host, b.Host))
	})
	r.Gaps = []Gap{}
	for _, p := range paces {
		if p.Pairs > 0 {
			r.Gaps = append(r.Gaps, p.Gap)
		}
	}
	return r
}

// sorted returns the values of a map in an order.
func sorted[K comparable, V any](m map[K]*V, order func(a, b V) int) []V {
	all := make([]V, 0, len(m))
	for _, v := range m {
		all = append(all, *v)
	}
	slices.SortFunc(all, order)
	return all
}
