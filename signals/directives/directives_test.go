package directives

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// says formats a Set for tables.
func says(s Set) string {
	words := s.Names()
	if s.Cut {
		words = append(words, "cut")
	}
	return strings.Join(words, " ")
}

// TestGoogle2012 checks every example and every directive of Google's guide of 2012, "Controlling
// Crawling and Indexing".
func TestGoogle2012(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		where string
		metas []Named
		agent string
		want  string
	}{
		{"Using the Robots Meta Tag", []Named{{"robots", "noindex"}}, "examplebot", "noindex"},
		{"the name of a specific search engine", []Named{{"Googlebot", "noindex"}}, "googlebot", "noindex"},
		{"the name of a specific search engine: another one", []Named{{"Googlebot", "noindex"}}, "examplebot", ""},
		{"Valid directives: all", []Named{{"robots", "all"}}, "examplebot", ""},
		{"Valid directives: none", []Named{{"robots", "none"}}, "examplebot", "noindex nofollow"},
		{"Valid directives: nofollow", []Named{{"robots", "nofollow"}}, "examplebot", "nofollow"},
		{"Valid directives: noarchive", []Named{{"robots", "noarchive"}}, "examplebot", "noarchive"},
		{"Valid directives: nosnippet", []Named{{"robots", "nosnippet"}}, "examplebot", "nosnippet"},
		{"Valid directives: noodp", []Named{{"robots", "noodp"}}, "examplebot", "noodp"},
		{"Valid directives: notranslate", []Named{{"robots", "notranslate"}}, "examplebot", "notranslate"},
		{"Valid directives: noimageindex", []Named{{"robots", "noimageindex"}}, "examplebot", "noimageindex"},
		{
			"Valid directives: unavailable_after, RFC 850 format",
			[]Named{{"robots", "unavailable_after: Friday, 25-Jun-10 15:00:00 PST"}},
			"examplebot", "unavailable_after=2010-06-25T23:00:00Z",
		},
		{"These directives are not case-sensitive", []Named{{"ROBOTS", "NoIndex, NOFOLLOW"}}, "examplebot", "noindex nofollow"},
		{"Handling combined: a list", []Named{{"robots", "noindex, nofollow"}}, "examplebot", "noindex nofollow"},
		{
			"Handling combined: the sum of the negative directives",
			[]Named{{"robots", "nofollow"}, {"googlebot", "noindex"}},
			"googlebot", "noindex nofollow",
		},
		{
			"Handling combined: another crawler",
			[]Named{{"robots", "nofollow"}, {"googlebot", "noindex"}},
			"examplebot", "nofollow",
		},
	} {
		if got := says(Meta(c.metas, []string{c.agent})); got != c.want {
			t.Errorf("%s: meta %q: %q, want %q", c.where, c.metas, got, c.want)
		}
		// "Several other directives can be used … with the Robots meta Tag and the X-Robots-Tag."
		var lines []string
		for _, m := range c.metas {
			if !strings.EqualFold(m.Name, "robots") {
				m.Content = m.Name + ": " + m.Content
			}
			lines = append(lines, m.Content)
		}
		if got := says(Header(lines, []string{c.agent})); got != c.want {
			t.Errorf("%s: field %q: %q, want %q", c.where, lines, got, c.want)
		}
	}
}

// TestHeader checks the grammar of a field line: examples of Google's page about the robots meta
// tag and of MDN's page about X-Robots-Tag, and difficult commas and colons.
func TestHeader(t *testing.T) {
	t.Parallel()
	const date = "unavailable_after=2010-06-25T23:00:00Z"
	for _, c := range []struct {
		lines, tokens string // between semicolons
		want          string
	}{
		{"noindex", "x", "noindex"}, // Google, "Using the X-Robots-Tag HTTP header"
		{"noarchive;unavailable_after: 25 Jun 2010 15:00:00 PST", "x", "noarchive " + date},        // Google, ibid.
		{"googlebot: nofollow;otherbot: noindex, nofollow", "googlebot", "nofollow"},               // Google, ibid.
		{"googlebot: nofollow;otherbot: noindex, nofollow", "otherbot", "noindex nofollow"},        // Google, ibid.
		{"googlebot: nofollow;otherbot: noindex, nofollow", "x", ""},                               // Google, ibid.
		{"max-snippet:20, max-image-preview:large", "x", "max-snippet=20 max-image-preview=large"}, // Google, about max-snippet and more
		{"max-snippet:0, max-video-preview:-1", "x", "max-snippet=0 max-video-preview=-1"},
		{"noindex, indexifembedded", "x", "noindex indexifembedded"},
		{"noindex, googlebot: nofollow", "x", "noindex"},                  // MDN, "Syntax"
		{"noindex, googlebot: nofollow", "googlebot", "noindex nofollow"}, // MDN, "Syntax"
		{"BadBot: noindex, nofollow, googlebot: nofollow", "badbot", "noindex nofollow"},
		{"BadBot: noindex, nofollow, googlebot: nofollow", "googlebot", "nofollow"},
		{"BadBot: noindex, nofollow, googlebot: nofollow", "x", ""},
		{"noai, noimageai", "x", "noai noimageai"}, // DeviantArt

		// The scope ends with the line.
		{"otherbot: noindex;nofollow", "x", "nofollow"},
		// Two names mean every crawler, and each ends the scope of an agent.
		{"otherbot: noindex, *: nofollow", "x", "nofollow"},
		{"otherbot: noindex, robots: nofollow", "x", "nofollow"},
		// All names of an agent are combined.
		{"googlebot-news: noindex;googlebot: nofollow;noarchive", "Googlebot-News;Googlebot", "noindex nofollow noarchive"},
		{"googlebot: nofollow", "Googlebot-News", ""},
		{"googlebot-news: nofollow", "Googlebot", ""},
		// Google's guide of 2012: Googlebot/1.2 and Googlebot* are equivalent to Googlebot.
		{"Googlebot/1.2: noindex", "googlebot", "noindex"},
		{"Googlebot*: noindex", "googlebot", "noindex"},
		// Rules with values before agents, also inside a scope.
		{"otherbot: max-snippet: 5, unavailable_after: Friday, 25-Jun-10 15:00:00 PST, noindex", "x", ""},
		{
			"otherbot: max-snippet: 5, unavailable_after: Friday, 25-Jun-10 15:00:00 PST, noindex",
			"otherbot", "noindex " + date + " max-snippet=5",
		},
		// Dates with commas, and directives after them.
		{"unavailable_after: Friday, 25-Jun-10 15:00:00 PST, nofollow", "x", "nofollow " + date},
		{"unavailable_after: Fri, 25 Jun 2010 23:00:00 GMT, nofollow", "x", "nofollow " + date},
		{"unavailable_after: 25-Jun-10 15:00:00 PST, nofollow", "x", "nofollow " + date},
		{"unavailable_after: 2010-06-25T15:00:00-08:00, nofollow", "x", "nofollow " + date},
		{"unavailable_after: soon, nofollow", "x", "nofollow"},
		{"unavailable_after: Friday, soon, nofollow", "x", "nofollow"},
		{"unavailable_after: Friday, nofollow", "x", "nofollow"},
		{"unavailable_after: Friday, max-snippet: 3", "x", "max-snippet=3"},
		{"unavailable_after:", "x", ""},
		{"unavailable_after", "x", ""},
		// Strictest wins.
		{"index, noindex;all;index", "x", "noindex"},
		{"max-snippet: 50;max-snippet: -1, max-snippet: 20", "x", "max-snippet=20"},
		{"max-image-preview: LARGE;max-image-preview: standard", "x", "max-image-preview=standard"},
		{"max-image-preview: none, max-image-preview: standard", "x", "max-image-preview=none"},
		{"unavailable_after: 2011-01-01, unavailable_after: 2010-06-25 23:00:00Z", "x", date},
		// Invalid values.
		{"max-snippet: many, noindex", "x", "noindex"},
		{"max-snippet: -2", "x", ""},
		{"max-image-preview: huge", "x", ""},
		{"max-snippet", "x", ""},
		// Unknown directives, also of a kind that does not exist yet.
		{"max-audio-preview: 5, noindex", "x", "noindex"},
		{"noydir, NoCache, noindex", "x", "noindex nocache"},
		{"my bot: noindex, nofollow", "x", "nofollow"},
		// Mistakes that are reported: a colon after a directive, blanks instead of commas, empty
		// items.
		{"noindex: nofollow", "x", "noindex nofollow"},
		{"all: noindex", "x", "noindex"},
		{"noindex nofollow", "x", "noindex nofollow"},
		{"noindex please", "x", ""},
		{" ,, noindex ,\t, nofollow,", "x", "noindex nofollow"},
		{"googlebot:", "googlebot", ""},
		{"googlebot:,noindex", "googlebot", "noindex"},
		{": noindex", "x", ""},
		{"", "x", ""},
	} {
		lines, tokens := strings.Split(c.lines, ";"), strings.Split(c.tokens, ";")
		if got := says(Header(lines, tokens)); got != c.want {
			t.Errorf("%q for %q: %q, want %q", lines, tokens, got, c.want)
		}
	}
	if s := Header(nil, []string{"x"}); !s.Empty() || !reflect.DeepEqual(s, Set{}) {
		t.Errorf("no field: %+v, want the zero value", s)
	}
}

func TestMeta(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		metas []Named
		token string
		want  string
	}{
		{[]Named{{" robots ", "\nnoindex,\n\tnofollow\n"}}, "x", "noindex nofollow"},
		{[]Named{{"robots", "noindex"}, {"robots", "nofollow"}}, "x", "noindex nofollow"},
		{[]Named{{"googlebot", "noindex"}, {"robots", "all"}}, "googlebot", "noindex"},
		{[]Named{{"ExampleBot", "max-snippet:10"}, {"robots", "max-snippet:5"}}, "examplebot", "max-snippet=5"},
		{[]Named{{"robots", "otherbot: noindex, nofollow"}}, "otherbot", "nofollow"}, // a content attribute has no scopes
		{[]Named{{"", "noindex"}}, "", ""},
		{[]Named{{"viewport", "none"}, {"Description", "noindex"}}, "viewport", ""},
		{[]Named{{"description", "noindex"}}, "description", ""},
	} {
		if got := says(Meta(c.metas, []string{c.token})); got != c.want {
			t.Errorf("%q for %q: %q, want %q", c.metas, c.token, got, c.want)
		}
	}
}

// TestDates cites the document of each form.
func TestDates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ date, want, source string }{
		{"Friday, 25-Jun-10 15:00:00 PST", "2010-06-25T23:00:00Z", "Google's page; RFC 850 section 2.1.4"},
		{"25-Aug-2007 15:00:00 EST", "2007-08-25T20:00:00Z", "Google's announcement, 2007"},
		{"Sunday, 06-Nov-94 08:49:37 GMT", "1994-11-06T08:49:37Z", "RFC 9110 section 5.6.7"},
		{"Sun, 06 Nov 1994 08:49:37 GMT", "1994-11-06T08:49:37Z", "RFC 9110 section 5.6.7"},
		{"Sun Nov  6 08:49:37 1994", "1994-11-06T08:49:37Z", "RFC 9110 section 5.6.7"},
		{"6 Nov 94 08:49 UT", "1994-11-06T08:49:00Z", "RFC 822 section 5.1: no seconds"},
		{"Fri, 21 Nov 1997 09:55:06 -0600", "1997-11-21T15:55:06Z", "RFC 5322 appendix A.1.1"},
		{"Thu, 13 Feb 1969 23:32 -0330 (Newfoundland Time)", "1969-02-14T03:02:00Z", "RFC 5322 appendix A.5"},
		{"1985-04-12T23:20:50.52Z", "1985-04-12T23:20:50Z", "RFC 3339 section 5.8"},
		{"1996-12-19T16:39:57-08:00", "1996-12-20T00:39:57Z", "RFC 3339 section 5.8"},
		{"1937-01-01T12:00:27.87+00:20", "1937-01-01T11:40:27Z", "RFC 3339 section 5.8"},
		{"2010-06-25t15:00:00z", "2010-06-25T15:00:00Z", "RFC 3339 section 5.6: lower case"},
		{"2010-06-25T15:00+02", "2010-06-25T13:00:00Z", "ISO 8601: hours alone"},
		{"2010-06-25", "2010-06-25T00:00:00Z", "ISO 8601: a date; no zone is UTC"},
		{"friday, 25-jUN-10 15:00:00 pdt", "2010-06-25T22:00:00Z", "without case"},
		{"25 Jun 2010 15:00:00 EDT", "2010-06-25T19:00:00Z", "RFC 822 section 5.1"},
		{"25 Jun 2010 15:00:00 CST", "2010-06-25T21:00:00Z", "RFC 822 section 5.1"},
		{"25 Jun 2010 15:00:00 CDT", "2010-06-25T20:00:00Z", "RFC 822 section 5.1"},
		{"25 Jun 2010 15:00:00 MST", "2010-06-25T22:00:00Z", "RFC 822 section 5.1"},
		{"25 Jun 2010 15:00:00 MDT", "2010-06-25T21:00:00Z", "RFC 822 section 5.1"},
		{"25 Jun 2010 15:00:00 Z", "2010-06-25T15:00:00Z", "RFC 822 section 5.1"},
		{"20100625T150000Z", "2010-06-25T15:00:00Z", "ISO 8601, the basic form"},
		{"20100625T150000+0200", "2010-06-25T13:00:00Z", "ISO 8601, the basic form with a zone"},
		{"20100625t150000", "2010-06-25T15:00:00Z", "ISO 8601, the basic form without a zone"},
		{"20100625", "2010-06-25T00:00:00Z", "ISO 8601, the basic form of a day"},
		{"25 Jun 2010 15:00:00 CET", "2010-06-25T01:00:00Z", "an unknown zone: the earliest reading"},
		{"25 Jun 2010 15:00:00 A", "2010-06-25T01:00:00Z", "RFC 5322 section 4.3: military letters say nothing"},
		{"25-Jun-76 15:00:00 GMT", "2076-06-25T15:00:00Z", "RFC 9110 section 5.6.7: 50 years ahead of 2026"},
		{"25-Jun-77 15:00:00 GMT", "1977-06-25T15:00:00Z", "RFC 9110 section 5.6.7: 51 years ahead"},
		{"25-Jun-69 15:00:00 GMT", "2069-06-25T15:00:00Z", "not the window of time.Parse"},
		{"31-Jun-10 15:00:00 GMT", "", "there is no such day"},
		{"25 Jun 2010 15:00:00 GMT and more", "", "a zone is one word"},
		{"0001-01-01", "", "a year of no calendar of ours"},
		{"1277424000", "", "a number of seconds"},
		{strings.Repeat(" ", 65) + "2010-06-25", "", "longer than any date"},
	} {
		got := ""
		if d := parseDate(c.date); !d.IsZero() {
			got = d.Format(time.RFC3339)
		}
		if got != c.want {
			t.Errorf("%q (%s): %q, want %q", c.date, c.source, got, c.want)
		}
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("noindex,", maxLine/8) // of the maximum length
	for _, c := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"32 lines", slices.Repeat([]string{"noindex"}, maxLines), "noindex"},
		{"33 lines", append(slices.Repeat([]string{"noindex"}, maxLines), "nofollow"), "noindex cut"},
		{"4 KiB", []string{long}, "noindex"},
		{"more than 4 KiB", []string{long + "nofollow"}, "noindex cut"},
		{"a directive over the bound", []string{strings.Repeat(" ", maxLine-8) + ",noindexifembedded"}, "cut"},
		{"no comma", []string{"noindex" + strings.Repeat(" ", maxLine)}, "cut"},
	} {
		if got := says(Header(c.lines, nil)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestReserved(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"Viewport": true, "description": true, "robots": false, "examplebot": false, "": false} {
		if Reserved(name) != want {
			t.Errorf("Reserved(%q) = %t", name, !want)
		}
	}
}

func TestOneLineAllocatesNothing(t *testing.T) {
	tokens, line := []string{"examplebot"}, []string{"noindex, nofollow, googlebot: max-snippet: 50, max-image-preview: large"}
	for name, lines := range map[string][]string{"none": nil, "one": line} {
		if n := testing.AllocsPerRun(100, func() { sink = Header(lines, tokens) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}

var sink Set

func BenchmarkHeader(b *testing.B) {
	tokens := []string{"Googlebot-News", "Googlebot"}
	for name, lines := range map[string][]string{
		"none":    nil,
		"typical": {"noindex, nofollow, max-snippet: 50, max-image-preview: large"},
		"scoped":  {"noarchive", "googlebot: noindex, nofollow", "otherbot: noindex"},
		"date":    {"unavailable_after: Friday, 25-Jun-10 15:00:00 PST"},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink = Header(lines, tokens)
			}
		})
	}
}
