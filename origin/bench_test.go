package origin_test

import (
	"net/url"
	"testing"

	"github.com/crawlgate/crawlgate/origin"
)

// benchURLs has hosts of a crawl: nearly all are lower-case ASCII and must not be converted by
// IDNA.
var benchURLs = []struct{ name, url string }{
	{"ordinary", "https://www.example.com/shop/item-1042.html?ref=list&page=2"},
	{"port", "http://www.example.com:8080/shop/item-1042.html?ref=list&page=2"},
	{"punycode", "https://www.xn--exmple-cua.com/shop/item-1042.html?ref=list&page=2"},
	{"ipv4", "http://192.0.2.7/shop/item-1042.html?ref=list&page=2"},
	{"ipv6", "http://[2001:db8::7]/shop/item-1042.html?ref=list&page=2"},
}

func BenchmarkParse(b *testing.B) {
	for _, bm := range benchURLs {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := origin.Parse(bm.url); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkFromURL(b *testing.B) {
	for _, bm := range benchURLs {
		b.Run(bm.name, func(b *testing.B) {
			u := mustURL(b, bm.url)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := origin.FromURL(u); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkNewTarget(b *testing.B) {
	for _, bm := range []struct{ name, url string }{
		{"ordinary", "https://www.example.com/shop/item-1042.html?ref=list&page=2"},
		{"no_query", "https://www.example.com/shop/item-1042.html"},
		{"escapes", "https://www.example.com/caf%C3%A9%2Fx/item-1042.html?ref=%20list"},
		{"illegal", "https://www.example.com/café%2Fx/{item}|1042.html?ref=<list>"},
	} {
		b.Run(bm.name, func(b *testing.B) {
			u := mustURL(b, bm.url)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := origin.NewTarget(u); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkTargetURL(b *testing.B) {
	t, err := origin.NewTarget(mustURL(b, benchURLs[0].url))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		t.URL()
	}
}

func BenchmarkOriginString(b *testing.B) {
	o := origin.Origin{Scheme: "https", Host: "www.example.com", Port: 443}
	b.ReportAllocs()
	for b.Loop() {
		_ = o.String()
	}
}

func mustURL(tb testing.TB, rawURL string) *url.URL {
	tb.Helper()
	u, err := url.ParseRequestURI(rawURL)
	if err != nil {
		tb.Fatal(err)
	}
	return u
}

func BenchmarkResolve(b *testing.B) {
	for _, bm := range []struct{ name, path string }{
		{"ordinary", "/shop/item-1042.html?ref=list&page=2"},
		{"long", "/articles/2026/11/21/what-a-robots-txt-may-say-and-what-it-may-not-say.html"},
		{"escapes", "/wiki/%E3%83%AD%E3%83%9C%E3%83%83%E3%83%88/caf%C3%A9?ref=%20list"},
		{"dot segments", "/shop/../private/item-1042.html?ref=list&page=2"},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				origin.Resolve(bm.path)
			}
		})
	}
}
