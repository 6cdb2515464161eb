package robotstxt_test

import (
	"slices"
	"testing"

	"github.com/crawlgate/crawlgate/robotstxt"
)

// TestProductToken has the default User-Agent of every client that was measured (reference: clients, table 1), the
// crawlers of seed 003's table, and others that are met.
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

		// Seed 003.
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
		{"Mozilla/5.0 (incompatible; FooBot/1.0)", ""},
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

// TestFamily: seeds 002 and 003, DESIGN section 2.
func TestFamily(t *testing.T) {
	t.Parallel()
	for token, want := range map[string]robotstxt.Agent{
		"Googlebot":            {Tokens: []string{"Googlebot"}},
		"Googlebot-News":       {Tokens: []string{"Googlebot-News", "Googlebot"}},
		"GOOGLEBOT-image":      {Tokens: []string{"Googlebot-Image", "Googlebot"}},
		"Googlebot-Video/1.0":  {Tokens: []string{"Googlebot-Video", "Googlebot"}},
		"Googlebot-Mobile":     {Tokens: []string{"Googlebot-Mobile", "Googlebot"}},
		"Mediapartners-Google": {Tokens: []string{"Mediapartners-Google", "Mediapartners"}},
		"AdsBot-Google":        {Tokens: []string{"AdsBot-Google"}, IgnoreWildcard: true},
		"ExampleBot":           {Tokens: []string{"ExampleBot"}},
		"ExampleBot/2.0":       {Tokens: []string{"ExampleBot"}},
		"":                     {Tokens: []string{""}},
	} {
		got := robotstxt.Family(token)
		if !slices.Equal(got.Tokens, want.Tokens) || got.IgnoreWildcard != want.IgnoreWildcard {
			t.Errorf("%q: got %+v, want %+v", token, got, want)
		}
	}
}
