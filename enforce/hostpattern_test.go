package enforce

import (
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/origin"
)

func TestHostPattern(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern, canonical string
		match, miss        []string
	}{
		{
			"example.com", "example.com",
			[]string{"http://example.com", "https://EXAMPLE.com:8443", "ftp://example.com"},
			[]string{"http://www.example.com", "http://example.com.evil.test", "http://notexample.com", "http://com"},
		},
		{
			"*.Example.COM", "*.example.com",
			[]string{"http://www.example.com", "https://a.b.c.example.com:444"},
			[]string{"http://example.com", "http://notexample.com", "http://www.example.com.evil.test"},
		},
		{"*", "*", []string{"http://a", "http://192.0.2.1", "http://[::1]:99"}, nil},
		{"*:8080", "*:8080", []string{"http://a:8080"}, []string{"http://a"}},
		{"example.com:80", "example.com:80", []string{"http://example.com"}, []string{"https://example.com", "http://example.com:8080"}},
		{"*.example.com:443", "*.example.com:443", []string{"https://a.example.com"}, []string{"http://a.example.com", "https://example.com"}},
		{"bücher.example", "xn--bcher-kva.example", []string{"http://b%C3%BCcher.example", "http://xn--bcher-kva.example"}, []string{"http://bucher.example"}},
		{"*.BÜCHER.example", "*.xn--bcher-kva.example", []string{"http://a.xn--bcher-kva.example"}, []string{"http://xn--bcher-kva.example"}},
		{"192.0.2.1", "192.0.2.1", []string{"http://192.0.2.1", "http://192.0.2.1:99"}, []string{"http://192.0.2.10", "http://a.192.0.2.1.example"}},
		{"2001:db8::1", "2001:db8::1", []string{"http://[2001:db8::1]:99"}, []string{"http://[2001:db8::2]"}},
		{"[2001:db8::1]", "2001:db8::1", []string{"http://[2001:db8::1]"}, nil},
		{"[2001:db8::1]:443", "[2001:db8::1]:443", []string{"https://[2001:db8::1]"}, []string{"http://[2001:db8::1]"}},
		{"localhost", "localhost", []string{"http://localhost:1"}, []string{"http://a.localhost"}},
	} {
		p, err := ParseHostPattern(tt.pattern)
		if err != nil {
			t.Errorf("%q: %v", tt.pattern, err)
			continue
		}
		if p.String() != tt.canonical {
			t.Errorf("ParseHostPattern(%q) = %q, want %q", tt.pattern, p, tt.canonical)
		}
		if again, err := ParseHostPattern(p.String()); err != nil || again != p {
			t.Errorf("%q: canonical form %q gives %v, %v", tt.pattern, p, again, err)
		}
		var index hostIndex[int]
		index.put(p, 1)
		for _, list := range []struct {
			urls []string
			want bool
		}{{tt.match, true}, {tt.miss, false}} {
			for _, u := range list.urls {
				o, err := origin.Parse(u)
				if strings.Contains(u, "%") {
					o, err = origin.FromAuthority("http", "bücher.example")
				}
				if err != nil {
					t.Fatal(err)
				}
				if p.Match(o) != list.want {
					t.Errorf("Match of %q and %s is not %t", tt.pattern, u, list.want)
				}
				found := false
				for range index.matches(o) {
					found = true
				}
				if found != list.want {
					t.Errorf("the index of %q finds %s: not %t", tt.pattern, u, list.want)
				}
			}
		}
	}
}

func TestHostPatternRefuses(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"":                             "empty",
		".example.com":                 "write example.com, *.example.com or both",
		"https://example.com":          "is a URL",
		"example.com/path":             "host",
		"user@example.com":             "userinfo",
		"foo*.example.com":             "may have * only at its start",
		"*example.com":                 "may have * only at its start",
		"a.*.example.com":              "may have * only at its start",
		"*.*":                          "may have * only at its start",
		"192.0.2.0/24":                 "is an address range",
		"2001:db8::/32":                "is an address range",
		"*.192.0.2.1":                  "an address has no names below it",
		"2001:DB8:0::1":                "write 2001:db8::1",
		"0300.0.2.1":                   "host pattern",
		"1.2":                          "host pattern",
		"example.com:":                 "port",
		"example.com:0":                "port",
		"example.com:080":              "port",
		"example.com:65536":            "port",
		"example.com:http":             "port",
		"exa mple.com":                 "host pattern",
		"a..b":                         "host pattern",
		"*.":                           "host pattern",
		"example.com\n":                "host pattern",
		strings.Repeat("a", 300):       "host pattern",
		"[::1":                         "host pattern",
		"::ffff:192.0.2.1%eth0":        "host pattern",
		"example.com, example.org":     "host pattern",
		"*.example.com:99:99":          "host pattern",
		"[2001:db8::1]:443:443":        "host pattern",
		"xn--a.example":                "host pattern",
		"example.com#x":                "host pattern",
		"example.com?x":                "host pattern",
		strings.Repeat("a.", 200):      "...",
		"*." + strings.Repeat("a", 64): "host pattern",
	} {
		p, err := ParseHostPattern(pattern)
		if err == nil {
			t.Errorf("%q: accepted as %q", pattern, p)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %q lacks %q", pattern, err, want)
		}
	}
}

// The closest pattern comes first: the host, the longest name above it, then all. Of equal
// patterns, one with a port comes first.
func TestHostIndexOrder(t *testing.T) {
	t.Parallel()
	var index hostIndex[string]
	for _, s := range []string{
		"*", "*:443", "*.example.com", "*.www.example.com", "*.com:443", "a.www.example.com", "a.www.example.com:443",
		"*.example.com:443", "*.example.com:80", "b.www.example.com", "*.other.com",
	} {
		p, err := ParseHostPattern(s)
		if err != nil {
			t.Fatal(err)
		}
		index.put(p, s)
	}
	var got []string
	o := mustOrigin(t, "https://a.www.example.com")
	for p, v := range index.matches(o) {
		if p.String() != v {
			t.Errorf("%q is filed under %q", v, p)
		}
		got = append(got, v)
	}
	want := []string{
		"a.www.example.com:443", "a.www.example.com", "*.www.example.com", "*.example.com:443", "*.example.com",
		"*.com:443", "*:443", "*",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	for stop := range want {
		n := 0
		index.matches(o)(func(HostPattern, string) bool { n++; return n <= stop })
		if n != stop+1 {
			t.Errorf("the iterator yielded %d patterns, want a stop after %d", n, stop+1)
		}
	}
}

// FuzzHostPattern checks that an accepted pattern has a canonical form with the same meaning, that
// a pattern of one host matches that host, and that the index finds a pattern exactly if it
// matches.
func FuzzHostPattern(f *testing.F) {
	for _, s := range []string{"example.com", "*.example.com:8080", "*", "[::1]:80", "bücher.example", "192.0.2.1", "::1", ".x"} {
		f.Add(s, "www.example.com:8080")
		f.Add(s, "[::1]")
	}
	f.Fuzz(func(t *testing.T, pattern, authority string) {
		p, err := ParseHostPattern(pattern)
		if err != nil {
			return
		}
		again, err := ParseHostPattern(p.String())
		if err != nil || again != p {
			t.Fatalf("%q: canonical form %q gives %v, %v", pattern, p, again, err)
		}
		if !strings.HasPrefix(p.key, ".") && p.key != "*" {
			if o, err := origin.FromAuthority("http", p.String()); err == nil && !p.Match(o) {
				t.Errorf("%q does not match itself", p)
			}
		}
		o, err := origin.FromAuthority("https", authority)
		if err != nil {
			return
		}
		var index hostIndex[int]
		index.put(p, 0)
		found := false
		for range index.matches(o) {
			found = true
		}
		if found != p.Match(o) {
			t.Errorf("%q on %s: index %t, match %t", p, o, found, p.Match(o))
		}
	})
}
