package crawlgate

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/internal/docsite"
	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// Limits of the documentation that is written by hand: lines of a page, and words of all pages
// together.
const (
	maxPageLines = 250
	maxWords     = 35_000
)

// isGenerated reports whether a page is generated from the code, according to its first lines.
func isGenerated(text string) bool {
	head, _, _ := strings.Cut(text, "\n## ")
	return strings.Contains(head, "generated from the code") || strings.Contains(head, "made from the code")
}

// docPages calls visit with the path below docs/ and the text of every page.
func docPages(t *testing.T, visit func(page, text string)) {
	t.Helper()
	sources(t, func(path, text string) {
		if page, ok := strings.CutPrefix(filepath.ToSlash(path), "docs/"); ok && strings.HasSuffix(page, ".md") {
			visit(page, text)
		}
	})
}

// unfinished returns the pages that do not have the new form of the documentation yet, and "words"
// until all pages together are short enough.
func unfinished(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("testdata/unfinished-pages.txt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// TestPages checks the form of a page that is written by hand: a title, a paragraph that says what
// the reader gets, at most 250 lines, and a last section "Next" with links. Together they have at
// most 35,000 words.
func TestPages(t *testing.T) {
	t.Parallel()
	begin := regexp.MustCompile(`^# [^\n]+\n\n[A-Z][^\n]+\n`)
	next := regexp.MustCompile(`\n## Next\n\n(?:[-*] .*\]\([^)]+\).*\n(?:  .*\n)*)+$`)
	words, todo := 0, unfinished(t)
	docPages(t, func(page, text string) {
		if isGenerated(text) || strings.HasPrefix(page, "problems/") || page == "README.md" {
			return
		}
		words += len(strings.Fields(text))
		if slices.Contains(todo, page) {
			return
		}
		if n := strings.Count(text, "\n"); n > maxPageLines {
			t.Errorf("docs/%s has %d lines, want at most 250", page, n)
		}
		if !begin.MatchString(text) {
			t.Errorf("docs/%s does not begin with a title and a paragraph about what its reader gets", page)
		}
		if !next.MatchString(text) {
			t.Errorf("docs/%s does not end with a list of links below ## Next", page)
		}
	})
	if words > maxWords && !slices.Contains(todo, "words") {
		t.Errorf("docs/ has %d words, want at most %d", words, maxWords)
	}
}

// TestQuestions checks that each page answers five questions of its readers, in one sentence each.
// They are in testdata/questions, in a file named like the page, as lines "Q: question" and, below
// each, "A: sentence of the page".
func TestQuestions(t *testing.T) {
	t.Parallel()
	todo := unfinished(t)
	plain := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	docPages(t, func(page, text string) {
		if strings.Contains(page, "/") || page == "README.md" || isGenerated(text) || slices.Contains(todo, page) {
			return
		}
		name := filepath.Join("testdata", "questions", strings.TrimSuffix(page, ".md")+".txt")
		list, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
			return
		}
		lines := strings.Split(strings.TrimSpace(string(list)), "\n")
		if len(lines) != 10 {
			t.Errorf("%s has %d lines, want five questions with an answer below each", name, len(lines))
			return
		}
		for i := 0; i < len(lines); i += 2 {
			question, isQuestion := strings.CutPrefix(lines[i], "Q: ")
			answer, isAnswer := strings.CutPrefix(lines[i+1], "A: ")
			switch {
			case !isQuestion || !strings.HasSuffix(question, "?") || !isAnswer:
				t.Errorf("%s:%d: want a question and its answer", name, i+1)
			case !strings.Contains(plain(text), plain(answer)):
				t.Errorf("docs/%s does not answer %q with %q", page, question, answer)
			case len(strings.Fields(answer)) < 4 || strings.Count(answer, ". ") > 0:
				t.Errorf("%s:%d: %q is not one sentence", name, i+2, answer)
			}
		}
	})
}

var (
	mdLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	mdHeading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	mdFence   = regexp.MustCompile("(?ms)^```.*?^```$")
)

// slugs returns the anchors that a forge gives to the headings of a page.
func slugs(text string) map[string]bool {
	all := make(map[string]bool)
	for _, m := range mdHeading.FindAllStringSubmatch(mdFence.ReplaceAllString(text, ""), -1) {
		all[docsite.Slug(m[1])] = true
	}
	return all
}

// TestLinks checks that every relative link of a page leads to a file of this repository, and to a
// heading of it.
func TestLinks(t *testing.T) {
	t.Parallel()
	sources(t, func(path, text string) {
		if !strings.HasSuffix(path, ".md") {
			return
		}
		for _, m := range mdLink.FindAllStringSubmatch(mdFence.ReplaceAllString(text, ""), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") {
				continue
			}
			file := path
			if target != "" {
				file = filepath.Join(filepath.Dir(path), target)
			}
			there := text
			if target != "" {
				info, err := os.Stat(file)
				if err != nil {
					t.Errorf("%s links to %s: %v", path, m[1], err)
					continue
				}
				if anchor == "" || info.IsDir() {
					continue
				}
				there = readFile(t, file)
			}
			if anchor != "" && !slugs(there)[anchor] {
				t.Errorf("%s links to %s, but the page has no such heading", path, m[1])
			}
		}
	})
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDocsHaveAPlace checks that docs/README.md, the index from which the gateway makes its
// navigation, links to each page.
func TestDocsHaveAPlace(t *testing.T) {
	t.Parallel()
	index := testdocs.Text(t, "README.md")
	docPages(t, func(page, _ string) {
		if page != "README.md" && !strings.Contains(page, "/") && strings.Count(index, "]("+page+")") != 1 {
			t.Errorf("docs/README.md does not link to %s exactly once", page)
		}
	})
}
