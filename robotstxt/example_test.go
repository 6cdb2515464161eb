package robotstxt_test

import (
	"fmt"

	"github.com/crawlgate/crawlgate/robotstxt"
)

// A file is parsed once. A crawler selects its group, and matches each target with it: the path and
// the query of a URL as they will be sent.
func Example() {
	rules := robotstxt.Parse([]byte(`User-agent: *
Disallow: /

User-agent: ExampleBot
Disallow: /private/
Allow: /private/*.html$
Crawl-delay: 5

Sitemap: https://example.com/sitemap.xml
`))
	group := rules.Select(robotstxt.Agent{Tokens: []string{"ExampleBot"}})
	for _, target := range []string{"/", "/private/data?page=1", "/private/index.html"} {
		m := group.Match(target)
		fmt.Printf("%s %t, line %d %q\n", target, m.Allowed, m.Line, m.Rule)
	}
	delay, ok := group.CrawlDelay()
	fmt.Println("crawl delay:", delay, ok)
	for _, s := range rules.Sitemaps() {
		fmt.Println("sitemap:", s.URL)
	}
	// Output:
	// / true, line 0 ""
	// /private/data?page=1 false, line 5 "/private/"
	// /private/index.html true, line 6 "/private/*.html$"
	// crawl delay: 5s true
	// sitemap: https://example.com/sitemap.xml
}

// Lint reports the lines that may not do what their author meant.
func ExampleLint() {
	for _, w := range robotstxt.Lint([]byte("User-agent: *\nDisalow: /a\nDisallow: private\n")) {
		fmt.Println(w.Line, w.Code)
	}
	// Output:
	// 2 misspelt-field
	// 3 path-without-slash
}

// ProductToken finds the name of a crawler in its User-Agent field.
func ExampleProductToken() {
	fmt.Println(robotstxt.ProductToken("Mozilla/5.0 (compatible; ExampleBot/1.0; +https://example.com/bot)"))
	// Output: ExampleBot
}
