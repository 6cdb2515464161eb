package origin_test

import (
	"bufio"
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/origin"
)

// targetPaths are request lines as net/http's server reads them, with url.ParseRequestURI.
var targetPaths = []struct{ name, requestURI, path string }{
	{"ordinary", "http://example.com/a/b?c=d&e", "/a/b?c=d&e"},
	{"no path", "http://example.com", "/"},
	{"no path, a query", "http://example.com?q", "/?q"},
	{"empty query", "http://example.com/a?", "/a?"},
	{"no path, empty query", "http://example.com?", "/?"},
	{"question marks in the query", "http://example.com/a??b?", "/a??b?"},
	{"slash at the end", "http://example.com/a/", "/a/"},
	{"slashes are not merged", "http://example.com//a///b", "//a///b"},
	{"slashes that look like an authority", "http://example.com//other.example/b", "//other.example/b"},
	{"dot segments stay", "http://example.com/a/./../b/..", "/a/./../b/.."},
	{"encoded dot segments stay", "http://example.com/a/%2e%2E/b", "/a/%2e%2E/b"},
	{"an asterisk", "http://example.com/*", "/*"},
	{"a URL in the path", "http://example.com/http://other.example/?x", "/http://other.example/?x"},
	{"a colon in the first segment", "http://example.com/a:b", "/a:b"},

	// net/url would encode the whole path again because of such a byte.
	{"an encoded slash alone", "http://example.com/a%2Fb", "/a%2Fb"},
	{"an encoded slash before a brace", "http://example.com/a%2Fb{c", "/a%2Fb%7Bc"},
	{"an encoded slash after raw UTF-8", "http://example.com/café%2Fx", "/caf%C3%A9%2Fx"},
	{"invalid UTF-8", "http://example.com/caf\xe9%2Fx", "/caf%E9%2Fx"},
	{"lower-case escapes stay", "http://example.com/%2f%c3%a9{", "/%2f%c3%a9%7B"},
	{"escapes of unreserved bytes stay", "http://example.com/priv%61te|", "/priv%61te%7C"},
	{"all illegal bytes", "http://example.com/%2F \"<>\\^`{|}\x80\xff", "/%2F%20%22%3C%3E%5C%5E%60%7B%7C%7D%80%FF"},
	{"all legal bytes", "http://example.com/-._~!$&'()*+,;=:@[]%2F", "/-._~!$&'()*+,;=:@[]%2F"},
	{"illegal bytes in the query", "http://example.com/a?%2F \"<>\\^`{|}\x80é", "/a?%2F%20%22%3C%3E%5C%5E%60%7B%7C%7D%80%C3%A9"},
	{"legal bytes in the query", "http://example.com/a?-._~!$&'()*+,;=:@[]/?%2F", "/a?-._~!$&'()*+,;=:@[]/?%2F"},
	{"broken escapes in the query stay", "http://example.com/a?%zz%2&%", "/a?%zz%2&%"},
	{"plus and %20 stay apart", "http://example.com/a+b%20c?d+e%20f", "/a+b%20c?d+e%20f"},

	// A fragment is not matched (RFC 9309 section 2.2.2).
	{"fragment", "http://example.com/a#b", "/a"},
	{"fragment with a query", "http://example.com/a#b?c", "/a"},
	{"fragment after a query", "http://example.com/a?b#c", "/a?b"},
	{"fragment after an empty query", "http://example.com/a?#c", "/a?"},
	{"two fragments", "http://example.com/a#b#c", "/a"},
	{"fragment and illegal bytes", "http://example.com/%2F{#}", "/%2F%7B"},
	{"an encoded number sign is no fragment", "http://example.com/a%23b?c%23d", "/a%23b?c%23d"},
}

func TestRFC9309_2_2_2_TargetIsWhatWillBeSent(t *testing.T) {
	t.Parallel()
	for _, tt := range targetPaths {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			target := mustTarget(t, mustURL(t, tt.requestURI))
			if target.Path != tt.path {
				t.Errorf("Path = %q, want %q", target.Path, tt.path)
			}
			if want := "http://example.com" + tt.path; target.String() != want {
				t.Errorf("String() = %q, want %q", target.String(), want)
			}
			checkSent(t, target)
		})
	}
}

// URLs as clients of the package build them, or as a rewrite leaves them.
func TestTargetOfBuiltURL(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		url  url.URL
		path string
	}{
		{"path without a hint", url.URL{Path: "/a b/é#?%"}, "/a%20b/%C3%A9%23%3F%25"},
		{"hint of the path", url.URL{Path: "/a/b", RawPath: "/a%2fb"}, "/a%2fb"},
		{"hint with an illegal byte", url.URL{Path: "/a/b{", RawPath: "/a%2fb{"}, "/a%2fb%7B"},
		{"hint of another path", url.URL{Path: "/new", RawPath: "/a%2Fb"}, "/new"},
		{"hint longer than the path", url.URL{Path: "/a", RawPath: "/a%2Fb"}, "/a"},
		{"hint shorter than the path", url.URL{Path: "/a/b", RawPath: "/a"}, "/a/b"},
		{"hint with a broken escape", url.URL{Path: "/a%zz", RawPath: "/a%zz"}, "/a%25zz"},
		{"hint with a cut escape", url.URL{Path: "/a%2", RawPath: "/a%2"}, "/a%252"},
		{"hint with a question mark", url.URL{Path: "/a?b", RawPath: "/a?b"}, "/a%3Fb"},
		{"control bytes", url.URL{Path: "/a\r\n", RawPath: "/a\r\n", RawQuery: "b\r\nX: y\x00\x7f"}, "/a%0D%0A?b%0D%0AX:%20y%00%7F"},
		{"parsed fragment", url.URL{Path: "/a", RawQuery: "b", Fragment: "c"}, "/a?b"},
		{"forced query", url.URL{Path: "/a", ForceQuery: true}, "/a?"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.url.Scheme, tt.url.Host = "https", "example.com"
			before := tt.url
			target := mustTarget(t, &tt.url)
			if target.Path != tt.path {
				t.Errorf("Path = %q, want %q", target.Path, tt.path)
			}
			if tt.url != before {
				t.Errorf("NewTarget changes its argument to %+v", tt.url)
			}
			checkSent(t, target)
		})
	}
}

func TestTargetRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name         string
		url          *url.URL
		part, reason string
	}{
		{"nil", nil, "url", "missing"},
		{"origin form", &url.URL{Path: "/a"}, "url", "absolute"},
		{"no origin", &url.URL{Scheme: "http", Host: "a..b", Path: "/"}, "host", "empty label"},
		{"path without a slash", &url.URL{Scheme: "http", Host: "example.com", Path: "a"}, "path", "slash"},
		{"asterisk form", &url.URL{Scheme: "http", Host: "example.com", Path: "*"}, "path", "slash"},
		{"path that would join the host", &url.URL{Scheme: "http", Host: "example.com", Path: ".other.example/"}, "path", "slash"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			target, err := origin.NewTarget(tt.url)
			checkRefused(t, target.Origin, err, tt.part, tt.reason)
			if target.Path != "" {
				t.Errorf("got path %q with an error, want none", target.Path)
			}
		})
	}
}

func TestURLOfNoTargetIsEmpty(t *testing.T) {
	t.Parallel()
	o := origin.Origin{Scheme: "http", Host: "example.com", Port: 80}
	for _, target := range []origin.Target{{}, {Path: "/a"}, {Origin: o}, {Origin: o, Path: "a"}, {Origin: o, Path: "/%zz"}} {
		if u := target.URL(); *u != (url.URL{}) {
			t.Errorf("%+v.URL() = %+v, want the empty URL", target, u)
		}
	}
}

// TestTargetCanonicalHost checks that a request names the origin that was judged.
func TestTargetCanonicalHost(t *testing.T) {
	t.Parallel()
	for requestURI, want := range map[string]string{
		"HTTP://EXÄMPLE.com:80/A":      "http://xn--exmple-cua.com/A",
		"https://example.com:/":        "https://example.com/",
		"http://[2001:DB8::A]:8080//x": "http://[2001:db8::a]:8080//x",
	} {
		target := mustTarget(t, mustURL(t, requestURI))
		if target.String() != want {
			t.Errorf("target of %q is %q, want %q", requestURI, target, want)
		}
		checkSent(t, target)
	}
}

// checkSent checks the invariants of a Target against net/http's own writer: the bytes of t.Path
// are those in the request line, to an origin and to a proxy, and every reader gets the same target
// from them.
func checkSent(t *testing.T, target origin.Target) {
	t.Helper()
	u := target.URL()
	if got := u.RequestURI(); got != target.Path {
		t.Errorf("URL().RequestURI() = %q, want Path %q", got, target.Path)
	}
	if again, err := origin.NewTarget(u); err != nil || again != target {
		t.Errorf("NewTarget(URL()) = %+v, %v, want %+v", again, err, target)
	}
	if reparsed, err := url.Parse(target.String()); err != nil {
		t.Errorf("String() does not parse: %v", err)
	} else if again, err := origin.NewTarget(reparsed); err != nil || again != target {
		t.Errorf("NewTarget of String() = %+v, %v, want %+v", again, err, target)
	}
	for _, form := range []struct {
		name, requestURI string
		write            func(*http.Request, *bytes.Buffer) error
	}{
		{"origin form", target.Path, func(r *http.Request, b *bytes.Buffer) error { return r.Write(b) }},
		{"absolute form", target.String(), func(r *http.Request, b *bytes.Buffer) error { return r.WriteProxy(b) }},
	} {
		var wire bytes.Buffer
		if err := form.write(&http.Request{Method: http.MethodGet, URL: target.URL()}, &wire); err != nil {
			t.Errorf("%s of %+v cannot be written: %v", form.name, target, err)
			continue
		}
		checkWire(t, form.name, form.requestURI, wire.String(), target)
	}
}

func checkWire(t *testing.T, form, requestURI, wire string, target origin.Target) {
	t.Helper()
	line, rest, _ := strings.Cut(wire, "\r\n")
	if want := "GET " + requestURI + " HTTP/1.1"; line != want {
		t.Errorf("%s: request line %q, want %q", form, line, want)
	}
	if want := "Host: " + target.Origin.Authority() + "\r\n"; !strings.HasPrefix(rest, want) {
		t.Errorf("%s: %q follows the request line, want %q", form, rest, want)
	}
	received, err := http.ReadRequest(bufio.NewReader(strings.NewReader(wire)))
	if err != nil {
		t.Errorf("%s: net/http cannot read %q: %v", form, wire, err)
		return
	}
	received.URL.Scheme = target.Origin.Scheme
	received.URL.Host = received.Host
	if again, err := origin.NewTarget(received.URL); err != nil || again != target {
		t.Errorf("%s: received as %+v, %v, want %+v", form, again, err, target)
	}
}

func mustTarget(tb testing.TB, u *url.URL) origin.Target {
	tb.Helper()
	target, err := origin.NewTarget(u)
	if err != nil {
		tb.Fatalf("NewTarget(%v): %v", u, err)
	}
	return target
}

func TestParseTarget(t *testing.T) {
	t.Parallel()
	got, err := origin.ParseTarget("http://Example.com/a%2Fb?c#d")
	if err != nil || got.String() != "http://example.com/a%2Fb?c" {
		t.Errorf("ParseTarget = %v, %v, want http://example.com/a%%2Fb?c", got, err)
	}
	for _, bad := range []string{"", "/path", "http://exa mple.com/", "http://example.com/%zz", "mailto:a@example.com"} {
		if got, err := origin.ParseTarget(bad); err == nil {
			t.Errorf("ParseTarget(%q) = %v, want an error", bad, got)
		}
	}
}
