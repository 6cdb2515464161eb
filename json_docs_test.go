package crawlgate

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/crawlgate/crawlgate/internal/testdocs"
)

const jsonHead = `# JSON

You find every field of the gateway's Caddy modules, with its type and default. This page is generated from the code: each text is the doc
comment of the Go field.

A configuration is one JSON object, as [Caddy](https://caddyserver.com/docs/json/) reads it. ` + "`crawlgate adapt`" + ` prints the JSON of a
[Caddyfile](caddyfile.md). Every field is optional unless its text says "Required". An unknown field or a wrong value is an error when the
configuration is loaded.

A duration is text such as ` + "`\"30s\"`, `\"1h30m\"` or `\"30d\"`" + `, or a number of nanoseconds.
`

// jsonModule is a type of this project that is registered as a Caddy module under one or more
// names.
type jsonModule struct {
	ids []string
	typ reflect.Type
}

func jsonModules(t *testing.T) (modules []jsonModule) {
	t.Helper()
	for _, id := range caddy.Modules() {
		module, err := caddy.GetModule(id)
		if err != nil {
			t.Fatal(err)
		}
		typ := reflect.TypeOf(module.New())
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if !testdocs.IsOurs(t, typ) {
			continue
		}
		if i := slices.IndexFunc(modules, func(m jsonModule) bool { return m.typ == typ }); i >= 0 {
			modules[i].ids = append(modules[i].ids, id)
			continue
		}
		modules = append(modules, jsonModule{[]string{id}, typ})
	}
	return modules
}

// jsonPage writes the sections of the modules. Each struct in a module has its own section.
type jsonPage struct {
	strings.Builder
	t       *testing.T
	modules []jsonModule
}

func (p *jsonPage) section(heading, path string, typ reflect.Type) {
	p.t.Helper()
	fmt.Fprintf(p, "\n%s\n\n%s\n", heading, testdocs.Comment(p.t, typ))
	fields := testdocs.Fields(p.t, typ)
	if len(fields) == 0 {
		p.WriteString("\nIt has no fields.\n")
		return
	}
	for i, f := range fields {
		if namespace := strings.TrimPrefix(strings.Fields(f.Tag.Get("caddy") + " -")[0], "namespace="); namespace != "-" {
			fields[i].Text += " A module of `" + namespace + "`."
		}
	}
	p.WriteString("\n" + testdocs.Table(fields))
	for _, f := range fields {
		inner := f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		isModule := slices.ContainsFunc(p.modules, func(m jsonModule) bool { return m.typ == inner })
		if inner.Kind() == reflect.Struct && !isModule {
			p.section("### `"+path+f.Name+"`", path+f.Name+".", inner)
		}
	}
}

// TestJSONDocs checks that docs/json.md has each field of each module, and that each has a doc
// comment. With -update it writes the page.
func TestJSONDocs(t *testing.T) {
	t.Parallel()
	p := &jsonPage{t: t, modules: jsonModules(t)}
	p.WriteString(jsonHead)
	for _, m := range p.modules {
		p.section("## `"+strings.Join(m.ids, "`, `")+"`", "", m.typ)
	}
	if len(p.modules) < 8 {
		t.Errorf("found %d modules, want at least 8", len(p.modules))
	}
	testdocs.Generated(t, "json.md", p.String())
}
