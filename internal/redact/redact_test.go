package redact

import (
	"bufio"
	"maps"
	"net/http"
	"net/textproto"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestTarget(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ method, target, want string }{
		{"GET", "http://u:p@h/", "http://REDACTED@h/"},
		{"GET", "HTTPS://u:p@h?q@r", "HTTPS://REDACTED@h?q@r"},
		{"GET", "http://u@h", "http://REDACTED@h"},
		{"GET", "http://u:p@x@h/", "http://REDACTED@h/"},
		{"GET", "http://@h/", "http://@h/"},
		{"GET", "http://h/u:p@x", "http://h/u:p@x"},
		{"GET", "http://h?u:p@x", "http://h?u:p@x"},
		{"GET", "http://h/http://u:p@x/", "http://h/http://u:p@x/"},
		{"GET", "//u:p@h/", "//REDACTED@h/"},
		{"GET", "////u:p@h/", "////REDACTED@h/"},
		{"GET", `/\u:p@h/`, `/\REDACTED@h/`},
		{"GET", "//u@h/", "//u@h/"}, // a path
		{"GET", "//h/u:p@x", "//h/u:p@x"},
		{"GET", "/u:p@h/", "/u:p@h/"},
		{"GET", "/@u:p/", "/@u:p/"},
		{"GET", "http:/u:p@h/", "http:/REDACTED@h/"},
		{"GET", "http:///u:p@h/", "http:///REDACTED@h/"},
		{"GET", "http:u:p@h/", "http:REDACTED@h/"},
		{"GET", "http:u:p/p?p@h/", "http:REDACTED@h/"},
		{"GET", `http:\\u:p@h/`, `http:\\REDACTED@h/`},
		{"GET", "u:p@h/", "u:REDACTED@h/"},
		{"GET", "u@h", "REDACTED@h"},
		{"GET", "*", "*"},
		{"GET", "", ""},
		{"CONNECT", "u:p@h:443", "REDACTED@h:443"},
		{"CONNECT", "u@h:443", "REDACTED@h:443"},
		{"CONNECT", "u:p@x@h:443", "REDACTED@h:443"},
		{"CONNECT", "h:443", "h:443"},
		{"CONNECT", "http://u:p@h/", "http://REDACTED@h/"},
		{"CONNECT", "[::1]:443", "[::1]:443"},
	} {
		if got := Target(tt.method, tt.target); got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.method, tt.target, got, tt.want)
		}
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want string }{
		{"", ""},
		{"a@b", "a@b"},
		{"http://h/page", "http://h/page"},
		{"http://h/@user", "http://h/@user"},
		{"http://h?mail=a@b", "http://h?mail=a@b"},
		{"http://@h/", "http://@h/"},
		{"http://h/http://u:p@x/", "http://h/http://REDACTED@x/"},
		{"http://h/?u=http://u:p@x&v=https://q@y", "http://h/?u=http://REDACTED@x&v=https://REDACTED@y"},
		{"/?u=http%3A%2F%2Fu%3Ap%40x%2F&mail=a@b", "/?u=http%3A%2F%2FREDACTED%40x%2F&mail=a@b"},
		{"/?u=http%3a//u%3ap%40x", "/?u=http%3a//REDACTED%40x"},
		{"/?u=http://h&mail=a@b", "/?u=http://h&mail=a@b"},
		{"http://u:p@x@h/", "http://REDACTED@h/"},
		{"a:://u:p@h", "a:://REDACTED@h"},
		{"a:/://u:p@h", "a:/://REDACTED@h"},
		{"<http://u:p@h/>; rel=next, <http://i/>, <ftp://v@j>", "<http://REDACTED@h/>; rel=next, <http://i/>, <ftp://REDACTED@j>"},
		{"Bot/1 (+https://h/@bot; bot@h)", "Bot/1 (+https://h/@bot; bot@h)"},
		{"http://u:%4@h/", "http://REDACTED@h/"},
		{"http://%", "http://%"},
		{"http://REDACTED@h/", "http://REDACTED@h/"},
		{"http://", "http://"},
		{"http://://u:p@h/", "http://://REDACTED@h/"},
		{"http://u:p@h://v:q@i", "http://REDACTED@h://REDACTED@i"},
	} {
		if got := URLs(tt.text); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		names []string
		hides string // which of X-Api-Key, X-Own and X-Other, in this order
		err   string
	}{
		{nil, "X-Api-Key", ""},
		{[]string{"x-own"}, "X-Own", ""},
		{[]string{"X-OWN", "x-other"}, "X-Own X-Other", ""},
		{[]string{"off"}, "", ""},
		{[]string{"X-Own", "off"}, "", `"off" is not a field name`},
		{[]string{"X Own"}, "", `"X Own" is not a field name`},
		{[]string{"X-Own", "x-own"}, "", "X-Own is given twice"},
	} {
		f, err := New(tt.names)
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: %v, want %q", tt.names, err, tt.err)
			continue
		}
		var hidden []string
		for _, name := range []string{"X-Api-Key", "X-Own", "X-Other"} {
			if f.hides(name) != f.hides(strings.ReplaceAll(name, "-", "_")) {
				t.Errorf("%q: %s and its spelling with _ are treated differently", tt.names, name)
			}
			if f.hides(name) {
				hidden = append(hidden, name)
			}
		}
		if got := strings.Join(hidden, " "); got != tt.hides {
			t.Errorf("%q: hidden are %q, want %q", tt.names, got, tt.hides)
		}
	}
}

// TestDefaultsAreDocumented checks the list in docs/access-log.md.
func TestDefaultsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/access-log.md")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.FieldsFunc(string(page), func(r rune) bool { return strings.ContainsRune(" ,.:\n", r) })
	for _, name := range defaults {
		if !slices.Contains(words, name) || name != textproto.CanonicalMIMEHeaderKey(name) {
			t.Errorf("%s is not documented or not canonical", name)
		}
	}
}

// TestPutBackLeavesWhatWasChanged checks that a field that an earlier handler has set or removed
// stays that way.
func TestPutBackLeavesWhatWasChanged(t *testing.T) {
	t.Parallel()
	f, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &http.Request{Method: http.MethodGet, RequestURI: "http://h/", Header: http.Header{
		"X-Api-Key": {"a"}, "Api-Key": {"b", "c"}, "X-Token": {"d"},
	}}
	f.Withhold(r, true)
	r.Header.Set("X-Api-Key", "set")
	r.Header.Del("X-Token")
	if PutBack(r) {
		t.Error("PutBack finds user information in a text without any")
	}
	want := http.Header{"X-Api-Key": {"set"}, "Api-Key": {"b", "c"}}
	if !maps.EqualFunc(r.Header, want, slices.Equal) {
		t.Errorf("%v, want %v", r.Header, want)
	}
}

// TestWithholdWhatURLsMisses checks user information in spellings without "://", and in Host.
func TestWithholdWhatURLsMisses(t *testing.T) {
	t.Parallel()
	f := Fields{}
	r := &http.Request{Method: http.MethodGet, Host: "u:p@h", RequestURI: "/", Header: http.Header{
		"Referer": {"http://h/", "http:/u:p@h/"}, "Location": {"//u:p@h/"}, "X-Own": {"//u:p@h/"},
	}}
	f.Withhold(r, false)
	want := http.Header{"Referer": {"http://h/", "http:/REDACTED@h/"}, "Location": {"//REDACTED@h/"}, "X-Own": {"//u:p@h/"}}
	if r.Host != "h" || !maps.EqualFunc(r.Header, want, slices.Equal) {
		t.Errorf("host %q and %v, want h and %v", r.Host, r.Header, want)
	}
	if !PutBack(r) {
		t.Error("PutBack finds no user information")
	}
}

// TestWithholdOfOtherRequests checks that a request to the gateway itself keeps its fields, because
// nothing would put them back.
func TestWithholdOfOtherRequests(t *testing.T) {
	t.Parallel()
	r := &http.Request{Method: http.MethodGet, Host: "h", RequestURI: "/?u=http://u:p@h", Header: http.Header{"X-Own": {"a"}}}
	Fields{"X-Own": {}}.Withhold(r, false)
	if r.Header.Get("X-Own") != "a" || r.RequestURI != "/?u=http://u:p@h" || PutBack(r) {
		t.Errorf("%s with %v, want it unchanged", r.RequestURI, r.Header)
	}
}

func TestHideSent(t *testing.T) {
	t.Parallel()
	h := http.Header{"X-Own": {"a"}, "X-Late": {"b"}, "Trailer": {"X-Late"}, "Date": {"c"}}
	Fields{"X-Own": {}, "X-Late": {}}.HideSent(h)
	want := http.Header{"X-Own": {Mark}, "X-Late": {"b"}, "Trailer": {"X-Late"}, "Date": {"c"}}
	if !maps.EqualFunc(h, want, slices.Equal) {
		t.Errorf("%v, want %v", h, want)
	}
}

// FuzzWithhold reads requests. It checks that no secret is left in what Caddy sees, that all fields
// are restored, and that all user information which net/url recognizes is found.
func FuzzWithhold(f *testing.F) {
	for _, target := range []string{
		"GET http://u:p@h/", "GET //u:p@h/", "GET http:/u:p@h/", "GET http:u:p@h/", "CONNECT u:p@h:443", "CONNECT h:443", "GET /", "OPTIONS *",
		"GET http://h/http://u:p@i/", "GET /?u=http%3A%2F%2Fu%3Ap%40x",
		"GET http://u:p@h/?u=http://u:p@i/", "GET http://h/://://u:p@i",
	} {
		f.Add(target + " HTTP/1.1\r\nHost: h\r\nX-Api-Key: k\r\nx_api_key: k\r\nReferer: http://u:p@h/\r\nX-Api-Key: l\r\nAccept: */*\r\n\r\n")
	}
	fields, err := New(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, message string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(message)))
		if err != nil {
			return
		}
		before, known := r.Header.Clone(), r.URL.User != nil && r.URL.User.String() != ""
		target := r.RequestURI
		fields.Withhold(r, true)
		for name, values := range r.Header {
			if fields.hides(name) && !slices.Equal(values, []string{Mark}) {
				t.Errorf("%s is %q", name, values)
			}
		}
		if Target(r.Method, r.RequestURI) != r.RequestURI {
			t.Errorf("%q is redacted to %q, which a second pass changes", target, r.RequestURI)
		}
		if u := r.URL.User; u != nil && u.String() != Mark && u.String() != "" || strings.Contains(r.Host, "@") {
			t.Errorf("%q has the user information %q and the host %q", target, r.URL.User, r.Host)
		}
		if masked := URLs(r.RequestURI); masked != r.RequestURI {
			t.Errorf("%q is logged, want %q", r.RequestURI, masked)
		}
		if found := PutBack(r); known && !found || !found && r.RequestURI != target {
			t.Errorf("PutBack turns %q into %q, found = %t", target, r.RequestURI, found)
		}
		if !maps.EqualFunc(r.Header, before, slices.Equal) {
			t.Errorf("the header %q became %q", before, r.Header)
		}
	})
}

// BenchmarkWithhold measures a request without secrets.
func BenchmarkWithhold(b *testing.B) {
	f, err := New(nil)
	if err != nil {
		b.Fatal(err)
	}
	r := &http.Request{Method: http.MethodGet, Host: "www.example.com", RequestURI: "http://www.example.com/some/path?q=1", Header: http.Header{
		"User-Agent": {"Bot/1"}, "Accept": {"*/*"}, "Accept-Encoding": {"gzip"}, "Accept-Language": {"en"}, "Referer": {"http://h/page"},
		"Proxy-Connection": {"keep-alive"}, "Cookie": {"a=b"},
	}}
	b.ReportAllocs()
	for b.Loop() {
		f.Withhold(r, true)
		PutBack(r)
	}
}
