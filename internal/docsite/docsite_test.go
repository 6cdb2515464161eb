package docsite

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/docs"
	"github.com/crawlgate/crawlgate/internal/version"
)

// ask returns the answer to a request for a path, as sent by a browser or a terminal.
func ask(method, target string, html bool, header ...string) *httptest.ResponseRecorder {
	r := &http.Request{Method: method, URL: new(url.URL), Header: make(http.Header)}
	r.URL.Path, r.URL.RawQuery, _ = strings.Cut(target, "?")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	Serve(w, r, html)
	return w
}

// files returns the pages in docs/ on disk, with their text.
func files(t *testing.T) map[string][]byte {
	t.Helper()
	all := make(map[string][]byte)
	folder := os.DirFS(filepath.Join("..", "..", "docs"))
	err := fs.WalkDir(folder, ".", func(file string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(file, ".md") {
			all[file], err = fs.ReadFile(folder, file)
		}
		return err
	})
	if err != nil || len(all) < 50 {
		t.Fatalf("found %d pages, %v, want at least 50", len(all), err)
	}
	return all
}

// TestPages checks that each page of docs/ is served as HTML and as Markdown.
func TestPages(t *testing.T) {
	t.Parallel()
	for file, text := range files(t) {
		address := urlOf(file)
		page := ask(http.MethodGet, address, true)
		if page.Code != http.StatusOK || page.Header().Get("Content-Type") != typeHTML || !strings.Contains(page.Header().Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: got status %d, header %v", address, page.Code, page.Header())
		}
		body := page.Body.String()
		if n := strings.Count(body, "raw HTML omitted"); n > bytes.Count(text, []byte("<!--")) {
			t.Errorf("%s has %d pieces of HTML that the page omits", file, n)
		}
		if n := strings.Count(body, "<h1"); n != 1 || strings.Contains(body, "<script") {
			t.Errorf("%s has %d titles, want 1, or a script", address, n)
		}
		if err := wellFormed(body); err != nil {
			t.Errorf("%s: %v", address, err)
		}
		for _, raw := range []*httptest.ResponseRecorder{ask(http.MethodGet, address, false), ask(http.MethodGet, Root+file, true), ask(http.MethodGet, Root+file, false)} {
			if !bytes.Equal(raw.Body.Bytes(), text) || raw.Header().Get("Content-Type") != typeMarkdown {
				t.Errorf("%s as Markdown: got status %d, header %v", file, raw.Code, raw.Header())
			}
		}
		tag := page.Header().Get("ETag")
		if same := ask(http.MethodGet, address, true, "If-None-Match", tag); tag == "" || same.Code != http.StatusNotModified {
			t.Errorf("%s with its ETag: got status %d, ETag %s, want 304", address, same.Code, tag)
		}
		head := ask(http.MethodHead, address, true)
		if head.Code != http.StatusOK || head.Body.Len() > 0 || head.Header().Get("Content-Length") != fmt.Sprint(len(body)) {
			t.Errorf("HEAD %s: got status %d with %d bytes, header %v", address, head.Code, head.Body.Len(), head.Header())
		}
	}
}

var elements = regexp.MustCompile(`<(/?)([a-z][a-z0-9]*)(?:\s[^<>]*)?>`)

// wellFormed reports an element that is not closed, or is closed inside another one.
func wellFormed(page string) error {
	var open []string
	for _, m := range elements.FindAllStringSubmatch(page, -1) {
		last := len(open) - 1
		switch name := m[2]; {
		case slices.Contains([]string{"meta", "link", "input", "br", "hr", "img"}, name) || strings.HasSuffix(m[0], "/>"):
		case m[1] == "":
			open = append(open, name)
		case last < 0 || open[last] != name:
			return fmt.Errorf("%s does not close the last of %q", m[0], open)
		default:
			open = open[:last]
		}
	}
	if len(open) > 0 || !strings.HasSuffix(page, "</html>\n") {
		return fmt.Errorf("not closed: %q", open)
	}
	return nil
}

var (
	linked = regexp.MustCompile(`(?:href|src|action)="([^"]*)"`)
	ids    = regexp.MustCompile(` id="([^"]*)"`)
)

// TestLinks follows every link of every page: it must lead to a page, a picture, a heading or the
// repository. Pages must load nothing from other hosts, and the binary must have no picture that no
// page shows.
func TestLinks(t *testing.T) {
	t.Parallel()
	anchors, links := make(map[string]map[string]bool), make(map[string][]string)
	for file := range files(t) {
		address := urlOf(file)
		body := ask(http.MethodGet, address, true).Body.String()
		anchors[address] = make(map[string]bool)
		for _, m := range ids.FindAllStringSubmatch(body, -1) {
			if anchors[address][m[1]] {
				t.Errorf("%s has two elements with id %q", address, m[1])
			}
			anchors[address][m[1]] = true
		}
		for _, m := range linked.FindAllStringSubmatch(body, -1) {
			links[address] = append(links[address], strings.ReplaceAll(m[1], "&amp;", "&"))
		}
		for _, m := range regexp.MustCompile(`<img src="([^"]*)"`).FindAllStringSubmatch(body, -1) {
			if !strings.HasPrefix(m[1], Root+"images/") {
				t.Errorf("%s shows the image %s from elsewhere", address, m[1])
			}
		}
	}
	repository := "https://github.com/crawlgate/crawlgate/blob/" + version.Ref(version.Read()) + "/"
	pictures, outside := make(map[string]bool), 0
	for address, all := range links {
		for _, link := range all {
			target, id, _ := strings.Cut(link, "#")
			if target == "" {
				target = address
			}
			path, ours := strings.CutPrefix(target, repository)
			switch {
			case ours:
				outside++
				if _, err := os.Stat(filepath.Join("..", "..", path)); err != nil {
					t.Errorf("%s links to %s, which is not in the repository: %v", address, link, err)
				}
			case strings.HasPrefix(target, "https://"), strings.HasPrefix(target, "http://"), strings.HasPrefix(target, "mailto:"), strings.HasPrefix(target, "data:image/"):
			case strings.HasSuffix(target, ".png"):
				pictures[strings.TrimPrefix(target, Root)] = true
				if a := ask(http.MethodGet, target, true); a.Code != http.StatusOK || a.Header().Get("Content-Type") != "image/png" {
					t.Errorf("%s shows %s: got status %d", address, link, a.Code)
				}
			case anchors[target] == nil || id != "" && !anchors[target][id]:
				t.Errorf("%s links to %s, which does not exist", address, link)
			}
		}
	}
	if outside == 0 {
		t.Error("found no link to the repository")
	}
	_ = fs.WalkDir(docs.Files, "images", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !pictures[path] {
			t.Errorf("no page shows %s: leave it out of the binary", path)
		}
		return err
	})
}

// TestSize limits the size of the pages in the binary.
func TestSize(t *testing.T) {
	t.Parallel()
	sum := int64(0)
	_ = fs.WalkDir(docs.Files, ".", func(path string, d fs.DirEntry, err error) error {
		info, _ := d.Info()
		if !d.IsDir() {
			sum += info.Size()
		}
		if strings.HasSuffix(path, ".png") && info.Size() > 64<<10 {
			t.Errorf("docs/%s has %d bytes: a palette of 32 colours makes it smaller", path, info.Size())
		}
		return err
	})
	if sum < 100<<10 || sum > 800<<10 {
		t.Errorf("the documentation has %d bytes", sum)
	}
}

// TestIndex checks that the navigation has the sections and links of docs/README.md on each page,
// and marks the current page.
func TestIndex(t *testing.T) {
	t.Parallel()
	body := ask(http.MethodGet, Root+"clients/", true).Body.String()
	_, nav, _ := strings.Cut(body, `id="nav.pages"`)
	text := files(t)["README.md"]
	n := 0
	for _, m := range regexp.MustCompile(`\]\(([^)]+)\)|(?m)^## (.+)$`).FindAllSubmatch(text, -1) {
		n++
		want := fmt.Sprintf("<h3>%s</h3>", m[2])
		if m[2] == nil {
			want = fmt.Sprintf(`<a href="%s"`, urlOf(string(m[1])))
		}
		if !strings.Contains(nav, want) {
			t.Errorf("the navigation lacks %s", want)
		}
	}
	if n < 20 || !strings.Contains(nav, `<a href="/docs/clients/" aria-current="page">`) || strings.Count(nav, "aria-current") != 1 {
		t.Errorf("the navigation has %d links: %s", n, nav)
	}
}

// TestOtherRequests checks requests for other paths and with other methods.
func TestOtherRequests(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		method, target string
		html           bool
		status         int
		field, want    string
	}{
		{"GET", "/docs", true, 301, "Location", "/docs/"},
		{"GET", "/docs/clients", false, 301, "Location", "/docs/clients/"},
		{"GET", "/docs/nothing", true, 404, "Content-Type", typeHTML},
		{"GET", "/docs/nothing", false, 404, "Content-Type", typeText},
		{"HEAD", "/docs/nothing.md", true, 404, "Content-Type", typeHTML},
		{"POST", "/docs/", true, 405, "Allow", "GET, HEAD"},
		{"OPTIONS", "/docs/nothing", true, 405, "Allow", "GET, HEAD"},
		{"GET", "/docs/docs.go", false, 404, "Content-Type", typeText},
		{"GET", "/docs/images", false, 404, "Content-Type", typeText},
		{"GET", "/docs/images/", false, 404, "Content-Type", typeText},
		{"GET", "/docs/../docs/cli.md", false, 404, "Content-Type", typeText},
		{"GET", "/docs//cli.md", false, 404, "Content-Type", typeText},
		{"GET", "/docs/clients/../cli.md", false, 404, "Content-Type", typeText},
		{"GET", "/docs/\x00.md", false, 404, "Content-Type", typeText},
		{"GET", "/docs/cli.md/", false, 404, "Content-Type", typeText},
		{"GET", "/docs/images/refusal.png", false, 200, "Content-Type", "image/png"},
		{"GET", "/docs/?q=", false, 200, "Content-Type", typeMarkdown},
	} {
		a := ask(test.method, test.target, test.html)
		if a.Code != test.status || a.Header().Get(test.field) != test.want || a.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %q: got status %d, header %v", test.method, test.target, a.Code, a.Header())
		}
		if a.Code == http.StatusNotFound && !strings.Contains(a.Body.String(), Root) {
			t.Errorf("the page of %q does not link to the index: %s", test.target, a.Body)
		}
	}
}

// FuzzServe checks that no path and no query causes a panic, or an answer other than a page, a
// picture or an error.
func FuzzServe(f *testing.F) {
	for _, target := range []string{"/docs/", "/docs/cli", "/docs/../../etc/passwd", "/docs/?q=robots", "/docs/?q=%ff", "/docs/clients", "/docs/%2e%2e/", "", "/", "/docs/images/refusal.png", "/docs/?q=%C4%B0+a"} {
		f.Add("GET", target, true)
		f.Add("HEAD", target, false)
	}
	f.Fuzz(func(t *testing.T, method, target string, html bool) {
		a := ask(method, target, html)
		path, _, _ := strings.Cut(target, "?")
		s := load()
		switch a.Code {
		case http.StatusOK:
			file, ours := strings.CutPrefix(path, Root)
			if _, err := fs.Stat(docs.Files, file); !ours || s.pages[path] == nil && err != nil {
				t.Errorf("%q is not a page: %s", target, a.Body)
			}
		case http.StatusMovedPermanently:
			if s.pages[a.Header().Get("Location")] == nil {
				t.Errorf("%q redirects to %s, which is not a page", target, a.Header().Get("Location"))
			}
		case http.StatusNotFound, http.StatusMethodNotAllowed:
		default:
			t.Errorf("%q: got status %d", target, a.Code)
		}
		if a.Header().Get("Content-Type") == typeHTML && method == http.MethodGet && a.Header().Get("Location") == "" {
			if err := wellFormed(a.Body.String()); err != nil {
				t.Errorf("%q: %v", target, err)
			}
		}
	})
}
