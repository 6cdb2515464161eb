package robotstxt_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/internal/oracle"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// Lists of tokens (Google's specification, RFC 9309 section 2.2.1): only the first that has a group
// applies.
func TestExt_TokenList(t *testing.T) {
	t.Parallel()
	const file = "User-agent: news\nDisallow: /n\nUser-agent: *\nDisallow: /s\nUser-agent: bot\nDisallow: /b"
	runChecks(t, []check{
		{"first", file, "news,bot", "/n", "deny 2"},
		{"first alone", file, "news,bot", "/b", "allow -"},
		{"the order is the crawler's, not of the file", file, "bot,news", "/b", "deny 6"},
		{"the order is the crawler's, alone", file, "bot,news", "/n", "allow -"},
		{"second", file, "image,bot", "/b", "deny 6"},
		{"none", file, "image,video", "/s", "deny 4"},
		{"empty tokens are nobody", file, ",bot", "/b", "deny 6"},
		{"* is nobody's name", file, "*,bot", "/b", "deny 6"},
		{"* alone", file, "*", "/s", "deny 4"},
	})
}

// ua-version, ua-nonrfc: configured tokens that RFC 9309 section 2.2.1 does not allow.
func TestExt_TokensBeyondTheRFC(t *testing.T) {
	t.Parallel()
	runChecks(t, []check{
		{"version is cut", named("foobot"), "foobot/1.0", "/x", "deny 2"},
		{"words are cut", named("foobot"), "foobot news", "/x", "deny 2"},
		{"version in both", named("foobot/2"), "foobot/1.0", "/x", "deny 2"},
		{"digits", named("MJ12bot"), "mj12bot", "/x", "deny 2"},
		{"digits, version in the file", named("MJ12bot/1.0"), "MJ12bot", "/x", "deny 2"},
		{"digits, words in the file", named("MJ12bot v1"), "MJ12bot/9", "/x", "deny 2"},
		{"digits, not a part", named("MJ12bots"), "MJ12bot", "/x", "allow -"},
		{"letters of it are a name too, as for Google", named("MJ12bot"), "MJ", "/x", "deny 2"},
		{"digits first", named("360Spider"), "360spider", "/x", "deny 2"},
		{"digits first are no letters", named("360Spider"), "Spider", "/x", "allow -"},
		{"dots", named("example.com"), "example.com", "/x", "deny 2"},
		{"beyond ASCII", named("b\u00f6t"), "B\u00f6t", "/x", "deny 2"},
		{"beyond ASCII there is no case", named("b\u00f6t"), "b\u00d6t", "/x", "allow -"},
		{"255 bytes", named(strings.Repeat("a", 255)), strings.Repeat("a", 255), "/x", "deny 2"},
		{"256 bytes", named(strings.Repeat("a", 256)), strings.Repeat("a", 256), "/x", "allow -"},
	})
}

// Google: * alone or followed by a blank is every crawler; anything else that begins with * is
// none.
func TestExt_WildcardName(t *testing.T) {
	t.Parallel()
	runChecks(t, []check{
		{"alone", named("*"), "a", "/x", "deny 2"},
		{"blank behind it", named("* bots"), "a", "/x", "deny 2"},
		{"tab behind it", named("*\tbots"), "a", "/x", "deny 2"},
		{"glued", named("*bot"), "bot", "/x", "allow -"},
		{"slash", named("*/1.0"), "a", "/x", "allow -"},
		{"two", named("**"), "a", "/x", "allow -"},
	})
}

// Google: a line without a valid name still begins a new group.
func TestExt_EmptyName(t *testing.T) {
	t.Parallel()
	runChecks(t, []check{
		{"nobody", "User-agent:\nDisallow: /", "a", "/", "allow -"},
		{"after a rule", "User-agent: a\nDisallow: /x\nUser-agent:\nDisallow: /y", "a", "/y", "allow -"},
		{"in a list", "User-agent: a\nUser-agent:\nDisallow: /x", "a", "/x", "deny 3"},
		{"not everybody", "User-agent:\nDisallow: /\nUser-agent: *\nDisallow: /x", "a", "/y", "allow -"},
	})
}

// AdsBot-Google (Google's list of crawlers): only its own group counts.
func TestExt_IgnoreWildcard(t *testing.T) {
	t.Parallel()
	rs := robotstxt.Parse([]byte("User-agent: *\nDisallow: /\nUser-agent: a\nDisallow: /x"))
	g := rs.Select(robotstxt.Agent{Tokens: []string{"b"}, IgnoreWildcard: true})
	if got := g.Match("/x"); !reflect.DeepEqual(got, robotstxt.Match{Allowed: true}) || !g.Unrestricted() || g.Name() != "" {
		t.Errorf("no own group: got %+v", got)
	}
	g = rs.Select(robotstxt.Agent{Tokens: []string{"a"}, IgnoreWildcard: true})
	want := robotstxt.Match{Rule: "/x", Line: 4, Group: "a"}
	if got := g.Match("/x"); got != want {
		t.Errorf("own group: got %+v, want %+v", got, want)
	}
}

// Google forgives a missing colon between two words (its test ID_LineSyntax_Line); its
// specification does not describe it.
func TestExt_MissingColon(t *testing.T) {
	t.Parallel()
	runChecks(t, []check{
		{"two words", "User-agent a\nDisallow /", "a", "/", "deny 2"},
		{"run of blanks", "User-agent \t a\n  Disallow\t \t/  ", "a", "/", "deny 2"},
		{"three words", "User-agent: a\nDisallow / x", "a", "/", "allow -"},
		{"three words, name", "User-agent a b\nDisallow: /", "a", "/", "allow -"},
		{"one word", "User-agent: a\nDisallow/", "a", "/", "allow -"},
		{"user agent is two words", "User agent a\nDisallow: /", "a", "/", "allow -"},
		{"a colon further on", "User-agent: a\nDisallow /a:b\nUser-agent: b\nDisallow: /", "a", "/a:b", "deny 2"},
		{"a colon further on ends the names", "User-agent: a\nDisallow /a:b\nUser-agent: b\nDisallow: /", "a", "/x", "allow -"},
		{"a colon further on, no path", "User-agent: a\nDisallow http://x/", "a", "/", "allow -"},
		{"a colon further on, another field", "User-agent: a\nDisallowAI /a:b", "a", "/a:b", "allow -"},
		{"a colon right behind the blank", "User-agent: a\nDisallow :/", "a", "/", "deny 2"},
		{"a colon further on, name", "User-agent a:\nDisallow: /", "a", "/", "deny 2"},
		{"comment does not count as a word", "User-agent: a\nDisallow / # x", "a", "/", "deny 2"},
	})
}

// Keys are exact, except for the misspellings that Google's parser accepts and for an appended s or
// ed. Anything else that begins with such a key is another record: it must not interfere (RFC 9309
// sections 2.2 and 2.2.4), although Google's parser reads it as the key.
func TestExt_Keys(t *testing.T) {
	t.Parallel()
	var checks []check
	for _, key := range []string{
		"disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw", "Disallowed", "DISALLOWS", "dissallowed",
		"Disallow\u00a0", "Disallow\xa0", "Disallow\u200b \ufeff", "disallow \t",
	} {
		checks = append(checks, check{"accepted: " + key, "User-agent: a\n" + key + ": /", "a", "/", "deny 2"})
	}
	for _, key := range []string{
		"dis-allow", "disallo", "dsallow", "xdisallow", "noallow", "disa llow", "DisallowAITraining", "DISALLOW-ALL", "disallow x",
		"Disallow_", "Disallow2", "Disallowing", "Disallow-s", "Disalloweds", "Dis\u2011allow", "Disallow\uff1a", "Disallow\u0438",
		"\u00a0Disallow", "Disallow\u00a0x",
	} {
		checks = append(
			checks,
			check{"unknown: " + key, "User-agent: a\n" + key + ": /", "a", "/", "allow -"},
			check{"no end of names: " + key, "User-agent: a\n" + key + ": /\nUser-agent: b\nDisallow: /x", "a", "/x", "deny 4"},
		)
	}
	for _, key := range []string{"user-agent", "useragent", "user agent", "User-Agents", "USERAGENT", "user agents"} {
		checks = append(checks, check{"accepted: " + key, key + ": a\nDisallow: /", "a", "/", "deny 2"})
	}
	for _, key := range []string{"user_agent", "agent", "user  agent", "usragent", "User-agent-x", "User-agents2"} {
		checks = append(
			checks,
			check{"unknown: " + key, key + ": a\nDisallow: /", "a", "/", "allow -"},
			check{"no new group: " + key, "User-agent: a\nDisallow: /x\n" + key + ": b\nDisallow: /y", "a", "/y", "deny 4"},
		)
	}
	for _, key := range []string{"allow", "Allows", "allowed"} {
		checks = append(checks, check{"accepted: " + key, "User-agent: a\nDisallow: /\n" + key + ": /", "a", "/", "allow 3"})
	}
	for _, key := range []string{"alow", "aloow", "allo", "Allow-x", "AllowAITraining", "Allow-Training"} {
		checks = append(checks, check{"unknown: " + key, "User-agent: a\nDisallow: /\n" + key + ": /", "a", "/", "deny 2"})
	}
	runChecks(t, checks)
}

// Google reads 2083*8-1 bytes of a line and drops the rest.
func TestExt_LongLine(t *testing.T) {
	t.Parallel()
	const most = 2083*8 - 1
	long := "Disallow: /" + strings.Repeat("x", most-len("Disallow: /"))
	target := "/" + strings.Repeat("x", most-len("Disallow: /"))
	head := "User-agent: a\n"
	runChecks(t, []check{
		{"longest", head + long, "a", target, "deny 2"},
		{"longest, shorter target", head + long, "a", target[:len(target)-1], "allow -"},
		{"cut", head + long + "yyy\nDisallow: /z", "a", target, "deny 2"},
		{"cut, next line", head + long + "yyy\nDisallow: /z", "a", "/z", "deny 3"},
		{"cut before the blanks are trimmed", head + strings.Repeat(" ", most) + "Disallow: /", "a", "/", "allow -"},
		{"cut before a $", head + long + "$", "a", target + "x", "deny 2"},
		{"a mark at the start does not count", "\xef\xbb\xbf" + strings.Replace(long, "Disallow: /", "User-agent: ", 1)[:most-11] +
			" \nDisallow: /", "x", "/", "allow -"},
		{"comment beyond it", head + long + "#\nDisallow: /z", "a", "/z", "deny 3"},
	})
}

// Google accepts a rule that begins with *. One that begins with neither / nor * matches nothing
// but ends the list of names: Google's specification requires that a path begins with a slash.
func TestExt_PathWithoutSlash(t *testing.T) {
	t.Parallel()
	file := func(path string) string { return "User-agent: a\nDisallow: " + path + "\nUser-agent: b\nDisallow: /b" }
	runChecks(t, []check{
		{"star", file("*/x"), "a", "/y/x", "deny 2"},
		{"no slash", file("x"), "a", "/x", "allow -"},
		{"no slash ends the list", file("x"), "a", "/b", "allow -"},
		{"no slash ends the list, other", file("x"), "b", "/b", "deny 4"},
		{"URL", file("http://example.com/x"), "a", "/x", "allow -"},
		{"escaped slash", file("%2Fx"), "a", "/x", "allow -"},
		{"escaped star", file("%2A"), "a", "/x", "allow -"},
		{"$", file("$"), "a", "/", "allow -"},
	})
}

// Google's index.html rule, by option only: Google's parser has it, RFC 9309 does not.
func TestExt_IndexHTML(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ rules, target, off, on string }{
		{"Disallow: /\nAllow: /x/index.html", "/x/", "deny 2", "allow 3"},
		{"Disallow: /\nAllow: /x/index.html", "/x/index.html", "allow 3", "allow 3"},
		{"Disallow: /\nAllow: /x/index.htm?y", "/x/", "deny 2", "allow 3"},
		{"Disallow: /\nAllow: /x/index.html", "/x/y", "deny 2", "deny 2"},
		{"Disallow: /\nAllow: /index.html", "/", "deny 2", "allow 3"},
		{"Disallow: /*x/\nAllow: /x/index.html", "/x/", "deny 2", "allow 3"}, // /x/$ has the same length
		{"Disallow: /**x/\nAllow: /x/index.html", "/x/", "deny 2", "deny 2"},
		{"Disallow: /\nAllow: /x/index.html", "/x", "deny 2", "deny 2"},
		{"Disallow: /\nAllow: /x/index.php", "/x/", "deny 2", "deny 2"},
		{"Disallow: /x/zz\nAllow: /*/index.html", "/x/zz/", "deny 2", "deny 2"},
		{"Disallow: /x\nAllow: /*/index.html", "/x/", "deny 2", "allow 3"},
		{"Disallow: /\nAllow: /\u00e9/index.html", "/%C3%A9/", "deny 2", "allow 3"},
		{"Disallow: /x/index.html\nAllow: /", "/x/", "allow 3", "allow 3"},
	} {
		data := []byte("User-agent: *\n" + c.rules)
		for on, want := range map[bool]string{false: c.off, true: c.on} {
			rs := robotstxt.Options{IndexHTML: on}.Parse(data)
			if got := verdict(rs.Match(nil, c.target)); got != want {
				t.Errorf("%q %s, index_html %v: got %s, want %s", c.rules, c.target, on, got, want)
			}
			if err := disagreement(rs, oracle.Parse(data, on), question{target: c.target}); err != nil {
				t.Error(err)
			}
		}
	}
}

// A body that was cut elsewhere: the last line is incomplete unless it has a line end.
func TestExt_Truncated(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		"User-agent: *\nDisallow: /x\nDisallow: /":   "deny 2",
		"User-agent: *\nDisallow: /x\nDisallow: /\n": "deny 2",
		"User-agent: *\nDisallow: /x":                "allow -",
		"User-agent: *\rDisallow: /x\r":              "deny 2",
		"User-agent: *":                              "allow -",
		"":                                           "allow -",
	} {
		if got := verdict(robotstxt.Options{Truncated: true}.Parse([]byte(data)).Match(nil, "/x")); got != want {
			t.Errorf("%q: got %s, want %s", data, got, want)
		}
	}
	rs := robotstxt.Options{Truncated: true}.Parse([]byte("User-agent: *\nDisallow: /a\nDisallow: /"))
	if got := verdict(rs.Match(nil, "/b")); got != "allow -" {
		t.Errorf("an incomplete line was used: got %s, want allow -", got)
	}
}

// Crawl-delay and Request-rate: RFC 9309 section 2.2.4 permits other lines. No standard has their
// syntax.
func TestExt_CrawlDelay(t *testing.T) {
	t.Parallel()
	const none = time.Duration(-1)
	for _, c := range []struct {
		robots string
		token  string
		want   time.Duration
	}{
		{"User-agent: a\nCrawl-delay: 5", "a", 5 * time.Second},
		{"User-agent: a\nCrawl-delay: 0.5", "a", 500 * time.Millisecond},
		{"User-agent: a\nCrawl-delay: .5", "a", 500 * time.Millisecond},
		{"User-agent: a\nCrawl-delay: 5.", "a", 5 * time.Second},
		{"User-agent: a\nCrawl-delay: 0", "a", 0},
		{"User-agent: a\nCrawl-delay: 007", "a", 7 * time.Second},
		{"User-agent: a\nCrawl-delay: 1.0000000019", "a", time.Second + 1},
		{"User-agent: a\nCrawl-delay: 99999999999999999999999999", "a", math.MaxInt64},
		{"User-agent: a\nCrawl-delay: 9223372036.854775807", "a", math.MaxInt64},
		{"User-agent: a\nCrawl-delay: 9223372036.854775806", "a", math.MaxInt64 - 1},
		{"User-agent: a\nCrawl-delay: 9223372036.9", "a", math.MaxInt64},
		{"User-agent: a\ncrawl delay: 5 # s", "a", 5 * time.Second},
		{"User-agent: a\nCRAWLDELAY: 5", "a", 5 * time.Second},
		{"User-agent: a\nCrawl-delay 5", "a", 5 * time.Second},
		{"User-agent: a\nCrawl-delays: 5", "a", none},
		{"User-agent: a\nCrawl-delay:", "a", none},
		{"User-agent: a\nCrawl-delay: .", "a", none},
		{"User-agent: a\nCrawl-delay: 5s", "a", none},
		{"User-agent: a\nCrawl-delay: 10,5", "a", none},
		{"User-agent: a\nCrawl-delay: -1", "a", none},
		{"User-agent: a\nCrawl-delay: +1", "a", none},
		{"User-agent: a\nCrawl-delay: 1e3", "a", none},
		{"User-agent: a\nCrawl-delay: nan", "a", none},
		{"User-agent: a\nCrawl-delay: inf", "a", none},
		{"User-agent: a\nCrawl-delay: 1.2.3", "a", none},
		{"User-agent: a\nCrawl-delay: 1 2", "a", none},
		{"User-agent: a\nCrawl-delay: \u0661", "a", none},
		{"Crawl-delay: 5\nUser-agent: a\nDisallow: /", "a", none},
		// The largest of the group counts, even if the group is in several pieces.
		{"User-agent: a\nCrawl-delay: 3\nCrawl-delay: 9\nCrawl-delay: 5", "a", 9 * time.Second},
		{"User-agent: a\nCrawl-delay: 3\nUser-agent: b\nDisallow:\nUser-agent: a\nCrawl-delay: 9", "a", 9 * time.Second},
		// It belongs to the names listed before it.
		{"User-agent: foobot\nCrawl-delay: 3\nUser-agent: barbot\nDisallow: /a", "foobot", 3 * time.Second},
		{"User-agent: foobot\nCrawl-delay: 3\nUser-agent: barbot\nDisallow: /a", "barbot", none},
		{"User-agent: foobot\nUser-agent: barbot\nDisallow: /a\nCrawl-delay: 3", "barbot", 3 * time.Second},
		{"User-agent: a\nCrawl-delay: 9\nUser-agent: b\nCrawl-delay: 3\nUser-agent: c", "a", 9 * time.Second},
		{"User-agent: a\nCrawl-delay: 9\nUser-agent: b\nCrawl-delay: 3\nUser-agent: c", "b", 3 * time.Second},
		{"User-agent: a\nCrawl-delay: 9\nUser-agent: b\nCrawl-delay: 3\nUser-agent: c", "c", none},
		// It is not inherited from *.
		{"User-agent: *\nCrawl-delay: 5\nUser-agent: a\nDisallow: /", "a", none},
		{"User-agent: *\nCrawl-delay: 5\nUser-agent: a\nDisallow: /", "b", 5 * time.Second},
		// Request-rate is documents/time.
		{"User-agent: a\nRequest-rate: 1/5", "a", 5 * time.Second},
		{"User-agent: a\nRequest-rate: 1/5s", "a", 5 * time.Second},
		{"User-agent: a\nRequest-rate: 2/1M", "a", 30 * time.Second},
		{"User-agent: a\nRequest-rate: 60/1h", "a", time.Minute},
		{"User-agent: a\nRequest-rate: 1/1d", "a", 24 * time.Hour},
		{"User-agent: a\nRequest-rate: 3/1", "a", time.Second / 3},
		{"User-agent: a\nRequest-rate: 1/0", "a", 0},
		{"User-agent: a\nRequest-rate: 1/999999999999999999d", "a", math.MaxInt64},
		{"User-agent: a\nRequest-rate: 1/5\nRequest-rate: 1/7", "a", 7 * time.Second},
		{"User-agent: a\nRequest-rate: 1/5\nCrawl-delay: 2", "a", 2 * time.Second},
		{"User-agent: a\nCrawl-delay: x\nRequest-rate: 1/5", "a", 5 * time.Second},
		{"User-agent: a\nRequest-rate: 0/5", "a", none},
		{"User-agent: a\nRequest-rate: 1", "a", none},
		{"User-agent: a\nRequest-rate: 1/", "a", none},
		{"User-agent: a\nRequest-rate: /5", "a", none},
		{"User-agent: a\nRequest-rate: 1/s", "a", none},
		{"User-agent: a\nRequest-rate: 1/5w", "a", none},
		{"User-agent: a\nRequest-rate: 1/5 0600-0845", "a", none},
		{"User-agent: a\nRequest-rate: 1/5/7", "a", none},
		{"User-agent: a\nVisit-time: 0600-0845", "a", none},
	} {
		got, ok := robotstxt.Parse([]byte(c.robots)).Select(robotstxt.Agent{Tokens: []string{c.token}}).CrawlDelay()
		if !ok {
			got = none
		}
		if got != c.want {
			t.Errorf("%q %s: got %v, want %v", c.robots, c.token, got, c.want)
		}
		other, ok := oracle.Parse([]byte(c.robots), false).Delay([]string{c.token}, false)
		if !ok {
			other = none
		}
		if other != c.want {
			t.Errorf("%q %s: oracle got %v, want %v", c.robots, c.token, other, c.want)
		}
	}
}

// A bad delay affects neither the file nor the group.
func TestExt_BadDelaySpoilsNothing(t *testing.T) {
	t.Parallel()
	runChecks(t, []check{
		{"rule behind it", "User-agent: *\nCrawl-delay: 5s\nDisallow: /a", "a", "/a", "deny 3"},
		{"rule before it", "User-agent: *\nDisallow: /a\nCrawl-delay: nan", "a", "/a", "deny 2"},
	})
}

// Sitemap lines belong to the file, wherever they are (Google's specification), and must be
// absolute http or https URLs.
func TestExt_Sitemaps(t *testing.T) {
	t.Parallel()
	rs := robotstxt.Parse([]byte("Sitemap: https://a.example/1.xml\nUser-agent: a\nSITE-MAP:http://b.example/\u00e9%61 # c\n" +
		"Disallow: /\nSitemap: /relative.xml\nSitemap:\nSitemap: x-y+z.1://h\nSitemap: 1x://h\nsitemaps: ftp://c.example\nSitemap: https://"))
	want := []robotstxt.Sitemap{{URL: "https://a.example/1.xml", Line: 1}, {URL: "http://b.example/\u00e9%61", Line: 3}}
	if got := rs.Sitemaps(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := robotstxt.Parse(nil).Sitemaps(); got != nil {
		t.Errorf("none: got %v", got)
	}
}

// TestExt_SitemapsAreBounded checks the limits on the number and length of sitemaps, and that a URL
// that is cut at the limit of a file is not used: it could be another one.
func TestExt_SitemapsAreBounded(t *testing.T) {
	t.Parallel()
	long := "http://h/" + strings.Repeat("x", robotstxt.MaxSitemapURL-len("http://h/"))
	pad := strings.Repeat("#", robotstxt.MaxSize-len("Sitemap: http://h/1\n\nSitemap: http://h/2"))
	for name, tt := range map[string]struct {
		text      string
		truncated bool
		want      int
	}{
		"longest":                   {"Sitemap: " + long, false, 1},
		"too long":                  {"Sitemap: " + long + "x", false, 0},
		"too many":                  {strings.Repeat("Sitemap: http://h/\n", robotstxt.MaxSitemaps+1), false, robotstxt.MaxSitemaps},
		"cut behind 500 KiB":        {"Sitemap: http://h/1\n" + pad + "\nSitemap: http://h/2.xml", false, 1},
		"ends at 500 KiB":           {"Sitemap: http://h/1\n" + pad + "\nSitemap: http://h/2\n", false, 2},
		"the rest was not read":     {"Sitemap: http://h/1\nSitemap: http://h/2", true, 1},
		"the whole was read":        {"Sitemap: http://h/1\nSitemap: http://h/2", false, 2},
		"cut by the limit of lines": {"Sitemap:" + strings.Repeat(" ", 16_650) + "http://h/1", false, 0},
	} {
		rs := robotstxt.Options{Truncated: tt.truncated}.Parse([]byte(tt.text))
		if got := len(rs.Sitemaps()); got != tt.want {
			t.Errorf("%s: %d sitemaps, want %d", name, got, tt.want)
		}
	}
}

// Preference lines are kept unparsed for the group and decide nothing. License lines have no path
// and no group (RSL 1.0).
func TestExt_Preferences(t *testing.T) {
	t.Parallel()
	rs := robotstxt.Parse([]byte("License: /l.xml x\nUser-agent: a\nContent-Signal: search=yes, ai-train=no # c\n" +
		"User-agent: b\nDisallow: /x\nContent-Usage: /y\ttrain-ai=n\nUser-agent: c\ncontent-usage: /z\nUser-agent: *\nAllow: /\n" +
		"LICENSE: l\nUser-agent: A\nLicense: m\nDisallow:\nUser-agent:\nDisallow: /\nLicense: nobody's"))
	signal := robotstxt.Preference{Line: 3, Kind: robotstxt.ContentSignal, Value: "search=yes, ai-train=no"}
	usage := robotstxt.Preference{Line: 6, Kind: robotstxt.ContentUsage, Path: "/y", Value: "train-ai=n"}
	z := robotstxt.Preference{Line: 8, Kind: robotstxt.ContentUsage, Path: "/z"}
	for token, want := range map[string][]robotstxt.Preference{
		"a": {signal, usage}, "b": {signal, usage}, "c": {z}, "d": {z},
	} {
		if got := rs.Select(robotstxt.Agent{Tokens: []string{token}}).Preferences(); !slices.Equal(got, want) {
			t.Errorf("%s: got %+v, want %+v", token, got, want)
		}
	}
	licenses := []robotstxt.Preference{
		{Line: 1, Kind: robotstxt.License, Value: "/l.xml x", Loose: true},
		{Line: 11, Kind: robotstxt.License, Value: "l"},
		{Line: 13, Kind: robotstxt.License, Value: "m"},
		{Line: 17, Kind: robotstxt.License, Value: "nobody's"},
	}
	if got := licensesOf(rs); !slices.Equal(got, licenses) {
		t.Errorf("licenses: got %+v, want %+v", got, licenses)
	}
	all := []robotstxt.Preference{licenses[0], signal, usage, z, licenses[1], licenses[2], licenses[3]}
	if got := rs.Preferences(); !slices.Equal(got, all) {
		t.Errorf("the whole file: got %+v, want %+v", got, all)
	}
}

// A decision has more fields than the verdict.
func TestExt_Evidence(t *testing.T) {
	t.Parallel()
	rs := robotstxt.Parse([]byte("User-agent: FooBot/1.0\nUser-agent: MJ12Bot\nDisallow: /a b* # c\nAllow: /a%20b/\u00e9$\n\n" +
		"User-agent: * all\nDisallow:\t/*?"))
	for _, c := range []struct {
		tokens []string
		target string
		want   robotstxt.Match
	}{
		{[]string{"foobot"}, "/a%20bc", robotstxt.Match{Rule: "/a b*", Line: 3, Group: "FooBot"}},
		{[]string{"mj12bot"}, "/a%20b/%c3%a9", robotstxt.Match{Allowed: true, Rule: "/a%20b/\u00e9$", Line: 4, Group: "MJ12Bot"}},
		{[]string{"mj"}, "/", robotstxt.Match{Allowed: true, Group: "MJ"}},
		{[]string{"bar"}, "/x?", robotstxt.Match{Rule: "/*?", Line: 7, Group: "*"}},
		{nil, "/x", robotstxt.Match{Allowed: true, Group: "*"}},
	} {
		if got := rs.Match(c.tokens, c.target); got != c.want {
			t.Errorf("%q %s: got %+v, want %+v", c.tokens, c.target, got, c.want)
		}
	}
}

// Zero values are safe: they allow nothing. An empty file allows everything.
func TestExt_ZeroValues(t *testing.T) {
	t.Parallel()
	var none *robotstxt.Ruleset
	for name, g := range map[string]robotstxt.Group{"zero": {}, "nil": none.Select(robotstxt.Agent{Tokens: []string{"a"}})} {
		if m := g.Match("/robots.txt"); m != (robotstxt.Match{}) || g.Unrestricted() || g.Name() != "" {
			t.Errorf("%s group: got %+v", name, m)
		}
		if d, ok := g.CrawlDelay(); d != 0 || ok || g.Preferences() != nil {
			t.Errorf("%s group: delay %v", name, d)
		}
	}
	if none.Match(nil, "/").Allowed || none.Size() != 0 || none.Sitemaps() != nil || none.Preferences() != nil {
		t.Error("a nil ruleset allows something or is not empty")
	}
	for name, rs := range map[string]*robotstxt.Ruleset{"empty": robotstxt.Parse(nil), "zero": new(robotstxt.Ruleset)} {
		g := rs.Select(robotstxt.Agent{Tokens: []string{"a"}})
		if m := g.Match("/x"); !m.Allowed || !g.Unrestricted() {
			t.Errorf("%s file: got %+v", name, m)
		}
	}
}

// Unrestricted reports whether a tunnel can be opened, that is, whether no rule can disallow
// anything.
func TestExt_Unrestricted(t *testing.T) {
	t.Parallel()
	for robots, want := range map[string]bool{
		"":                               true,
		"User-agent: *\nDisallow:":       true,
		"User-agent: *\nAllow: /":        true,
		"User-agent: *\nDisallow: x":     true, // can never match
		"User-agent: b\nDisallow: /":     true,
		"Disallow: /":                    true,
		"User-agent: *\nDisallow: /x$":   false,
		"User-agent: *\nDisallow: *":     false,
		"User-agent: *\nDisallow: /*%24": false,
		"User-agent: *\nDisallow: /a*b":  false,
		"User-agent: a\nDisallow: /x\n\nUser-agent: *\nDisallow:":                           false,
		"User-agent: a\nDisallow:\n\nUser-agent: *\nDisallow: /":                            true,
		"User-agent: a\nDisallow:\nUser-agent: b\nDisallow: /\nUser-agent: a\nDisallow: /x": false,
		"User-agent: *\nDisallow: /x\nAllow: /x":                                            true, // allow wins
		"User-agent: *\nDisallow: /x*\nAllow: /x":                                           false,
	} {
		if got := robotstxt.Parse([]byte(robots)).Select(robotstxt.Agent{Tokens: []string{"a"}}).Unrestricted(); got != want {
			t.Errorf("%q: got %v, want %v", robots, got, want)
		}
	}
}

// TestParseKeepsNoReference overwrites the parsed bytes.
func TestParseKeepsNoReference(t *testing.T) {
	t.Parallel()
	data := []byte("User-agent: foobot\nDisallow: /x\nDisallow: /a b*c\nSitemap: http://x/y\nLicense: z")
	rs := robotstxt.Parse(data)
	for i := range data {
		data[i] = '!'
	}
	want := robotstxt.Match{Rule: "/x", Line: 2, Group: "foobot"}
	if got := rs.Match([]string{"foobot"}, "/x"); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := rs.Match([]string{"foobot"}, "/a%20bc"); got.Rule != "/a b*c" {
		t.Errorf("got %+v", got)
	}
	if got := rs.Sitemaps(); len(got) != 1 || got[0].URL != "http://x/y" {
		t.Errorf("got %v", got)
	}
}

// licensesOf returns the License lines, which apply to all crawlers.
func licensesOf(rs *robotstxt.Ruleset) []robotstxt.Preference {
	all, _ := rs.Select(robotstxt.Agent{Tokens: []string{"nobody"}, IgnoreWildcard: true}).AppendPreferences(nil, "/")
	return slices.DeleteFunc(all, func(p robotstxt.Preference) bool { return p.Kind != robotstxt.License })
}

// TestExt_VisitTime checks that the first valid line of the group counts, from lines after a name
// in its list, as for Crawl-delay.
func TestExt_VisitTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ robots, token, want string }{
		{"User-agent: a\nVisit-time: 0600-0845", "a", "0600-0845 2"},
		{"User-agent: a\nVISIT-TIME:2200 - 0600 # at night", "a", "2200-0600 2"},
		{"User-agent: a\nVisit-time: 0000-2400", "a", "0000-2400 2"},
		{"User-agent: a\nVisit-time: 0059-2359", "a", "0059-2359 2"},
		{"User-agent: a\nVisit-time: 0100-0200\nVisit-time: 0300-0400", "a", "0100-0200 2"},
		{"User-agent: a\nVisit-time: 100-200\nVisit-time: 0300-0400", "a", "0300-0400 3"},
		{"User-agent: a\nUser-agent: b\nVisit-time: 0300-0400", "a", "0300-0400 3"},
		{"User-agent: a\nVisit-time: 0300-0400\nUser-agent: b\nDisallow:", "b", ""},
		{"User-agent: a\nDisallow:\n\nUser-agent: *\nVisit-time: 0300-0400", "a", ""},
		{"User-agent: a\nDisallow:\n\nUser-agent: *\nVisit-time: 0300-0400", "c", "0300-0400 5"},
		{"User-agent: a\nDisallow: /x\nUser-agent: a\nVisit-time: 0300-0400", "a", "0300-0400 4"},
		{"User-agent: a\nVisit-time: 0600-0600", "a", ""},
		{"User-agent: a\nVisit-time: 2400-0600", "a", ""},
		{"User-agent: a\nVisit-time: 0600-2401", "a", ""},
		{"User-agent: a\nVisit-time: 0059-0800", "a", "0059-0800 2"},
		{"User-agent: a\nVisit-time: 0660-0800", "a", ""},
		{"User-agent: a\nVisit-time: 06:00-08:00", "a", ""},
		{"User-agent: a\nVisit-time: 0600 0800", "a", ""},
		{"User-agent: a\nVisit-time: +600-0800", "a", ""},
		{"User-agent: a\nVisit-time: 0600-0800-0900", "a", ""},
		{"User-agent: a\nVisit-time:", "a", ""},
		{"Visit-time: 0600-0845\nUser-agent: a\nDisallow:", "a", ""},
	} {
		got := ""
		if v, ok := robotstxt.Parse([]byte(c.robots)).Select(robotstxt.Agent{Tokens: []string{c.token}}).VisitTime(); ok {
			got = fmt.Sprintf("%s %d", v, v.Line)
		}
		if got != c.want {
			t.Errorf("%q %s: %q, want %q", c.robots, c.token, got, c.want)
		}
	}
	if _, ok := (robotstxt.Group{}).VisitTime(); ok {
		t.Error("VisitTime of the zero group = true")
	}
}
