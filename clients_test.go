package crawlgate

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// notRun begins the page of a client that the tests cannot run.
const notRun = "Not run here; from its documentation."

// TestClientPagesAreComplete checks that every page of docs/clients is in the index, that each has
// a project in examples/clients or says that it was not run, and that the suite runs each project.
func TestClientPagesAreComplete(t *testing.T) {
	read := func(path ...string) string {
		text, err := os.ReadFile(filepath.Join(path...))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	index := read("docs", "clients", "README.md")
	_, table, _ := strings.Cut(read("integration", "clients", "pages_test.go"), "\nvar clientPages = ")
	table, _, _ = strings.Cut(table, "\n}\n")
	run := make(map[string]bool)
	for _, row := range regexp.MustCompile(`\{name: "([^"]+)"`).FindAllStringSubmatch(table, -1) {
		run[row[1]] = true
	}
	pages, err := filepath.Glob(filepath.Join("docs", "clients", "*.md"))
	if err != nil || len(run) == 0 {
		t.Fatalf("the suite runs %d projects: %v", len(run), err)
	}
	documented := make(map[string]bool)
	for _, page := range pages {
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		if name == "README" {
			continue
		}
		documented[name] = true
		if !strings.Contains(index, "]("+name+".md)") {
			t.Errorf("%s is not in the index", page)
		}
		if run[name] == strings.Contains(read(page), notRun) {
			t.Errorf("%s: the suite runs the project: %t, but the page says the opposite", page, run[name])
		}
	}
	folders, err := os.ReadDir(filepath.Join("examples", "clients"))
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if folder.IsDir() && (!documented[folder.Name()] || !run[folder.Name()]) {
			t.Errorf("examples/clients/%s: has a page: %t, is run: %t", folder.Name(), documented[folder.Name()], run[folder.Name()])
		}
	}
	for name := range run {
		if !documented[name] {
			t.Errorf("the suite runs %s, which has no page", name)
		}
	}
}
