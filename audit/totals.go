package audit

import (
	"maps"
	"slices"
	"time"

	"github.com/crawlgate/crawlgate/evidence/verify"
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
	// Agents are in the order of their names.
	Agents []AgentTotals `json:"agents"`
	// Texts are those that were not to be had, in the order of their hashes.
	Texts []TextTotals `json:"texts"`
	Caps  CapTotals    `json:"caps"`
	// Seals are about sealed logs; nil where nobody asked.
	Seals *verify.Totals `json:"seals,omitempty"`
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
	// Counts are of the lines whose words there are.
	Counts
	Findings int64 `json:"findings"`
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
	// [Others].
	Agents int64 `json:"agents"`
	// Texts are lines that rest on missing texts beyond the number that is listed.
	Texts int64 `json:"texts"`
	// Hosts are those whose last requests were forgotten: a gap to them is not seen.
	Hosts int64 `json:"hosts"`
	// Records are those of robots.txt whose lines were forgotten: later lines cannot be proven by
	// them.
	Records int64 `json:"records"`
}

// Others is the name for all that is beyond the number of names that are kept.
const Others = "(others)"

// counts collects Totals.
type counts struct {
	Totals
	limits limits
	agents map[string]*AgentTotals
	texts  map[string]*TextTotals
}

// limits bound what is kept by name; room is the number of bytes that rules may take.
type limits struct{ agents, texts, hosts, records, room int }

// defaultLimits take some 200 MiB if all are met.
var defaultLimits = limits{agents: 10_000, texts: 10_000, hosts: 50_000, records: 200_000, room: 64 << 20}

func newCounts(l limits) *counts {
	return &counts{
		Totals: Totals{NotProvable: make(map[Cause]int64), Findings: make(map[Kind]int64)},
		limits: l, agents: make(map[string]*AgentTotals), texts: make(map[string]*TextTotals),
	}
}

// line counts a line that has a robots object.
func (c *counts) line(l *Line, v *verdict) *AgentTotals {
	c.Checked++
	c.Note(l.Time())
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
	r := l.Robots
	a := c.agent(r.Agent)
	a.Checked++
	if BadWord(r) == "" {
		a.Add(l)
	}
	if len(r.Owner) <= maxLabel && len(r.Contact) <= maxLabel && r.Owner+r.Contact != "" {
		a.Owner, a.Contact = r.Owner, r.Contact
	}
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
	return Bounded(c.agents, Label(name), Others, c.limits.agents, &c.Caps.Agents)
}

// Bounded is the value of a key, a new one if there is none. Where there are too many keys it is
// the one that all others share, and is counted.
func Bounded[K comparable, V any](m map[K]*V, k, others K, most int, beyond *int64) *V {
	v := m[k]
	if v == nil && len(m) >= most {
		*beyond++
		k = others
		v = m[k]
	}
	if v == nil {
		v = new(V)
		m[k] = v
	}
	return v
}

// text notes a line that rests on a text that is not to be had, and reports whether it is the
// first.
func (c *counts) text(l *Line, cause Cause) (first bool) {
	t := Bounded(c.texts, l.Robots.SHA256, Others, c.limits.texts, &c.Caps.Texts)
	if t.Lines++; t.Lines > 1 {
		return false
	}
	t.Origin, t.Cause, t.First = l.Robots.Origin, cause, l.Place
	return true
}

// sum is all of it, in order.
func (c *counts) sum() Totals {
	t := c.Totals
	t.Agents, t.Texts = []AgentTotals{}, []TextTotals{}
	for _, name := range slices.Sorted(maps.Keys(c.agents)) {
		a := *c.agents[name]
		if a.Agent = name; name == Others {
			a.Owner, a.Contact = "", ""
		}
		t.Agents = append(t.Agents, a)
	}
	for _, sha := range slices.Sorted(maps.Keys(c.texts)) {
		text := *c.texts[sha]
		text.SHA256 = sha
		t.Texts = append(t.Texts, text)
	}
	return t
}
