package crawlgate

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// sources calls visit with the text of every file of this tree, except test data.
func sources(t *testing.T, visit func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "dist", "node_modules", "testdata"}, d.Name()):
			return filepath.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		visit(path, string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestVariables checks that docs/contributing.md has exactly the variables that a test, a script or
// an example reads.
func TestVariables(t *testing.T) {
	t.Parallel()
	variable := regexp.MustCompile(`\bCRAWLGATE_[A-Z0-9_]*[A-Z0-9]\b`)
	used := make(map[string]bool)
	sources(t, func(path, text string) {
		if !strings.HasSuffix(path, ".md") && path != "docs_test.go" {
			for _, name := range variable.FindAllString(text, -1) {
				used[name] = true
			}
		}
	})
	testdocs.Same(t, "variable", used, testdocs.Named(testdocs.Sections(t, "contributing.md")["Variables"]))
}

// TestMakeTargets checks that every make target that a page names exists, and that
// docs/contributing.md has all targets.
func TestMakeTargets(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^([a-z]+):`).FindAllStringSubmatch(string(makefile), -1) {
		targets[m[1]] = true
	}
	command := regexp.MustCompile("`make ([a-z ]+)`")
	documented := make(map[string]bool)
	sources(t, func(path, text string) {
		if !strings.HasSuffix(path, ".md") {
			return
		}
		for _, m := range command.FindAllStringSubmatch(text, -1) {
			for name := range strings.FieldsSeq(m[1]) {
				if !targets[name] {
					t.Errorf("%s: there is no make %s", path, name)
				}
				documented[name] = documented[name] || path == "docs/contributing.md"
			}
		}
	})
	for name := range targets {
		if !documented[name] {
			t.Errorf("docs/contributing.md does not name make %s", name)
		}
	}
}

// TestDependencies checks that docs/dependencies.md has each module that go.mod requires once, with
// the folders that import it. With -update it writes the folders.
func TestDependencies(t *testing.T) {
	t.Parallel()
	users := usersOfModules(t)
	file := filepath.Join("docs", "dependencies.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	seen := make(map[string]int)
	for _, row := range regexp.MustCompile(`(?m)^\| ([^ |]+\.[^|]+) \| ([^|]+) \|`).FindAllStringSubmatch(page, -1) {
		folders := make(map[string]bool)
		for path := range strings.SplitSeq(row[1], ", ") {
			seen[path]++
			maps.Copy(folders, users[path])
		}
		want := strings.Join(slices.Sorted(maps.Keys(folders)), ", ")
		if want == "" {
			want = "tests"
		}
		if row[2] != want && *testdocs.Update {
			page = strings.Replace(page, row[0], "| "+row[1]+" | "+want+" |", 1)
		} else if row[2] != want {
			t.Errorf("%s is used by %s, not by %s: run go test . -run TestDependencies -update", row[1], want, row[2])
		}
	}
	for path := range users {
		if seen[path] != 1 {
			t.Errorf("%s has %d rows, want 1", path, seen[path])
		}
		delete(seen, path)
	}
	for path := range seen {
		t.Errorf("go.mod does not require %s", path)
	}
	if page != string(text) {
		if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// usersOfModules returns the folders that import each module that go.mod requires, without those
// that only tests use.
func usersOfModules(t *testing.T) map[string]map[string]bool {
	t.Helper()
	gomod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	users := make(map[string]map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(string(gomod), -1) {
		users[m[1]] = make(map[string]bool)
	}
	for line := range strings.Lines(goList(t, "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...")) {
		fields := strings.Fields(line)
		pkg := within(fields[0])
		top := topFolder(pkg)
		switch {
		case top == "bench" || top == "integration" || slices.Contains(onlyInTests, pkg):
			continue
		case pkg == "":
			top = "root"
		case top == "internal":
			top = pkg
		}
		for _, path := range fields[1:] {
			if owner := moduleOf(users, path); owner != "" {
				users[owner][top] = true
			}
		}
	}
	return users
}

// moduleOf returns the module among those of go.mod that has a package.
func moduleOf(modules map[string]map[string]bool, path string) (owner string) {
	for m := range modules {
		if (path == m || strings.HasPrefix(path, m+"/")) && len(m) > len(owner) {
			owner = m
		}
	}
	return owner
}

// TestFetchingTheCA checks the commands that fetch the gateway's certificate in the pages: they
// must not use another proxy, and must fail on an error, which would otherwise be saved as the
// certificate.
func TestFetchingTheCA(t *testing.T) {
	t.Parallel()
	command := regexp.MustCompile(`curl .*/ca\.crt`)
	found := 0
	sources(t, func(path, text string) {
		for _, line := range command.FindAllString(text, -1) {
			if !strings.HasSuffix(path, ".md") {
				continue
			}
			found++
			if !strings.HasPrefix(line, "curl -f") || !strings.Contains(line, "--noproxy '*'") {
				t.Errorf("%s: the command lacks curl -f or --noproxy '*': %s", path, line)
			}
		}
	})
	if found < 20 {
		t.Errorf("found %d commands, want at least 20", found)
	}
}
