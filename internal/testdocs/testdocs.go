// Package testdocs reads pages of docs/ for the tests that compare them with the code.
package testdocs

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Update reports whether tests write the golden files and the generated parts of docs/ that they
// would compare. All test packages share this flag.
var Update = flag.Bool("update", false, "write golden files and generated pages instead of comparing them")

// Path returns the path of a file of this repository.
func Path(elements ...string) string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(append([]string{filepath.Dir(file), "..", ".."}, elements...)...)
}

// Text returns the text of a page of docs/.
func Text(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(Path("docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Line returns the rest of the one line of a page of docs/ that begins with a text.
func Line(t *testing.T, name, begin string) string {
	t.Helper()
	_, line, found := strings.Cut(Text(t, name), "\n"+begin)
	if !found || strings.Contains(line, "\n"+begin) {
		t.Fatalf("docs/%s has not one line that begins with %q", name, begin)
	}
	line, _, _ = strings.Cut(line, "\n")
	return line
}

var updating sync.Mutex // parallel tests may update the same page

// Shows checks that a code block in a page of docs/ ends with this text. With -update, the text
// replaces the part of the one block that begins at the line UPDATE or at the text's first line.
func Shows(t *testing.T, name, text string) {
	t.Helper()
	updating.Lock()
	defer updating.Unlock()
	page := Text(t, name)
	if strings.Contains(page, "\n"+text+"```") {
		return
	}
	first, _, _ := strings.Cut(text, "\n")
	shown := regexp.MustCompile("(?m)^(?:UPDATE|" + regexp.QuoteMeta(first) + ")\n(?:[^`].*\n|\n)*```$")
	if old := shown.FindAllString(page, -1); *Update && len(old) == 1 {
		if err := os.WriteFile(Path("docs", name), []byte(strings.Replace(page, old[0], text+"```", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("docs/%s does not show the text below; write the line UPDATE in its place, and run this test with -update:\n%s", name, text)
}

// Sections returns the sections of a page, by their second-level headings.
func Sections(t *testing.T, name string) map[string]string {
	t.Helper()
	sections := map[string]string{}
	for _, section := range strings.Split(Text(t, name), "\n## ")[1:] {
		heading, rest, _ := strings.Cut(section, "\n")
		sections[strings.Trim(heading, "`")] = rest
	}
	return sections
}

// RunbookPages are the pages of the runbook.
var RunbookPages = []string{"runbook.md", "runbook-fleet.md"}

// Runbook returns the sections of all pages of the runbook by alert, and the page of each.
func Runbook(t *testing.T) (sections, pages map[string]string) {
	t.Helper()
	sections, pages = map[string]string{}, map[string]string{}
	for _, page := range RunbookPages {
		for alert, section := range Sections(t, page) {
			if alert == "Next" { // links to other pages
				continue
			}
			if pages[alert] != "" {
				t.Errorf("%s and %s have a section %s", pages[alert], page, alert)
			}
			sections[alert], pages[alert] = section, page
		}
	}
	return sections, pages
}

var (
	tableRow = regexp.MustCompile("(?m)^\\| (`[^|]*) \\|")
	codeSpan = regexp.MustCompile("`([^`]+)`")
)

// Spans returns the texts in code spans.
func Spans(text string) map[string]bool {
	names := map[string]bool{}
	for _, span := range codeSpan.FindAllStringSubmatch(text, -1) {
		names[span[1]] = true
	}
	return names
}

// Named returns the names in the first column of the tables of a text.
func Named(text string) map[string]bool {
	names := map[string]bool{}
	for _, row := range tableRow.FindAllStringSubmatch(text, -1) {
		maps.Copy(names, Spans(row[1]))
	}
	return names
}

// Same checks that two sets have the same names.
func Same(t *testing.T, what string, inCode, inDocs map[string]bool) {
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

// SetOf returns a set of names.
func SetOf(names ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
}
