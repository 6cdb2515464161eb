package console

import (
	"fmt"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
)

// trouble is a problem that exists now.
type trouble struct {
	Kind   string // "unreachable", "refused", "blocked", "held", "budget" or "unnamed"
	Reason string // of refusals
	Tunnel bool   // the refusals are of tunnels
	Count  int
	Share  float64 // in percent
	engine.Trend
}

// unnamedShare is the percentage of requests without an agent block from which the page shows a
// warning.
const unnamedShare = 20

// troublesOf lists unreachable origins, refusals, blocked hosts and held requests of now, agents
// with nearly spent budgets, and requests without an agent.
func troublesOf(o *overview) (list []trouble) {
	lately := func(number func(m engine.Minute) int) int { return o.Hour.Trend(number).Now }
	requests := lately(func(m engine.Minute) int { return m.Requests })
	tunnels := lately(func(m engine.Minute) int { return m.Tunnels })
	add := func(t trouble, all int, number func(m engine.Minute) int) {
		if t.Count > 0 && len(list) < maxListed {
			t.Share, t.Trend = percent(t.Count, all), o.Hour.Trend(number)
			list = append(list, t)
		}
	}
	if u := o.Unreachable; u.Found > 0 {
		list = []trouble{{Kind: "unreachable", Count: u.Found, Share: percent(u.Found, u.All), Trend: engine.Trend{Since: u.Origins[0].Since}}}
	}
	seen := map[engine.RefusalKind]bool{}
	for _, k := range o.Hour.TopKinds() {
		if k.Agent = ""; seen[k] {
			continue
		}
		seen[k] = true
		number := func(m engine.Minute) int { return m.RefusedFor(k.Reason, k.Tunnel) }
		add(trouble{Kind: "refused", Reason: k.Reason, Tunnel: k.Tunnel, Count: lately(number)}, map[bool]int{true: tunnels, false: requests}[k.Tunnel], number)
	}
	add(trouble{Kind: "blocked", Count: o.Clocks.Blocked}, o.Clocks.Keys, func(m engine.Minute) int { return m.RefusedFor(string(enforce.ReasonBackoff), false) })
	add(trouble{Kind: "held", Count: o.Clocks.Waiting}, requests, func(m engine.Minute) int { return m.Held })
	if n := len(o.Near); n > 0 {
		list = append(list, trouble{Kind: "budget", Count: n, Share: percent(n, o.Budgets)})
	}
	unnamed := func(m engine.Minute) int { return m.RequestsOf(engine.OtherAgent) }
	if n := lately(unnamed); percent(n, requests) >= unnamedShare && o.Named {
		add(trouble{Kind: "unnamed", Count: n}, requests, unnamed)
	}
	return list
}

// titleOf returns a reason in words.
func titleOf(code string) string {
	if r := enforce.Reason(code); r.Valid() {
		return r.Info().Title
	}
	return "Other reasons"
}

// trendText compares the last minutes with the same time an hour ago.
func trendText(t engine.Trend) string {
	switch ratio := float64(t.Now) / float64(max(t.Before, 1)); {
	case !t.Known:
		return "not known yet"
	case t.Now > 0 && t.Before == 0:
		return "new"
	case ratio > 0.8 && ratio < 1.25:
		return "as an hour ago"
	default:
		return fmt.Sprintf("%.2g times", ratio)
	}
}
