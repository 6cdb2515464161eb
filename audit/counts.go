package audit

import "github.com/crawlgate/crawlgate/enforce"

// Outcomes are about requests, or about tunnels. Each is allowed, refused or failed.
type Outcomes struct {
	Asked   int64 `json:"asked"`
	Allowed int64 `json:"allowed"`
	Refused int64 `json:"refused"`
	// Failed are those that a failure and not a judgement kept from being answered.
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

// Counts are about requests but for Tunnels: a CONNECT asks for a tunnel, and the requests in one
// that is looked into have lines of their own.
type Counts struct {
	Outcomes
	Tunnels Tunnels `json:"tunnels"`
}

// Tunnels are about CONNECTs. One that is allowed was opened.
type Tunnels struct {
	Outcomes
	// Blind counts the allowed ones that were not looked into: what was asked in them is not known.
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
