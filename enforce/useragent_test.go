package enforce

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The fields are those of real clients (clients.md table 1) and crawlers.
var productCases = []struct {
	field string
	want  []string
}{
	{"", nil},
	{"curl/7.88.1", []string{"curl"}},
	{"Ruby", []string{"Ruby"}},
	{"node-fetch", []string{"node-fetch"}},
	{"Python/3.11 aiohttp/3.8.4", []string{"Python", "aiohttp"}},
	{"Lynx/2.9.0dev.12 libwww-FM/2.14 SSL-MM/1.4.1", []string{"Lynx", "libwww-FM", "SSL-MM"}},
	{"w3m/0.5.3+git20230121", []string{"w3m"}},
	{"Apache-HttpClient/4.5.14 (Java/17.0.15)", []string{"Apache-HttpClient"}},
	{"Scrapy/2.8.0 (+https://scrapy.org)", []string{"Scrapy"}},
	{"Mojolicious (Perl)", []string{"Mojolicious"}},
	{"colly - https://github.com/gocolly/colly", []string{"colly", "-"}},
	{"Node/simplecrawler 1.1.9 (git+https://example.org)", []string{"Node", "1.1.9"}},
	{"Mozilla/4.5 (compatible; HTTrack 3.0x; Windows 98)", []string{"Mozilla", "HTTrack", "Windows"}},
	{"Mozilla/5.0 (compatible; LinkChecker/10.2.1; +https://example.org)", []string{"Mozilla", "LinkChecker"}},
	{
		"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; Googlebot/2.1; +http://www.google.com/bot.html) Chrome/1.2.3.4 Safari/537.36",
		[]string{"Mozilla", "AppleWebKit", "Googlebot", "Chrome", "Safari"},
	},
	{"Mozilla/5.0 (X11; Linux x86_64; AcmeBot/1.0) Gecko/20100101", []string{"Mozilla", "Gecko"}},
	{"Mozilla/5.0 (COMPATIBLE;AcmeBot)", []string{"Mozilla", "AcmeBot"}},
	{"A/1 (compatible; B/1 (x; C/1); D/1) E/1", []string{"A", "B", "x", "C", "D", "E"}},
	{"A/1 (compatible; B/1) (C/1)", []string{"A", "B"}},
	{"A/1 (compatible; B", []string{"A", "B"}},
	{"A/1 )B/1", []string{"A", "B"}},
	{"https://example.org/bot", nil},
	{"(compatible; B/1)", []string{"B"}},
	{"compatible; B/1", []string{"compatible", "B"}},
	{"A,B/1;C", []string{"A", "B", "C"}},
	{"\x00\xff A", []string{"A"}},
}

func TestProducts(t *testing.T) {
	t.Parallel()
	for _, tt := range productCases {
		var got []string
		products(tt.field, func(p string) bool { got = append(got, p); return true })
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q: %q, want %q", tt.field, got, tt.want)
		}
	}
}

func TestProductsStops(t *testing.T) {
	t.Parallel()
	for _, field := range []string{"A B C", "A (compatible; B; C)"} {
		n := 0
		products(field, func(p string) bool { n++; return p != "B" })
		if n != 2 {
			t.Errorf("%q: %d products, want 2", field, n)
		}
	}
}

func TestGlobMatch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern, s string
		want       bool
	}{
		{"AcmeBot/*", "AcmeBot/1.0", true},
		{"acmebot/*", "ACMEBOT/", true},
		{"AcmeBot/*", "xAcmeBot/1.0", false},
		{"*bot", "mybot", true},
		{"*bot", "bot/1", false},
		{"*a*b*", "xxaxxbxx", true},
		{"*a*b*", "xxbxxaxx", false},
		{"a*a", "a", false},
		{"a*a", "aa", true},
		{"a**a", "aba", true},
		{"*", "", true},
		{"Bot 1.0 (x)", "bot 1.0 (X)", true},
		{"Bot 1.0 (x)", "bot 1.0 (x) ", false},
		{"Mozilla/5.0 (compatible; Acme*", "Mozilla/5.0 (compatible; AcmeBot/1.0)", true},
	} {
		if got := newGlob(tt.pattern).match(lowerASCII(tt.s)); got != tt.want {
			t.Errorf("%q on %q: %t", tt.pattern, tt.s, got)
		}
	}
}

// FuzzGlob holds globs against regular expressions, and an intersection against both globs.
func FuzzGlob(f *testing.F) {
	f.Add("AcmeBot/*", "*Bot*", "AcmeBot/1.0")
	f.Add("*a*b*", "*b*a*", "ab")
	f.Add("a*a", "a", "aa")
	f.Add("*", "**", "")
	f.Fuzz(func(t *testing.T, p, q, s string) {
		if len(p)+len(q)+len(s) > 200 {
			return
		}
		g, h := newGlob(p), newGlob(q)
		for _, x := range []glob{g, h} {
			if ascii(string(x)+s, 1000) != string(x)+s {
				continue // an expression is over characters, a glob over octets
			}
			re := regexp.MustCompile(`^` + strings.ReplaceAll(regexp.QuoteMeta(string(x)), `\*`, `.*`) + `$`)
			if got, want := x.match(lowerASCII(s)), re.MatchString(lowerASCII(s)); got != want {
				t.Errorf("%q on %q: %t, the expression says %t", x, s, got, want)
			}
		}
		witness, ok := g.intersect(h)
		if ok && (!g.match(witness) || !h.match(witness)) {
			t.Errorf("%q and %q: witness %q does not match both", g, h, witness)
		}
		if !ok && g.match(lowerASCII(s)) && h.match(lowerASCII(s)) {
			t.Errorf("%q and %q: said to be disjoint, but both match %q", g, h, s)
		}
	})
}

func TestGlobIntersect(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		p, q string
		want bool
	}{
		{"AcmeNews/*", "AcmeImages/*", false},
		{"*news*", "*images*", true},
		{"a*", "*b", true},
		{"a*c", "ab", false},
		{"x", "x", true},
		{"*x", "*y", false},
		{"*", "anything at all", true},
	} {
		if witness, got := newGlob(tt.p).intersect(newGlob(tt.q)); got != tt.want {
			t.Errorf("%q and %q: %t (%q)", tt.p, tt.q, got, witness)
		}
	}
	// The worst pair of the length allowed ends in time because no pair of positions is tried twice.
	long := strings.Repeat("*a", maxPattern/2)
	if _, ok := newGlob(long + "b").intersect(newGlob(long + "c")); ok {
		t.Error("different ends intersect")
	}
}
