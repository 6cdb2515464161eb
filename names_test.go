package crawlgate

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// oneMeaning lists exported type names that several packages may use because they mean the same in
// each.
var oneMeaning = map[string]string{
	"Agent":          "a crawler of the company, as the package knows it",
	"Checker":        "checks things of one kind",
	"Clock":          "the clock of a host",
	"Config":         "the configuration of the package",
	"Counts":         "counts of lines of a log",
	"Evidence":       "the sealed access logs",
	"Fetcher":        "fetches a robots.txt",
	"Finding":        "what an audit finds",
	"Fleet":          "the gateways that share a Redis",
	"ForbiddenError": "an address that the gateway may not connect to",
	"Handler":        "a handler of Caddy",
	"Kind":           "the class of an error, a finding, an action or an outcome of the package",
	"Line":           "a line of an access log",
	"Listener":       "listens at an address",
	"Log":            "an access log",
	"Named":          "a meta tag; one is an alias of the other",
	"Observer":       "gets the package's events",
	"Options":        "the options of the package",
	"Place":          "a line of a file; one is an alias of the other",
	"Policy":         "the part of a configuration about the package's subject",
	"Preference":     "a statement of a site on the use of its content",
	"Reader":         "reads",
	"Reason":         "why something was refused",
	"Refusal":        "the gateway's own answer",
	"Verdict":        "the result for one line of a log",
	"Request":        "a request to the package",
	"Result":         "the result of the package's work",
	"Set":            "a set of the package's things",
	"Sitemap":        "a sitemap that a robots.txt names",
	"Source":         "where something comes from",
	"State":          "the state of the package's thing",
	"Status":         "the state of the package's thing, as an operator sees it",
	"Store":          "keeps records longer than the process",
	"Totals":         "the sums of a run over logs",
	"Transport":      "an http.RoundTripper",
	"Version":        "a text of a robots.txt, and when an origin had it",
}

// TestTypeNamesHaveOneMeaning checks that exported types have different names, except those in
// oneMeaning.
func TestTypeNamesHaveOneMeaning(t *testing.T) {
	t.Parallel()
	packages := make(map[string]map[string]bool) // by type name
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if name := filepath.ToSlash(path); d != nil && d.IsDir() && (name == "bench" || name == "integration" || name == "examples" || d.Name() == "testdata" || d.Name() == "node_modules") {
				return filepath.SkipDir
			}
			return err
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || onlyForTests(filepath.ToSlash(path)) {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range parsed.Decls {
			types, ok := decl.(*ast.GenDecl)
			if !ok || types.Tok != token.TYPE {
				continue
			}
			for _, spec := range types.Specs {
				name := spec.(*ast.TypeSpec).Name
				if !name.IsExported() {
					continue
				}
				if packages[name.Name] == nil {
					packages[name.Name] = make(map[string]bool)
				}
				packages[name.Name][filepath.Dir(path)] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range packages {
		if len(in) > 1 && oneMeaning[name] == "" {
			t.Errorf("%s is the name of types in %v: rename one, or add their meaning to oneMeaning", name, in)
		}
	}
	for name := range oneMeaning {
		if len(packages[name]) < 2 {
			t.Errorf("oneMeaning has %s, which is no longer in several packages", name)
		}
	}
}
