package audit

import (
	"maps"
	"slices"
	"time"

	"github.com/crawlgate/crawlgate/audit/seal"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
)

// Totals sum up an audit.
type Totals struct {
	Files int   `json:"files"`
	Lines int64 `json:"lines"`
	// Foreign are lines without a robots object, of which Unjudged are about requests through a proxy;
	// Unreadable are those that could not be read.
	Foreign    int64 `json:"not_ours"`
	Unjudged   int64 `json:"unjudged"`
	Unreadable int64 `json:"unreadable"`
	// Torn are lines that a crash or a full disk cut off, alone (then they are Foreign) or with the
	// next one behind them.
	Torn int64 `json:"torn"`
	// Answers are lines about a robots.txt, and not about a request.
	Answers int64 `json:"answers"`
	// Errors are unreadable lines, files and texts.
	Errors int64 `json:"errors"`
	// Checked are lines with a robots object. Each is one of the four that follow, or has a finding
	// that keeps it from being any.
	Checked int64 `json:"checked"`
	// Replayed were computed from the text, ByState follow from the state that they record, AsRecorded
	// do not depend on a text, and NotProvable can be neither confirmed nor contradicted.
	Replayed    int64           `json:"replayed"`
	ByState     int64           `json:"by_state"`
	AsRecorded  int64           `json:"as_recorded"`
	NotProvable map[Cause]int64 `json:"not_provable"`
	// Findings by kind.
	Findings map[Kind]int64 `json:"findings"`
	Gaps     GapTotals      `json:"gaps"`
	// The period is of the lines that were checked.
	Period
	// Vague are lines that were checked, by what their times leave open.
	Vague map[string]int64 `json:"vague_times"`
	// Agents are in the order of their names.
	Agents []AgentTotals `json:"agents"`
	// Texts are those that were not to be had, in the order of their hashes.
	Texts []TextTotals `json:"texts"`
	Caps  CapTotals    `json:"caps"`
	// Seals are about sealed logs; nil where nobody asked.
	Seals *seal.Totals `json:"seals,omitempty"`
}

// Period has the earliest and the latest of some times, in UTC; zero if there is none.
type Period struct {
	First time.Time `json:"first,omitzero"`
	Last  time.Time `json:"last,omitzero"`
}

// Note adds a time, unless it is zero.
func (p *Period) Note(t time.Time) {
	if !t.IsZero() && (p.First.IsZero() || t.Before(p.First)) {
		p.First = t.UTC()
	}
	if t.After(p.Last) {
		p.Last = t.UTC()
	}
}

// Unproven is how many lines and gaps can be neither confirmed nor contradicted, those included
// that met a bound on memory.
func (t Totals) Unproven() (n int64) {
	for _, lines := range t.NotProvable {
		n += lines
	}
	n += t.Unjudged + t.Torn + t.Gaps.Late + t.Gaps.Untimed + t.Caps.Texts + t.Caps.Hosts
	if t.Seals != nil {
		n += t.Seals.WithoutSeal
		for _, l := range t.Seals.Logs {
			n += l.Unproven + l.Unsealed
		}
	}
	return n
}

// GapTotals are about pairs of requests that follow each other to one host with a Crawl-delay.
type GapTotals struct {
	Pairs int64 `json:"pairs"`
	// Kept had the delay between them, Short were closer.
	Kept  int64 `json:"kept"`
	Short int64 `json:"short"`
	// Late are requests whose neighbours were forgotten when their line came.
	Late int64 `json:"late"`
	// Untimed are requests whose line does not say when they were sent.
	Untimed int64 `json:"untimed"`
	// Clamped are requests whose Crawl-delay is above the operator's bound.
	Clamped int64 `json:"clamped"`
}

// AgentTotals are about the lines of one agent.
type AgentTotals struct {
	Agent string `json:"agent"`
	// Owner and Contact come from the last line that names one of them.
	Owner   string `json:"owner,omitempty"`
	Contact string `json:"contact,omitempty"`
	Checked int64  `json:"checked"`
	// Decisions count requests, and Tunnels CONNECTs, which are no requests.
	Decisions
	Tunnels struct {
		Decisions
		// Blind are those of Allowed that were not looked into: it is not known what was asked in them.
		Blind int64 `json:"blind"`
	} `json:"tunnels"`
	Findings int64 `json:"findings"`
}

// Decisions are counts of what was decided.
type Decisions struct {
	Allowed int64 `json:"allowed"`
	// Denied, Failed and WouldDeny are by reason. WouldDeny are among Allowed.
	Denied    map[enforce.Reason]int64 `json:"denied"`
	Failed    map[enforce.Reason]int64 `json:"failed"`
	WouldDeny map[enforce.Reason]int64 `json:"would_deny"`
	// Unreachable are those of Denied and WouldDeny whose reason is an unreachable robots.txt, by the
	// cause that the lines give.
	Unreachable map[string]int64 `json:"unreachable"`
	// Exceptions are the uses of exceptions by their labels, among Allowed.
	Exceptions map[string]int64 `json:"exceptions"`
}

func newDecisions() Decisions {
	return Decisions{
		Denied: make(map[enforce.Reason]int64), Failed: make(map[enforce.Reason]int64), WouldDeny: make(map[enforce.Reason]int64),
		Unreachable: make(map[string]int64), Exceptions: make(map[string]int64),
	}
}

// TextTotals is a text that was not to be had.
type TextTotals struct {
	SHA256 string `json:"sha256"`
	Origin string `json:"origin"`
	Cause  Cause  `json:"cause"`
	Lines  int64  `json:"lines"`
	First  Place  `json:"first"`
}

// CapTotals say where a bound on memory was met. All are 0 in an audit that is complete.
type CapTotals struct {
	// Agents are lines of agents beyond the number that is counted by name; they are under the name
	// [Others]. Exceptions are uses of exceptions beyond it.
	Agents     int64 `json:"agents"`
	Exceptions int64 `json:"exceptions"`
	// Texts are lines that rest on missing texts beyond the number that is listed.
	Texts int64 `json:"texts"`
	// Hosts are those whose last requests were forgotten: a gap to them is not seen.
	Hosts int64 `json:"hosts"`
	// Records are those of robots.txt whose lines were forgotten: later lines cannot be proven by
	// them.
	Records int64 `json:"records"`
}

// Others is the name under which agents and exceptions are counted beyond the number that has names
// of their own.
const Others = "(others)"

// counts collects Totals.
type counts struct {
	Totals
	limits limits
	agents map[string]*AgentTotals
	texts  map[string]*TextTotals
}

// limits bound what is kept by name; room is the number of bytes that rules may take.
type limits struct{ agents, exceptions, texts, hosts, records, room int }

// defaultLimits take some 200 MiB if all are met.
var defaultLimits = limits{agents: 10_000, exceptions: 1_000, texts: 10_000, hosts: 50_000, records: 200_000, room: 64 << 20}

func newCounts(l limits) *counts {
	return &counts{
		Totals: Totals{NotProvable: make(map[Cause]int64), Findings: make(map[Kind]int64), Vague: make(map[string]int64)},
		limits: l, agents: make(map[string]*AgentTotals), texts: make(map[string]*TextTotals),
	}
}

// line counts a line that has a robots object.
func (c *counts) line(e *entry, v *verdict) *AgentTotals {
	c.Checked++
	at, _ := e.ended()
	c.Note(at)
	if what := e.vague(); what != "" {
		c.Vague[what]++
	}
	if len(v.findings) == 0 || v.how != asRecorded {
		switch v.how {
		case asRecorded:
			c.AsRecorded++
		case byState:
			c.ByState++
		case replayed:
			c.Replayed++
		case unproven:
			c.NotProvable[v.cause]++
		}
	}
	a := c.agent(Label(e.Robots.Agent))
	a.decided(e, c)
	return a
}

// maxLabel is longer than any name or label in a log of ours.
const maxLabel = 1 << 10

// Label is a name or label of a line, or [Others] where it is longer than any in a log of ours.
func Label(name string) string {
	if len(name) > maxLabel {
		return Others
	}
	return name
}

func (c *counts) agent(name string) *AgentTotals {
	a, ok := c.agents[name]
	if !ok && len(c.agents) >= c.limits.agents {
		c.Caps.Agents++
		name = Others
		a, ok = c.agents[name]
	}
	if !ok {
		a = &AgentTotals{Agent: name, Decisions: newDecisions()}
		a.Tunnels.Decisions = newDecisions()
		c.agents[name] = a
	}
	return a
}

// decided counts a decision as it is recorded. A word of no closed set is a finding and counted as
// that alone.
func (a *AgentTotals) decided(e *entry, c *counts) {
	r := e.Robots
	a.Checked++
	if a.Agent != Others && len(r.Owner) <= maxLabel && len(r.Contact) <= maxLabel && r.Owner+r.Contact != "" {
		a.Owner, a.Contact = r.Owner, r.Contact
	}
	if !r.Reason.Valid() {
		return
	}
	d := &a.Decisions
	if e.Tunnel() {
		d = &a.Tunnels.Decisions
		if r.Decision == enforce.OutcomeAllow && !r.PathVisible {
			a.Tunnels.Blind++
		}
	}
	if r.Reason == enforce.ReasonUnreachable {
		cause := r.Cause
		if !slices.Contains(fetch.Causes(), fetch.Cause(cause)) {
			cause = Others
		}
		d.Unreachable[cause]++
	}
	switch r.Decision {
	case enforce.OutcomeAllow:
		d.Allowed++
		if r.WouldDeny {
			d.WouldDeny[r.Reason]++
		}
		if r.Reason == enforce.ReasonException {
			d.exception(r.Exception, c)
		}
	case enforce.OutcomeDeny:
		d.Denied[r.Reason]++
	case enforce.OutcomeError:
		d.Failed[r.Reason]++
	}
}

func (d *Decisions) exception(label string, c *counts) {
	if _, ok := d.Exceptions[label]; !ok && (len(d.Exceptions) >= c.limits.exceptions || len(label) > maxLabel) {
		c.Caps.Exceptions++
		label = Others
	}
	d.Exceptions[label]++
}

// text notes a line that rests on a text that is not to be had, and reports whether it is the
// first.
func (c *counts) text(e *entry, at Place, cause Cause) (first bool) {
	t, ok := c.texts[e.Robots.SHA256]
	switch {
	case ok:
	case len(c.texts) >= c.limits.texts:
		c.Caps.Texts++
		return false
	default:
		t = &TextTotals{SHA256: e.Robots.SHA256, Origin: e.Robots.Origin, Cause: cause, First: at}
		c.texts[e.Robots.SHA256] = t
	}
	t.Lines++
	return !ok
}

// sum is all of it, in order.
func (c *counts) sum() Totals {
	t := c.Totals
	t.Agents, t.Texts = inOrder(c.agents), inOrder(c.texts)
	return t
}

// inOrder returns the values of a map in the order of their keys.
func inOrder[V any](values map[string]*V) []V {
	list := make([]V, 0, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		list = append(list, *values[key])
	}
	return list
}
