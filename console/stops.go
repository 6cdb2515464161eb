package console

import (
	"cmp"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
)

const (
	maxDeeds     = 200
	maxDeedBytes = 40 << 10 // of HTML
	manyUnderWay = 20       // a stop that would end more needs a confirmation
)

// deed is a stop in the journal. It has no scope if an earlier release lifted it.
type deed struct {
	enforce.Stop
	Lift enforce.Lift // zero while the stop is in force
	Last time.Time    // when it was last given or lifted
}

// journalOf lists stops in force and stops lifted in the last 90 days, latest first, as many as
// fit. more is the number left out.
func journalOf(all enforce.StopSet) (list []deed, more int) {
	for _, stop := range all.Held {
		list = append(list, deed{Stop: stop, Last: stop.At})
	}
	for _, lift := range all.Lifted {
		d := deed{Lift: lift, Last: lift.At}
		if lift.Stop != nil {
			d.Stop = *lift.Stop
		}
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b deed) int { return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.ID, b.ID)) })
	room := maxDeedBytes
	for i, d := range list {
		room -= escaped(d.Value) + escaped(d.By) + escaped(d.Reason) + escaped(d.Ticket) + escaped(d.Lift.By) + 3*rowBytes
		if room < 0 || i == maxDeeds {
			return list[:i], len(list) - i
		}
	}
	return list, 0
}

// showStops answers with the stops in force, the forms of orders, and the journal.
func (h *Handler) showStops(w http.ResponseWriter, r *http.Request, e *engine.Engine) error {
	p := struct {
		frame
		Sections map[string]template.HTML
		Journal  []deed
		More     int
	}{frame: h.frame(r, "Stops"), Sections: h.sections(r.Context(), e)}
	p.Live = true
	p.Journal, p.More = journalOf(e.Stops().All())
	return render(w, http.StatusOK, "stops", p)
}

// question is asked before an order is carried out.
type question struct {
	Form                         url.Values
	Fault                        string // fault of an order that can be forced
	Agents, UnderWay, Configured int    // affected by a stop
}

func (h *Handler) ask(w http.ResponseWriter, r *http.Request, q question) error {
	title := map[string]string{"deny": "Stop ", "allow": "Allow ", "undeny": "Lift ", "purge": "Forget "}[q.Form.Get("action")]
	return render(w, http.StatusOK, "question", struct {
		frame
		question
	}{h.frame(r, title+strings.TrimSpace(q.Form.Get("scope")+" "+q.Form.Get("value"))+"?"), q})
}

// questionOf returns the question to ask before it carries out an order of a form. There is a
// question about a lift, about what an order forgets, about an exception, and about a stop that is
// wide or ends many requests. The last two also ask for a reason. asks is false if there is no
// question or if it was answered.
func questionOf(e *engine.Engine, form url.Values) (q question, asks bool) {
	q.Form = form
	answered := form.Get("confirm") != ""
	explained := answered && strings.TrimSpace(form.Get("reason")) != ""
	switch form.Get("action") {
	case "undeny", "purge":
		return q, !answered
	case "allow":
		return q, !explained
	case "deny":
	default:
		return q, false
	}
	order, err := enforce.Stop{Scope: enforce.StopScope(form.Get("scope")), Value: form.Get("value")}.Canonical()
	if err != nil {
		return q, false // carrying out the order reports it
	}
	q.UnderWay, q.Agents = engine.WouldEnd(order)
	q.Configured = len(adminapi.AgentNames(e))
	wide := order.Scope == enforce.StopAll || strings.HasPrefix(order.Value, "*") || strings.Contains(order.Value, "@*") || q.UnderWay > manyUnderWay
	return q, wide && !explained
}
