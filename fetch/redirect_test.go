package fetch

import (
	"fmt"
	"net"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/origin"
)

const rules = "User-agent: *\nDisallow: /x\n"

func to(location string) string { return answer(301, "", "Location: "+location) }

// TestRFC9309_2_3_1_2_Locations checks the target of a single Location of
// http://a.example/robots.txt. A want without a scheme is the state of a file whose redirect has no
// usable target.
func TestRFC9309_2_3_1_2_Locations(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, location, at string }{
		{"absolute", "http://b.example/robots.txt", "http://b.example/robots.txt"},
		{"to https", "https://a.example/robots.txt", "https://a.example/robots.txt"},
		{"relative path", "x/y", "http://a.example/x/y"},
		{"absolute path", "/x", "http://a.example/x"},
		{"dot segments", "/a/../b", "http://a.example/b"},
		{"scheme-relative", "//b.example/r", "http://b.example/r"},
		{"query only", "?v=2", "http://a.example/robots.txt?v=2"},
		{"no path", "http://b.example", "http://b.example/"},
		{"fragment dropped", "/x#y", "http://a.example/x"},
		{"scheme in upper case", "HTTP://b.example/r", "http://b.example/r"},
		{"host in upper case", "http://B.Example/r", "http://b.example/r"},
		{"default port", "http://b.example:80/r", "http://b.example/r"},
		{"other port", "http://b.example:8080/r", "http://b.example:8080/r"},
		{"IPv6", "http://[2001:DB8::1]/r", "http://[2001:db8::1]/r"},
		{"IDN", "http://bücher.example/r", "http://xn--bcher-kva.example/r"},
		{"raw UTF-8 in the path", "/é", "http://a.example/%C3%A9"},
		{"space in the path", "/a b", "http://a.example/a%20b"},
		{"encoded slash stays", "/a%2Fb", "http://a.example/a%2Fb"},
		{"space in the query", "/login?msg=sign in", "http://a.example/login?msg=sign%20in"},
		{"what no URL holds", `/"<>^{|}` + "`?\"<>\\^{|}`", "http://a.example/%22%3C%3E%5E%7B%7C%7D%60?%22%3C%3E%5C%5E%7B%7C%7D%60"},
		{"raw UTF-8 in the query", "/?q=é", "http://a.example/?q=%C3%A9"},
		{"raw Latin-1 in the query", "/?q=\xe9", "http://a.example/?q=%E9"},
		{"lone percent sign", "/sale-50%-off?by=50%&%4=%zz%", "http://a.example/sale-50%25-off?by=50%25&%254=%25zz%25"},
		{"escapes stay", "/%7e%e9?%7e%20", "http://a.example/%7e%e9?%7e%20"},
		{"sub-delims stay", "/a;b=(c)!$&'*+,@:?d=[e]&f=g/h?i", "http://a.example/a;b=(c)!$&'*+,@:?d=[e]&f=g/h?i"},
		{"colon in the path", "./a:b", "http://a.example/a:b"},
		{"file that ends like a name", "index.pl", "http://a.example/index.pl"},
		{"folder with a dot", "v1.0/robots.txt", "http://a.example/v1.0/robots.txt"},
		{"slashes behind a path", "/htps//b.example", "http://a.example/htps//b.example"},
		{"name of another host in the path", "/www.b.example/r", "http://a.example/www.b.example/r"},

		{"none", "", "absent"},
		{"blank", "   ", "absent"},
		{"file", "file:///etc/passwd", "absent"},
		{"ftp", "ftp://b.example/robots.txt", "absent"},
		{"javascript", "javascript:alert(1)", "absent"},
		{"data", "data:text/plain,User-agent:*", "absent"},
		{"gopher", "gopher://b.example/", "absent"},
		{"mail", "mailto:bots@b.example", "absent"},
		{"telephone", "tel:+1-555", "absent"},
		{"web socket", "wss://b.example/robots.txt", "absent"},
		{"web socket without TLS", "ws://b.example/robots.txt", "absent"},
		{"no page", "about:blank", "absent"},
		{"blob", "blob:http://b.example/1", "absent"},
		{"ftp with TLS", "ftps://b.example/robots.txt", "absent"},
		{"ssh", "sftp://b.example/robots.txt", "absent"},
		{"name", "urn:isbn:0", "absent"},
		{"scheme in upper case, too", "FILE:///etc/passwd", "absent"},
		{"mistyped scheme", "htps://b.example/robots.txt", "unreachable"},
		{"doubled scheme", "hhttps://b.example/robots.txt", "unreachable"},
		{"scheme without its colon", "https//b.example/robots.txt", "unreachable"},
		{"scheme and one slash", "http/b.example/robots.txt", "unreachable"},
		{"mistyped scheme without its colon", "htps//b.example/robots.txt", "unreachable"},
		{"scheme and a semicolon", "http;//b.example/robots.txt", "unreachable"},
		{"scheme that is missing", "www.b.example/robots.txt", "unreachable"},
		{"scheme that is missing, of another site", "example.com/robots.txt", "unreachable"},
		{"scheme that is missing, of a user's site", "user.github.io/robots.txt", "unreachable"},
		{"scheme that is missing, of a site below two labels", "Shop.Example.co.uk/robots.txt", "unreachable"},
		{"scheme that is missing, of itself", "A.example/robots.txt", "unreachable"},
		{"scheme that is missing, of a subdomain", "www2.a.example", "unreachable"},
		{"host and port", "www.b.example:443/robots.txt", "unreachable"},
		{"local host and port", "localhost:80/robots.txt", "unreachable"},
		{"address and port", "10.0.0.1:80/robots.txt", "unreachable"},
		{"app", "intent://b.example/#Intent;end", "unreachable"},
		{"backslash for a slash", `\robots\en.txt`, "unreachable"},
		{"backslashes before a host", `\\b.example\robots.txt`, "unreachable"},
		{"backslash in the authority", `http://b.example\@c.example/`, "unreachable"},
		{"blank in the host", "http://b example/", "unreachable"},
		{"unix socket", "http+unix://%2Fvar%2Frun%2Fdocker.sock/x", "unreachable"},
		{"opaque", "http:b.example", "unreachable"},
		{"no host", "http:///robots.txt", "unreachable"},
		{"credentials", "http://user:secret@b.example/robots.txt", "unreachable"},
		{"port out of range", "http://b.example:99999/", "unreachable"},
		{"port zero", "http://b.example:0/", "unreachable"},
		{"not a port", "http://b.example:http/", "unreachable"},
		{"octal address", "http://0177.0.0.1/", "unreachable"},
		{"hexadecimal address", "http://0x7f000001/", "unreachable"},
		{"short address", "http://127.1/", "unreachable"},
		{"address as one number", "http://2130706433/", "unreachable"},
		{"control byte", "http://b.\texample/", "unreachable"},
		{"zone", "http://[fe80::1%25eth0]/", "unreachable"},
		{"broken escape", "http://b.example/%zz", "http://b.example/%25zz"},
		{"broken escape in the host", "http://b%zz.example/", "unreachable"},
		{"broken brackets", "http://[::1/", "unreachable"},
		{"empty label", "http://b..example/", "unreachable"},
		{"itself", "/robots.txt", "absent"},
		{"itself, spelled otherwise", "http://A.EXAMPLE:80/robots.txt#x", "absent"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			answers := map[string]string{"http://a.example/robots.txt": to(tt.location)}
			follow := strings.Contains(tt.at, "://")
			if follow {
				answers[tt.at] = answer(200, rules)
			}
			out, s := fetchScript(t, Config{}, answers)
			if strings.Contains(out.Detail, "secret") || strings.Contains(fmt.Sprint(out.Hops), "secret") {
				t.Errorf("the outcome has the credentials: %+v", out)
			}
			if !follow {
				if out.Kind.String() != tt.at || out.Cause != CauseRedirects {
					t.Errorf("%s/%s (%s), want %s/%s", out.Kind, out.Cause, out.Detail, tt.at, CauseRedirects)
				}
				if len(s.asked) != 1 || out.Hops != nil || out.Status != 301 {
					t.Errorf("requests %q, hops %q, status %d", s.asked, out.Hops, out.Status)
				}
				return
			}
			want{KindRules, ""}.check(t, out)
			if string(out.Body) != rules || !slices.Equal(out.Hops, []string{tt.at}) {
				t.Errorf("body %q, hops %q; want the rules by %q", out.Body, out.Hops, tt.at)
			}
		})
	}
}

// chain returns n redirects over as many hosts, the last one to end.
func chain(n int, end string) map[string]string {
	answers := map[string]string{}
	at := "http://a.example/robots.txt"
	for i := range n {
		scheme := []string{"https", "http"}[i%2]
		next := fmt.Sprintf("%s://h%d.example/robots.txt", scheme, i+1)
		answers[at] = answer([]int{301, 302, 303, 307, 308, 300}[i%6], "<html>moved</html>", "Location: "+next)
		at = next
	}
	answers[at] = end
	return answers
}

func TestRFC9309_2_3_1_2_HopLimit(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		limit     int
		redirects int
		end       string
		want      want
	}{
		{"five", 0, 5, answer(200, rules), want{KindRules, ""}},
		{"five to 404", 0, 5, answer(404, ""), want{KindAbsent, CauseStatus}},
		{"five to 500", 0, 5, answer(500, ""), want{KindUnreachable, CauseStatus}},
		{"five to 429", 0, 5, answer(429, ""), want{KindUnreachable, CauseStatus}},
		{"six", 0, 6, answer(200, rules), want{KindAbsent, CauseRedirects}},
		{"seven", 0, 7, answer(200, rules), want{KindAbsent, CauseRedirects}},
		{"raised", 7, 7, answer(200, rules), want{KindRules, ""}},
		{"none", -1, 1, answer(200, rules), want{KindAbsent, CauseRedirects}},
		{"none needed", -1, 0, answer(200, rules), want{KindRules, ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out, s := fetchScript(t, Config{MaxRedirects: tt.limit}, chain(tt.redirects, tt.end))
			tt.want.check(t, out)
			limit := tt.limit
			if limit == 0 {
				limit = 5
			}
			if most := max(limit, 0) + 1; len(s.asked) > most {
				t.Errorf("%d requests, want at most %d", len(s.asked), most)
			}
			if len(out.Hops) != len(s.asked)-1 {
				t.Errorf("hops %q for requests %q", out.Hops, s.asked)
			}
		})
	}
}

func TestRFC9309_2_3_1_2_Loops(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]map[string]string{
		"of two": {
			"http://a.example/robots.txt":  to("https://a.example/robots.txt"),
			"https://a.example/robots.txt": to("http://a.example/robots.txt"),
		},
		"behind the start": {
			"http://a.example/robots.txt": to("/1"),
			"http://a.example/1":          to("/2"),
			"http://a.example/2":          to("/1"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, s := fetchScript(t, Config{}, answers)
			want{KindAbsent, CauseRedirects}.check(t, out)
			if len(s.asked) != len(answers) {
				t.Errorf("requests %q: the loop was not noticed at once", s.asked)
			}
		})
	}
}

// guardError is an error like that of egress's dialer for a refused address.
type guardError Cause

func (guardError) Error() string       { return "address 10.0.0.1 is private" }
func (g guardError) Forbidden() string { return string(g) }

// TestExt_GuardedHop checks that a hop to a refused address is no answer of the site. If the site
// itself is at such an address, that says nothing about the site.
func TestExt_GuardedHop(t *testing.T) {
	t.Parallel()
	wrapped := &net.OpError{Op: "dial", Err: fmt.Errorf("checking: %w", guardError(CauseForbiddenAddress))}
	for name, answers := range map[string]map[string]string{
		"first hop": {},
		"later hop": {"http://a.example/robots.txt": to("http://metadata.example/robots.txt")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errs := map[string]error{"http://metadata.example/robots.txt": wrapped}
			if len(answers) == 0 {
				errs["http://a.example/robots.txt"] = wrapped
			}
			f := New(Config{Transport: &script{tb: t, answers: answers, errs: errs}})
			out := f.Fetch(t.Context(), mustKey(t, "http://a.example"), nil)
			want{KindUnreachable, CauseForbiddenAddress}.check(t, out)
			if out.Detail != "address 10.0.0.1 is private" || out.Refused() != (len(answers) == 0) {
				t.Errorf("detail %q, refused %v", out.Detail, out.Refused())
			}
			before := after(Policy{}, 0*hour, Outcome{Kind: KindRules, Body: []byte(rules)})
			now := before.FreshUntil.Add(time.Hour)
			if r := (Policy{}).Next(before, out, now); reflect.DeepEqual(r, before) != out.Refused() {
				t.Errorf("the record became %+v", r)
			}
		})
	}
}

// TestExt_LongLocation checks that a long Location does not make records long.
func TestExt_LongLocation(t *testing.T) {
	t.Parallel()
	long := "http://b.example/" + strings.Repeat("é", 5000)
	out, s := fetchScript(t, Config{}, map[string]string{
		"http://a.example/robots.txt": to(long),
		"*":                           answer(200, rules),
	})
	want{KindRules, ""}.check(t, out)
	if len(s.asked[1]) < 5000 || len(out.Hops) != 1 || len(out.Hops[0]) != maxHop {
		t.Errorf("requested %d bytes, recorded a hop of %d", len(s.asked[1]), len(out.Hops[0]))
	}
}

// TestExt_Shared checks pitfall 7 (NUTCH-2581): the target of a redirect gets a record only if it
// is that origin's robots.txt and gave a good answer.
func TestExt_Shared(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, location, end string
		want                string
	}{
		{"rules", "https://b.example/robots.txt", answer(200, rules, "Cache-Control: max-age=600"), "https://b.example"},
		{"absent by status", "https://b.example/robots.txt", answer(404, ""), "https://b.example"},
		{"unreachable", "https://b.example/robots.txt", answer(500, ""), ""},
		{"redirected nowhere", "https://b.example/robots.txt", to("file:///x"), ""},
		{"another path", "https://b.example/robots", answer(200, rules), ""},
		{"path in another case", "https://b.example/Robots.txt", answer(200, rules), ""},
		{"deeper path", "https://b.example/a/robots.txt", answer(200, rules), ""},
		{"encoded path", "https://b.example/%72obots.txt", answer(200, rules), ""},
		{"with a query", "https://b.example/robots.txt?for=a", answer(200, rules), ""},
		{"with an empty query", "https://b.example/robots.txt?", answer(200, rules), ""},
		{"same origin", "/other", answer(200, rules), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out, _ := fetchScript(t, Config{}, map[string]string{
				"http://a.example/robots.txt": to(tt.location), "*": tt.end,
			})
			o, shared, ok := out.Shared()
			if ok != (tt.want != "") || o.String() != tt.want {
				t.Fatalf("shared with %q: %v, want %q", o, ok, tt.want)
			}
			if !ok {
				return
			}
			direct := out
			direct.Hops, direct.Final = nil, origin.Origin{}
			if !reflect.DeepEqual(shared, direct) {
				t.Errorf("shared outcome is %+v, want %+v", shared, direct)
			}
		})
	}
	t.Run("no redirect", func(t *testing.T) {
		t.Parallel()
		out, _ := fetchScript(t, Config{}, map[string]string{"*": answer(200, rules)})
		if _, _, ok := out.Shared(); ok {
			t.Error("Shared accepts an outcome without redirects")
		}
	})
}

// A fetcher may be for another file and follow no redirect, as for TDM files.
func TestExt_OtherPath(t *testing.T) {
	t.Parallel()
	for path, answer := range map[string]string{
		"/.well-known/tdmrep.json": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
		"/moved.json":              "HTTP/1.1 301 Moved\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n",
	} {
		s := &script{tb: t, answers: map[string]string{"http://example.com" + path: answer}}
		f := New(Config{Transport: s, UserAgent: testAgent, Path: path, MaxRedirects: -1})
		want := KindRules
		if path == "/moved.json" {
			want = KindAbsent
		}
		if out := f.Fetch(t.Context(), mustKey(t, "http://example.com"), nil); out.Kind != want || !out.Final.IsZero() {
			t.Errorf("%s: %+v", path, out)
		}
	}
}

// FuzzLocation checks that each Location leads to a valid request (RFC 9112 section 3.2), and that
// a valid target stays unchanged.
func FuzzLocation(f *testing.F) {
	for _, s := range []string{"/login?msg=sign in", "https://b.example/%zz?%", "//b.example:80/é", "?a=b\\c", "htps://b", "/a/../%2e%2e/b#c"} {
		f.Add(s)
	}
	legal := regexp.MustCompile(`^/(?:[A-Za-z0-9._~!$&'()*+,;=:@/?\[\]-]|%[0-9A-Fa-f]{2})*$`)
	f.Fuzz(func(t *testing.T, location string) {
		at, err := url.Parse("http://a.example/dir/robots.txt")
		if err != nil {
			t.Fatal(err)
		}
		r := &retrieval{Fetcher: New(Config{Transport: &script{tb: t}}), at: at}
		kind, fail := r.redirect(location)
		if fail != nil {
			if kind == KindRules || fail.cause != CauseRedirects {
				t.Errorf("%q: %s/%s", location, kind, fail.cause)
			}
			return
		}
		if uri := r.at.RequestURI(); !legal.MatchString(uri) || r.at.User != nil {
			t.Errorf("%q: GET %q", location, uri)
		}
		if path, ok := strings.CutPrefix(location, "http://b.example"); ok && legal.MatchString(path) && r.at.RequestURI() != path {
			t.Errorf("%q: GET %q", location, r.at.RequestURI())
		}
	})
}
