package docsite

import (
	"bytes"
	"html"
	"html/template"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"

	"github.com/crawlgate/crawlgate/docs"
	"github.com/crawlgate/crawlgate/internal/version"
)

// page is a page of docs/, rendered.
type page struct {
	URL, Title string
	Body       template.HTML
	Contents   []link // its headings ##
	file       string // below docs/
	sections   []section
}

// link is a place of a page. Name is HTML.
type link struct {
	URL  string
	Name template.HTML
}

// group is a section of the index.
type group struct {
	Name  template.HTML
	Links []link
}

// site is all pages, rendered. It does not change.
type site struct {
	pages map[string]*page // by URL path
	order []*page          // of the index; pages that it does not name come last
	nav   []group
}

// load renders all pages at its first call.
var load = sync.OnceValue(func() *site {
	s := &site{pages: make(map[string]*page)}
	var rest []*page
	_ = fs.WalkDir(docs.Files, ".", func(file string, _ fs.DirEntry, err error) error { // nothing in memory fails
		if strings.HasSuffix(file, ".md") {
			source, _ := docs.Files.ReadFile(file)
			p := newPage(file, source)
			s.pages[p.URL] = p
			rest = append(rest, p)
		}
		return err
	})
	for _, part := range split(s.pages[Root].Body) {
		g := group{Name: part.heading}
		for _, m := range anchor.FindAllStringSubmatch(string(part.body), -1) {
			g.Links = append(g.Links, link{m[1], template.HTML(m[2])}) //nolint:gosec // goldmark made it
			if p := s.pages[m[1]]; p != nil && !slices.Contains(s.order, p) {
				s.order = append(s.order, p)
			}
		}
		if part.level == 2 {
			s.nav = append(s.nav, g)
		}
	}
	named := func(p *page) bool { return slices.Contains(s.order, p) }
	s.order = append(s.order, slices.DeleteFunc(rest, named)...)
	return s
})

// urlOf is the path under which a page of docs/ is served.
func urlOf(file string) string {
	if dir, name := path.Split(file); name == "README.md" {
		return Root + dir
	}
	return Root + strings.TrimSuffix(file, ".md")
}

var markdown = goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithParserOptions(parser.WithAutoHeadingID()))

func newPage(file string, source []byte) *page {
	doc := markdown.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(make(slugs)))))
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // the function returns no error
		if n, ok := n.(*ast.Link); ok && entering {
			n.Destination = []byte(resolve(file, string(n.Destination)))
		}
		if n, ok := n.(*ast.Image); ok && entering {
			n.Destination = []byte(resolve(file, string(n.Destination)))
		}
		return ast.WalkContinue, nil
	})
	var b bytes.Buffer
	_ = markdown.Renderer().Render(&b, source, doc) // a Buffer takes everything
	// What may be wider than a screen scrolls, by the keyboard too.
	body := strings.NewReplacer("<pre>", `<pre tabindex="0">`, "<table>", `<div class="scroll" tabindex="0"><table>`, "</table>", "</table></div>").Replace(b.String())
	p := &page{URL: urlOf(file), Body: template.HTML(body), file: file} //nolint:gosec // goldmark passes no HTML of the source through
	for _, part := range split(p.Body) {
		name := plain(part.heading)
		if part.level == 1 {
			p.Title = name
		}
		if part.level == 2 {
			p.Contents = append(p.Contents, link{"#" + part.id, part.heading})
		}
		p.sections = append(p.sections, newSection(p, part.id, name, plain(part.body)))
	}
	return p
}

// resolve returns the served form of a link of a page. Links to files that are not served point to
// the repository.
func resolve(file, to string) string {
	target, fragment, found := strings.Cut(to, "#")
	if target == "" || strings.Contains(target, ":") {
		return to
	}
	if found {
		fragment = "#" + fragment
	}
	target = path.Join(path.Dir(file), target)
	info, err := fs.Stat(docs.Files, target)
	switch {
	case err != nil:
		return "https://github.com/crawlgate/crawlgate/blob/" + version.Ref(version.Read()) + "/" + path.Join("docs", target) + fragment
	case info.IsDir():
		return Root + target + "/" + fragment
	case strings.HasSuffix(target, ".md"):
		return urlOf(target) + fragment
	}
	return Root + target
}

// slugs makes the ids of the headings of a page.
type slugs map[string]int

var (
	linkTarget = regexp.MustCompile(`\]\([^)\s]+\)`)
	notInSlug  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// Slug is the id that a forge gives to a heading, which is Markdown.
func Slug(heading string) string {
	heading = strings.ToLower(linkTarget.ReplaceAllString(heading, "]"))
	return strings.ReplaceAll(notInSlug.ReplaceAllString(heading, ""), " ", "-")
}

// Generate implements [parser.IDs]. Of equal headings all but the first get a number.
func (s slugs) Generate(heading []byte, _ ast.NodeKind) []byte {
	id := Slug(string(heading))
	n := s[id]
	s[id]++
	if n > 0 {
		id += "-" + strconv.Itoa(n)
	}
	return []byte(id)
}

// Put implements [parser.IDs].
func (slugs) Put([]byte) {}

var (
	anchor  = regexp.MustCompile(`<a href="([^"]*)">(.*?)</a>`)
	heading = regexp.MustCompile(`<h([1-6]) id="([^"]*)">(.*?)</h[1-6]>`)
	tag     = regexp.MustCompile(`<[^>]*>`)
)

// part is a heading of a page with what follows it.
type part struct {
	level         int
	id            string
	heading, body template.HTML
}

func split(body template.HTML) (parts []part) {
	all := heading.FindAllStringSubmatchIndex(string(body), -1)
	for i, m := range all {
		end := len(body)
		if i+1 < len(all) {
			end = all[i+1][0]
		}
		parts = append(parts, part{int(body[m[2]] - '0'), string(body[m[4]:m[5]]), body[m[6]:m[7]], body[m[1]:end]})
	}
	return parts
}

// plain is the text of rendered HTML, which has no bare angle bracket.
func plain(h template.HTML) string {
	return strings.Join(strings.Fields(html.UnescapeString(tag.ReplaceAllString(string(h), ""))), " ")
}
