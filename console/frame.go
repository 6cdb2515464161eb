package console

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"time"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/internal/pagestyle"
)

var (
	//go:embed console.css
	ownCSS string
	style  = []byte(pagestyle.CSS + "\n" + ownCSS)
	//go:embed console.js
	script []byte
	//go:embed pages
	pageFiles embed.FS

	pages = template.Must(template.Must(template.New("console").Funcs(template.FuncMap{
		"clock": clock, "percent": func(d time.Duration) string { return fmt.Sprintf("%.0f", 100*d.Minutes()) },
		"cut":  func(n int, s string) string { return escape.Cut(escape.Unprintable(s), n) },
		"site": func(o string) string { return "/origin?origin=" + url.QueryEscape(o) }, "menu": func() []entry { return menu },
		"title": titleOf, "trend": trendText, "hint": func(code string) string { return enforce.Reason(code).Info().Hint }, "ago": ago, "why": whyOf,
		"agents": func() []string {
			if e := engine.Current(); e != nil {
				return bounded(adminapi.AgentNames(e), 2*perPage) // the fields accept any other name too
			}
			return nil
		}, "states": func(names ...string) []string { return names },
	}).Parse(`{{define "icon"}}`+pagestyle.Icon+`{{end}}{{define "brand"}}`+pagestyle.Brand+`{{end}}`)).ParseFS(pageFiles, "pages/*.html"))
)

// entry is a page in the navigation.
type entry struct{ Path, Name string }

var menu = []entry{
	{"/", "Overview"},
	{"/refusals", "Refusals"},
	{"/agents", "Agents"},
	{"/hosts", "Hosts"},
	{"/origins", "Origins"},
	{"/gateways", "Gateways"},
	{"/stops", "Stops"},
}

// frame is the common part of all pages. The templates "top" and "end" show it.
type frame struct {
	Title, Path, User string
	Now               time.Time
	Orders            bool // the user may give orders
	Live              bool // it has sections with live updates
	Note              note
}

func (h *Handler) frame(r *http.Request, title string) frame {
	user := userOf(r)
	return frame{
		Title: title, Path: r.URL.Path, User: user, Now: time.Now(), Orders: h.Orders && user != "", Note: h.notes.get(r.URL.Query().Get("m")),
	}
}

func render(w http.ResponseWriter, status int, name string, data any) error {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		return fmt.Errorf("rendering the operator's page: %w", err)
	}
	return send(w, status, "text/html; charset=utf-8", b.Bytes())
}

// fail answers with a page that names the fault and links back.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, status int, text string) error {
	return render(w, status, "error", struct {
		frame
		Text string
	}{h.frame(r, http.StatusText(status)), text})
}

// say answers with a line of text, if no page can be shown.
func say(w http.ResponseWriter, status int, text string) error {
	return send(w, status, "text/plain; charset=utf-8", []byte(text+"\n"))
}
