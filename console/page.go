package console

import (
	"context"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/internal/linediff"
	"github.com/crawlgate/crawlgate/origin"
)

// sections are the parts of the page with live updates, by their ids, which are also the names of
// their templates.
var sections = []string{"trouble", "unreachable", "status", "orders", "refusals", "exceptions", "load"}

type pageData struct {
	frame
	Sections    map[string]template.HTML
	Sites       []string
	Query       url.Values
	Explanation *explanation
	Fault       string // why there is no explanation
}

// showPage answers with the page and, if the request asks for one, an explanation. Only a POST,
// which can come only from the page itself, may cause a fetch of robots.txt: any site can make a
// browser send a GET.
func (h *Handler) showPage(w http.ResponseWriter, r *http.Request, e *engine.Engine) error {
	q, ask := r.URL.Query(), adminapi.ExplainKnown
	if r.Method == http.MethodPost {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := r.ParseForm(); err != nil {
			return h.fail(w, r, http.StatusBadRequest, "The form cannot be read.")
		}
		q, ask = r.PostForm, adminapi.Explain
	}
	p := pageData{frame: h.frame(r, "Overview"), Sites: sitesOf(e), Query: q, Sections: h.sections(r.Context(), e)}
	p.Live = true
	if n := len(q.Get("url")); n > maxURL {
		p.Fault = fmt.Sprintf("The URL has %d bytes, and the limit of this page is %d.", n, maxURL)
	} else if n > 0 {
		if x, err := ask(r.Context(), e, adminapi.ExplainRequest{Agent: q.Get("agent"), URL: q.Get("url"), Site: siteFor(e, q)}); err != nil {
			p.Fault = plain(err)
		} else {
			p.Explanation = withLines(e, x)
		}
	}
	return render(w, http.StatusOK, "page", p)
}

// sections renders the sections with live updates, at most once per second for all viewers.
func (h *Handler) sections(ctx context.Context, e *engine.Engine) map[string]template.HTML {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if h.shown != nil && now.Sub(h.shownAt) < time.Second && !now.Before(h.shownAt) {
		return h.shown
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second) // the result is for all viewers
	defer cancel()
	o := h.look(ctx, e, now)
	shown := make(map[string]template.HTML, len(sections))
	for _, id := range sections {
		var b strings.Builder
		if err := pages.ExecuteTemplate(&b, id, o); err != nil {
			b.WriteString("This part cannot be shown.")
		}
		shown[id] = template.HTML(b.String()) //nolint:gosec // our own templates made it
	}
	h.shown, h.shownAt = shown, time.Now() // now, even if rendering took long
	return shown
}

// refresh makes the next request render the sections again.
func (h *Handler) refresh() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shown = nil
}

// textLine is a line of a robots.txt.
type textLine struct {
	Number int
	Text   string
	Marked bool
}

// explanation is a decision, with the lines around its rule.
type explanation struct {
	adminapi.Explanation
	Lines []textLine
}

func withLines(e *engine.Engine, x adminapi.Explanation) *explanation {
	out := &explanation{Explanation: x}
	o, err := origin.ParseSite(x.Robots.Origin)
	if err != nil {
		return out // there is no text to show
	}
	if entry, ok := e.Cache().Peek(o, x.Robots.FetchedAs); ok {
		record := entry.Record()
		if text, ok := record.Text(); ok && text.SHA256.Hex() == x.Robots.SHA256 {
			line := x.Robots.Line
			out.Lines, _ = excerpt(text.Body, line-linesAround, max(line, 1)+linesAround, line)
		}
	}
	return out
}

const (
	linesAround = 10
	lineBytes   = 120
	maxURL      = 2048 // bytes, of a URL to explain
)

// excerpt returns the lines of a text from first to last, as many as there is room for, cut and
// with unprintable characters escaped. One of them may be marked.
func excerpt(body []byte, first, last, marked int) (list []textLine, cut bool) {
	lines, room := linediff.Lines(body), maxTextBytes
	for n := max(first, 1); n <= min(last, len(lines)); n++ {
		shown := escape.Cut(escape.Unprintable(lines[n-1]), lineBytes)
		if room -= escaped(shown) + len(`<li value="123456"><code></code></li>`); room < 0 {
			return list, true
		}
		list = append(list, textLine{n, shown, n == marked})
	}
	return list, false
}

// originPage is the data of an origin's page.
type originPage struct {
	frame
	adminapi.OriginDetail
	Lines   []textLine
	Cut     bool   // the text has more
	Changed []bool // which versions can be compared with an older one
	Diff    *adminapi.TextDiff
	Clocks  []adminapi.Clock
	Sites   []string
	Query   url.Values
	Fault   string // why there are no signals
}

const (
	maxTextBytes = 40 << 10 // of HTML
	maxDiffLines = 30
	maxVersions  = 50
	maxSitemaps  = 50
	maxSignals   = 50
)

// showOrigin answers with the page of an origin.
func (h *Handler) showOrigin(w http.ResponseWriter, r *http.Request, e *engine.Engine) error {
	q := r.URL.Query()
	request, fault := adminapi.OriginQuery{Origin: q.Get("origin"), Site: q.Get("site")}, ""
	if agent := q.Get("agent"); agent != "" {
		request.Agent = &agent
	}
	detail, err := adminapi.ShowOrigin(r.Context(), e, request)
	if err != nil && request.Agent != nil { // show the page without the signals for the agent
		fault, request.Agent = plain(err), nil
		detail, err = adminapi.ShowOrigin(r.Context(), e, request)
	}
	if err != nil {
		return h.fail(w, r, http.StatusNotFound, plain(err))
	}
	p := originPage{
		frame: h.frame(r, detail.Record.Origin.String()), OriginDetail: detail, Sites: sitesOf(e), Query: q, Fault: fault,
	}
	p.History = bounded(p.History, maxVersions)
	for i := range p.History {
		p.Changed = append(p.Changed, detail.HasChange(i))
	}
	p.Record.Sitemaps, p.Preferences = bounded(p.Record.Sitemaps, maxSitemaps), bounded(p.Preferences, maxSignals)
	if text, ok := detail.Record.Text(); ok {
		p.Lines, p.Cut = excerpt(text.Body, 1, math.MaxInt, 0)
	}
	if diff, err := adminapi.CompareTexts(r.Context(), e, adminapi.DiffRequest{Origin: q.Get("origin"), To: q.Get("to")}); err == nil {
		shorten(diff.Hunks)
		p.Diff = &diff
	}
	if clocks, err := adminapi.ListClocks(r.Context(), e, adminapi.ClocksRequest{Key: &detail.Record.Origin.Host}); err == nil {
		p.Clocks = clocks.Clocks
	}
	return render(w, http.StatusOK, "origin", p)
}

// siteFor returns the site that a question is about or, if the question names none, the first site
// that knows the agent.
func siteFor(e *engine.Engine, q url.Values) string {
	for _, site := range e.Sites() {
		if q.Get("site") == "" && site.Identifier.Knows(q.Get("agent")) {
			return site.Name()
		}
	}
	return q.Get("site")
}

func sitesOf(e *engine.Engine) (names []string) {
	for _, site := range e.Sites() {
		names = append(names, site.Name())
	}
	return names
}

// shorten cuts a difference to the room on a page.
func shorten(hunks []linediff.Hunk) {
	room := maxDiffLines
	for i, hunk := range hunks {
		hunks[i].Lines = bounded(hunk.Lines, room)
		room -= len(hunks[i].Lines)
		for j, line := range hunks[i].Lines {
			hunks[i].Lines[j] = escape.Cut(line, lineBytes)
		}
	}
}

func bounded[T any](list []T, most int) []T { return list[:min(len(list), max(most, 0))] }

// left returns a time after now in words, such as "in 3 min".
func left(now, t time.Time) string {
	if !t.After(now) {
		return "now"
	}
	return "in " + span(t.Sub(now))
}

// ago returns a time in words, such as "4 min ago" or "in 3 min".
func ago(t time.Time) string {
	switch now := time.Now(); {
	case t.After(now):
		return left(now, t)
	case now.Sub(t) < time.Minute:
		return "just now"
	default:
		return span(now.Sub(t)) + " ago"
	}
}

func span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05") }
