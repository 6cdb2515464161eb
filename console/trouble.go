package console

import (
	"fmt"
	"net/url"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
)

// trouble is something that is not as it should be now.
type trouble struct {
	Title, Code, Path string
	Count             int
	Share             float64   // in percent, of what Of names
	Of                string    // such as "of requests"
	Since             time.Time // zero for just now
	Trend             string    // against an hour ago
}

// unnamedShare is the share of requests that no agent block names, in percent, of which the page
// warns.
const unnamedShare = 20

// troublesOf lists what is unreachable, refused, blocked or held now, and requests without an agent.
func troublesOf(o *overview) (list []trouble) {
	lately := func(number func(m engine.Minute) int) int { return o.Hour.Trend(number).Now }
	requests := lately(func(m engine.Minute) int { return m.Requests })
	tunnels := lately(func(m engine.Minute) int { return m.Tunnels })
	add := func(row trouble, all int, number func(m engine.Minute) int) {
		t := o.Hour.Trend(number)
		row.Share, row.Since, row.Trend = percent(row.Count, all), t.Since, trendText(t)
		list = append(list, row)
	}
	if u := o.Unreachable; u.Found > 0 {
		list = append(list, trouble{
			"Origins with an unreachable robots.txt", "unreachable", "/origins?state=unreachable", u.Found, percent(u.Found, u.All), "of origins",
			u.Origins[0].Since, fmt.Sprintf("%d of them in the last hour", u.Recent),
		})
	}
	seen := map[engine.RefusalKind]bool{}
	for _, k := range o.Hour.TopKinds() {
		if k.Agent = ""; seen[k] {
			continue
		}
		seen[k] = true
		number := func(m engine.Minute) int { return m.RefusedFor(k.Reason, k.Tunnel) }
		now := lately(number)
		if now == 0 || len(list) == maxListed {
			continue
		}
		row, all := trouble{Title: titleOf(k.Reason), Code: k.Reason, Path: "/refusals?reason=" + url.QueryEscape(k.Reason), Count: now, Of: "of requests"}, requests
		if k.Tunnel {
			row.Title, row.Of, all = row.Title+" (tunnels)", "of tunnels", tunnels
		}
		add(row, all, number)
	}
	if n := o.Clocks.Blocked; n > 0 {
		add(trouble{Title: "Hosts that asked for a pause", Code: "blocked", Path: "/hosts?state=blocked", Count: n, Of: "of hosts"}, o.Clocks.Keys,
			func(m engine.Minute) int { return m.RefusedFor(string(enforce.ReasonBackoff), false) })
	}
	if n := o.Clocks.Waiting; n > 0 {
		add(trouble{Title: "Requests held for their turn", Code: "held", Path: "/hosts?state=waiting", Count: n, Of: "of requests"}, requests,
			func(m engine.Minute) int { return m.Held })
	}
	unnamed := func(m engine.Minute) int { return m.RequestsOf(engine.OtherAgent) }
	if n := lately(unnamed); percent(n, requests) >= unnamedShare && o.Named {
		add(trouble{Title: "Requests of no named crawler", Path: "/agents?name=" + engine.OtherAgent, Count: n, Of: "of requests"}, requests, unnamed)
	}
	return list
}

// titleOf is a reason in words.
func titleOf(code string) string {
	if r := enforce.Reason(code); r.Valid() {
		return r.Info().Title
	}
	return "Other reasons"
}

// trendText compares the last minutes with as many an hour ago.
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
