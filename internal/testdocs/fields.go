package testdocs

import (
	"encoding"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const modulePath = "github.com/crawlgate/crawlgate"

// Field is a field of a struct in JSON, as its doc comment describes it.
type Field struct {
	Name    string // in JSON
	Type    reflect.Type
	Tag     reflect.StructTag
	Default string // the sentence of the comment that begins with "Default:", without that word and the final period
	Text    string // the rest of the comment, with the JSON names of fields
}

// Fields returns the JSON fields of a struct of this repository, in the order of the source. Fields
// of embedded structs are in the place of the struct. A field without its own comment fails the
// test.
func Fields(t *testing.T, typ reflect.Type) (fields []Field) {
	t.Helper()
	comments := commentsOf(t, typ)
	names := make(map[string]string)
	for _, f := range reflect.VisibleFields(typ) {
		if name := jsonName(f); name != "" {
			names[f.Name] = name
		}
	}
	for f := range typ.Fields() {
		name := jsonName(f)
		switch {
		case f.Anonymous && name == "":
			fields = append(fields, Fields(t, f.Type)...)
			continue
		case name == "":
			continue
		case comments[f.Name] == "":
			t.Errorf("%s.%s has no comment of its own, and docs/ is made from it", typ, f.Name)
		}
		comment := strings.Join(strings.Fields(comments[f.Name]), " ")
		field := Field{Name: name, Type: f.Type, Tag: f.Tag, Text: inJSON(comment, f.Name, names)}
		if before, after, found := strings.Cut(" "+field.Text, " Default: "); found {
			field.Default, after = cutSentence(after)
			field.Text = strings.TrimSpace(before + " " + after)
		}
		fields = append(fields, field)
	}
	return fields
}

// Comment returns the doc comment of a struct of this repository, without the name at its
// beginning.
func Comment(t *testing.T, typ reflect.Type) string {
	t.Helper()
	return inJSON(commentsOf(t, typ)[""], typ.Name(), nil)
}

// IsOurs reports whether a type is declared in a non-test file of this repository.
func IsOurs(t *testing.T, typ reflect.Type) bool {
	t.Helper()
	return strings.HasPrefix(typ.PkgPath()+"/", modulePath+"/") && commentsOf(t, typ) != nil
}

// Table returns a Markdown table of fields.
func Table(fields []Field) string {
	var b strings.Builder
	b.WriteString("| field | type | default | meaning |\n|---|---|---|---|\n")
	for _, f := range fields {
		b.WriteString("| `" + f.Name + "` | " + TypeName(f.Type) + " | " + inCell(f.Default) + " | " + inCell(f.Text) + " |\n")
	}
	return b.String()
}

// LineTable returns a Markdown table of the fields of a log line, which marks those that are always
// present.
func LineTable(fields []Field) string {
	var b strings.Builder
	b.WriteString("| field | type | meaning |\n|---|---|---|\n")
	for _, f := range fields {
		kind := TypeName(f.Type)
		if !strings.Contains(f.Tag.Get("json"), ",omit") {
			kind += ", always"
		}
		b.WriteString("| `" + f.Name + "` | " + kind + " | " + inCell(strings.TrimSuffix(f.Text, ".")) + " |\n")
	}
	return b.String()
}

func inCell(text string) string {
	return strings.ReplaceAll(text, "|", `\|`)
}

// Page has the tables of several objects and of the objects within them, each once, without types
// that are described elsewhere.
type Page struct {
	strings.Builder
	T         *testing.T
	Elsewhere []reflect.Type
	shown     []reflect.Type
	inner     []reflect.Type // not yet shown
}

// Object writes a section of an object below a heading. Objects within it follow with [Page.Inner].
func (p *Page) Object(heading string, typ reflect.Type) {
	p.T.Helper()
	fields := Fields(p.T, typ)
	for i, f := range fields {
		inner := f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice || inner.Kind() == reflect.Map {
			inner = inner.Elem()
		}
		if inner.Kind() != reflect.Struct || TypeName(inner) != "object" || slices.Contains(p.Elsewhere, inner) {
			continue
		}
		if !slices.Contains(p.shown, inner) {
			p.shown = append(p.shown, inner)
			p.inner = append(p.inner, inner)
		}
		name := p.name(inner)
		fields[i].Text = strings.TrimSuffix(f.Text, ".") + ". See [" + name + "](#" + strings.ReplaceAll(strings.ToLower(name), " ", "-") + ")"
	}
	comment, _, _ := strings.Cut(Comment(p.T, typ), "\n\n")
	p.WriteString("\n" + heading + "\n\n" + strings.TrimSpace(comment) + "\n\n" + LineTable(fields))
}

// Inner writes a section of each object within those that were written.
func (p *Page) Inner() {
	p.T.Helper()
	for len(p.inner) > 0 {
		typ := p.inner[0]
		p.inner = p.inner[1:]
		p.Object("### "+p.name(typ), typ)
	}
}

// name returns the name of a type, with its package if the page has another type of this name.
func (p *Page) name(typ reflect.Type) string {
	for _, other := range p.shown {
		if other.Name() == typ.Name() {
			if other == typ {
				break
			}
			return strings.ReplaceAll(typ.String(), ".", " ")
		}
	}
	return typ.Name()
}

// TypeName returns the JSON type of a Go type, in words.
func TypeName(typ reflect.Type) string {
	if typ.Implements(reflect.TypeFor[encoding.TextMarshaler]()) && typ.String() != "time.Time" {
		return "text"
	}
	switch typ.Kind() {
	case reflect.Pointer:
		return TypeName(typ.Elem())
	case reflect.Slice:
		if typ.Elem().Kind() == reflect.Uint8 {
			return "object"
		}
		return "list of " + TypeName(typ.Elem()) + "s"
	case reflect.Map, reflect.Struct:
		if typ.String() == "time.Time" {
			return "time"
		}
		return "object"
	case reflect.Bool:
		return "true/false"
	case reflect.String:
		return "text"
	default:
		if strings.HasSuffix(typ.String(), "Duration") {
			return "duration"
		}
		return "number"
	}
}

// Generated checks that a whole page of docs/ equals this text. With -update it writes the page.
func Generated(t *testing.T, name, text string) {
	t.Helper()
	if *Update {
		if err := os.WriteFile(Path("docs", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if Text(t, name) != text {
		t.Errorf("docs/%s does not say what the code says: run this test with -update", name)
	}
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" || !f.IsExported() {
		return ""
	}
	return name
}

var (
	docLink  = regexp.MustCompile(`\[(?:[a-zA-Z]\w*\.)*([A-Z]\w*)\]`)
	sentence = regexp.MustCompile(`\.(?:\s|$)`)
	docPage  = regexp.MustCompile(`docs/([a-zA-Z/-]+)\.md(#[a-z0-9_-]+)?`)
)

// inJSON removes the Go name at the beginning of a comment, and replaces its links to other fields
// by their JSON names: "Max is the longest of [Config.Min]" becomes "The longest of `min`". Paths
// of pages, such as docs/audit.md, become links.
func inJSON(comment, field string, names map[string]string) string {
	comment = docLink.ReplaceAllStringFunc(comment, func(link string) string {
		name := docLink.FindStringSubmatch(link)[1]
		if inJSON := names[name]; inJSON != "" {
			return "`" + inJSON + "`"
		}
		return name
	})
	comment = docPage.ReplaceAllStringFunc(strings.TrimSpace(comment), func(path string) string {
		page := strings.TrimPrefix(path, "docs/")
		shown, _, _ := strings.Cut(strings.TrimSuffix(page, "/README.md"), "#")
		return "[" + shown + "](" + page + ")"
	})
	if rest, begins := strings.CutPrefix(comment, field+" "); begins && rest != "" {
		for _, verb := range []string{"is ", "are ", "says that ", "says "} {
			rest = strings.TrimPrefix(rest, verb)
		}
		comment = rest
		comment = strings.ToUpper(comment[:1]) + comment[1:]
	}
	return comment
}

// cutSentence splits a text after its first sentence, whose period it removes.
func cutSentence(text string) (first, rest string) {
	end := sentence.FindStringIndex(text)
	if end == nil {
		return text, ""
	}
	return text[:end[0]], text[end[1]:]
}

var parsed struct {
	sync.Mutex
	packages map[string]map[string]map[string]string // path of a package, struct, field (empty for the struct), comment
}

// commentsOf returns the comments of the fields of a struct by their Go names, and the struct's own
// with an empty name.
func commentsOf(t *testing.T, typ reflect.Type) map[string]string {
	t.Helper()
	parsed.Lock()
	defer parsed.Unlock()
	path := typ.PkgPath()
	if parsed.packages == nil {
		parsed.packages = make(map[string]map[string]map[string]string)
	}
	if parsed.packages[path] == nil {
		parsed.packages[path] = commentsIn(t, Path(strings.TrimPrefix(strings.TrimPrefix(path, modulePath), "/")))
	}
	return parsed.packages[path][typ.Name()]
}

// commentsIn returns the comments of all types of a package by type name.
func commentsIn(t *testing.T, folder string) map[string]map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	comments := make(map[string]map[string]string)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			decl, ok := n.(*ast.GenDecl)
			for i := 0; ok && i < len(decl.Specs); i++ {
				if s, isType := decl.Specs[i].(*ast.TypeSpec); isType {
					comments[s.Name.Name] = commentsOfType(decl, s)
				}
			}
			return n == file
		})
	}
	return comments
}

func commentsOfType(decl *ast.GenDecl, spec *ast.TypeSpec) map[string]string {
	doc := spec.Doc
	if doc == nil {
		doc = decl.Doc
	}
	comments := map[string]string{"": doc.Text()}
	if s, ok := spec.Type.(*ast.StructType); ok {
		for _, f := range s.Fields.List {
			for _, name := range f.Names {
				comments[name.Name] = strings.TrimSpace(f.Doc.Text() + f.Comment.Text())
			}
		}
	}
	return comments
}
