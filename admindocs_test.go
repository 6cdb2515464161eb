package crawlgate

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/cli"
	"github.com/crawlgate/crawlgate/enforce"
)

// page is one page of docs/ in its sections.
type page struct {
	t        *testing.T
	sections map[string]string // text by heading, of the second order
}

func readPage(t *testing.T, name string) page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("docs", name))
	if err != nil {
		t.Fatal(err)
	}
	p := page{t, map[string]string{}}
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		heading, rest, _ := strings.Cut(section, "\n")
		p.sections[strings.Trim(heading, "`")] = rest
	}
	return p
}

var (
	tableRow = regexp.MustCompile("(?m)^\\| (`[^|]*) \\|")
	codeSpan = regexp.MustCompile("`([^`]+)`")
)

// named are the names in the first column of a section's tables.
func named(section string) map[string]bool {
	names := map[string]bool{}
	for _, row := range tableRow.FindAllStringSubmatch(section, -1) {
		for _, span := range codeSpan.FindAllStringSubmatch(row[1], -1) {
			names[span[1]] = true
		}
	}
	return names
}

// same holds that two sets have the same names.
func same(t *testing.T, what string, inCode, inDocs map[string]bool) {
	t.Helper()
	for name := range inCode {
		if !inDocs[name] {
			t.Errorf("%s %s is not in the docs", what, name)
		}
	}
	for name := range inDocs {
		if !inCode[name] {
			t.Errorf("%s %s is in the docs only", what, name)
		}
	}
}

func setOf(names ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
}

// answerFields adds the names of a type's fields, and of those of the types in it.
func answerFields(set map[string]bool, typ reflect.Type) {
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice:
		answerFields(set, typ.Elem())
	case reflect.Struct:
		if typ == reflect.TypeFor[time.Time]() || typ == reflect.TypeFor[enforce.Record]() || typ == reflect.TypeFor[enforce.Problem]() {
			return // documented elsewhere
		}
		for _, field := range reflect.VisibleFields(typ) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			set[name] = true
			answerFields(set, field.Type)
		}
	default:
	}
}

// TestAdminDocs holds that each route with all of its parameters and fields is documented, and nothing else.
func TestAdminDocs(t *testing.T) {
	t.Parallel()
	p := readPage(t, "admin-api.md")
	routes := map[string]bool{}
	for path, methods := range adminRoutes {
		for method := range methods {
			routes[method+" "+adminapi.Prefix+path] = true
		}
	}
	headings := map[string]bool{}
	for heading := range p.sections {
		headings[heading] = true
	}
	same(t, "route", routes, headings)

	documented := map[string]bool{}
	for _, section := range p.sections {
		maps.Copy(documented, named(section))
		// Those of small objects stand in the row of the object.
		for _, row := range regexp.MustCompile(`(?m)^\| .*\| object \|.*`).FindAllString(section, -1) {
			_, rest, _ := strings.Cut(row, ":")
			for _, span := range codeSpan.FindAllStringSubmatch(rest, -1) {
				documented[span[1]] = true
			}
		}
	}
	inCode := setOf("after", "host", "limit", "state", "agent", "site", "url", "key", "from", "to", "origin", "sha256", "scope", "value")
	for _, answer := range []any{
		adminapi.OriginList{}, adminapi.OriginDetail{}, adminapi.TextDiff{}, adminapi.Explanation{}, adminapi.Purged{}, adminapi.Orders{}, adminapi.OrderGiven{}, adminapi.OrderLifted{}, adminapi.Clocks{}, adminapi.Unblocked{},
	} {
		answerFields(inCode, reflect.TypeOf(answer))
	}
	same(t, "field", inCode, documented)
}

// TestAdminParameters holds that the parameters which the page lists are those that a route takes.
func TestAdminParameters(t *testing.T) {
	g := newRig(t, "", "")
	p := readPage(t, "admin-api.md")
	takes := regexp.MustCompile(`want ([a-z0-9, ]+)`)
	for path, methods := range adminRoutes {
		for method := range methods {
			if method == http.MethodPost {
				continue
			}
			section := p.sections[method+" "+adminapi.Prefix+path]
			_, table, _ := strings.Cut(section, "| parameter | meaning |")
			table, _, _ = strings.Cut(table, "\n\n")
			a := g.admin(method, adminapi.Prefix+path+"?nonsense=1", nil)
			found := takes.FindStringSubmatch(string(a.body))
			if a.status != http.StatusBadRequest || found == nil {
				t.Fatalf("%s %s: %d %s", method, path, a.status, a.body)
			}
			inCode := setOf(strings.Split(found[1], ", ")...)
			delete(inCode, "none")
			same(t, method+" "+path+": parameter", inCode, named(table))
		}
	}
}

// TestCommandDocs holds that each command with all of its flags is documented, and nothing else.
func TestCommandDocs(t *testing.T) {
	t.Parallel()
	p := readPage(t, "cli.md")
	robots := &cobra.Command{Use: "robots"}
	cli.AddCommands(robots)
	commands, headings := map[string]bool{}, map[string]bool{}
	for heading := range p.sections {
		headings[heading] = true
	}
	for _, c := range robots.Commands() {
		commands[c.Name()] = true
		section, _, _ := strings.Cut(p.sections[c.Name()], "\n### ")
		flags := map[string]bool{}
		c.Flags().VisitAll(func(f *pflag.Flag) { flags["--"+f.Name] = true })
		same(t, c.Name()+": flag", flags, named(section))
	}
	same(t, "command", commands, headings)
}
