package robotstxt_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/robotstxt"
)

// clean is a file without warnings.
const clean = "# comment\nUser-agent: ExampleBot\nUser-agent: *\nAllow: /a/b$\nDisallow: /a*\nDisallow:\nCrawl-delay: 0.5\n" +
	"Request-rate: 1/5m\nContent-Signal: search=yes\nSitemap: https://example.com/s.xml\n\nUser-agent: Other_Bot\nDisallow: /%C3%A9?x*y\n"

// TestLint checks every code, with its line.
func TestLint(t *testing.T) {
	t.Parallel()
	const head = "User-agent: *\n"
	for _, c := range []struct {
		robots string
		want   string // code and line of each warning
	}{
		{clean, ""},
		{"", ""},
		{"\n\n", ""},
		{"\xff\xfeU\x00s\x00e\x00r\x00", "utf-16 1"},
		{"\x00U\x00s\x00e\x00r", "utf-16 1"},
		{"\xef\xbb\xbf" + clean, "byte-order-mark 1"},
		{"\xef" + clean, "byte-order-mark 1"},
		{"\n<!DOCTYPE html>\n<p>x: y</p>\nUser-agent: *\nDisallow: x\n", "html 1, path-without-slash 5"},
		{head + "Disallow: /" + strings.Repeat("x", 17000), "long-line 2"},
		{head + "Disallow: /x\x00y", "nul 2"},
		{head + "Disallow: /\xff", "invalid-utf-8 2, encoded-path 2"},
		{head + "# \xff\nDisallow: /x", ""},
		{head + "Disallow /x", "missing-colon 2"},
		{head + "Dissallow: /x\nDisallowed: /y\nUseragent: a\nAllow: /\nSite-map: http://x/y", "misspelt-field 2, misspelt-field 3, misspelt-field 4, misspelt-field 6"},
		{head + "Disallow\u00a0: /x\nDisallow /a:b", "misspelt-field 2, missing-colon 3"},
		{head + "DisallowAITraining: /x\nAllow-all: /y\nDisallow: /z", "unknown-field 2, unknown-field 3"},
		{head + "CRAWLDELAY: 1\nDisallow: /x", "misspelt-field 2"},
		{head + "Disallow: /x\n<p>hello\nDisallow / x", "no-directive 3, no-directive 4"},
		{head + "Alow: /x\nDisallow: /y", "unknown-field 2"},
		{head + "Noindex: /x\nHost: x\nRobot-version: 1\nDisallow: /y", "unsupported-field 2, unsupported-field 3, unsupported-field 4"},
		{head + "Visit-time: 0600-0845\nVisit-time: 600-845\nDisallow: /y", "bad-delay 3"},
		{"Visit-time: 0600-0845\n" + head + "Disallow: /y", "delay-outside-group 1"},
		{"Disallow: /x\nAllow: /y\n" + clean, "rule-outside-group 1, rule-outside-group 2"},
		{"Crawl-delay: 1\n" + clean, "delay-outside-group 1"},
		{head + "Disallow: x\nAllow: http://example.com/", "path-without-slash 2, path-without-slash 3"},
		{head + "Disallow: *x", ""},
		{"User-agent:\nDisallow: /", "empty-name 1"},
		{"User-agent: *bot\nDisallow: /x\nUser-agent: /1.0\nDisallow: /", "bad-name 1, bad-name 3"},
		{"User-agent: * bots\nUser-agent: a/1\nUser-agent: b c\nUser-agent: MJ12bot\nUser-agent: 360\nDisallow: /", "odd-name 1, odd-name 2, odd-name 3, odd-name 4, odd-name 5"},
		{"User-agent: FooBot, BarBot\nUser-agent: a;b\nUser-agent: c|d\nDisallow: /", "several-names 1, several-names 2, several-names 3"},
		{"User-agent: Foo/1.0 (x; y)\nDisallow: /", "odd-name 1"},
		{"User-agent: a\n\nUser-agent: b\n# c\nUser-agent: c\nDisallow: /\n\nUser-agent: d\nUser-agent: e\nDisallow: /", "shared-group 3"},
		{"User-agent: a\nSitemap: http://x/y\nUser-agent: b\nDisallow: /", "shared-group 3"},
		{"User-agent: a\nCrawl-delay: 1\nUser-agent: b\nDisallow:", "shared-group 3"},
		{head + "Disallow: /#/x\nDisallow: /a #b\nDisallow: #c\nDisallow:#d", "comment-inside 2"},
		{head + "Disallow: /\n\nUser-agent: *\nCrawl-delay: 5", ""},
		{"User-agent: Foo\nUser-agent: b\nDisallow: /\n\nUser-agent: FOO\nUser-agent: c", "group-without-rules 5"},
		{head + "Disallow: /x Disallow: /y", "two-directives 2, encoded-path 2"},
		{"User-agent: a Disallow: /\nDisallow: /", "two-directives 1, odd-name 1"},
		{head + "Disallow: /a$b\nDisallow: /a$*", "dollar-inside 2, dollar-inside 3"},
		{head + "Disallow: /a b", "encoded-path 2"},
		{head + "Disallow: /\u0441\u043e\u0440\u0443", "encoded-path 2"}, // four letters that look like ASCII
		{head + "Disallow: /a%zz\nDisallow: /b%\nDisallow: /c%4", "broken-escape 2, broken-escape 3, broken-escape 4"},
		{head + "Disallow: /x\nAllow: /y\nDisallow: /x", "duplicate-rule 4"},
		{head + "Disallow: /%61\nDisallow: /a", "shadowed-rule 3"},
		{head + "Disallow: /x\nAllow: /x", "shadowed-rule 2"},
		{head + "Allow: /x\nDisallow: /x", "shadowed-rule 3"},
		{head + "Disallow: /x\nDisallow: /x*", "shadowed-rule 2"},
		{head + "Disallow: /x*\nDisallow: /x", "shadowed-rule 3"},
		{head + "Disallow: /*a*b\nDisallow: /x\nDisallow: /*a*b", "duplicate-rule 4"},
		{head + "Disallow: /x\nUser-agent: a\nDisallow: /x\nUser-agent: *\nDisallow: /x", "duplicate-rule 6"},
		{"User-agent: a\nUser-agent: B\nDisallow: /x\nUser-agent: b\nUser-agent: A\nDisallow: /x", "duplicate-rule 6"},
		{head + "Disallow: /x\nDisallow: /x$\nDisallow: /xy", ""},
		{head + "Disallow: /\nCrawl-delay: 5s\nRequest-rate: 1", "bad-delay 3, bad-delay 4"},
		{"Sitemap: /s.xml\n" + clean, "bad-sitemap 1"},
		{"User-agent: a\nUser-agent: b\n", "group-without-rules 1"},
		{clean + "User-agent: a\nSitemap: http://x/y\n", "group-without-rules 14"},
		{clean + strings.Repeat("#", robotstxt.MaxSize), "too-large 14"},
		{strings.Repeat("x\n", 2000), strings.TrimSuffix(repeatf("no-directive %d, ", 1000)+"too-many-warnings 1001", ", ")},
	} {
		var got []string
		for _, w := range robotstxt.Lint([]byte(c.robots)) {
			got = append(got, fmt.Sprintf("%s %d", w.Code, w.Line))
			if w.Message == "" || strings.ContainsFunc(w.Message, func(r rune) bool { return (r < ' ' || r > '~') && r != '…' }) {
				t.Errorf("%.200q: the message of %s is empty or not printable: %q", c.robots, w.Code, w.Message)
			}
		}
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("%.200q:\n got %s\nwant %s", c.robots, got, c.want)
		}
	}
}

// TestLintNamesTheField checks that the warning for an unknown name says which field it contains.
func TestLintNamesTheField(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"DisallowAITraining": "disallow", "AllowAITraining": "allow", "DISALLOW-ALL": "disallow",
		"\ufeffDisallow": "disallow", "X-User-Agent": "user-agent", "Useragents-": "user-agent", "Crawl-delays": "crawl-delay",
		"Sitemap\uff1ahttps": "sitemap", "Content-Signals": "content-signal",
		"Alow": "", "User_agent": "", "Host-name": "", "Below": "", "http": "", "a": "", "404 Not Found": "", "\u0451": "",
	} {
		warnings := robotstxt.Lint([]byte("User-agent: *\n" + key + ": /x\nDisallow: /y"))
		if len(warnings) != 1 || warnings[0].Code != "unknown-field" {
			t.Errorf("%q: got %v", key, warnings)
			continue
		}
		_, meant, _ := strings.Cut(warnings[0].Message, ", though ")
		if got := strings.TrimSuffix(meant, " may be meant"); got != want {
			t.Errorf("%q: got %q, want %q", key, got, want)
		}
	}
}

func repeatf(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i+1)
	}
	return b.String()
}

// withoutEffect are the codes of lines whose removal changes nothing.
var withoutEffect = []string{
	"no-directive", "unknown-field", "unsupported-field", "rule-outside-group",
	"bad-delay", "delay-outside-group", "bad-sitemap",
}

// neverDecides are the codes of rules that no decision can name.
var neverDecides = []string{
	"rule-outside-group", "path-without-slash", "duplicate-rule", "shadowed-rule",
}

// checkLint compares the warnings for a file with the behaviour of the engine.
func checkLint(t *testing.T, name string, data []byte, questions []question) {
	t.Helper()
	warnings := robotstxt.Lint(data)
	inOrder := slices.IsSortedFunc(warnings, func(a, b robotstxt.Warning) int { return a.Line - b.Line })
	lines := splitLines(data)
	mute := map[int]bool{}
	for _, w := range warnings {
		if !inOrder || w.Line < 1 || w.Line > len(lines) || w.Code == "" || w.Message == "" {
			t.Errorf("%s: warning %+v, of %d lines, in order: %v", name, w, len(lines), inOrder)
		}
		mute[w.Line] = mute[w.Line] || slices.Contains(neverDecides, w.Code)
		if slices.Contains(withoutEffect, w.Code) {
			lines[w.Line-1] = nil
		}
	}
	if len(data) > robotstxt.MaxSize {
		lines = nil // removed bytes make room for bytes after the limit
	}
	rs, rest := robotstxt.Parse(data), robotstxt.Parse(bytes.Join(lines, []byte("\n")))
	for _, q := range questions {
		got := rs.Match(q.tokens, q.target)
		if mute[got.Line] {
			t.Errorf("%s: %v: line %d decides, but Lint reports that it cannot", name, q, got.Line)
		}
		if other := rest.Match(q.tokens, q.target); lines != nil && other != got {
			t.Errorf("%s: %v: got %+v, without the lines that lint says are ignored %+v", name, q, got, other)
		}
	}
}

// splitLines splits a file the way readers of warnings count its lines.
func splitLines(data []byte) [][]byte {
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	return bytes.Split(bytes.ReplaceAll(data, []byte("\r"), []byte("\n")), []byte("\n"))
}

// TestLintAgreesWithRules checks for real files that what Lint reports about a line is true of its
// effect.
func TestLintAgreesWithRules(t *testing.T) {
	t.Parallel()
	for i, f := range corpus(t) {
		a := newAsker(f.data, uint64(i))
		questions := make([]question, 40)
		for i := range questions {
			questions[i] = a.next()
		}
		checkLint(t, f.name, f.data, questions)
	}
}
