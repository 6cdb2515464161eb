package robotstxt_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/internal/oracle"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// addSeeds adds small real files and forms that other parsers failed on to a fuzz target.
func addSeeds(f *testing.F, add func(data []byte)) {
	f.Helper()
	for _, file := range corpus(f) {
		if len(file.data) < 600 {
			add(file.data)
		}
	}
	for _, s := range []string{
		"", "User-agent: *\nDisallow: /*a*a*b$\nAllow: /a%2A$\n", "User-agent:a\rUser-agent:b\r\nCrawl-delay:1\nDisallow:/%%36%31\n",
		"\xef\xbbUser-agent * \nDisallow: /?u=http%3A//\nallow /?u=*:$", "useragent:A1\nContent-Usage:/x y\nDisallow:\x00/\nDissallow:*",
		"User-agent: a\nUser-agent:\nDisallow: /a***\nUser-agent: a\nAllow: /a$$\nAllow: /\xe9 {", "User-agent: *\nAllow: /x/index.html\nDisallow: /",
	} {
		add([]byte(s))
	}
}

// FuzzMatch compares the engine with the oracle and with itself.
func FuzzMatch(f *testing.F) {
	addSeeds(f, func(data []byte) {
		a := newAsker(data, 1)
		for range 3 {
			q := a.next()
			f.Add(data, q.tokens[0], q.target)
		}
	})
	f.Fuzz(func(t *testing.T, data []byte, token, target string) {
		if len(data) > 4096 || len(target) > 512 {
			return // the oracle would take too long
		}
		q := question{tokens: []string{token, "foobot"}, target: target}
		rs := robotstxt.Parse(data)
		if err := disagreement(rs, oracle.Parse(data, false), q); err != nil {
			t.Error(err)
		}
		q.ignoreWildcard = true
		withIndex := robotstxt.Options{IndexHTML: true}.Parse(data)
		if err := disagreement(withIndex, oracle.Parse(data, true), q); err != nil {
			t.Error(err)
		}
		m := rs.Match(q.tokens, target)
		if other := rs.Match(q.tokens, robotstxt.Canonical(target)); other != m {
			t.Errorf("%v: got %+v, for the canonical target %+v", q, m, other)
		}
		checkUnrelated(t, data, q, m)
		checkLint(t, "file", data, []question{q})
		if size, most := rs.Size(), 1024+64*len(data); size > most {
			t.Errorf("Size() = %d for %d bytes, want at most %d", size, len(data), most)
		}
	})
}

// checkUnrelated prepends a group of another crawler: only the line numbers may change.
func checkUnrelated(t *testing.T, data []byte, q question, m robotstxt.Match) {
	t.Helper()
	if bytes.HasPrefix(data, []byte{0xEF}) || strings.HasPrefix(strings.ToLower(q.tokens[0]), "unrelated") {
		return
	}
	rs := robotstxt.Parse(append([]byte("User-agent: unrelated\nDisallow: /\n"), data...))
	other := rs.Match(q.tokens, q.target)
	if m.Line != 0 {
		m.Line += 2
	}
	if other != m {
		t.Errorf("%v: got %+v, with an unrelated group %+v", q, m, other)
	}
}

// FuzzCanonical checks that a canonical form is its own canonical form, that both engines agree on
// it, and that the shortcut recognizes it.
func FuzzCanonical(f *testing.F) {
	for _, s := range edges {
		f.Add("/" + s)
	}
	for _, s := range []string{"", "x#y", "/%%36%31", "/%6%31", "/%%%33", "/%C3%a9%zz%", "?/:%3a%40"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		got := robotstxt.Canonical(target)
		if want := oracle.Canonical(target); got != want {
			t.Errorf("%q: got %q, oracle %q", target, got, want)
		}
		if again := robotstxt.Canonical(got); again != got {
			t.Errorf("%q: its canonical form %q has another canonical form %q", target, got, again)
		}
		if robotstxt.IsCanonical(target) && got != target {
			t.Errorf("IsCanonical(%q) = true, but its canonical form is %q", target, got)
		}
	})
}

// FuzzPattern uses the hardest patterns: of few different bytes, with many wildcards, on targets of
// the same bytes.
func FuzzPattern(f *testing.F) {
	f.Add("a*a*b", "aabab", false)
	f.Add("**a%2A*?:", "a*?%3A", true)
	f.Add("%24*$*/?%2F", "$x$/?/", true)
	f.Add("a$b*$", "a%24bc$", true)
	f.Fuzz(func(t *testing.T, path, target string, end bool) {
		if len(path) > 60 || len(target) > 200 || strings.ContainsAny(path, "\r\n#\x00") {
			return
		}
		if end {
			path += "$"
		}
		data := []byte("User-agent: *\nDisallow: /" + path + "\nAllow: /" + strings.ReplaceAll(path, "a", "*") + "\nDisallow: *" + path)
		rs, n := robotstxt.Parse(data), oracle.Parse(data, false)
		for _, s := range []string{target, target + "a", strings.Repeat(target, 3)} {
			if err := disagreement(rs, n, question{target: "/" + s}); err != nil {
				t.Errorf("%q: %v", data, err)
			}
		}
	})
}

// FuzzProductToken checks that the token is one of the field's products, and that these are in the
// order of the field, are names of up to 128 bytes, and are their own token.
func FuzzProductToken(f *testing.F) {
	f.Add("Mozilla/5.0 (compatible; ExampleBot/1.0; +https://example.com/bot)")
	f.Add("ExampleBot/1.0 (x(y)")
	f.Add("Mozilla (((;compatible;;")
	f.Add("Foo/1 Bar/2 (compatible; Baz; a@b) ; compatible; +http://x")
	for _, table := range []string{"crawlers.tsv", "others.tsv"} {
		for _, row := range readUserAgents(f, table) {
			f.Add(row[len(row)-1])
		}
	}
	f.Fuzz(func(t *testing.T, userAgent string) {
		token, found := robotstxt.ProductToken(userAgent), false
		rest := userAgent
		for name := range robotstxt.Products(userAgent) {
			_, behind, ok := strings.Cut(rest, name)
			if !ok || !robotstxt.IsProductName(name) || len(name) > 128 {
				t.Errorf("%q: %q is not a valid product in the field's order", userAgent, name)
			}
			rest = behind
			found = found || name == token
		}
		if token != "" && !found {
			t.Errorf("%q: the token %q is not a product", userAgent, token)
		}
		if again := robotstxt.ProductToken(token); again != token {
			t.Errorf("%q: got %q, whose token is %q", userAgent, token, again)
		}
	})
}
