package audit

import (
	"maps"
	"slices"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/evidence/verify"
)

// Totals sum up an audit.
type Totals struct {
	// Files is how many logs were read.
	Files int `json:"files"`
	// Lines is how many lines they have.
	Lines int64 `json:"lines"`
	// Foreign are lines without an object "robots" or "robots_txt".
	Foreign int64 `json:"not_ours"`
	// Unjudged are those of them that are about requests through the proxy. A log has these only if
	// another handler answers before "robots".
	Unjudged int64 `json:"unjudged"`
	// Unreadable are lines that could not be read.
	Unreadable int64 `json:"unreadable"`
	// Torn are lines that a crash, full disk or truncation cut. They stand alone and then count as
	// "not_ours", or the next line follows on the same line.
	Torn int64 `json:"torn"`
	// Answers are lines about a robots.txt instead of a request.
	Answers int64 `json:"answers"`
	// Errors are unreadable lines, files and texts.
	Errors int64 `json:"errors"`
	// Checked are lines with an object "robots". Each counts in one of the four fields that follow,
	// unless a finding excludes it.
	Checked int64 `json:"checked"`
	// Again are those about a request that an earlier line is about, such as a line of a second log.
	// Gaps and the requests of agents do not count them.
	Again int64 `json:"again"`
	// Replayed are lines that were decided again from the text.
	Replayed int64 `json:"replayed"`
	// ByState are lines that follow from the recorded state of an unavailable robots.txt.
	ByState int64 `json:"by_state"`
	// AsRecorded are lines that do not depend on a text. They were taken as recorded.
	AsRecorded int64 `json:"as_recorded"`
	// NotProvable are lines that can be neither confirmed nor contradicted, by their causes
	// (docs/audit.md#what-is-not-provable).
	NotProvable map[Unprovable]int64 `json:"not_provable"`
	// Findings are the numbers of findings by their kinds (docs/audit.md#findings).
	Findings map[Kind]int64 `json:"findings"`
	// Gaps are the numbers of gaps under a Crawl-delay.
	Gaps GapTotals `json:"gaps"`
	// Period is from the first to the last line that was checked.
	Period
	// Agents are the totals of each agent, in the order of the names.
	Agents []AgentTotals `json:"agents"`
	// Texts are the unavailable texts, in the order of their hashes.
	Texts []TextTotals `json:"texts"`
	// Caps is how much went beyond the limits (docs/audit.md#limits).
	Caps CapTotals `json:"caps"`
	// Seals are the totals of sealed logs, if seals were checked.
	Seals *verify.Totals `json:"seals,omitempty"`
}

// Period is the earliest and the latest of some times, in UTC, or zero.
type Period struct {
	// First is the earliest time, in UTC.
	First time.Time `json:"first,omitzero"`
	// Last is the latest time, in UTC.
	Last time.Time `json:"last,omitzero"`
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

// Unproven returns how many lines and gaps can be neither confirmed nor contradicted. It includes
// those that exceeded a bound on memory.
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

// GapTotals count pairs of consecutive requests to one host under a Crawl-delay.
type GapTotals struct {
	// Pairs is how many pairs were compared.
	Pairs int64 `json:"pairs"`
	// Kept are pairs as far apart as the delay asks.
	Kept int64 `json:"kept"`
	// Short are pairs that were closer.
	Short int64 `json:"short"`
	// Late are requests whose neighbours were already forgotten.
	Late int64 `json:"late"`
	// Untimed are requests whose line does not say when they were sent.
	Untimed int64 `json:"untimed"`
	// Clamped are requests whose Crawl-delay was cut to the operator's bound.
	Clamped int64 `json:"clamped"`
}

// AgentTotals are the totals of one agent.
type AgentTotals struct {
	// Agent is the name of the agent.
	Agent string `json:"agent"`
	// Owner is from the last line that names an owner or a contact.
	Owner string `json:"owner,omitempty"`
	// Contact is from the same line.
	Contact string `json:"contact,omitempty"`
	// Checked is how many lines with an object "robots" the agent has.
	Checked int64 `json:"checked"`
	// Counts are of the lines with valid words.
	Counts
	// Findings is the number of findings.
	Findings int64 `json:"findings"`
}

// TextTotals is an unavailable text.
type TextTotals struct {
	// SHA256 is the hash of the text.
	SHA256 string `json:"sha256"`
	// Origin is the site that the text is from.
	Origin string `json:"origin"`
	// Cause says why lines cannot be proven.
	Cause Unprovable `json:"cause"`
	// Lines is how many lines rest on the text.
	Lines int64 `json:"lines"`
	// First is the first of them.
	First Place `json:"first"`
}

// CapTotals say where a bound on memory was exceeded. All are 0 in a complete audit.
type CapTotals struct {
	// Agents are lines of agents beyond the number that is counted by name. They are counted under
	// "(others)".
	Agents int64 `json:"agents"`
	// Texts are lines that rest on unavailable texts beyond the number that is listed.
	Texts int64 `json:"texts"`
	// Hosts are hosts whose last requests were forgotten: a gap to them may be missed.
	Hosts int64 `json:"hosts"`
	// Records are the robots.txt files whose history was forgotten: it cannot prove later lines.
	Records int64 `json:"records"`
}

// Others is the name under which all names beyond a bound are counted.
const Others = "(others)"

type counts struct {
	Totals
	limits limits
	agents map[string]*AgentTotals
	texts  map[string]*TextTotals
}

// limits bound how many names are kept. room is how many bytes rules may take.
type limits struct{ agents, texts, hosts, records, room int }

// defaultLimits take some 200 MiB if all are reached.
var defaultLimits = limits{agents: 10_000, texts: 10_000, hosts: 50_000, records: 200_000, room: 64 << 20}

func newCounts(l limits) *counts {
	return &counts{
		Totals: Totals{NotProvable: make(map[Unprovable]int64), Findings: make(map[Kind]int64)},
		limits: l, agents: make(map[string]*AgentTotals), texts: make(map[string]*TextTotals),
	}
}

// line counts a line that has a robots object.
func (c *counts) line(l *Line, v *verdict) *AgentTotals {
	c.Checked++
	c.Note(l.Time())
	if v.finding == nil || v.how != asRecorded {
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
	if l.Again {
		c.Again++
	} else if BadWord(r) == "" {
		a.Add(l)
	}
	if len(r.Owner) <= maxLabel && len(r.Contact) <= maxLabel && r.Owner+r.Contact != "" {
		a.Owner, a.Contact = r.Owner, r.Contact
	}
	return a
}

// maxLabel is longer than any name or label that a gateway logs.
const maxLabel = 1 << 10

// Label returns a name or label of a line, or [Others] if it is longer than any that a gateway
// logs.
func Label(name string) string {
	if len(name) > maxLabel {
		return Others
	}
	return name
}

func (c *counts) agent(name string) *AgentTotals {
	return Bounded(c.agents, Label(name), Others, c.limits.agents, &c.Caps.Agents)
}

// Bounded returns the value of a key, and makes one if it is missing. If there are too many keys it
// counts beyond up and returns the value that all others share.
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

// text counts a line whose text is unavailable, and reports whether it is the first one.
func (c *counts) text(l *Line, cause Unprovable) (first bool) {
	t := Bounded(c.texts, l.Robots.SHA256, Others, c.limits.texts, &c.Caps.Texts)
	if t.Lines++; t.Lines > 1 {
		return false
	}
	t.Origin, t.Cause, t.First = l.Robots.Origin, cause, l.Place
	return true
}

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

// Outcomes count requests, or tunnels. Each is allowed, refused or failed.
type Outcomes struct {
	// Asked is how many requests or tunnels there were.
	Asked int64 `json:"asked"`
	// Allowed is how many were allowed.
	Allowed int64 `json:"allowed"`
	// Refused is how many were refused.
	Refused int64 `json:"refused"`
	// Failed are those that ended in a failure, not in a decision.
	Failed int64 `json:"failed"`
}

// Add counts a decision.
func (o *Outcomes) Add(decision string) {
	o.Asked++
	switch decision {
	case enforce.OutcomeAllow:
		o.Allowed++
	case enforce.OutcomeDeny:
		o.Refused++
	default:
		o.Failed++
	}
}

// Plus adds the numbers of others.
func (o *Outcomes) Plus(others Outcomes) {
	o.Asked += others.Asked
	o.Allowed += others.Allowed
	o.Refused += others.Refused
	o.Failed += others.Failed
}

// Counts count requests and, apart from them, tunnels: a CONNECT asks for a tunnel, and the
// requests in an intercepted one have their own lines.
type Counts struct {
	Outcomes
	// Tunnels are the counts of tunnels.
	Tunnels Tunnels `json:"tunnels"`
}

// Tunnels count CONNECTs. An allowed one was opened.
type Tunnels struct {
	Outcomes
	// Blind is how many of the allowed tunnels were not intercepted: their requests are unknown.
	Blind int64 `json:"blind"`
}

// Add counts a line as it is recorded.
func (c *Counts) Add(l *Line) {
	r := l.Robots
	if l.Tunnel() {
		c.Tunnels.Add(r.Decision)
		if r.Decision == enforce.OutcomeAllow && !r.PathVisible {
			c.Tunnels.Blind++
		}
		return
	}
	c.Outcomes.Add(r.Decision)
}
