package enforce

import (
	"strings"
	"testing"
)

var acceptCases = []struct {
	name, accept string
	want         Form
}{
	{"missing", "", FormText},
	{"curl, wget, requests", "*/*", FormText},
	{"browser", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8", FormHTML},
	{"Scrapy", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", FormHTML},
	{"lynx", "text/html, text/plain, text/sgml, text/css, */*;q=0.01", FormHTML},
	{"Java", "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", FormHTML},
	{"axios", "application/json, text/plain, */*", FormJSON},
	{"API client", "application/json", FormJSON},
	{"problem", "application/problem+json", FormJSON},
	{"case", "Application/JSON", FormJSON},
	{"parameters", `application/json; charset="a b;q=0"; q=0.9`, FormJSON},
	{"a comma in quotes, which no client sends", `application/json; charset="a,b"`, FormText},
	{"JSON behind text", "text/plain, application/json", FormText},
	{"JSON behind anything", "*/*, application/json", FormText},
	{"JSON as a last resort", "text/html;q=0.9, application/json;q=0.1", FormHTML},
	{"HTML as a last resort", "text/html;q=0.1, application/json;q=0.9", FormJSON},
	{"weights to the thousandth", "text/html;q=0.998, application/json;q=0.999, text/plain;q=0.997", FormJSON},
	{"weight 0 is no", "application/json;q=0, text/html;q=0.000", FormText},
	{"weight above 1", "application/json;q=1.001", FormText},
	{"weight not a number", "application/json;q=x", FormText},
	{"weight too fine", "application/json;q=0.0001", FormText},
	{"weight empty", "application/json;q=", FormText},
	{"blanks", "  application/json ; q = 0.5 , text/html;q=0.4", FormJSON},
	{"other types", "image/avif, video/*", FormText},
	{"text range", "text/*", FormText},
	{"JSON of another kind", "application/ld+json", FormText},
	{"xhtml", "application/xhtml+xml", FormHTML},
	{"empty members", ",,application/json,,", FormJSON},
	{"unclosed quote", `application/json;x="`, FormText},
	{"nonsense", "json", FormText},
}

func TestNegotiate(t *testing.T) {
	t.Parallel()
	for _, tt := range acceptCases {
		if got := Negotiate(tt.accept); got != tt.want {
			t.Errorf("%s: Negotiate(%q) = %s, want %s", tt.name, tt.accept, got, tt.want)
		}
	}
}

// FuzzNegotiate checks that a form is given only to a client that names it.
func FuzzNegotiate(f *testing.F) {
	for _, tt := range acceptCases {
		f.Add(tt.accept)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		low := strings.ToLower(accept)
		switch Negotiate(accept) {
		case FormJSON:
			if !strings.Contains(low, "json") {
				t.Errorf("Negotiate(%q) is JSON, which the field does not name", accept)
			}
		case FormHTML:
			if !strings.Contains(low, "html") {
				t.Errorf("Negotiate(%q) is HTML, which the field does not name", accept)
			}
		case FormText:
			// A type before all others changes the result, unless the header ends in a quote.
			if !strings.Contains(accept, `"`) && Negotiate("application/json,"+accept) != FormJSON {
				t.Errorf("Negotiate ignores application/json before %q", accept)
			}
		}
	})
}
