package robotstxt_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/robotstxt"
)

// applying returns the lines that apply to a target, in order.
func applying(rs *robotstxt.Ruleset, token, target string) []int {
	var lines []int
	all, _ := rs.Select(robotstxt.Agent{Tokens: []string{token}}).AppendPreferences(nil, target)
	for _, p := range all {
		lines = append(lines, p.Line)
	}
	slices.Sort(lines)
	return lines
}

// The Content-Usage lines with the longest path that matches apply; equal ones all apply
// (draft-ietf-aipref-attach-05 section 3.1). Paths match as in Allow and Disallow (RFC 9309 section
// 2.2.2).
func TestPreferencesThatApply(t *testing.T) {
	t.Parallel()
	const usage = "User-agent: a\nAllow: /\n" + // 1 and 2
		"Content-Usage: train-ai=n\n" +
		"Content-Usage: /docs/ train-ai=y\n" +
		"Content-Usage: /docs/ train-ai=n\n" +
		"Content-Usage: /*.pdf train-ai=n\n" +
		"Content-Usage: /d%6Fcs/caf\u00e9 search=n\n" +
		"Content-Usage: /empty\n" +
		"User-agent: *\nContent-Usage: / search=y\n"
	const signal = "Content-Signal: ai-train=no\n" +
		"User-agent: a\nContent-Signal: search=yes\nContent-Signal: /blog/ ai-input=no\nAllow: /\n" +
		"User-agent: *\nContent-Signal: /x* search=no\n"
	for _, c := range []struct {
		name, robots, token, target string
		want                        []int
	}{
		{"a line without a path has length 0", usage, "a", "/x", []int{3}},
		{"equal paths all apply", usage, "a", "/docs/x", []int{4, 5}},
		{"equal lengths of other paths too", usage, "a", "/docs/x.pdf", []int{4, 5, 6}},
		{"a wildcard", usage, "a", "/x.pdf", []int{6}},
		{"escapes are canonical", usage, "a", "/docs/caf%c3%a9", []int{7}},
		{"a path without value applies too", usage, "a", "/empty/x", []int{8}},
		{"another group", usage, "b", "/docs/x", []int{10}},
		{"a target without slash", usage, "a", "docs/x", []int{4, 5}},
		{"no group", "User-agent: a\nContent-Usage: search=n", "b", "/", nil},
		{"outside of groups", "Content-Usage: search=n\nUser-agent: *\nAllow: /", "b", "/", nil},
		{"signals: all that match", signal, "a", "/blog/x", []int{1, 3, 4}},
		{"signals: those without path", signal, "a", "/", []int{1, 3}},
		{"signals: wildcards", signal, "b", "/xy", []int{1, 7}},
		{"signals: loose ones are for all", "Content-Signal: ai-train=no\nUser-agent: a\nAllow: /", "b", "/", []int{1}},
		{"signals: a file without groups", "Content-Signal: ai-train=no", "b", "/", []int{1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := applying(robotstxt.Parse([]byte(c.robots)), c.token, c.target); !slices.Equal(got, c.want) {
				t.Errorf("%s: got lines %d, want %d", c.target, got, c.want)
			}
		})
	}
}

// Of many lines the same ones apply. The number that apply is limited.
func TestPreferencesOfManyLines(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("User-agent: *\nContent-Usage: a=n\n")
	for i := range 1000 {
		fmt.Fprintf(&text, "Content-Usage: /%d/ a=n\nContent-Usage: /%d/ b=n\nContent-Signal: a=no\n", i, i)
	}
	rs := robotstxt.Parse([]byte(text.String()))
	usageOf := func(target string) (lines []int) {
		all, cut := rs.Select(robotstxt.Agent{}).AppendPreferences(nil, target)
		if !cut {
			t.Errorf("%s: AppendPreferences does not report that there are more than 32 lines", target)
		}
		for _, p := range all {
			if p.Kind == robotstxt.ContentUsage {
				lines = append(lines, p.Line)
			}
		}
		slices.Sort(lines)
		return lines
	}
	for i := range 1000 {
		if got, want := usageOf(fmt.Sprintf("/%d/x", i)), []int{3 + 3*i, 4 + 3*i}; !slices.Equal(got, want) {
			t.Fatalf("/%d/x: got lines %d, want %d", i, got, want)
		}
	}
	if got := usageOf("/x"); !slices.Equal(got, []int{2}) {
		t.Errorf("/x: got lines %d", got)
	}
	if got := len(applying(rs, "a", "/1/")); got != 2+32 {
		t.Errorf("%d lines apply, want 34", got)
	}
}

// TestPreferencesDoNotAllocate checks a target in its usual spelling to which no line applies.
func TestPreferencesDoNotAllocate(t *testing.T) {
	rs := robotstxt.Parse([]byte("User-agent: *\nDisallow: /a\nUser-agent: b\nContent-Usage: train-ai=n\nContent-Signal: search=no\nAllow: /"))
	g := rs.Select(robotstxt.Agent{Tokens: []string{"a"}})
	if n := testing.AllocsPerRun(100, func() { g.AppendPreferences(nil, "/x?y=z") }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestPattern(t *testing.T) {
	t.Parallel()
	const longestLine = 8*2083 - 1 // as in Google's parser
	for _, c := range []struct {
		pattern, target string
		want            bool
	}{
		{"/", "/x", true},
		{"/a/*.jpg", "/a/b.jpg?x", true},
		{"/a/*.jpg$", "/a/b.jpg?x", false},
		{"/caf\u00e9", "/caf%C3%A9", true},
		{"/path/foo-%24", "/path/foo-$", true}, // RFC 9309 section 2.2.3
		{"*", "/", true},
		{"*$", "/x", true},
		{"/a", "/A", false},
		{"/$", "#a", true},
		{"/" + strings.Repeat("a", longestLine-1), "/", false},
	} {
		p, ok := robotstxt.ParsePattern(c.pattern)
		if got := p.Match(c.target); !ok || got != c.want {
			t.Errorf("%s %s: got %v, %v", c.pattern, c.target, got, ok)
		}
	}
	for _, bad := range []string{"", "a", "a/*", "/" + strings.Repeat("a", longestLine)} {
		if p, ok := robotstxt.ParsePattern(bad); ok || p.Match("/") {
			t.Errorf("ParsePattern accepts %.20q", bad)
		}
	}
}

// FuzzParsePattern checks that a Pattern matches the same targets as a Disallow line with its path.
func FuzzParsePattern(f *testing.F) {
	for _, seed := range [][2]string{{"/a*b$", "/axb"}, {"/%2A*", "/*"}, {"*$", "/"}, {"/?a:", "/?a%3A"}, {"/\u00e9", "/%c3%a9"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, target string) {
		if strings.ContainsAny(pattern, "\r\n#\x00 \t\v\f") || strings.Contains(target, "#") || len(target) > 1<<12 {
			return
		}
		p, ok := robotstxt.ParsePattern(pattern)
		g := robotstxt.Parse([]byte("User-agent: *\nDisallow:" + pattern)).Select(robotstxt.Agent{})
		want := !g.MatchRules(target).Allowed
		if got := p.Match(target); got != want || !ok && got {
			t.Errorf("%q %q: got %v, the rule says %v", pattern, target, got, want)
		}
		usage := robotstxt.Parse([]byte("User-agent: *\nContent-Usage:" + pattern + " a=n")).Select(robotstxt.Agent{})
		if all, _ := usage.AppendPreferences(nil, target); strings.HasPrefix(pattern, "/") && (len(all) == 1) != want {
			t.Errorf("%q %q: the Content-Usage lines that apply: %v, the rule matches: %v", pattern, target, all, want)
		}
	})
}
