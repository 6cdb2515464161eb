package audit

import "github.com/crawlgate/crawlgate/enforce"

// Outcomes count requests, or tunnels. Each is allowed, refused or failed.
type Outcomes struct {
	Asked   int64 `json:"asked"`
	Allowed int64 `json:"allowed"`
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

// Counts count requests and, apart from them, tunnels: a CONNECT asks for a tunnel, and the
// requests in an intercepted one have their own lines.
type Counts struct {
	Outcomes
	Tunnels Tunnels `json:"tunnels"`
}

// Tunnels count CONNECTs. An allowed one was opened.
type Tunnels struct {
	Outcomes
	// Blind counts the allowed tunnels that were not intercepted: their requests are unknown.
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
