package robotstxt_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/robotstxt"
)

// TestProductToken checks the default User-Agent of every measured client, the crawlers of Google's
// guide of 2012, and other crawlers.
func TestProductToken(t *testing.T) {
	t.Parallel()
	const chrome = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/120.0 Safari/537.36"
	for _, c := range []struct{ userAgent, want string }{
		// Table 1.
		{"curl/7.88.1", "curl"},
		{"Wget/1.21.3", "Wget"},
		{"wget2/1.99.1", "wget2"},
		{"aria2/1.36.0", "aria2"},
		{"lftp/4.9.2", "lftp"},
		{"Lynx/2.9.0dev.12 libwww-FM/2.14 SSL-MM/1.4.1 GNUTLS/3.7.8", "Lynx"},
		{"w3m/0.5.3+git20230121", "w3m"},
		{"a~b/1.0", "a"},
		{"Axel/2.17.11 (linux-gnu)", "Axel"},
		{"HTTPie/3.2.1", "HTTPie"},
		{"python-requests/2.28.1", "python-requests"},
		{"Python-urllib/3.11", "Python-urllib"},
		{"python-urllib3/1.26.12", "python-urllib3"},
		{"python-httpx/0.23.3", "python-httpx"},
		{"Python/3.11 aiohttp/3.8.4", "Python"},
		{"PycURL/7.45.2 libcurl/7.88.1 GnuTLS/3.7.9 zlib/1.2.13", "PycURL"},
		{"Python-urllib/3.1", "Python-urllib"},
		{"undici", "undici"},
		{"node", "node"},
		{"axios/1.21.1", "axios"},
		{"node-fetch", "node-fetch"},
		{"got (https://github.com/sindresorhus/got)", "got"},
		{"Go-http-client/1.1", "Go-http-client"},
		{"Go-http-client/2.0", "Go-http-client"},
		{"go-resty/2.17.2 (https://github.com/go-resty/resty)", "go-resty"},
		{"libwww-perl/6.68", "libwww-perl"},
		{"ExampleBot/1.0", "ExampleBot"},
		{"Mojolicious (Perl)", "Mojolicious"},
		{"Ruby", "Ruby"},
		{"Mechanize/2.8.5 Ruby/3.1.2p20 (http://github.com/sparklemotion/mechanize/)", "Mechanize"},
		{"", ""}, // php-curl, php-streams
		{"GuzzleHttp/7", "GuzzleHttp"},
		{"Java-http-client/17.0.15", "Java-http-client"},
		{"Java/17.0.15", "Java"},
		{"Apache-HttpClient/4.5.14 (Java/17.0.15)", "Apache-HttpClient"},
		{"okhttp/3.13.1", "okhttp"},
		{"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/79.0 Safari/537.36", ""}, // jsoup
		{chrome, ""}, // chromium, playwright, puppeteer
		{"Mozilla/4.5 (compatible; HTTrack 3.0x; Windows 98)", "HTTrack"},
		{"Mozilla/5.0 (compatible; LinkChecker/10.2.1; +https://linkchecker.github.io/linkchecker/)", "LinkChecker"},
		{"Scrapy/2.8.0 (+https://scrapy.org)", "Scrapy"},
		{"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/1", ""}, // crawlee
		{"Node/simplecrawler 1.1.9 (git+https://github.com/simplecrawler/simplecrawler.git)", "Node"},
		{"colly - https://github.com/gocolly/colly", "colly"},
		{"Fetchbot (https://github.com/PuerkitoBio/fetchbot)", "Fetchbot"},

		// Google's guide of 2012.
		{"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", "Googlebot"},
		{"Googlebot/2.1 (+http://www.google.com/bot.html)", "Googlebot"},
		{"Googlebot-News", "Googlebot-News"},
		{"Googlebot-Image/1.0", "Googlebot-Image"},
		{"Googlebot-Video/1.0", "Googlebot-Video"},
		{"Mozilla/5.0 (iPhone; U; CPU iPhone OS 4_1) AppleWebKit/532.9 (KHTML, like Gecko) Mobile Safari/6531.22.7 " + "(compatible; Googlebot-Mobile/2.1; +http://www.google.com/bot.html)", "Googlebot-Mobile"},
		{"Mediapartners-Google", "Mediapartners-Google"},
		{"AdsBot-Google (+http://www.google.com/adsbot.html)", "AdsBot-Google"},

		// Others.
		{chrome + " (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", "Googlebot"},
		{"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)", "GPTBot"},
		{"mozilla/5.0 (COMPATIBLE;YandexBot/3.0)", "YandexBot"},
		{"Mozilla/5.0 (a (b) c; compatible; E/1)", "E"},
		{"Mozilla/5.0 (compatible; bingbot/2.0", "bingbot"},
		{"Mozilla/5.0 (compatible; MSIE 9.0; Windows NT 6.1)", ""},
		{"Mozilla/5.0 (compatible; MSIE 9.0; Windows NT 6.1) (compatible; FooBot/1)", "FooBot"},
		{"Mozilla/5.0 (compatible)", ""},
		{"Mozilla/5.0 (compatible; )", ""},
		{"Mozilla/5.0 (compatible; +http://example.com/)", ""},
		{"Mozilla/5.0 (incompatible; Foo/1.0)", ""},
		{"Mozilla/5.0 (incompatible; FooBot/1.0)", "FooBot"},
		{"Mozilla/5.0 (compatible; compatible; Foo)", ""},
		{"Mozilla/5.0 (compatible, Foo)", ""},
		{"Mozilla/5.0 (compatible; MSIE 6.0; compatible; Foo)", ""},
		{"Mozilla/5.0 (x; compatible; Foo (compatible; Bar))", "Foo"},
		{"Mozilla/5.0 (compatible) Foo/1.0", ""},
		{"Mozilla/5.0 (X11; rv:1.9) Gecko; compatible; Foo", "Foo"},
		{"Mozilla/5.0 (X11; rv:1.9) Gecko compatible Foo", ""},
		{"Mozilla/5.0 (compatible; rv:1.9)", ""},
		{"Mozilla/5.0 (compatible; foo@example.com)", ""},
		{"Mozilla/5.0 (X11; Foo/1.0; +https://example.com)", "Foo"},
		{"Mozilla/5.0 (X11; Foo/1.0 foo@example.com)", "Foo"},
		{"Mozilla/5.0 (X11; Foo/1.0; foo; +https://example.com)", ""},
		{"Mozilla/5.0 (X11; Foo/1.0) (+https://example.com)", ""},
		{"Mozilla/5.0 (X11; Foo; +https://example.com)", ""},
		{"Mozilla/5.0 (Windows NT 5.1; Trident/4.0; http://example.com/)", ""},
		{"Mozilla/5.0 (X11; Foo Build/MMB29P; +https://example.com)", ""},
		{"Mozilla/5.0 (X11) Safari/537.36 (+https://example.com)", ""},
		{"Mozilla/5.0 (X11) Safari/537.36 bot@example.com", ""},
		{"Foo/1.0 (compatible; Bar/1.0; +https://example.com)", "Foo"},
		{"Mozilla/5.0 (X11; FooBot/1.0; +https://example.com) BarBot; compatible; Baz (compatible; Qux)", "Qux"},
		{"Mozilla/5.0 Foo/1; compatible; Bar; BazBot", "Bar"},
		{"Foo/1.0 (X11; BarBot/1.0; +https://example.com) BazBot", "Foo"},
		{strings.Repeat("a", 128), strings.Repeat("a", 128)},
		{strings.Repeat("a", 129) + " b", ""},
		{"Mozilla/5.0 (compatible; " + strings.Repeat("a", 129) + ")", ""},
		{"https://example.com/bot", ""},
		{"LWP::Simple/5.80", "LWP"},
		{"Mozilla", ""},
		{"Mozillabot/1.0", "Mozillabot"},
		{"Baiduspider+(+http://www.baidu.com/search/spider.htm)", "Baiduspider"},
		{"Foo_Bar.baz-2/1.0", "Foo_Bar.baz-2"},
		{" \tFooBot", "FooBot"},
		{"FooBot\t1", "FooBot"},
		{"/1.0", ""},
		{"(compatible; FooBot)", ""},
		{"\u30c4Bot/1.0", ""},
		{"Foo\u30c4/1.0", "Foo"},
	} {
		if got := robotstxt.ProductToken(c.userAgent); got != c.want {
			t.Errorf("%q: got %q, want %q", c.userAgent, got, c.want)
		}
	}
}

// readUserAgents returns the rows of a table of User-Agents: the first column is the product token
// and the last is the field.
func readUserAgents(tb testing.TB, name string) (rows [][]string) {
	tb.Helper()
	table, err := os.ReadFile("testdata/useragents/" + name)
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
	}
	return rows[1:]
}

// TestProductTokenOfKnownFields checks the fields that crawlers document, and those of browsers,
// telephones, televisions, consoles and libraries. The tables give the source of each.
func TestProductTokenOfKnownFields(t *testing.T) {
	t.Parallel()
	for name, least := range map[string]int{"crawlers.tsv": 130, "others.tsv": 100} {
		rows := readUserAgents(t, name)
		if len(rows) < least {
			t.Errorf("%s: %d rows, want at least %d", name, len(rows), least)
		}
		for _, row := range rows {
			want, field := row[0], row[len(row)-1]
			if got := robotstxt.ProductToken(field); got != want {
				t.Errorf("%q: got %q, want %q", field, got, want)
			}
		}
	}
}

// TestProductTokenLimits checks fields of crawlers whose documented name the rules do not find.
func TestProductTokenLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ userAgent, documented, got string }{
		{"Mozilla/5.0 (compatible; Yahoo! Slurp; http://help.yahoo.com/help/us/ysearch/slurp)", "Slurp", "Yahoo"},
		{"Mozilla/5.0 (Windows NT 6.1; WOW64) AppleWebKit/534+ (KHTML, like Gecko) BingPreview/1.0b", "BingPreview", ""},
		// These crawlers were retired with these telephones. If a comment after the first product
		// counted more, a field could hide its first product.
		{"DoCoMo/2.0 N905i(c100;TB;W24H16) (compatible; Googlebot-Mobile/2.1; +http://www.google.com/bot.html)", "Googlebot-Mobile", "DoCoMo"},
		{"SAMSUNG-SGH-E250/1.0 Profile/MIDP-2.0 Configuration/CLDC-1.1 UP.Browser/6.2.3.3.c.1.101 (GUI) MMP/2.0 (compatible; Googlebot-Mobile/2.1; +http://www.google.com/bot.html)", "Googlebot-Mobile", "SAMSUNG-SGH-E250"},
	} {
		if got := robotstxt.ProductToken(c.userAgent); got != c.got {
			t.Errorf("%q: got %q, want %q (documented: %q)", c.userAgent, got, c.got, c.documented)
		}
	}
}

// TestProducts checks the fields of RFC 9110 section 10.1.5, of real clients (clients, table 1) and
// of crawlers.
func TestProducts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		userAgent string
		want      []string
	}{
		{"", nil},
		{"CERN-LineMode/2.15 libwww/2.17b3", []string{"CERN-LineMode", "libwww"}},
		{"curl/7.88.1", []string{"curl"}},
		{"Ruby", []string{"Ruby"}},
		{"Python/3.11 aiohttp/3.8.4", []string{"Python", "aiohttp"}},
		{"Lynx/2.9.0dev.12 libwww-FM/2.14 SSL-MM/1.4.1", []string{"Lynx", "libwww-FM", "SSL-MM"}},
		{"w3m/0.5.3+git20230121", []string{"w3m"}},
		{"Apache-HttpClient/4.5.14 (Java/17.0.15)", []string{"Apache-HttpClient"}},
		{"Scrapy/2.8.0 (+https://scrapy.org)", []string{"Scrapy"}},
		{"Mojolicious (Perl)", []string{"Mojolicious"}},
		{"colly - https://github.com/gocolly/colly", []string{"colly", "-"}},
		{"Node/simplecrawler 1.1.9 (git+https://example.org)", []string{"Node", "1.1.9"}},
		{"Mozilla/4.5 (compatible; HTTrack 3.0x; Windows 98)", []string{"Mozilla", "HTTrack"}},
		{"Mozilla/5.0 (compatible; LinkChecker/10.2.1; +https://example.org)", []string{"Mozilla", "LinkChecker"}},
		{
			"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; Googlebot/2.1; +http://www.google.com/bot.html) Chrome/1.2.3.4 Safari/537.36",
			[]string{"Mozilla", "AppleWebKit", "Googlebot", "Chrome", "Safari"},
		},
		{
			"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko); compatible; GPTBot/1.1; +https://openai.com/gptbot",
			[]string{"Mozilla", "AppleWebKit", "compatible", "GPTBot"},
		},
		{"Mozilla/5.0 (X11; Linux x86_64; AcmeBot/1.0) Gecko/20100101", []string{"Mozilla", "AcmeBot", "Gecko"}},
		{"Mozilla/5.0 (X11; Acme/1.0; +http://x) Gecko", []string{"Mozilla", "Acme", "Gecko"}},
		{"Mozilla/5.0 (X11; Acme/1.0 http://x) Gecko", []string{"Mozilla", "Acme", "Gecko"}},
		{"Mozilla/5.0 (X11; Acme/1.0 x; Acme; Nexus Build/1; rv:11.0; Trident/7.0) Gecko", []string{"Mozilla", "Gecko"}},
		{"Mozilla/5.0 (COMPATIBLE;AcmeBot)", []string{"Mozilla", "AcmeBot"}},
		{"Mozilla/5.0 (compatible foo, AcmeBot 1, Linux)", []string{"Mozilla", "AcmeBot"}},
		{"A/1 (compatible; B/1 (x; C/1); D/1) E/1", []string{"A", "B", "x", "C", "D", "E"}},
		{"A/1 (compatible; B/1) (C/1) (DBot/1) (EBot)", []string{"A", "B", "DBot"}},
		{"A/1 (compatible; B", []string{"A", "B"}},
		{"A/1 )B/1", []string{"A", "B"}},
		{"https://example.org/bot", nil},
		{"(compatible; B/1)", []string{"B"}},
		{"A,B/1;C", []string{"A", "B", "C"}},
		{"Baiduspider+(+http://www.baidu.com)", []string{"Baiduspider"}},
		{"LWP::Simple/1 a@b", []string{"LWP", "a"}},
		{strings.Repeat("a", 129) + " b", []string{"b"}},
		{"\x00\xff A", []string{"A"}},
	} {
		if got := slices.Collect(robotstxt.Products(c.userAgent)); !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q, want %q", c.userAgent, got, c.want)
		}
		for name := range robotstxt.Products(c.userAgent) { // only the first
			if name != c.want[0] {
				t.Errorf("%q: got %q first", c.userAgent, name)
			}
			break
		}
	}
}

func TestIsProductName(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"": false, "*": false, "Foo Bar": false, "Foo/1.0": false, "foo+bar": false, "\u30c4": false, "foo:": false,
		"Foo_Bar.baz-2": true, "Mozilla": true, strings.Repeat("a", 128): true, strings.Repeat("a", 129): false,
	} {
		if got := robotstxt.IsProductName(s); got != want {
			t.Errorf("%.20q: got %v", s, got)
		}
	}
}

// TestProductTokenCost checks that a field is read once, without allocations, whatever it contains.
// Quadratic time for these lengths would exceed the test's timeout.
func TestProductTokenCost(t *testing.T) {
	const size = 1 << 20
	for _, part := range []string{"(", ")", "()", "a", "a ", "a;", "a/1;", "(a/1;", "compatible;", "(compatible; a/1;", "; ", "bo", "a@", "://", "\xff"} {
		field := "Mozilla/5.0 " + strings.Repeat(part, size/len(part))
		if got := robotstxt.ProductToken(field); len(got) > 128 {
			t.Errorf("%q: got %d bytes", part, len(got))
		}
		for range robotstxt.Products(field) {
		}
	}
	for _, table := range []string{"crawlers.tsv", "others.tsv"} {
		for _, row := range readUserAgents(t, table) {
			field := row[len(row)-1]
			if n := testing.AllocsPerRun(1, func() {
				_ = robotstxt.ProductToken(field)
				for range robotstxt.Products(field) {
				}
			}); n > 0 {
				t.Errorf("%q: %v allocations, want 0", field, n)
			}
		}
	}
}

// TestFamily checks the families of Google's crawlers in docs/cli.md.
func TestFamily(t *testing.T) {
	t.Parallel()
	for token, want := range map[string]robotstxt.Agent{
		"Googlebot":                   {Tokens: []string{"Googlebot"}},
		"Googlebot-News":              {Tokens: []string{"Googlebot-News", "Googlebot"}},
		"GOOGLEBOT-image":             {Tokens: []string{"Googlebot-Image", "Googlebot"}},
		"Googlebot-Video/1.0":         {Tokens: []string{"Googlebot-Video", "Googlebot"}},
		"Googlebot-Mobile":            {Tokens: []string{"Googlebot-Mobile", "Googlebot"}},
		"Mediapartners-Google":        {Tokens: []string{"Mediapartners-Google", "Mediapartners", "Googlebot"}},
		"AdsBot-Google":               {Tokens: []string{"AdsBot-Google"}, IgnoreWildcard: true},
		"AdsBot-Google-Mobile":        {Tokens: []string{"AdsBot-Google-Mobile", "AdsBot-Google"}, IgnoreWildcard: true},
		"adsbot-google-mobile-apps/1": {Tokens: []string{"AdsBot-Google-Mobile-Apps", "AdsBot-Google"}, IgnoreWildcard: true},
		"ExampleBot":                  {Tokens: []string{"ExampleBot"}},
		"ExampleBot/2.0":              {Tokens: []string{"ExampleBot"}},
		"":                            {Tokens: []string{""}},
	} {
		got := robotstxt.Family(token)
		if !slices.Equal(got.Tokens, want.Tokens) || got.IgnoreWildcard != want.IgnoreWildcard {
			t.Errorf("%q: got %+v, want %+v", token, got, want)
		}
	}
}
