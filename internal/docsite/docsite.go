package docsite

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for the template and the style
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/docs"
	"github.com/crawlgate/crawlgate/internal/pagestyle"
)

// Root is the path of the index. All paths of the documentation begin with it.
const Root = "/docs/"

var (
	//go:embed page.html
	pageHTML string
	//go:embed docsite.css
	ownCSS string

	layout = template.Must(template.New("page").Parse(
		`{{define "head"}}` + pagestyle.Head + "<style>" + ownCSS + `</style>{{end}}{{define "mark"}}` + pagestyle.Brand + `{{end}}` + pageHTML))
	policy = "default-src 'none'; img-src 'self' data:; style-src " + pagestyle.Source(pagestyle.CSS) + " " + pagestyle.Source(ownCSS) +
		"; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

// view is what the template shows.
type view struct {
	*page
	Nav     []group
	Query   string // empty for a page
	Results []result
}

const (
	typeHTML     = "text/html; charset=utf-8"
	typeMarkdown = "text/markdown; charset=utf-8"
	typeText     = "text/plain; charset=utf-8"
)

// Covers reports whether a path is one of the documentation.
func Covers(path string) bool {
	return strings.HasPrefix(path, Root) || path == strings.TrimSuffix(Root, "/")
}

// Serve answers a request whose path [Covers] covers: with HTML if asked to, else with the Markdown
// of a page. The path of a page with ".md" gives Markdown in any case. It is safe for concurrent
// use. The first call renders all pages, which takes a quarter of a second and 2 MiB.
func Serve(w http.ResponseWriter, r *http.Request, html bool) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Vary", "Accept")
	h.Set("Cache-Control", "no-cache") // an upgrade changes the pages; until then the ETag stays
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		send(w, r, http.StatusMethodNotAllowed, typeText, []byte("Only GET is allowed here.\n"))
		return
	}
	s, path := load(), r.URL.Path
	p := s.pages[path]
	file := strings.TrimPrefix(path, Root)
	if p != nil {
		file = p.file
	}
	body, err := docs.Files.ReadFile(file) // fails for a folder too
	switch query := strings.TrimSpace(r.URL.Query().Get("q")); {
	case path == Root && query != "":
		s.serveSearch(w, r, query, html)
	case p != nil && html:
		s.render(w, r, http.StatusOK, view{page: p})
	case err == nil:
		kind := typeMarkdown
		if strings.HasSuffix(file, ".png") {
			kind = "image/png"
		}
		send(w, r, http.StatusOK, kind, body)
	case s.pages[path+"/"] != nil:
		http.Redirect(w, r, s.pages[path+"/"].URL, http.StatusMovedPermanently)
	case html:
		s.render(w, r, http.StatusNotFound, view{page: &page{Title: "No such page", Body: "<h1>No such page</h1>" +
			`<p>The <a href="` + Root + `">index</a> has all pages. The search finds words in them.</p>`}})
	default:
		send(w, r, http.StatusNotFound, typeText, []byte("This page does not exist. "+Root+" is the index.\n"))
	}
}

func (s *site) serveSearch(w http.ResponseWriter, r *http.Request, query string, html bool) {
	query, found := s.search(query)
	if html {
		s.render(w, r, http.StatusOK, view{page: &page{Title: "Search"}, Query: query, Results: found})
		return
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d of the sections that contain all words: %s\n", len(found), query)
	for _, f := range found {
		fmt.Fprintf(&b, "\n%s\n  %s\n  %s\n", f.Name(), f.URL, f.Before+f.Match+f.After)
	}
	send(w, r, http.StatusOK, typeText, b.Bytes())
}

func (s *site) render(w http.ResponseWriter, r *http.Request, status int, v view) {
	v.Nav = s.nav
	var b bytes.Buffer
	_ = layout.Execute(&b, v) // the view has all that the template names, and a Buffer takes everything
	send(w, r, status, typeHTML, b.Bytes())
}

// send answers with a whole body. A page that has not changed is not sent again.
func send(w http.ResponseWriter, r *http.Request, status int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	if status == http.StatusOK {
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256(body)))
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
		return
	}
	w.WriteHeader(status)
	// A client that has left needs no answer, and the server drops the body of an answer to HEAD.
	_, _ = w.Write(body) //nolint:gosec // html/template has escaped it
}
