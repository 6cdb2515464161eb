package console

import (
	"context"
	"fmt"
	"html/template"
	"slices"
	"time"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/plot"
	"github.com/crawlgate/crawlgate/internal/version"
)

// The bounds of the lists on the page.
const (
	maxListed = 20

	firstReading = 100 * time.Millisecond // how long the first reading is waited for, under the lock

	maxRefusalBytes = 60 << 10 // of HTML
	rowBytes        = 150      // of a row without its texts
)

// escaped returns the length of a text in HTML, in bytes.
func escaped(s string) int { return len(template.HTMLEscapeString(s)) }

// overview is the state of the gateway at one moment.
type overview struct {
	Now      time.Time
	Gateway  string
	Version  string
	Digest   string
	Standing engine.Status
	Badges   []badge
	Orders   []enforce.Stop
	More     int            // orders that are not listed
	Allowed  []enforce.Stop // exceptions at run time
	Beyond   int            // exceptions that are not listed
	MayLift  bool
	Hour     engine.Recent
	Troubles []trouble
	Near     []engine.AgentBudget // budgets with less than a tenth left
	Budgets  int                  // number of agents with a budget
	Refusals []engine.RecentRefusal
	Clocks   adminapi.Clocks // numbers of clocks
	Named    bool            // there are agent blocks
	// Unreachable are the origins whose robots.txt is unreachable. Fault says why they could not be
	// read.
	Unreachable adminapi.CatalogPage
	Fault       string
	Ending      []enforce.Exception
	Charts      []template.HTML
}

// badge is the state of one thing: Level is "ok", "warn", "bad" or "off".
type badge struct{ Name, Level, Text string }

type kind struct {
	engine.RefusalKind
	Count int
}

type agent struct {
	Name, Owner string
	engine.AgentCount
	Share float64 // of all requests, in percent
}

// look gathers the data of the page. It is called under the lock.
func (h *Handler) look(ctx context.Context, e *engine.Engine, now time.Time) *overview {
	o := &overview{
		Now: now, Gateway: e.Config.Name, Version: version.Read(), Digest: e.ConfigDigest(), Standing: e.Status(),
		MayLift: h.Orders, Hour: engine.LastHour(),
	}
	inForce, within := e.Stops().InForce(now, e.Config.AllowFor), now.AddDate(0, 0, 14)
	orders, allowed := make([]enforce.Stop, 0, len(inForce)), make([]enforce.Stop, 0, len(inForce))
	for _, order := range inForce {
		switch {
		case order.Scope != enforce.StopAllow:
			orders = append(orders, order)
			continue
		case order.Until.Before(within):
			o.Ending = append(o.Ending, order.Exception())
		}
		allowed = append(allowed, order)
	}
	o.Orders, o.More = bounded(orders, maxListed), max(len(orders)-maxListed, 0)
	o.Allowed, o.Beyond = bounded(allowed, maxListed), max(len(allowed)-maxListed, 0)
	o.Refusals, o.Named = fitting(o.Hour.Refusals, maxListed), len(adminapi.AgentNames(e)) > 0
	o.Clocks, _ = adminapi.ListClocks(ctx, e, adminapi.ClocksRequest{Limit: 1}) // all states are valid
	soon, cancel := context.WithTimeout(ctx, firstReading)
	defer cancel()
	if err := h.origins.Renew(soon, h.life, e); err != nil {
		o.Fault = plain(err)
	}
	o.Unreachable = h.origins.Find(adminapi.CatalogQuery{State: "unreachable", Limit: maxListed}, now)
	budgets := e.Budgets()
	o.Budgets, o.Near = len(budgets), slices.DeleteFunc(budgets, func(b engine.AgentBudget) bool { return !b.Near() })
	o.Troubles = troublesOf(o)
	for _, site := range e.Sites() {
		o.Ending = append(o.Ending, site.Operator.Ending(now, within)...)
	}
	o.Ending = bounded(o.Ending, maxListed)
	o.Badges, o.Charts = badgesOf(ctx, e, o), chartsOf(o.Hour.Minutes, now)
	return o
}

// badgesOf returns the state of each part of the gateway.
func badgesOf(ctx context.Context, e *engine.Engine, o *overview) []badge {
	s := o.Standing
	list := []badge{
		{"Stops", level(len(o.Orders) == 0, "ok", "bad"), fmt.Sprintf("%d in force", len(o.Orders)+o.More)},
		{"Store", level(s.StoreUp, "ok", "bad"), s.Store + map[bool]string{true: ", works", false: ", fails: rulesets are kept in memory only"}[s.StoreUp]},
	}
	clocks := badge{"Clocks", "off", "of this gateway alone"}
	if s.SharedWanted {
		clocks = badge{"Clocks", level(s.SharedUp, "ok", "warn"), map[bool]string{true: "shared", false: "not shared: Redis is away"}[s.SharedUp]}
	}
	list = append(list, clocks)
	list = append(list, authorityBadge(s, o.Now), evidenceBadge(o.Now))
	gateways, err := adminapi.ListGateways(ctx, e, struct{}{})
	fleet := badge{"Fleet", "off", "this gateway alone"}
	if err == nil && gateways.Fleet {
		n := len(gateways.Gateways) + gateways.Unlisted
		all := max(n, gateways.Expected)
		fleet = badge{"Fleet", level(gateways.Up && n == all, "ok", "warn"), fmt.Sprintf("%d of %d gateways", n, all)}
		if !gateways.Up {
			fleet.Text += ", Redis is away"
		}
	}
	return append(list, fleet)
}

// authorityBadge says when the root expires, which clients have to replace. Caddy renews the
// intermediate certificate days before it expires, so the badge shows it only if it was not
// renewed.
func authorityBadge(s engine.Status, now time.Time) badge {
	root := s.Authority["root"]
	switch {
	case root == nil:
		return badge{"Authority", "off", "nothing is intercepted"}
	case !s.AuthorityEnds.After(now.Add(24 * time.Hour)):
		return badge{"Authority", "bad", "a certificate ends " + left(now, s.AuthorityEnds)}
	}
	return badge{"Authority", level(root.NotAfter.After(now.AddDate(0, 0, 30)), "ok", "warn"), "root until " + root.NotAfter.UTC().Format(time.DateOnly)}
}

func evidenceBadge(now time.Time) badge {
	logs := engine.SealedLogs()
	if len(logs) == 0 {
		return badge{"Evidence", "off", "no log is sealed"}
	}
	oldest := now
	for _, l := range logs {
		if l.Error != "" {
			return badge{"Evidence", "bad", "a log cannot be sealed"}
		}
		if !l.Time.IsZero() && l.Unsealed > 0 && l.Time.Before(oldest) {
			oldest = l.Time
		}
	}
	return badge{"Evidence", level(now.Sub(oldest) < time.Minute, "ok", "warn"), fmt.Sprintf("%d sealed", len(logs))}
}

func level(well bool, yes, no string) string {
	if well {
		return yes
	}
	return no
}

// chartsOf draws the last hour, including the current minute. Minutes before the gateway's start
// are empty.
func chartsOf(minutes []engine.Minute, now time.Time) (charts []template.HTML) {
	from := now.Truncate(time.Minute).Add(-(engine.RecentMinutes - 1) * time.Minute)
	layer := func(name, class string, value func(m engine.Minute) float64) plot.Layer {
		l := plot.Layer{Name: name, Class: class, Values: make([]float64, engine.RecentMinutes)}
		for _, m := range minutes {
			if bar := int(m.Start.Sub(from) / time.Minute); !m.Start.Before(from) && bar < len(l.Values) {
				l.Values[bar] = value(m)
			}
		}
		return l
	}
	for _, c := range []plot.Chart{
		{Title: "Requests", Unit: "a minute", Layers: []plot.Layer{
			layer("allowed", "allowed", func(m engine.Minute) float64 { return float64(m.Requests - m.Held - m.Refused - m.Failed) }),
			layer("allowed after a wait", "held", func(m engine.Minute) float64 { return float64(m.Held) }),
			layer("refused", "refused", func(m engine.Minute) float64 { return float64(m.Refused) }),
			layer("failed", "failed", func(m engine.Minute) float64 { return float64(m.Failed) }),
		}},
		{Title: "Tunnels (CONNECT)", Unit: "a minute", Layers: []plot.Layer{layer("tunnels", "allowed", func(m engine.Minute) float64 { return float64(m.Tunnels) })}},
		{Title: "CPU", Unit: "% of a core", Layers: []plot.Layer{layer("% of a core", "allowed", func(m engine.Minute) float64 { return 100 * m.CPU.Minutes() })}},
	} {
		c.From, c.Width, c.Bars, c.Running = from, time.Minute, engine.RecentMinutes, true
		charts = append(charts, c.HTML())
	}
	return charts
}
