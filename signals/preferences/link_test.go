package preferences_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/crawlgate/crawlgate/signals/preferences"
)

// Checks which links of a Link field are licences of RSL 1.0.
func TestLicenceLinks(t *testing.T) {
	t.Parallel()
	const licence = `; rel="license"; type="application/rsl+xml"`
	for _, c := range []struct {
		source, line string
		want         []string
	}{
		{"RSL 1.0, guide to HTTP, the example", `<https://example.com/license.xml>` + licence, []string{"https://example.com/license.xml"}},
		{"RSL 1.0: another type is no RSL", `<a>; rel="license"; type="text/html"`, nil},
		{"RSL 1.0: another relation is no licence", `<a>; rel="next"; type="application/rsl+xml"`, nil},
		{"RFC 8288 3: no blanks, a token", `<a>;rel=license;type=application/rsl+xml`, []string{"a"}},
		{"RFC 8288 3: blanks around =", `<a> ; rel = license ; type = "application/rsl+xml"`, []string{"a"}},
		{"RFC 8288 3: several links", `<a>` + licence + `,<b>; rel=next, <c>` + licence, []string{"a", "c"}},
		{"RFC 8288 3: a comma in an address and in a title", `<a,b>; title="<x>, y"` + licence, []string{"a,b"}},
		{"RFC 8288 3: a parameter without a value", `<a>; crossorigin` + licence, []string{"a"}},
		{"RFC 8288 3.2: an anchor names another resource", `<a>; anchor="/other"` + licence + `, <b>` + licence, []string{"b"}},
		{"RFC 8288 3.2: wherever the anchor stands", `<a>` + licence + `; anchor="https://b.example/"`, nil},
		{"RFC 8288 3.3: several relations in one rel, without case", `<a>; rel="next License"; type="Application/RSL+XML"`, []string{"a"}},
		{"RFC 8288 3.3: a later rel is ignored", `<a>; rel=next; rel=license; type="application/rsl+xml"`, nil},
		{"RFC 8288 3.3: the first rel stays", `<a>; rel=license; rel=next; type="application/rsl+xml"`, []string{"a"}},
		{"RFC 8288 3.4.1: a later type is ignored", `<a>; rel=license; type="text/html"; type="application/rsl+xml"`, nil},
		{"RFC 8288 3.4.1: the first type stays", `<a>; rel=license; type="application/rsl+xml"; type="text/html"`, []string{"a"}},
		{"RFC 9110 5.6.4: a quoted pair", `<a>; rel="lic\ense"; type="application/rsl+xml"`, []string{"a"}},
	} {
		t.Run(c.source, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, l := range preferences.Fields(http.Header{"Link": {c.line}}, 0).Decided() {
				if l.From != preferences.Link || l.Line != 0 || l.Purpose != preferences.License {
					t.Errorf("got %+v", l)
				}
				got = append(got, l.Text)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
