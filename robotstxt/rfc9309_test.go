package robotstxt_test

import (
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/robotstxt"
)

// The tests in this file check the requirements of RFC 9309. The tests in ext_test.go check the
// behaviour beyond it. "Google" is
// https://developers.google.com/crawling/docs/robots-txt/robots-txt-spec.

// RFC 9309 section 2.1 and Google: groups.
func TestRFC9309_2_1_Groups(t *testing.T) {
	t.Parallel()
	const file = "allow: /foo/bar/\n\nuser-agent: FooBot\ndisallow: /\nallow: /x/\nuser-agent: BarBot\ndisallow: /\n" +
		"allow: /y/\n\n\nallow: /w/\nuser-agent: BazBot\n\nuser-agent: FooBot\nallow: /z/\ndisallow: /\n"
	runChecks(t, []check{
		{"rule of the first piece", file, "FooBot", "/x/b", "allow 5"},
		{"rule of the second piece", file, "FooBot", "/z/d", "allow 15"},
		{"rule of another group", file, "FooBot", "/y/c", "deny 4"},
		{"blank lines do not end a group", file, "BarBot", "/w/a", "allow 11"},
		{"names share what follows", file, "BazBot", "/z/d", "allow 15"},
		{"names share what follows, negative", file, "BazBot", "/x/b", "deny 16"},
		{"rules before any name are ignored", file, "FooBot", "/foo/bar/", "deny 4"},
		{"no group", file, "QuxBot", "/z", "allow -"},
		{"two names, first", "User-agent: a\nUser-agent: b\nDisallow: /x", "a", "/x", "deny 3"},
		{"two names, second", "User-agent: a\nUser-agent: b\nDisallow: /x", "b", "/x", "deny 3"},
		{"a rule ends the list", "User-agent: a\nDisallow: /x\nUser-agent: b\nDisallow: /y", "b", "/x", "allow -"},
		{"a rule ends the list, positive", "User-agent: a\nDisallow: /x\nUser-agent: b\nDisallow: /y", "b", "/y", "deny 4"},
		{"blank line in the list", "User-agent: a\n\nUser-agent: b\n\nDisallow: /x", "a", "/x", "deny 5"},
		{"blank line before rules", "User-agent: a\n\n\nDisallow: /x", "a", "/x", "deny 4"},
	})
}

// RFC 9309 section 2.2 and Google: only CR, LF or CRLF ends a line, and line numbers must be exact.
func TestRFC9309_2_2_LineEnds(t *testing.T) {
	t.Parallel()
	checks := []check{
		{"CR CR LF is two ends", "User-agent: a\r\r\nDisallow: /", "a", "/", "deny 3"},
		{"LF CR is two ends", "User-agent: a\n\rDisallow: /", "a", "/", "deny 3"},
		{"CR LF CR LF is two ends", "User-agent: a\r\n\r\nDisallow: /", "a", "/", "deny 3"},
		{"mixed", "User-agent: a\rAllow: /x\r\nAllow: /y\nDisallow: /\r", "a", "/", "deny 4"},
		{"CR only, then LF", "#\r#\r#\nUser-agent: a\r\rDisallow: /", "a", "/", "deny 6"},
		{"no end", "User-agent: a\nDisallow: /", "a", "/", "deny 2"},
	}
	for name, other := range map[string]string{
		"vertical tab": "\v", "form feed": "\f", "U+0085": "\u0085", "U+2028": "\u2028", "U+2029": "\u2029",
	} {
		checks = append(checks, check{name + " is no end", "User-agent: a\nAllow: /x" + other + "Disallow: /", "a", "/y", "allow -"})
	}
	for name, end := range map[string]string{"LF": "\n", "CR": "\r", "CRLF": "\r\n"} {
		file := strings.ReplaceAll("User-agent: a|Allow: /x|User-agent: b|||Disallow: /", "|", end)
		checks = append(checks,
			check{name, file, "b", "/", "deny 6"}, check{name + " at the end", file + end, "b", "/", "deny 6"},
			check{name + ", first group", file, "a", "/x", "allow 2"})
	}
	runChecks(t, checks)
}

// RFC 9309 section 2.2: blanks at the ends of lines, keys and values, comments anywhere, case of
// keys (and Google).
func TestRFC9309_2_2_Syntax(t *testing.T) {
	t.Parallel()
	runChecks(t, []check{
		{"blanks", " \tUser-agent \t:\t a \t\n\t Disallow\t : \t/x \t ", "a", "/x", "deny 2"},
		{"no blanks", "User-agent:a\nDisallow:/x", "a", "/x", "deny 2"},
		{"vertical tab and form feed are trimmed too", "User-agent:\v\fa\f\nDisallow:\f/x\v", "a", "/x", "deny 2"},
		{"no-break space is not a blank", "User-agent: a\nDisallow:\u00a0/x", "a", "/x", "allow -"},
		{"comment line", "# User-agent: b\nUser-agent: a # b\n#\nDisallow: /x#y", "a", "/x", "deny 4"},
		{"comment glued to a value", "User-agent: a\nDisallow: /x#y", "a", "/x%23y", "deny 2"},
		{"comment before the colon", "User-agent: a\nDisallow # : /", "a", "/", "allow -"},
		{"comment in a name", "User-agent: a#b\nDisallow: /", "a", "/", "deny 2"},
		{"upper case", "USER-AGENT: a\nALLOW: /x/\nDISALLOW: /", "a", "/x/", "allow 2"},
		{"mixed case", "uSeR-aGeNt: a\nAlLoW: /x/\ndIsAlLoW: /", "a", "/", "deny 3"},
		{"letters beyond ASCII have no case here", "User-agent: a\nDI\u017fALLOW: /", "a", "/", "allow -"},
		{"a colon in the value", "User-agent: a\nDisallow: /x:y", "a", "/x:y", "deny 2"},
		{"a colon first", "User-agent: a\n: /x\n:Disallow: /", "a", "/x", "allow -"},
		{"two directives on a line", "User-agent: a Disallow: /\nDisallow: /x Disallow: /y", "a", "/y", "allow -"},
		{"two directives on a line are one value", "User-agent: a Disallow: /\nDisallow: /x Disallow: /y", "a", "/x%20Disallow:%20/y", "deny 2"},
	})
}

// RFC 9309 section 2.2.1: product tokens.
func TestRFC9309_2_2_1_ProductToken(t *testing.T) {
	t.Parallel()
	runChecks(t, []check{
		{"case of the file", named("FOOBOT"), "foobot", "/x", "deny 2"},
		{"case of the crawler", named("foobot"), "FooBot", "/x", "deny 2"},
		{"hyphen and underscore", named("Foo_Bot-x"), "foo_bot-x", "/x", "deny 2"},
		{"version in the file (Google)", named("foobot/1.2"), "foobot", "/x", "deny 2"},
		{"star behind it (Google)", named("foobot*"), "foobot", "/x", "deny 2"},
		{"words behind it", named("foobot images"), "foobot", "/x", "deny 2"},
		{"digits behind it", named("foobot2"), "foobot", "/x", "deny 2"},
		{"longer name", named("foobots"), "foobot", "/x", "allow -"},
		{"shorter name", named("foo"), "foobot", "/x", "allow -"},
		{"part of the name", named("bot"), "foobot", "/x", "allow -"},
		{"hyphen makes another name", named("foobot-news"), "foobot", "/x", "allow -"},
		{"not the other way either", named("foobot"), "foobot-news", "/x", "allow -"},
		{"K is not the Kelvin sign", named("\u212aoot"), "koot", "/x", "allow -"},
	})
}

// RFC 9309 section 2.2.1: the group of * is for those without their own; groups of one name are one
// (Google).
func TestRFC9309_2_2_1_ChoiceOfGroup(t *testing.T) {
	t.Parallel()
	const both = "User-agent: *\nDisallow: /x\nUser-agent: foobot\nDisallow: /y"
	const empty = "User-agent: *\nDisallow: /\nUser-agent: foobot\nDisallow:\nUser-agent: barbot"
	const twice = "User-agent: a\nDisallow: /x\nUser-agent: b\nDisallow: /y\nUser-agent: A\nAllow: /x/z\nUser-agent: *\nDisallow: /v" +
		"\nUser-agent: *\nDisallow: /w"
	runChecks(t, []check{
		{"own group", both, "foobot", "/y", "deny 4"},
		{"own group shuts * out", both, "foobot", "/x", "allow -"},
		{"no own group", both, "barbot", "/x", "deny 2"},
		{"no own group, negative", both, "barbot", "/y", "allow -"},
		{"empty own group", empty, "foobot", "/", "allow -"},
		{"own group without lines", empty, "barbot", "/", "allow -"},
		{"neither", "User-agent: foobot\nDisallow: /", "barbot", "/", "allow -"},
		{"no file", "", "foobot", "/", "allow -"},
		{"same name twice, first", twice, "a", "/x/y", "deny 2"},
		{"same name twice, second", twice, "a", "/x/z", "allow 6"},
		{"* twice, first", twice, "c", "/v", "deny 8"},
		{"* twice, second", twice, "c", "/w", "deny 10"},
		{"* and a name share a group (Google)", "User-agent: a\nUser-agent: *\nDisallow: /x", "a", "/x", "deny 3"},
		{"* and a name share a group, other", "User-agent: a\nUser-agent: *\nDisallow: /x", "b", "/x", "deny 3"},
		{"shared group is the name's own", "User-agent: *\nUser-agent: a\nDisallow: /x\nUser-agent: *\nDisallow: /y", "a", "/y", "allow -"},
		{"order of groups does not matter", "User-agent: foobot\nDisallow: /y\nUser-agent: *\nDisallow: /x", "foobot", "/x", "allow -"},
	})
}

// RFC 9309 section 2.2.2: a rule matches targets that begin with it, byte by byte, case-sensitive.
func TestRFC9309_2_2_2_Prefix(t *testing.T) {
	t.Parallel()
	runChecks(t, []check{
		{"equal", disallow("/x"), "a", "/x", "deny 2"},
		{"longer", disallow("/x"), "a", "/xy", "deny 2"},
		{"below", disallow("/x"), "a", "/x/y", "deny 2"},
		{"shorter", disallow("/x"), "a", "/", "allow -"},
		{"inside only", disallow("/x"), "a", "/y/x", "allow -"},
		{"case", disallow("/x"), "a", "/X", "allow -"},
		{"everything", disallow("/"), "a", "/", "deny 2"},
		{"query is part of it", disallow("/x?y=1"), "a", "/x?y=1&z", "deny 2"},
		{"query is part of it, negative", disallow("/x?y=1"), "a", "/x?z&y=1", "allow -"},
		{"query only", disallow("/?"), "a", "/?q", "deny 2"},
		{"; is ordinary (Google names it in its grammar only)", disallow("/x;y"), "a", "/x;y=1", "deny 2"},
		{"; is ordinary, negative", disallow("/x;y"), "a", "/x", "allow -"},
		{"no path", disallow("/$"), "a", "", "deny 2"},
		{"query without path", disallow("/?q"), "a", "?q", "deny 2"},
		{"fragment of the target", disallow("/x$"), "a", "/x#y", "deny 2"},
		{"fragment is not matched", disallow("/x%23y"), "a", "/x#y", "allow -"},
		{"double slash stays", disallow("/x/y"), "a", "/x//y", "allow -"},
		{"double slash stays, positive", disallow("//x"), "a", "//x", "deny 2"},
		{"dots stay", disallow("/y"), "a", "/x/../y", "allow -"},
		{"dots stay, positive", disallow("/x/../y"), "a", "/x/../y", "deny 2"},
		{"no trailing slash is guessed", disallow("/x/"), "a", "/x", "allow -"},
		{"index.html is not /", "User-agent: a\nDisallow: /\nAllow: /x/index.html", "a", "/x/", "deny 2"},
		{"/ is not index.php (Google)", "User-agent: a\nDisallow: /x/$", "a", "/x/index.php", "allow -"},
	})
}

// RFC 9309 section 2.2.2: the longest rule decides; of rules with the same length, allow decides;
// of equal rules, the first is reported.
func TestRFC9309_2_2_2_Precedence(t *testing.T) {
	t.Parallel()
	file := func(rules ...string) string { return "User-agent: a\n" + strings.Join(rules, "\n") }
	runChecks(t, []check{
		{"longer disallow", file("Allow: /x/", "Disallow: /x/page.html"), "a", "/x/page.html", "deny 3"},
		{"longer disallow, other order", file("Disallow: /x/page.html", "Allow: /x/"), "a", "/x/page.html", "deny 2"},
		{"longer allow", file("Allow: /x/page.html", "Disallow: /x/"), "a", "/x/page.html", "allow 2"},
		{"longer allow, other target", file("Allow: /x/page.html", "Disallow: /x/"), "a", "/x/", "deny 3"},
		{"tie", file("Disallow: /x", "Allow: /x"), "a", "/x", "allow 3"},
		{"tie, other order", file("Allow: /x", "Disallow: /x"), "a", "/x", "allow 2"},
		{"tie of different patterns", file("Disallow: /x*z", "Allow: /xyz"), "a", "/xyz", "allow 3"},
		{"slash counts", file("Disallow: /x", "Allow: /x/"), "a", "/x", "deny 2"},
		{"slash counts, other target", file("Disallow: /x", "Allow: /x/"), "a", "/x/", "allow 3"},
		{"first of equals, disallow", file("Disallow: /x", "Disallow: /x"), "a", "/x", "deny 2"},
		{"first of equals, allow", file("Allow: /x*z", "Allow: /xyz"), "a", "/xyz", "allow 2"},
		{"first of equals, wildcards", file("Disallow: /*a*c", "Disallow: /*b*c"), "a", "/abc", "deny 2"},
		{"first of equals, several groups", file("Disallow: /y", "User-agent: b", "User-agent: a", "Disallow: /y"), "a", "/y", "deny 2"},
		{"* counts", file("Allow: /page", "Disallow: /*.html"), "a", "/page.html", "deny 3"},
		{"* counts, allow longer", file("Allow: /x/page.", "Disallow: /*.html"), "a", "/x/page.html", "allow 2"},
		{"every * of a run counts", file("Disallow: /x**", "Allow: /x/y"), "a", "/x/y", "allow 3"},
		{"every * of a run counts, longer", file("Disallow: /x***", "Allow: /x/y"), "a", "/x/y", "deny 2"},
		{"$ counts", file("Allow: /x", "Disallow: /x$"), "a", "/x", "deny 3"},
		{"$ behind * counts", file("Allow: /x*", "Disallow: /x*$"), "a", "/xy", "deny 3"},
		{"decoded escapes count one", file("Disallow: /%61%62", "Allow: /abc"), "a", "/abc", "allow 3"},
		{"bytes beyond ASCII count three each", file("Disallow: /\u00e9", "Allow: /%C3*****"), "a", "/%C3%A9", "allow 3"},
		{"bytes beyond ASCII count three each, longer", file("Disallow: /\u00e9", "Allow: /%C3***"), "a", "/%C3%A9", "allow 3"},
		{"bytes beyond ASCII count three each, shorter", file("Disallow: /\u00e9", "Allow: /%C3**"), "a", "/%C3%A9", "deny 2"},
		{"%24 counts three", file("Disallow: /%24", "Allow: /*b*"), "a", "/$b", "allow 3"},
		{"%24 counts three, longer", file("Disallow: /%24", "Allow: /*b"), "a", "/$b", "deny 2"},
	})
}

// RFC 9309 section 2.2.2: /robots.txt is allowed whatever the rules say.
func TestRFC9309_2_2_2_RobotsTxtItself(t *testing.T) {
	t.Parallel()
	const file = "User-agent: *\nDisallow: /\nDisallow: /robots.txt"
	runChecks(t, []check{
		{"itself", file, "a", "/robots.txt", "allow -"},
		{"itself, spelt otherwise", file, "a", "/robots%2Etxt", "allow -"},
		{"itself, with a fragment", file, "a", "/robots.txt#x", "allow -"},
		{"longer", file, "a", "/robots.txt.html", "deny 3"},
		{"with a query", file, "a", "/robots.txt?x", "deny 3"},
		{"elsewhere", file, "a", "/x/robots.txt", "deny 2"},
		{"other case", file, "a", "/Robots.txt", "deny 2"},
	})
	rs := robotstxt.Parse([]byte(file))
	for _, target := range []string{"/robots.txt", "/robots%2Etxt", "/robots.txt#x"} {
		if got := verdict(rs.Select(robotstxt.Agent{}).MatchRules(target)); got != "deny 3" {
			t.Errorf("MatchRules(%s) = %s, want deny 3", target, got)
		}
	}
	if m := (robotstxt.Group{}).MatchRules("/x"); m.Allowed {
		t.Errorf("MatchRules of the zero Group = %+v, want not allowed", m)
	}
}

// RFC 9309 section 2.2.2: values without a path only end the list of names.
func TestRFC9309_2_2_2_EmptyPath(t *testing.T) {
	t.Parallel()
	runChecks(t, []check{
		{"disallow", "User-agent: a\nDisallow:", "a", "/", "allow -"},
		{"allow", "User-agent: a\nAllow:\nDisallow: /", "a", "/", "deny 3"},
		{"ends the list", "User-agent: a\nDisallow:\nUser-agent: b\nDisallow: /", "a", "/", "allow -"},
		{"ends the list, positive", "User-agent: a\nDisallow:\nUser-agent: b\nDisallow: /", "b", "/", "deny 4"},
		{"comment only", "User-agent: a\nDisallow: # /\n", "a", "/", "allow -"},
	})
}

// RFC 9309 section 2.2.2 and its figure: percent-encoding, in rules and in targets alike.
func TestRFC9309_2_2_2_PercentEncoding(t *testing.T) {
	t.Parallel()
	runChecks(t, []check{
		{"figure: raw query", disallow("/foo/bar?baz=quz"), "a", "/foo/bar?baz=quz", "deny 2"},
		{"figure: reserved bytes in a query", disallow("/foo/bar?baz=https://foo.bar"), "a", "/foo/bar?baz=https%3A%2F%2Ffoo.bar", "deny 2"},
		{"figure: beyond ASCII, raw rule", disallow("/foo/bar/\u30c4"), "a", "/foo/bar/%E3%83%84", "deny 2"},
		{"figure: beyond ASCII, escaped rule", disallow("/foo/bar/%E3%83%84"), "a", "/foo/bar/%E3%83%84", "deny 2"},
		{"figure: escaped ASCII", disallow("/foo/bar/%62%61%7A"), "a", "/foo/bar/baz", "deny 2"},
		{"url-nonascii: raw target", disallow("/%C3%A9"), "a", "/\u00e9", "deny 2"},
		{"url-nonascii: both raw", disallow("/\u00e9"), "a", "/\u00e9", "deny 2"},
		{"url-nonascii: other letter", disallow("/\u00e9"), "a", "/\u00e8", "allow -"},
		{"invalid UTF-8 is escaped byte by byte", disallow("/\xff\xfe"), "a", "/%FF%FE", "deny 2"},
		{"url-hexcase: rule", disallow("/%c3%a9"), "a", "/%C3%A9", "deny 2"},
		{"url-hexcase: target", disallow("/%C3%A9"), "a", "/%c3%a9", "deny 2"},
		{"pct-unreserved: target", disallow("/abc-._~9"), "a", "/%61%62%63%2d%2E%5f%7e%39", "deny 2"},
		{"pct-unreserved: rule", disallow("/%61%2D%2e%5F%7E%39"), "a", "/a-._~9", "deny 2"},
		{"pct-unreserved: %7E as in the wild", disallow("/%7Ejoe"), "a", "/~joe/x", "deny 2"},
		{"slash in a path stays apart", disallow("/a%2Fb"), "a", "/a/b", "allow -"},
		{"slash in a path stays apart, other way", disallow("/a/b"), "a", "/a%2Fb", "allow -"},
		{"slash in a path, equal", disallow("/a%2fb"), "a", "/a%2Fb", "deny 2"},
		{"semicolon stays apart", disallow("/a;b"), "a", "/a%3Bb", "allow -"},
		{"at sign in a path stays apart", disallow("/a@b"), "a", "/a%40b", "allow -"},
		{"question mark in a path stays apart", disallow("/a?b"), "a", "/a%3Fb", "allow -"},
		{"ampersand in a query stays apart", disallow("/?a&b"), "a", "/?a%26b", "allow -"},
		{"%25 is decoded once", disallow("/%2561"), "a", "/a", "allow -"},
		{"%25 is decoded once, equal", disallow("/%2561"), "a", "/%2561", "deny 2"},
		{"%25 is decoded once, not a %", disallow("/%2561"), "a", "/%61", "allow -"},
		{"broken escape", disallow("/%zz"), "a", "/%zz", "deny 2"},
		{"broken escape is not %25", disallow("/%zz"), "a", "/%25zz", "allow -"},
		{"broken escape at the end", disallow("/a%"), "a", "/a%41", "allow -"},
		{"broken escape at the end, escape", disallow("/a%"), "a", "/a%2F", "deny 2"},
		{"broken escape does not eat the next", disallow("/%%41"), "a", "/%A", "allow -"},
		{"broken escape does not eat the next, equal", disallow("/%%41"), "a", "/%%41", "deny 2"},
		{"plus is not a blank", disallow("/a+b"), "a", "/a%20b", "allow -"},
		{"pct-illegal: blank in the rule", disallow("/a b"), "a", "/a%20b", "deny 2"},
		{"pct-illegal: blank in the target", disallow("/a%20b"), "a", "/a b", "deny 2"},
		{"pct-illegal: others in the rule", disallow("/\"<>\\^`{|}"), "a", "/%22%3C%3E%5C%5E%60%7B%7C%7D", "deny 2"},
		{"pct-illegal: others in the target", disallow("/%22%3C%3E%5C%5E%60%7B%7C%7D"), "a", "/\"<>\\^`{|}", "deny 2"},
		{"pct-illegal: controls", disallow("/\x01\tx\x7f"), "a", "/%01%09x%7F", "deny 2"},
		{"pct-illegal: not the plus", disallow("/a b"), "a", "/a+b", "allow -"},
	})
}

// The figure of RFC 9309 section 2.2.2: after the first literal ? of a rule, : / ? @ [ ] and their
// escapes are equal.
func TestRFC9309_2_2_2_ReservedInQuery(t *testing.T) {
	t.Parallel()
	runChecks(t, []check{
		{"all of them, raw rule", disallow("/x?:/?@[]"), "a", "/x?%3A%2F%3f%40%5B%5d", "deny 2"},
		{"all of them, escaped rule", disallow("/x?%3A%2F%3F%40%5B%5D"), "a", "/x?:/?@[]", "deny 2"},
		{"both escaped", disallow("/x?%3A"), "a", "/x?%3a", "deny 2"},
		{"mixed", disallow("/x?%3A/:%2F"), "a", "/x?:%2F%3A/", "deny 2"},
		{"behind a wildcard", disallow("/*?u=http://"), "a", "/a/b?u=http%3A%2F%2Fc", "deny 2"},
		{"behind a wildcard, at the end", disallow("/*?u=*:$"), "a", "/a/b?u=http%3A", "deny 2"},
		{"behind a wildcard, not at the end", disallow("/*?u=*:$"), "a", "/a/b?u=http%3Ab", "allow -"},
		{"before the ? they stay apart", disallow("/a%2Fb?x=%2F"), "a", "/a/b?x=/", "allow -"},
		{"before the ? they stay apart, with a second chance", disallow("/a%2Fb?x=%2F"), "a", "/a%2Fb?x=/", "deny 2"},
		{"without a ? in the rule they stay apart", disallow("/*x=%2F"), "a", "/?x=/", "allow -"},
		{"without a ? in the rule they stay apart, other way", disallow("/*x=/%C3"), "a", "/?x=%2F%C3", "allow -"},
		{"an escaped ? begins no query", disallow("/a%3Fb/"), "a", "/a%3Fb%2F", "allow -"},
		{"part of an escape matches plainly", disallow("/x?a%2"), "a", "/x?a%2F", "deny 2"},
		{"the plain rule sets the length", "User-agent: a\nDisallow: /x?%3A\nAllow: /x?****", "a", "/x?:", "allow 3"},
		{"the plain rule sets the length, longer", "User-agent: a\nDisallow: /x?%3A\nAllow: /x?**", "a", "/x?:", "deny 2"},
	})
}

// RFC 9309 section 2.2.3: * is any run of bytes, $ the end.
func TestRFC9309_2_2_3_Wildcards(t *testing.T) {
	t.Parallel()
	runChecks(t, []check{
		{"* is something", disallow("/a*c"), "a", "/abbbc", "deny 2"},
		{"* is nothing", disallow("/a*c"), "a", "/ac", "deny 2"},
		{"* needs what follows", disallow("/a*c"), "a", "/abbb", "allow -"},
		{"* crosses / ? & (Google)", disallow("/a*c"), "a", "/a/b?x&y/c", "deny 2"},
		{"a run of * is one", disallow("/a***c"), "a", "/abc", "deny 2"},
		{"anchored at the start", disallow("/b*c"), "a", "/abc", "allow -"},
		{"* at the end", disallow("/a*"), "a", "/abc", "deny 2"},
		{"* at the end, negative", disallow("/a*"), "a", "/b", "allow -"},
		{"* at the start", disallow("*.php"), "a", "/x.php5", "deny 2"},
		{"* alone", disallow("*"), "a", "/", "deny 2"},
		{"$", disallow("/a$"), "a", "/a", "deny 2"},
		{"$ with more", disallow("/a$"), "a", "/ab", "allow -"},
		{"$ with a query", disallow("/a$"), "a", "/a?b", "allow -"},
		{"$ behind a wildcard", disallow("/*.php$"), "a", "/x.php.php", "deny 2"},
		{"$ behind a wildcard, negative", disallow("/*.php$"), "a", "/x.phpx", "allow -"},
		{"head and tail do not share bytes", disallow("/a*a$"), "a", "/a", "allow -"},
		{"head and tail do not share bytes, positive", disallow("/a*a$"), "a", "/aa", "deny 2"},
		{"segments do not share bytes", disallow("/*aa*aa"), "a", "/aaa", "allow -"},
		{"segments in order", disallow("/*a*b*c"), "a", "/cab", "allow -"},
		{"the first place of a segment serves", disallow("/*ab*abc$"), "a", "/abababc", "deny 2"},
		{"*$", disallow("/a*$"), "a", "/ab", "deny 2"},
		{"$ alone never matches", disallow("$"), "a", "/", "allow -"},
		{"$ inside is literal", disallow("/a$b"), "a", "/a$b", "deny 2"},
		{"$ inside is literal, no end", disallow("/a$b"), "a", "/a", "allow -"},
		{"$ before * is literal", disallow("/a$*"), "a", "/a$b", "deny 2"},
		{"$ before * is literal, no end", disallow("/a$*"), "a", "/a", "allow -"},
		{"$ before $", disallow("/a$$"), "a", "/a$", "deny 2"},
		{"$ before $, negative", disallow("/a$$"), "a", "/a$b", "allow -"},
		{"many wildcards", disallow("/*a*a*a*a*b$"), "a", "/" + strings.Repeat("a", 8192), "allow -"},
		{"many wildcards, positive", disallow("/*a*a*a*a*b$"), "a", "/" + strings.Repeat("a", 8192) + "b", "deny 2"},
	})
}

// RFC 9309 section 2.2.3: %24 and %2A are a literal $ and *, whichever way the target spells them.
func TestRFC9309_2_2_3_LiteralSpecials(t *testing.T) {
	t.Parallel()
	runChecks(t, []check{
		{"RFC: %2A", disallow("/path/file-with-a-%2A.html"), "a", "/path/file-with-a-*.html", "deny 2"},
		{"RFC: %24", disallow("/path/foo-%24"), "a", "/path/foo-$", "deny 2"},
		{"escaped target", disallow("/a%2A"), "a", "/a%2a", "deny 2"},
		{"escaped target, $", disallow("/a%24"), "a", "/a%24", "deny 2"},
		{"%2A is no wildcard", disallow("/a%2Ac"), "a", "/abc", "allow -"},
		{"%24 is no end", disallow("/a%24"), "a", "/a", "allow -"},
		{"%24 and more", disallow("/a%24b"), "a", "/a$bc", "deny 2"},
		{"%24 and an end", disallow("/a%24$"), "a", "/a$", "deny 2"},
		{"%24 and an end, negative", disallow("/a%24$"), "a", "/a$b", "allow -"},
		{"%2A and a wildcard", disallow("/*%2A*c"), "a", "/x*yc", "deny 2"},
		{"%2A and a wildcard, negative", disallow("/*%2A*c"), "a", "/xyc", "allow -"},
		{"both spellings at once", disallow("/%24%24%2A"), "a", "/$%24*", "deny 2"},
		{"a raw $ inside a rule", disallow("/a$b"), "a", "/a$b", "deny 2"},
		{"a raw $ inside a rule, escaped target", disallow("/a$b"), "a", "/a%24b", "deny 2"},
		{"a raw $ inside a rule, both spellings in the target", disallow("/$a$b"), "a", "/%24a$b", "deny 2"},
		{"a raw $ inside a rule counts one", disallow("/a$b\nAllow: /a%24"), "a", "/a%24b", "allow 3"},
		{"a raw $ inside a rule and an end", disallow("/a$b$"), "a", "/a%24b", "deny 2"},
		{"a raw $ inside a rule and an end, negative", disallow("/a$b$"), "a", "/a%24bc", "allow -"},
		{"a raw $ before $", disallow("/a$$"), "a", "/a%24", "deny 2"},
		{"a raw $ before *", disallow("/a$*"), "a", "/a%24b", "deny 2"},
		{"a raw $ behind a wildcard", disallow("/*.$b"), "a", "/x.%24b", "deny 2"},
		{"a closing $ is no byte", disallow("/a$"), "a", "/a%24", "allow -"},
		{"another escape after %24", disallow("/%24%2C"), "a", "/$%2C", "deny 2"},
		{"another escape after %24, negative", disallow("/%24%2C"), "a", "/$%3C", "allow -"},
		{"together with a query", disallow("/%24?u=/"), "a", "/$?u=%2F", "deny 2"},
	})
}

// RFC 9309 section 2.2.4: other lines must not interfere: they end no list of names and no group.
// Google's grammar also permits them anywhere.
func TestRFC9309_2_2_4_OtherLines(t *testing.T) {
	t.Parallel()
	var checks []check
	for _, line := range []string{
		"Sitemap: https://foo.bar/sitemap", "Crawl-delay: 5", "Crawl-delay: abc", "Request-rate: 1/5", "Visit-time: 0100-0200",
		"Noindex: /x", "Nofollow: /x", "Host: example.com", "Clean-param: a /x", "Content-Signal: search=yes, ai-train=no",
		"Content-Usage: /x ai=n", "License: https://example.com/license.xml", "Unknown: /x", "nonsense", "Invalid Unknown Line",
		"<p>Disallow: /x</p>", "",
	} {
		between := "User-agent: a\n" + line + "\nUser-agent: b\nDisallow: /"
		behind := "User-agent: a\nDisallow: /y\n" + line + "\nDisallow: /x"
		checks = append(checks,
			check{"between names: " + line, between, "a", "/x", "deny 4"},
			check{"between names, second: " + line, between, "b", "/x", "deny 4"},
			check{"between rules: " + line, behind, "a", "/x", "deny 4"},
			check{"before the file: " + line, line + "\nUser-agent: a\nDisallow: /x", "a", "/x", "deny 3"},
		)
	}
	runChecks(t, checks)
}

// RFC 9309 section 2.3 and Google: the file is UTF-8; a byte order mark is skipped, and also a part
// of one.
func TestRFC9309_2_3_Encoding(t *testing.T) {
	t.Parallel()
	const file = "User-agent: a\nDisallow: /"
	utf16 := func(s string, little bool) string {
		var b strings.Builder
		for _, c := range []byte(s) {
			if little {
				b.WriteString(string([]byte{c, 0}))
			} else {
				b.WriteString(string([]byte{0, c}))
			}
		}
		return b.String()
	}
	runChecks(t, []check{
		{"mark", "\xef\xbb\xbf" + file, "a", "/", "deny 2"},
		{"two bytes of it", "\xef\xbb" + file, "a", "/", "deny 2"},
		{"one byte of it", "\xef" + file, "a", "/", "deny 2"},
		{"a second one spoils the line", "\xef\xbb\xbf\xef\xbb\xbf" + file, "a", "/", "allow -"},
		{"a broken one spoils the line", "\xef\x11\xbf" + file, "a", "/", "allow -"},
		{"one inside spoils the line", "User-agent: a\n\xef\xbb\xbfDisallow: /\nDisallow: /x", "a", "/x", "deny 3"},
		{"UTF-16, little-endian", "\xff\xfe" + utf16(file, true), "a", "/", "allow -"},
		{"UTF-16, big-endian", "\xfe\xff" + utf16(file, false), "a", "/", "allow -"},
		{"NUL cuts the line (Google: drop)", "User-agent: a\nDisallow: /x\x00y\n", "a", "/x", "deny 2"},
		{"NUL cuts the line before a comment", "User-agent: a\nDisallow: /x\x00#\nDisallow: /y", "a", "/y", "deny 3"},
		{"NUL cuts the key", "User-agent: a\nDis\x00allow: /", "a", "/", "allow -"},
	})
}

// RFC 9309 section 2.3.1.5: what can be parsed is used (also by Google), even in an HTML page.
func TestRFC9309_2_3_1_5_Garbage(t *testing.T) {
	t.Parallel()
	const page = "<!DOCTYPE html>\n<html><body><p>\nUser-agent: a\nDisallow: /x<br>\nDisallow: /y\n<b>Disallow: /z</b>\n</body></html>"
	runChecks(t, []check{
		{"a line of its own", page, "a", "/y", "deny 5"},
		{"a tag glued to the value", page, "a", "/x", "allow -"},
		{"a tag glued to the key", page, "a", "/z", "allow -"},
		{"binary", "\x00\xff\x89PNG\r\n\x1a\nUser-agent: a\nDisallow: /", "a", "/", "deny 4"},
	})
}

// RFC 9309 section 2.5 and Google: 500 KiB are read; a line that is cut is dropped.
func TestRFC9309_2_5_Limits(t *testing.T) {
	t.Parallel()
	const head, rule = "User-agent: a\n", "Disallow: /x"
	fill := func(n int) string { return head + strings.Repeat("#", n-len(head)-1) + "\n" }
	whole := fill(robotstxt.MaxSize - len(rule))
	runChecks(t, []check{
		{"last line ends at the limit", whole + rule, "a", "/x", "deny 3"},
		{"its end is beyond the limit", whole + rule + "\n#", "a", "/x", "deny 3"},
		{"its end is beyond the limit, CR", whole + rule + "\r\n", "a", "/x", "deny 3"},
		{"it goes on beyond the limit", whole + rule + "yz", "a", "/xyz", "allow -"},
		{"what follows is not read", whole + rule + "\nDisallow: /y", "a", "/y", "allow -"},
		{"a cut comment", fill(robotstxt.MaxSize-len(rule)-2) + rule + "\n#####", "a", "/x", "deny 3"},
		{"one line only", strings.Repeat("x", robotstxt.MaxSize+1), "a", "/x", "allow -"},
	})
}
