//go:build slow

package robots

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// TestCrawlPlanByAnotherEngine decides the pages of TestCrawl with Scrapy's parser, and compares
// the decisions with this project's.
func TestCrawlPlanByAnotherEngine(t *testing.T) {
	t.Parallel()
	rig.Need(t, "scrapy") // Scrapy depends on protego
	type question struct{ file, path string }
	var questions []question
	var input bytes.Buffer
	rulesets := make(map[string]*robotstxt.Ruleset)
	for _, c := range crawlSites {
		file := testdocs.Path("robotstxt", "testdata", "wild", c.file)
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		rulesets[file] = robotstxt.Parse(body)
		for _, page := range pagesFor(body, c.pages) {
			questions = append(questions, question{file, page})
			fmt.Fprintf(&input, "%s\t%s\t%s\n", file, crawlAgent, page)
		}
	}
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", filepath.Join("testdata", "judge.py"))
	cmd.Stdin, cmd.Stderr = &input, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("protego: %v", err)
	}
	answers := bufio.NewScanner(bytes.NewReader(out))
	differences := 0
	for _, q := range questions {
		if !answers.Scan() {
			t.Fatal("protego gave fewer answers than there are questions")
		}
		m := rulesets[q.file].Match([]string{crawlAgent}, q.path)
		if fmt.Sprint(m.Allowed) == answers.Text() {
			continue
		}
		differences++
		if !knownDifference(q.path, m) {
			t.Errorf("%s of %s: allowed=%t by %q, but protego says %s", q.path, filepath.Base(q.file), m.Allowed, m.Rule, answers.Text())
		}
	}
	t.Logf("%d pages, %d known differences", len(questions), differences)
}

// knownDifference reports whether Protego is known to differ. It compares escapes in a query as
// written, against the figure in RFC 9309 section 2.2.2, and puts a slash before a rule without
// one.
func knownDifference(path string, m robotstxt.Match) bool {
	_, query, _ := strings.Cut(path, "?")
	return strings.Contains(query, "%") && !m.Allowed || m.Allowed && m.Rule == "" && strings.HasPrefix(path, "/?print")
}
