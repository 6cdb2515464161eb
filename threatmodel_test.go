package crawlgate

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestThreatModel checks that each test that THREAT_MODEL.md names exists, and that each threat
// names one.
func TestThreatModel(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("THREAT_MODEL.md")
	if err != nil {
		t.Fatal(err)
	}
	declared := make(map[string]bool)
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(\w+ \*testing\.[TF]\)`)
	err = filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declaration.FindAllSubmatch(text, -1) {
			declared[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
	attackers, named, inTable := 0, 0, false
	for line := range strings.Lines(string(page)) {
		switch {
		case strings.HasSuffix(line, "| held by |\n"):
			attackers++
			inTable = true
			continue
		case !strings.HasPrefix(line, "| "):
			inTable = inTable && strings.HasPrefix(line, "|---")
			continue
		}
		tests := name.FindAllStringSubmatch(line, -1)
		if inTable && len(tests) == 0 {
			t.Errorf("this threat names no test: %s", line)
		}
		for _, test := range tests {
			named++
			if !declared[test[1]] {
				t.Errorf("there is no test %s, which this threat names: %s", test[1], line)
			}
		}
	}
	const leastAttackers, leastTests = 4, 100 // with fewer, the test does not read the tables correctly
	if attackers < leastAttackers || named < leastTests {
		t.Errorf("found %d attackers and %d tests, want at least %d and %d", attackers, named, leastAttackers, leastTests)
	}
}
