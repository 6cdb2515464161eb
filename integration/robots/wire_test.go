//go:build slow

package robots

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// wireRules distinguish spellings that net/url would make equal.
const wireRules = `User-agent: *
Disallow: /private
Disallow: /a%2Fb%7B
Disallow: /%C3%A9
Disallow: /~user/
Disallow: /list?x={
Disallow: /*?$
`

// TestWire sends targets that Go would rewrite, and compares three texts: the client's, the
// origin's, and the one that the rules matched.
func TestWire(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	g := rig.New(t, rig.Config{})
	verdicts := make(map[string]robotstxt.Match) // by the URI as the client wrote it
	for _, tt := range []struct {
		name   string
		client string // the request line after the authority
		origin string // the target at the origin; "" for the same, "-" for a disallowed one
	}{
		{"nothing", "", "/"},
		{"no path but a query", "?x=1", "/?x=1"},
		{"an escaped slash", "/a%2Fb", ""},
		{"an escaped slash in small hex", "/a%2fb", ""},
		{"an escaped slash and a byte that must be escaped", "/a%2Fx{c}", "/a%2Fx%7Bc%7D"},
		{"such a target, disallowed", "/a%2Fb{c", "-"},
		{"the same escaped", "/a%2fb%7bc", "-"},
		{"not the same: a real slash", "/a/b{c", "/a/b%7Bc"},
		{"raw UTF-8", "/caf\xc3\xa9", "/caf%C3%A9"},
		{"raw UTF-8, disallowed", "/\xc3\xa9t\xc3\xa9", "-"},
		{"the same escaped in small hex", "/%c3%a9t%c3%a9", "-"},
		{"bytes that are not UTF-8", "/caf\xe9", "/caf%E9"},
		{"quotes, bars, brackets", `/"a"|b<c>[d]\e^f` + "`g`", "/%22a%22%7Cb%3Cc%3E[d]%5Ce%5Ef%60g%60"},
		{"escaped letters", "/p%75blic", ""},
		{"escaped letters, disallowed", "/priv%61te", "-"},
		{"an escaped tilde", "/%7Euser", ""},
		{"an escaped tilde in small hex, disallowed", "/%7euser/x", "-"},
		{"slashes and dot segments", "//x/../y/./z//", ""},
		{"dot segments in front of a disallowed path", "/x/../private", "-"},
		{"escaped dots", "/%2e%2e/private", "-"},
		{"an escaped NUL", "/a%00b", ""},
		{"plus, semicolon, comma", "/a+b;c=d,e", ""},
		{"a query with a query", "/q?a=b?c=d", ""},
		{"a query with bytes that must be escaped", "/q?x={1}|\"2\"", "/q?x=%7B1%7D%7C%222%22"},
		{"such a query, disallowed", "/list?x={1}", "-"},
		{"an empty query, disallowed", "/page?", "-"},
		{"no query", "/page", ""},
		{"a fragment", "/page#part", "/page"},
		{"a query with a fragment", "/page?x#part", "/page?x"},
		{"a long path", "/" + strings.Repeat("long/", 1500), ""},
	} {
		site := server.Site(t, testorigin.SiteConfig{})
		site.SetRobots(testorigin.OK(wireRules))
		uri := site.Origin().String() + tt.client
		a := g.MustFetch("Tester/1.0", uri)
		rules := robotstxt.Parse([]byte(wireRules))
		verdicts[strings.ToValidUTF8(uri, "\ufffd")], _ = judged(rules, []string{"Tester"}, tt.client)
		var got []string
		for _, e := range site.PageExchanges() {
			got = append(got, e.Target)
			if m := rules.Match([]string{"Tester"}, e.Target); !m.Allowed {
				t.Errorf("%s: %q reached the origin, disallowed by %q", tt.name, e.Target, m.Rule)
			}
		}
		want, status := []string{tt.origin}, http.StatusOK
		switch tt.origin {
		case "-":
			want, status = nil, http.StatusForbidden
		case "":
			want = []string{tt.client}
		}
		if !slices.Equal(got, want) || a.Status != status {
			t.Errorf("%s: %q: status %d and %q at the origin, want %d and %q", tt.name, tt.client, a.Status, got, status, want)
		}
	}
	g.Stop()
	for _, l := range g.ReadLogs() {
		want, ok := verdicts[l.Request.URI]
		if !ok || l.Robots.Rule != want.Rule || l.Robots.Line != want.Line {
			t.Errorf("%s: the log has %q (line %d), want %q (line %d); requested: %t", l.Request.URI, l.Robots.Rule, l.Robots.Line, want.Rule, want.Line, ok)
		}
		delete(verdicts, l.Request.URI)
	}
	for uri := range verdicts {
		t.Errorf("the log lacks %s", uri)
	}
}
