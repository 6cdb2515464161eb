package console

import (
	"cmp"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
)

const (
	maxDeeds     = 200
	maxDeedBytes = 40 << 10 // of HTML
	manyUnderWay = 20       // a stop that would end more is asked about
)

// deed is a stop in the journal. One that was lifted at a gateway of an earlier release has no scope.
type deed struct {
	enforce.Stop
	Lift enforce.Lift // zero while the stop holds
}

// last is when something was done.
func (d deed) last() time.Time {
	if d.Lift.At.IsZero() {
		return d.At
	}
	return d.Lift.At
}

// journalOf lists the stops that hold and those of the last 90 days that were lifted, the newest
// first: those of the day of now, and those before, as many as there is room for.
func journalOf(all enforce.StopSet, now time.Time) (today, before []deed, more int) {
	var list []deed
	for _, stop := range all.Held {
		list = append(list, deed{Stop: stop})
	}
	for _, lift := range all.Lifted {
		d := deed{Lift: lift}
		if lift.Stop != nil {
			d.Stop = *lift.Stop
		}
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b deed) int { return cmp.Or(b.last().Compare(a.last()), cmp.Compare(a.ID, b.ID)) })
	midnight, room := now.UTC().Truncate(24*time.Hour), maxDeedBytes
	for i, d := range list {
		room -= escaped(d.Value) + escaped(d.By) + escaped(d.Reason) + escaped(d.Lift.By) + 3*rowBytes
		switch {
		case room < 0 || i == maxDeeds:
			return today, before, len(list) - i
		case d.last().Before(midnight):
			before = append(before, d)
		default:
			today = append(today, d)
		}
	}
	return today, before, 0
}

// showStops answers with the stops in force, the forms of orders, and the journal.
func (h *Handler) showStops(w http.ResponseWriter, r *http.Request, e *engine.Engine) error {
	p := struct {
		frame
		Sections      map[string]template.HTML
		Agents        []string
		Today, Before []deed
		More          int
	}{frame: h.frame(r, "Stops"), Sections: h.shownSections(r, e), Agents: agentsOf(e)}
	p.Live = true
	p.Today, p.Before, p.More = journalOf(e.Stops().All(), p.Now)
	return render(w, http.StatusOK, "stops", p)
}

// agentsOf lists the configured agents of all sites.
func agentsOf(e *engine.Engine) (names []string) {
	for _, site := range e.Sites() {
		names = append(names, site.Identifier.Agents()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// question is asked before an order is carried out.
type question struct {
	Why    string // what it would do, or why it is not plain
	Form   url.Values
	Button string
	Reason bool // is asked for
	Force  bool // the order is given all the same
}

func (h *Handler) ask(w http.ResponseWriter, r *http.Request, q *question) error {
	title := map[string]string{"deny": "Stop", "undeny": "Lift", "purge": "Forget"}[q.Form.Get("action")]
	q.Button = title
	for _, part := range []string{q.Form.Get("scope"), q.Form.Get("value")} {
		if part != "" {
			title += " " + part
		}
	}
	return render(w, http.StatusOK, "question", struct {
		frame
		*question
	}{h.frame(r, title+"?"), q})
}

// ask returns the question before an order of a form, nil if there is none or it was answered.
func ask(e *engine.Engine, form url.Values) *question {
	order, err := enforce.Stop{Scope: enforce.StopScope(form.Get("scope")), Value: form.Get("value")}.Canonical()
	confirmed := form.Get("confirm") != ""
	switch action := form.Get("action"); {
	case action == "purge" && !confirmed:
		return &question{Form: form, Why: "The next request to it fetches its robots.txt again, and waits for it."}
	case err != nil: // the answer to the order says it
	case action == "deny":
		return askStop(e, form, order, confirmed)
	case action == "undeny" && !confirmed:
		for _, stop := range e.Stops().List() {
			if stop.Scope == order.Scope && strings.EqualFold(stop.Value, order.Value) {
				return &question{Form: form, Why: "Requests go on at once. In force: " + stop.String() + ", since " + stop.At.UTC().Format("2006-01-02 15:04") + " UTC."}
			}
		}
	}
	return nil
}

// askStop asks about a stop that is wide, and for its reason.
func askStop(e *engine.Engine, form url.Values, order enforce.Stop, confirmed bool) *question {
	underWay, agents := engine.WouldEnd(order)
	wide := order.Scope == enforce.StopAll || strings.HasPrefix(order.Value, "*") && order.Scope == enforce.StopHost
	if !wide && underWay <= manyUnderWay || confirmed && strings.TrimSpace(form.Get("reason")) != "" {
		return nil
	}
	why := "Every request of every agent is refused"
	switch order.Scope {
	case enforce.StopHost:
		why = "Every request to " + order.Value + " is refused"
	case enforce.StopAgent:
		why = "Every request of " + order.Value + " is refused"
	}
	if n := len(agentsOf(e)); order.Scope != enforce.StopAgent && n > 0 {
		why += fmt.Sprintf(", also those of the %d configured agents", n)
	}
	return &question{Form: form, Reason: true, Why: fmt.Sprintf("%s, until somebody lifts the stop. Under way at this gateway, and ended: %d, of %d agents.", why, underWay, agents)}
}
