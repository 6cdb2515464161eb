package signals

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/signals/directives"
	"github.com/crawlgate/crawlgate/signals/htmlhead"
)

// spokenTo has the signals of one page: its fields and its meta tags.
type spokenTo struct {
	Agent string             `json:"agent"`
	Now   int64              `json:"now"`
	Lines []string           `json:"lines"`
	Metas []directives.Named `json:"metas"`
}

// compared are the directives that robot-directives knows too.
var compared = []string{"noindex", "nofollow", "noarchive", "nosnippet", "noimageindex", "notranslate", "noodp"}

// directivesNow is between the dates of the generated pages.
var directivesNow = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// voiceDifferences are all known differences from robot-directives 0.4.0. Each turns this project's
// answer into the other's: rewriting removes from a page what robot-directives does not read,
// adding adds directives that it infers. A row counts on pages where one of them changes something.
var voiceDifferences = []struct {
	why       string
	rewriting func(text string, page spokenTo) string
	adding    func(said map[string]bool, page spokenTo)
}{
	{
		why: "a scope is at the beginning of a line, and another one is an unknown word; MDN's syntax of X-Robots-Tag has it",
		rewriting: func(text string, _ spokenTo) string {
			first, rest, _ := strings.Cut(text, ", ")
			var items []string
			for item := range strings.SplitSeq(rest, ", ") {
				if !strings.HasPrefix(item, "googlebot: ") && !strings.HasPrefix(item, "otherbot: ") {
					items = append(items, item)
				}
			}
			return strings.Join(append([]string{first}, items...), ", ")
		},
	},
	{
		why:       "a name without bot, spider or the like is not a crawler's, so no directive is for it",
		rewriting: func(text string, _ spokenTo) string { return without(text, "sitesearch: ") },
	},
	{
		why: "a directive with a value at the beginning of a line hides the line: max-snippet is younger than the library",
		rewriting: func(text string, _ spokenTo) string {
			return without(without(text, "max-snippet:"), "max-image-preview:")
		},
	},
	{
		why: "a line that begins with unavailable_after has nothing else in it",
		rewriting: func(text string, _ spokenTo) string {
			for _, date := range voiceDates {
				if begin := "unavailable_after: " + date; strings.HasPrefix(text, begin) {
					return begin
				}
			}
			return text
		},
	},
	{
		why: "words separated only by space are one unknown word; this project reads each, which can only be stricter",
		rewriting: func(text string, _ spokenTo) string {
			return strings.ReplaceAll(text, "nosnippet noodp", "unknown")
		},
	},
	{
		why:       "nocache is noarchive; to this project Bing's word is a separate one",
		rewriting: func(text string, _ spokenTo) string { return strings.ReplaceAll(text, "nocache", "noarchive") },
	},
	{
		why: "a past or unreadable date is noindex",
		adding: func(said map[string]bool, page spokenTo) {
			if voiceUnavailable(page) {
				said["noindex"] = true
			}
		},
	},
	{
		why: "noindex means all the others except nofollow; this project adds nothing",
		adding: func(said map[string]bool, _ spokenTo) {
			if said["noindex"] {
				for _, name := range compared[2:] {
					said[name] = true
				}
			}
		},
	},
}

// without returns "" for a text that begins with begin, and other texts unchanged.
func without(text, begin string) string {
	if strings.HasPrefix(text, begin) {
		return ""
	}
	return text
}

// voiceUnavailable reports whether robot-directives takes a page for expired. It reads the last
// date for all crawlers that is at the beginning of a line or content. A date with text after it,
// or in a zone that RFC 822 does not have, is no date.
func voiceUnavailable(page spokenTo) (over bool) {
	texts := slices.Clone(page.Lines)
	for _, m := range page.Metas {
		if m.Name == "robots" {
			texts = append(texts, m.Content)
		}
	}
	for _, text := range texts {
		date, ok := strings.CutPrefix(strings.ToLower(text), "unavailable_after: ")
		if ok {
			known := slices.Contains(voiceDates, date) && !strings.HasSuffix(date, "cet")
			until := directives.Header([]string{text}, nil).UnavailableAfter
			over = !known || !until.IsZero() && directivesNow.After(until)
		}
	}
	return over
}

var voiceDates = []string{
	"friday, 25-jun-10 15:00:00 pst", "fri, 25 jun 2010 15:00:00 gmt", "2010-06-25t15:00:00z", "2010-06-25", "25-aug-2007 15:00:00 est",
	"monday, 25-jun-40 15:00:00 pst", "mon, 25 jun 2040 15:00:00 gmt", "2040-06-25t15:00:00+02:00", "2040-06-25", "25 jun 2040 15:00:00 cet",
}

// TestDirectivesByAnotherReader reads 1,000 pages with npm's robot-directives too.
func TestDirectivesByAnotherReader(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 15))
	pages := make([]spokenTo, 1000)
	for i := range pages {
		pages[i] = generatePage(r)
	}
	answers := askRobotDirectives(t, pages)
	seen := make([]int, len(voiceDifferences))
	differences := 0
	for i, page := range pages {
		page.Metas = throughHTML(t, r, page)
		ours := saidTo(page)
		if maps.Equal(ours, answers[i]) {
			continue
		}
		differences++
		explained := page
		for j, d := range voiceDifferences {
			if d.rewriting == nil {
				continue
			}
			before := saidTo(explained)
			explained = rewrite(explained, d.rewriting)
			if !maps.Equal(before, saidTo(explained)) {
				seen[j]++
			}
		}
		said := saidTo(explained)
		for j, d := range voiceDifferences {
			if d.adding == nil {
				continue
			}
			before := maps.Clone(said)
			d.adding(said, page)
			if !maps.Equal(before, said) {
				seen[j]++
			}
		}
		if !maps.Equal(said, answers[i]) {
			t.Errorf("%+v: got %v, robot-directives %v; the table explains only %v", page, ours, answers[i], said)
		}
	}
	for j, d := range voiceDifferences {
		t.Logf("%d pages: %s", seen[j], d.why)
		if seen[j] == 0 {
			t.Errorf("no page shows this difference: %s", d.why)
		}
	}
	t.Logf("%d pages, %d of them read differently", len(pages), differences)
}

// saidTo returns this project's reading, as far as the other library can express it.
func saidTo(page spokenTo) map[string]bool {
	tokens := []string{page.Agent}
	names := directives.Header(page.Lines, tokens).Join(directives.Meta(page.Metas, tokens)).Names()
	said := make(map[string]bool)
	for _, name := range compared {
		said[name] = slices.Contains(names, name)
	}
	return said
}

func rewrite(page spokenTo, f func(string, spokenTo) string) spokenTo {
	page.Lines, page.Metas = slices.Clone(page.Lines), slices.Clone(page.Metas)
	for i, line := range page.Lines {
		page.Lines[i] = f(strings.ToLower(line), page)
	}
	for i, m := range page.Metas {
		if f(m.Name+": ", page) == "" { // the name in place of a scope
			page.Metas[i].Content = ""
			continue
		}
		page.Metas[i].Content = f(strings.ToLower(m.Content), page)
	}
	return page
}

// generatePage makes a page's signals at random.
func generatePage(r *rand.Rand) spokenTo {
	page := spokenTo{Agent: pick(r, "Googlebot", "ExampleBot", "sitesearch"), Now: directivesNow.UnixMilli()}
	for range r.IntN(3) {
		line := generateList(r)
		switch r.IntN(8) {
		case 0, 1, 2:
			line = pick(r, "Googlebot: ", "ExampleBot: ", "sitesearch: ", "otherbot: ") + line
		case 3:
			line += ", " + pick(r, "Googlebot: ", "otherbot: ") + generateList(r)
		}
		page.Lines = append(page.Lines, line)
	}
	for range r.IntN(3) {
		name := pick(r, "robots", "robots", "Googlebot", "ExampleBot", "sitesearch", "otherbot")
		page.Metas = append(page.Metas, directives.Named{Name: strings.ToLower(name), Content: generateList(r)})
	}
	return page
}

// generateList makes a list of directives. Only the first one may have a date, because
// robot-directives reads no other.
func generateList(r *rand.Rand) string {
	var list []string
	if r.IntN(8) == 0 {
		list = append(list, "unavailable_after: "+voiceDates[r.IntN(len(voiceDates))])
	}
	for range r.IntN(3) + 1 - len(list) {
		word := pick(r, append(compared, "none", "all", "index", "follow", "max-snippet: 50", "max-image-preview:large", "nocache",
			"nosnippet noodp", "indexifembedded", "noai", "unknown")...)
		if r.IntN(6) == 0 {
			word = strings.ToUpper(word[:1]) + word[1:]
		}
		list = append(list, word)
	}
	return strings.Join(list, ", ")
}

func pick(r *rand.Rand, words ...string) string { return words[r.IntN(len(words))] }

// throughHTML writes the meta tags into a page, encodes it, and finds them again.
func throughHTML(t *testing.T, r *rand.Rand, page spokenTo) []directives.Named {
	t.Helper()
	var b strings.Builder
	b.WriteString("<!doctype html><html><head><title>A page <meta name=robots content=none></title>\n")
	for _, m := range page.Metas {
		b.WriteString(pick(r, "", "<!-- <meta name=robots content=none> -->",
			"<script>'<meta name=robots content=none></head>'</script>\n", "<meta name=viewport content=none>"))
		fmt.Fprintf(&b, pick(r, "<meta name=%q content=%q>", "<META NAME=%q\tCONTENT=%q />",
			"<noscript><meta id=x name=%q lang=en content=%q></noscript>"), m.Name, m.Content)
	}
	b.WriteString("</head><body><meta name=robots content=none>")
	coding := pick(r, "identity", "gzip", "deflate", "br", "zstd")
	coded := []byte(b.String())
	if coding != "identity" {
		coded = testorigin.Encode(coding, coded)
	}
	text, cut := htmlhead.Decode(coding, coded, 64<<10)
	found, missed := htmlhead.Scan(text, htmlhead.Options{Names: []string{"Googlebot", "ExampleBot", "sitesearch", "otherbot"}})
	if cut || missed || len(page.Metas) != len(found.Robots) || len(page.Metas) > 0 && !reflect.DeepEqual(found.Robots, page.Metas) {
		t.Errorf("%s of %s: got %q, cut %t, missed %t, want %q", coding, b.String(), found.Robots, cut, missed, page.Metas)
	}
	return found.Robots
}

// askRobotDirectives judges the pages with the Node program.
func askRobotDirectives(t *testing.T, pages []spokenTo) []map[string]bool {
	t.Helper()
	var input bytes.Buffer
	for _, page := range pages {
		line, err := json.Marshal(page)
		if err != nil {
			t.Fatal(err)
		}
		input.Write(append(line, '\n'))
	}
	cmd := exec.CommandContext(t.Context(), rig.Need(t, "node"), "judge.mjs")
	cmd.Dir = rig.NodePrograms(t, "testdata", "directives")
	var stderr strings.Builder
	cmd.Stdin, cmd.Stderr = &input, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("judge.mjs: %v: %s", err, stderr.String())
	}
	var answers []map[string]bool
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var answer map[string]bool
		if err := json.Unmarshal(lines.Bytes(), &answer); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, answer)
	}
	if len(answers) != len(pages) {
		t.Fatalf("%d answers for %d pages", len(answers), len(pages))
	}
	return answers
}
