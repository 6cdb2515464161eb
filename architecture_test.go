package crawlgate

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestArchitecture checks that docs/architecture.md names files that exist, each once per way, in
// numbered steps.
func TestArchitecture(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z0-9/_]+\\.go)`")
	for _, file := range named.FindAllStringSubmatch(string(text), -1) {
		if _, err := os.Stat(file[1]); err != nil {
			t.Error(err)
		}
	}
	step := regexp.MustCompile("(?m)^([0-9]+)\\. `([a-z0-9/_]+\\.go)` ")
	ways := strings.Split(string(text), "\n## ")[1:]
	ways = ways[:len(ways)-1] // "Next"
	if len(ways) != 8 {
		t.Errorf("%d ways, want one each for a request, a CONNECT, a fetch, a preference, a stop, a line, an audit and a reload", len(ways))
	}
	for _, way := range ways {
		title, _, _ := strings.Cut(way, "\n")
		steps := step.FindAllStringSubmatch(way, -1)
		seen := make(map[string]bool)
		for i, s := range steps {
			if s[1] != strconv.Itoa(i+1) || seen[s[2]] {
				t.Errorf("%s: step %s, %s: out of order or listed twice", title, s[1], s[2])
			}
			seen[s[2]] = true
		}
		if len(steps) < 9 {
			t.Errorf("%s: %d steps, want at least 9", title, len(steps))
		}
	}
}

// TestGlossary checks that docs/glossary.md explains each word once, and that its packages exist.
func TestGlossary(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \| (?:`+"`([a-z/]+)`"+`)? ?\|$`).FindAllStringSubmatch(string(text), -1)
	seen := make(map[string]bool)
	for _, row := range rows {
		if seen[row[1]] {
			t.Errorf("%s is explained twice", row[1])
		}
		seen[row[1]] = true
		if row[3] != "" {
			if _, err := os.Stat(row[3]); err != nil {
				t.Errorf("%s: %v", row[1], err)
			}
		}
	}
	if len(rows) < 12 || len(rows) > 22 {
		t.Errorf("%d words, want some 15 that are the project's own", len(rows))
	}
}
