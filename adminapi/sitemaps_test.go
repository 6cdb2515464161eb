package adminapi

import (
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// TestSitemapsOf checks how a Sitemap line is shown, with its scope (RFC 9309 section 2.3: scheme,
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
		t.Fatalf("got sitemaps %+v", got)
	}
	for i, w := range want {
		s := got[i]
		if s.URL != w.shown || s.target.String() != w.target || s.Line != w.line || s.InScope != w.inScope || s.Access != "" {
			t.Errorf("got %+v, want %+v", s, w)
		}
	}
}

// TestSitemapsOfALimitedAgent checks that the boundaries of an agent do not change what robots.txt
// says about a sitemap.
func TestSitemapsOfALimitedAgent(t *testing.T) {
	e := adminEngine(t)
	identifier, _, err := enforce.NewIdentifier(enforce.IdentifierConfig{Agents: []enforce.Agent{
		{Name: "Acme", Boundaries: enforce.Boundaries{Hosts: []string{"other.example"}, Expires: "2026-01-01"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	id, _ := identifier.Named("Acme")
	o, err := origin.Parse("https://example.com")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := e.Lookup(t.Context(), o, id.Asker()); err != nil {
		t.Fatal(err)
	}
	list := sitemapsOf(o, robotstxt.Parse([]byte("Sitemap: https://example.com/a.xml\nSitemap: https://example.com/private/b.xml\n")))
	judgeSitemaps(t.Context(), e, id, list)
	if len(list) != 2 || list[0].Access != AccessAllow || list[1].Access != AccessDeny || id.Config.Expires == "" {
		t.Errorf("sitemaps = %+v", list)
	}
}
