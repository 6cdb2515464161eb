package adminapi

import (
	"testing"

	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// TestSitemapsOf: what is shown of a Sitemap line, with its scope (RFC 9309 section 2.3: scheme,
// host and port).
func TestSitemapsOf(t *testing.T) {
	t.Parallel()
	o, err := origin.Parse("https://example.com")
	if err != nil {
		t.Fatal(err)
	}
	text := "Sitemap: https://example.com/a.xml\nSitemap: HTTPS://EXAMPLE.COM:443/\x1b[2J\u202eb\u00e9\n" +
		"Sitemap: http://example.com/c\nSitemap: https://u:p@example.com/d\nSitemap: https://example.com\x01/e\n"
	want := []struct {
		shown, target string
		line          int
		inScope       bool
	}{
		{"https://example.com/a.xml", "https://example.com/a.xml", 1, true},
		{`HTTPS://EXAMPLE.COM:443/\x1b[2J\xe2\x80\xaebé`, "", 2, false}, // net/url refuses the control byte
		{"http://example.com/c", "http://example.com/c", 3, false},
		{"https://u:p@example.com/d", "", 4, false},
		{`https://example.com\x01/e`, "", 5, false},
	}
	got := sitemapsOf(o, robotstxt.Parse([]byte(text)))
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i, w := range want {
		s := got[i]
		if s.URL != w.shown || s.target.String() != w.target || s.Line != w.line || s.InScope != w.inScope || s.Access != "" {
			t.Errorf("got %+v, want %+v", s, w)
		}
	}
}
