package robotstxt_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/robotstxt"
)

// This file has the examples of published descriptions of robots.txt: Google's specification
// (https://developers.google.com/crawling/docs/robots-txt/robots-txt-spec); its edition before RFC
// 9309 ("Robots.txt Specifications"); its guide of 2012 ("Controlling Crawling and Indexing"); the
// measurements in http://blog.semetrical.com/googles-secret-approach-to-robots-txt/; and the
// article "State of robots.txt". If cells of a table are missing in a copy of a text, they are
// taken from the original.

// Google's specification: "In this example".
func TestGoogle_Example(t *testing.T) {
	t.Parallel()
	const file = "User-agent: *\nDisallow: /admin/\nDisallow: /private/\n\nUser-agent: Googlebot-Image\n" +
		"Disallow: /images/product-prototypes/ \n"
	const comments = "# This is a comment explaining the rule below\nUser-agent: *  # Applies to all crawlers\n" +
		"Disallow: /secret-recipes/ # Keep those recipes hidden! \n"
	runChecks(t, []check{
		{"all crawlers, first line", file, "ExampleBot", "/admin/x", "deny 2"},
		{"all crawlers, second line", file, "ExampleBot", "/private/", "deny 3"},
		{"all crawlers, else", file, "ExampleBot", "/images/product-prototypes/", "allow -"},
		{"image crawler", file, "Googlebot-Image,Googlebot", "/images/product-prototypes/x.png", "deny 6"},
		{"image crawler is not everybody", file, "Googlebot-Image,Googlebot", "/admin/", "allow -"},
		{"comments", comments, "ExampleBot", "/secret-recipes/pie", "deny 3"},
		{"comments, negative", comments, "ExampleBot", "/recipes/", "allow -"},
	})
}

// Semetrical: "A matching Allow directive beats a matching Disallow only if it contains more or
// equal number of characters in the path", and its examples.
func TestSemetrical_Examples(t *testing.T) {
	t.Parallel()
	file := func(rules ...string) string { return "User-agent: *\n" + strings.Join(rules, "\n") }
	const page = "/example.html"
	runChecks(t, []check{
		{"example 1", file("Disallow: /example.html", "Allow:    /example*"), "a", page, "deny 2"},
		{"example 2", file("Disallow: */example.html*", "Allow:    /example.html$"), "a", page, "deny 2"},
		{"example 3, first pair", file("Disallow: /example.html*", "Allow:    /example.html"), "a", page, "deny 2"},
		{"example 3, second pair", file("Disallow: /example.html", "Allow:    /example.html*"), "a", page, "allow 3"},
		{
			"example 3, all four",
			file("Disallow: /example.html*", "Allow:    /example.html", "Disallow: /example.html", "Allow:    /example.html*"),
			"a", page, "allow 5",
		},
		{"6 against 7", file("Allow:    /exam*", "Disallow: /examp*"), "a", "/example.htm", "deny 3"},
		{"7 against 7", file("Allow:    /examp*", "Disallow: /examp*"), "a", "/example.htm", "allow 2"},
		{"$ against wildcards", file("Allow:    /example.htm$", "Disallow: */*example*htm"), "a", "/example.htm", "deny 3"},
		{"* at the end counts", file("Allow:    /example", "Disallow: /example*"), "a", "/example.htm", "deny 3"},
		{"top tip 1", file("Allow: /example.htm", "Disallow: /********htm"), "a", "/example.htm", "allow 2"},
		{"the directive /*?$", file("Disallow: /", "Allow: /*?$"), "a", "/x?", "allow 3"},
		{"the directive /*?$, negative", file("Disallow: /", "Allow: /*?$"), "a", "/x?y", "deny 2"},
		// The two anomalies are about which of two equal rules is reported: here the first.
		{"bonus: * beats $", file("Disallow: /example.htm$", "Disallow: /example.htm*"), "a", "/example.htm", "deny 2"},
		{"bonus: fewer wildcards", file("Disallow: /*xample.htm", "Disallow: /****ple.htm"), "a", "/example.htm", "deny 2"},
	})
}

// Semetrical: the lengths in its article, each compared with an Allow of known length.
func TestSemetrical_Lengths(t *testing.T) {
	t.Parallel()
	for path, length := range map[string]int{"/example*": 9, "/example.htm$": 13, "/*htm$": 6, "/exam*": 6, "*/*example*htm": 14} {
		for _, c := range []struct {
			allow int
			want  bool
		}{{length - 1, false}, {length, true}, {length + 1, true}} {
			file := fmt.Sprintf("User-agent: *\nDisallow: %s\nAllow: /%s", path, strings.Repeat("*", c.allow-1))
			if got := robotstxt.Parse([]byte(file)).Match(nil, "/example.htm").Allowed; got != c.want {
				t.Errorf("%s against %d bytes: allowed %v, want %v", path, c.allow, got, c.want)
			}
		}
	}
}

// Google's earlier specification and guide: example groups.
func TestGoogleEarlier_Groups(t *testing.T) {
	t.Parallel()
	const file = "user-agent: a\ndisallow: /c\n\nuser-agent: b\ndisallow: /d\n\nuser-agent: e\nuser-agent: f\ndisallow: /g\n"
	runChecks(t, []check{
		{"a", file, "a", "/c", "deny 2"},
		{"a, other group", file, "a", "/d", "allow -"},
		{"b", file, "b", "/d", "deny 5"},
		{"e", file, "e", "/g", "deny 9"},
		{"f", file, "f", "/g", "deny 9"},
		{"f, other group", file, "f", "/c", "allow -"},
		{"g", file, "g", "/g", "allow -"},
	})
}

// Google's earlier specification and guide: which group a crawler of the Google family follows.
func TestGoogleEarlier_GroupsOfItsCrawlers(t *testing.T) {
	t.Parallel()
	const file = "user-agent: googlebot-news\ndisallow: /1\n\nuser-agent: *\ndisallow: /2\n\nuser-agent: googlebot\ndisallow: /3\n"
	rs := robotstxt.Parse([]byte(file))
	for _, c := range []struct {
		crawler, token string
		group          int
	}{
		{"Googlebot News", "Googlebot-News", 1},
		{"Googlebot (web)", "Googlebot", 3},
		{"Googlebot Images", "Googlebot-Image", 3},
		{"Googlebot News (when crawling images)", "Googlebot-News", 1},
		{"Otherbot (web)", "Otherbot", 2},
		{"Otherbot (News)", "Otherbot-News", 2},
		{"Googlebot Video", "googlebot-video", 3},
		{"Googlebot Mobile", "Googlebot-Mobile", 3},
		{"Google AdSense", "Mediapartners-Google", 3},
		{"AdsBot follows its own group only", "AdsBot-Google", 0},
		{"AdsBot Mobile is bound as AdsBot", "AdsBot-Google-Mobile", 0},
		{"AdsBot of mobile apps is bound as AdsBot", "AdsBot-Google-Mobile-Apps", 0},
	} {
		g := rs.Select(robotstxt.Family(c.token))
		for i := 1; i <= 3; i++ {
			if got := g.Match(fmt.Sprintf("/%d", i)).Allowed; got != (i != c.group) {
				t.Errorf("%s: group %d allowed %v, want group %d", c.crawler, i, got, c.group)
			}
		}
	}
	rs = robotstxt.Parse([]byte("User-agent: AdsBot-Google\nDisallow: /1\nUser-agent: Mediapartners\nDisallow: /2\n"))
	for _, token := range []string{"adsbot-google", "AdsBot-Google-Mobile", "AdsBot-Google-Mobile-Apps"} {
		if rs.Select(robotstxt.Family(token)).Match("/1").Allowed {
			t.Errorf("%s does not follow the group of AdsBot-Google", token)
		}
	}
	if rs.Select(robotstxt.Family("Mediapartners-Google")).Match("/2").Allowed {
		t.Error("AdSense does not follow the group of its other name")
	}
	rs = robotstxt.Parse([]byte("User-agent: *\nDisallow: /1\nUser-agent: AdsBot-Google\nDisallow: /2\nUser-agent: AdsBot-Google-Mobile\nDisallow: /3\n"))
	if g := rs.Select(robotstxt.Family("AdsBot-Google-Mobile")); g.Match("/3").Allowed || !g.Match("/2").Allowed {
		t.Error("AdsBot-Google-Mobile does not follow its own group")
	}
	if rs.Select(robotstxt.Family("Mediapartners-Google")).Match("/1").Allowed {
		t.Error("without a group of its own or Googlebot's, AdSense does not follow *")
	}
}

// Google's earlier specification: "Example path matches".
func TestGoogleEarlier_PathMatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path         string
		matches, not []string
	}{
		{"/", []string{"/", "/fish", "/a/b?c"}, nil},
		{"/*", []string{"/", "/fish", "/a/b?c"}, nil},
		{
			"/fish",
			[]string{"/fish", "/fish.html", "/fish/salmon.html", "/fishheads", "/fishheads/yummy.html", "/fish.php?id=anything"},
			[]string{"/Fish.asp", "/catfish", "/?id=fish", "/desert/fish"},
		},
		{
			"/fish*",
			[]string{"/fish", "/fish.html", "/fish/salmon.html", "/fishheads", "/fishheads/yummy.html", "/fish.php?id=anything"},
			[]string{"/Fish.asp", "/catfish", "/?id=fish", "/desert/fish"},
		},
		{
			"/fish/",
			[]string{"/fish/", "/fish/?id=anything", "/fish/salmon.htm"},
			[]string{"/fish", "/fish.html", "/Fish/Salmon.asp"},
		},
		{
			"/*.php",
			[]string{
				"/filename.php", "/folder/filename.php", "/folder/filename.php?parameters", "/folder/any.php.file.html",
				"/filename.php/", "/index.php",
			},
			[]string{"/", "/windows.PHP"},
		},
		{
			"/*.php$",
			[]string{"/filename.php", "/folder/filename.php"},
			[]string{"/filename.php?parameters", "/filename.php/", "/filename.php5", "/windows.PHP"},
		},
		{
			"/fish*.php",
			[]string{"/fish.php", "/fishheads/catfish.php?parameters"},
			[]string{"/Fish.PHP"},
		},
	} {
		var checks []check
		for _, target := range c.matches {
			checks = append(checks, check{c.path + " matches " + target, "User-agent: *\nDisallow: " + c.path, "a", target, "deny 2"})
		}
		for _, target := range c.not {
			checks = append(checks, check{c.path + " does not match " + target, "User-agent: *\nDisallow: " + c.path, "a", target, "allow -"})
		}
		runChecks(t, checks)
	}
}

// Google's earlier specification: "Sample situations" of precedence. The one that it calls
// undefined is now decided: the longer rule applies.
func TestGoogleEarlier_Precedence(t *testing.T) {
	t.Parallel()
	file := func(allow, disallow string) string {
		return "user-agent: *\nallow: " + allow + "\ndisallow: " + disallow
	}
	runChecks(t, []check{
		{"/page", file("/p", "/"), "a", "/page", "allow 2"},
		{"/folder/page", file("/folder/", "/folder"), "a", "/folder/page", "allow 2"},
		{"/page.htm, undefined then", file("/page", "/*.htm"), "a", "/page.htm", "deny 3"},
		{"/", file("/$", "/"), "a", "/", "allow 2"},
		{"/page.htm", file("/$", "/"), "a", "/page.htm", "deny 3"},
	})
}

// Google's guide of 2012: its samples.
func TestGoogle2012_Samples(t *testing.T) {
	t.Parallel()
	const general = "User-agent: Googlebot\nDisallow: /nogooglebot/\n\nUser-agent: *\n\nDisallow: /onlygooglebot/\n\n" +
		"Sitemap: http://www.example.com/sitemap.xml\n"
	const one = "User-agent: Googlebot-news\nDisallow:\n\nUser-agent: *\nDisallow: /"
	const butOne = "User-agent: Unnecessarybot\nDisallow: /\n\nUser-agent: *\nDisallow:"
	const photos = "User-agent: *\nDisallow: /photos\nAllow: /photos"
	runChecks(t, []check{
		{"general, Googlebot", general, "Googlebot", "/nogooglebot/x", "deny 2"},
		{"general, Googlebot elsewhere", general, "Googlebot", "/onlygooglebot/", "allow -"},
		{"general, others", general, "a", "/onlygooglebot/x", "deny 6"},
		{"general, others elsewhere", general, "a", "/nogooglebot/", "allow -"},
		{"photos", "User-agent: *\nDisallow: /photos", "a", "/photos/1", "deny 2"},
		{"photos allowed again", photos, "a", "/photos", "allow 3"},
		{"all content", "User-agent: *\nDisallow:", "a", "/", "allow -"},
		{"all content, allow", "User-agent: *\nAllow: /", "a", "/", "allow 2"},
		{"whole website", "User-agent: *\nDisallow: /", "a", "/", "deny 2"},
		{"certain parts", "User-agent: *\nDisallow: /calendar/\nDisallow: /junk/", "a", "/junk/", "deny 3"},
		{"certain parts, negative", "User-agent: *\nDisallow: /calendar/\nDisallow: /junk/", "a", "/junk", "allow -"},
		{"single crawler", one, "Googlebot-News", "/", "allow -"},
		{"single crawler, others", one, "a", "/", "deny 5"},
		{"all but one", butOne, "unnecessarybot", "/", "deny 2"},
		{"all but one, others", butOne, "a", "/", "allow -"},
	})
}

// "State of robots.txt": its examples.
func TestStateOfRobots_Examples(t *testing.T) {
	t.Parallel()
	const posts = "User-agent: *\nDisallow: /posts/\nAllow: /posts/public/"
	const one = "User-agent: *\nDisallow: /\n\nUser-agent: googlebot\nDisallow:"
	runChecks(t, []check{
		{"allow in a disallowed path", posts, "a", "/posts/public/test.html", "allow 3"},
		{"allow in a disallowed path, else", posts, "a", "/posts/private/test.html", "deny 2"},
		{"one crawler", one, "googlebot", "/x", "allow -"},
		{"one crawler, others", one, "a", "/x", "deny 2"},
		{"/images/$", "User-agent: *\nDisallow: /images/$", "a", "/images/", "deny 2"},
		{"/images/$, below", "User-agent: *\nDisallow: /images/$", "a", "/images/test.png", "allow -"},
		{"/this/*/exactly", "User-agent: *\nDisallow: /\nallow: /this/*/exactly", "a", "/this/path/exactly", "allow 3"},
		{"/this/path/exactly$", "User-agent: *\nDisallow: /\nallow: /this/path/exactly$", "a", "/this/path/exactly/", "deny 2"},
		{"comment at the end of a line", "User-agent: *\nDisallow: /\nallow: / # comment in line", "a", "/", "allow 3"},
	})
	rs := robotstxt.Parse([]byte("User-agent: *\nCrawl-delay: 10"))
	if got, ok := rs.Select(robotstxt.Agent{}).CrawlDelay(); !ok || got.Seconds() != 10 {
		t.Errorf("crawl delay: got %v %v", got, ok)
	}
}
