package console

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
)

// perPage is how many rows a list has. perPart is how many rows each list of a search has.
const (
	perPage = 50
	perPart = 10
)

// finders fill the pages of lists, by the names of their templates, which are also their paths.
var finders = map[string]struct {
	title string
	fill  func(ctx context.Context, h *Handler, e *engine.Engine, f *finding) error
}{
	"/find":     {"Search", findAll},
	"/refusals": {"Refused in the last hour", findRefusals},
	"/agents":   {"Agents", findAgents},
	"/hosts":    {"Hosts with a clock", findHosts},
	"/origins":  {"Origins", findOrigins},
	"/gateways": {"Gateways", findGateways},
}

// finding is a page of lists, cut to Rows each.
type finding struct {
	frame
	Query    url.Values
	Text     string // the search text, in lower case
	Rows     int
	Hour     engine.Recent
	Reasons  []enforce.ReasonInfo
	Refusals []engine.RecentRefusal
	Kinds    []kind
	Agents   []agent
	Teams    []agent
	Budgets  []engine.AgentBudget
	Budgeted int     // agents with a budget, including those not listed
	Asked    []agent // requests by one agent, by origin
	Clocks   adminapi.Clocks
	Origins  adminapi.CatalogPage
	Fault    string // why the origins could not be read
	Gateways adminapi.Gateways
	Since    time.Time // the first request that is counted in Kinds and Asked
	From     int
	Found    int    // number of rows on all pages
	Next     string // the query of the next page, empty on the last one
}

// showFinding answers with a page of lists.
func (h *Handler) showFinding(w http.ResponseWriter, r *http.Request, e *engine.Engine) error {
	page, q := finders[r.URL.Path], r.URL.Query()
	f := finding{frame: h.frame(r, page.title), Query: q, Text: strings.ToLower(strings.TrimSpace(q.Get("q"))), Rows: perPage, Hour: engine.LastHour()}
	f.From, _ = strconv.Atoi(q.Get("from")) // anything but a number means the first page
	f.From = min(max(f.From, 0), 1_000_000)
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	if err := page.fill(ctx, h, e, &f); err != nil {
		return h.fail(w, r, http.StatusBadRequest, plain(err))
	}
	return render(w, http.StatusOK, r.URL.Path, f)
}

// turn sets the query of the next page, which starts at the value of a parameter.
func (f *finding) turn(name, value string) {
	q := maps.Clone(f.Query)
	q.Set(name, value)
	f.Next = "?" + q.Encode()
}

// turnTo is turn after a number of found rows.
func (f *finding) turnTo(rows, found int) {
	if f.Found = found; f.From+rows < found {
		f.turn("from", strconv.Itoa(f.From+rows))
	}
}

// has reports whether one of the texts contains the search text.
func (f *finding) has(texts ...string) bool {
	return slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(strings.ToLower(s), f.Text) })
}

// wants reports whether a parameter has a given value, or is missing.
func (f *finding) wants(name, value string) bool {
	return f.Query.Get(name) == "" || f.Query.Get(name) == value
}

func findAll(ctx context.Context, h *Handler, e *engine.Engine, f *finding) error {
	if f.Rows = perPart; f.Text == "" {
		return nil
	}
	for _, r := range enforce.Reasons() {
		if info := r.Info(); !r.Allows() && f.has(string(r), info.Title) {
			f.Reasons = append(f.Reasons, info)
		}
	}
	return cmp.Or(findAgents(ctx, h, e, f), findHosts(ctx, h, e, f), findOrigins(ctx, h, e, f), findRefusals(ctx, h, e, f))
}

func findRefusals(_ context.Context, _ *Handler, _ *engine.Engine, f *finding) error {
	list := slices.DeleteFunc(f.Hour.Refusals, func(r engine.RecentRefusal) bool {
		return !f.wants("reason", r.Reason) || !f.wants("agent", r.Agent) || !f.wants("origin", r.Origin) || !f.has(r.URL, r.Agent, r.Reason, titleOf(r.Reason))
	})
	f.Refusals = fitting(list[min(f.From, len(list)):], f.Rows)
	f.turnTo(len(f.Refusals), len(list))
	return nil
}

// fitting returns the part of a list that fits on a page.
func fitting(list []engine.RecentRefusal, rows int) []engine.RecentRefusal {
	room := maxRefusalBytes
	for i, r := range bounded(list, rows) {
		if room -= 2*escaped(r.URL) + 3*escaped(r.Agent) + escaped(r.Rule) + 4*rowBytes; room < 0 {
			return list[:i]
		}
	}
	return bounded(list, rows)
}

// whyOf returns the URL of the page that explains a refusal.
func whyOf(r engine.RecentRefusal) string {
	target := r.URL
	if r.Method == http.MethodConnect {
		target = r.Origin + "/"
	}
	return "/?" + url.Values{"agent": {r.Agent}, "url": {target}, "was": {r.Reason}}.Encode() + "#explain"
}

// findAgents lists all agents and teams or, for one agent, the origins that it requested and the
// reasons of its refusals.
func findAgents(_ context.Context, _ *Handler, e *engine.Engine, f *finding) error {
	f.Agents, f.Teams = countsOf(e, f.Hour)
	name := f.Query.Get("name")
	budgets := slices.DeleteFunc(e.Budgets(), func(b engine.AgentBudget) bool {
		return name != "" && b.Agent != name || name == "" && !f.has(b.Agent, b.Owner)
	})
	slices.SortStableFunc(budgets, leastLeft)
	f.Budgets, f.Budgeted = bounded(budgets, f.Rows), len(budgets)
	if name == "" {
		list := slices.DeleteFunc(f.Agents, func(a agent) bool { return !f.has(a.Name, a.Owner) })
		f.Agents, f.Teams = bounded(list[min(f.From, len(list)):], f.Rows), bounded(f.Teams, f.Rows)
		f.turnTo(len(f.Agents), len(list))
		return nil
	}
	f.Agents, f.Teams = slices.DeleteFunc(f.Agents, func(a agent) bool { return a.Name != name }), nil
	asked, kinds := map[string]engine.AgentCount{}, map[engine.RefusalKind]int{}
	for _, r := range slices.Concat(f.Hour.Passed, f.Hour.Refusals) {
		if r.Block != name {
			continue
		}
		if f.Since.IsZero() || r.First.Before(f.Since) {
			f.Since = r.First
		}
		switch tunnel := r.Method == http.MethodConnect; {
		case r.Reason != "":
			kinds[engine.RefusalKind{Reason: r.Reason, Tunnel: tunnel}] += r.Count
			asked[r.Origin] = asked[r.Origin].Plus(engine.AgentCount{Refused: r.Count})
			fallthrough
		case !tunnel:
			asked[r.Origin] = asked[r.Origin].Plus(engine.AgentCount{Requests: r.Count})
		}
	}
	f.Asked, f.Found = shares(asked, nil), len(asked)
	f.Asked = bounded(f.Asked, f.Rows)
	for k, n := range kinds {
		f.Kinds = append(f.Kinds, kind{k, n})
	}
	slices.SortFunc(f.Kinds, func(a, b kind) int { return cmp.Or(b.Count-a.Count, strings.Compare(a.Reason, b.Reason)) })
	return nil
}

// leastLeft sorts budgets by the smallest share that is left of one of their limits.
func leastLeft(a, b engine.AgentBudget) int {
	var left [2]float64
	for i, budget := range [2]engine.AgentBudget{a, b} {
		left[i] = 1
		for _, n := range budget.Limited() {
			left[i] = min(left[i], float64(n[0])/float64(n[1]))
		}
	}
	return cmp.Compare(left[0], left[1])
}

// countsOf lists the agents that are configured or were active in the last hour, and their
// owners.
func countsOf(e *engine.Engine, hour engine.Recent) (agents, teams []agent) {
	counts, owners, byOwner := maps.Clone(hour.Agents), map[string]string{}, map[string]engine.AgentCount{}
	for a := range e.Agents() {
		owners[a.Name], counts[a.Name] = a.Owner, counts[a.Name].Plus(engine.AgentCount{}) // even without a request
	}
	for name, n := range counts {
		byOwner[owners[name]] = byOwner[owners[name]].Plus(n)
	}
	return shares(counts, owners), shares(byOwner, nil)
}

// shares lists counts, sorted by how often they came back too early.
func shares(counts map[string]engine.AgentCount, owners map[string]string) (list []agent) {
	all := 0
	for _, n := range counts {
		all += n.Requests
	}
	for name, n := range counts {
		list = append(list, agent{name, owners[name], n, percent(n.Requests, all)})
	}
	slices.SortFunc(list, func(a, b agent) int {
		return cmp.Or(b.Early-a.Early, b.Requests-a.Requests, strings.Compare(a.Name, b.Name))
	})
	return list
}

// percent returns the percentage of a part. It is 0 if the total is 0.
func percent(part, all int) float64 { return 100 * float64(part) / float64(max(all, 1)) }

func findHosts(ctx context.Context, _ *Handler, e *engine.Engine, f *finding) (err error) {
	f.Clocks, err = adminapi.ListClocks(ctx, e, adminapi.ClocksRequest{
		State: f.Query.Get("state"), Contains: f.Text, After: f.Query.Get("after"), Limit: f.Rows,
	})
	if f.Clocks.Next != "" {
		f.turn("after", f.Clocks.Next)
	}
	return err //nolint:wrapcheck // it says all
}

func findOrigins(ctx context.Context, h *Handler, e *engine.Engine, f *finding) error {
	age, _ := time.ParseDuration(f.Query.Get("age")) // anything but a duration means any age
	if err := h.origins.Renew(ctx, h.life, e); err != nil {
		f.Fault = plain(err) // the page still shows the last reading
	}
	f.Origins = h.origins.Find(adminapi.CatalogQuery{State: f.Query.Get("state"), Text: f.Text, Age: age, From: f.From, Limit: f.Rows}, f.Now)
	f.turnTo(len(f.Origins.Origins), f.Origins.Found)
	return nil
}

func findGateways(ctx context.Context, _ *Handler, e *engine.Engine, f *finding) (err error) {
	f.Gateways, err = adminapi.ListGateways(ctx, e, struct{}{})
	f.Gateways.Gateways = bounded(f.Gateways.Gateways, 4*perPage)
	return err //nolint:wrapcheck // it says all
}
