// Package testdocs reads pages of docs/ for the tests that compare them with the code.
package testdocs

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// Path is the path of a file of this repository.
func Path(elements ...string) string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(append([]string{filepath.Dir(file), "..", ".."}, elements...)...)
}

// Text is the text of a page of docs/.
func Text(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(Path("docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Sections are those of a page, by their headings of the second order.
func Sections(t *testing.T, name string) map[string]string {
	t.Helper()
	sections := map[string]string{}
	for _, section := range strings.Split(Text(t, name), "\n## ")[1:] {
		heading, rest, _ := strings.Cut(section, "\n")
		sections[strings.Trim(heading, "`")] = rest
	}
	return sections
}

var (
	tableRow = regexp.MustCompile("(?m)^\\| (`[^|]*) \\|")
	codeSpan = regexp.MustCompile("`([^`]+)`")
)

// Named are the names in the first column of the tables of a text.
func Named(text string) map[string]bool {
	names := map[string]bool{}
	for _, row := range tableRow.FindAllStringSubmatch(text, -1) {
		for _, span := range codeSpan.FindAllStringSubmatch(row[1], -1) {
			names[span[1]] = true
		}
	}
	return names
}

// Same holds that two sets have the same names.
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

// SetOf is a set of names.
func SetOf(names ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
}
