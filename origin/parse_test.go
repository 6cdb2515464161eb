package origin_test

import (
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/origin"
)

// sameOrigin has spellings of one scope. The URLs of a row have the key of the row, so that they
// share one robots.txt.
var sameOrigin = []struct {
	name string
	key  string
	urls []string
}{
	{"Google: the default port equals no port", "https://example.com", []string{
		"https://example.com", "https://example.com/", "https://example.com:443/a?b#c",
	}},
	{"Google: another port is another scope", "https://example.com:444", []string{"https://example.com:444/"}},
	{"Google: http and https differ", "http://example.com", []string{"http://example.com/", "http://example.com:80/"}},
	{"the default port is the scheme's own", "http://example.com:443", []string{"http://example.com:443/"}},
	{"Google: ftp has origins", "ftp://example.com", []string{"ftp://example.com/x", "ftp://example.com:21/x"}},
	{"Google: a subdomain is another scope", "https://www.example.com", []string{"https://www.example.com/"}},
	{"Google: a name equals its punycode", "https://www.xn--exmple-cua.com", []string{
		"https://www.exämple.com/", "https://www.EXÄMPLE.com/", "https://www.xn--exmple-cua.com/",
		"https://www.XN--EXMPLE-CUA.com/", "https://www.exa\u0308mple.com/",
	}},
	{"RFC 3986 3.1, 3.2.2: case of scheme and host", "http://example.com", []string{
		"HTTP://EXAMPLE.COM/", "hTTp://eXample.Com:80/A",
	}},
	{"RFC 3986 6.2.3: an empty port is the default", "http://example.com", []string{"http://example.com:/", "http://example.com:"}},
	{"UTS 46: width is folded, dots too", "http://example.com", []string{
		"http://ｅｘａｍｐｌｅ.com/", "http://example。com/", "http://example．com/", "http://example｡com/",
	}},
	{"UTS 46: ignored code points", "http://example.com", []string{"http://exam\u00adple.com/"}},
	{"UTS 46: non-transitional, ß is not ss", "http://xn--fa-hia.de", []string{"http://faß.de/", "http://xn--fa-hia.de/"}},
	{"UTS 46: emoji are in use", "http://xn--i-7iq.ws", []string{"http://i❤.ws/", "http://I❤.ws/"}},
	{"right to left", "http://xn--mgbh0fb.xn--kgbechtv", []string{"http://مثال.إختبار/"}},
	{"underscores are in use", "http://a_b.example", []string{"http://a_b.example/", "http://A_B.example/"}},
	{"underscore and umlaut", "http://_dmarc.xn--4ca.de", []string{"http://_dmarc.ä.de/"}},
	{"hyphens in third and fourth place are in use", "http://r3---sn-apo3.example", []string{"http://r3---sn-apo3.example/"}},
	{"hyphens at the ends are in use", "http://-a-.example", []string{"http://-a-.example/"}},
	{"RFC 3986 3.2.2: the dot of the root", "http://example.com", []string{
		"http://example.com./", "http://EXAMPLE.com.:80/a", "http://example.com．/", "http://example.com。",
	}},
	{"the dot of the root behind punycode", "http://xn--4ca.de:81", []string{"http://ä.de.:81/", "http://xn--4ca.de.:81/"}},
	{"WHATWG URL: an address with the dot of the root", "http://127.0.0.1", []string{"http://127.0.0.1./", "http://127.0.0.1.:80/"}},
	{"the longest name with the dot of the root", "http://" + name253, []string{"http://" + name253 + "./"}},
	{"one label", "http://localhost:8080", []string{"http://localhost:8080/", "http://localhost.:8080/"}},
	{"digits before the last label", "http://1.2.3.4.example", []string{"http://1.2.3.4.example/"}},
	{"digits at the end of the last label", "http://intranet7", []string{"http://intranet7/"}},
	{"hex digits without 0x are a name", "http://a.7f", []string{"http://a.7f/"}},
	{"IPv4", "http://127.0.0.1", []string{"http://127.0.0.1/", "http://127.0.0.1:80/"}},
	{"IPv6", "http://[::1]", []string{"http://[::1]/", "http://[::1]:80/", "http://[::1]:/"}},
	{"IPv6 in either case", "http://[2001:db8::a]:81", []string{"http://[2001:DB8::A]:81/"}},
	{"the largest port", "http://example.com:65535", []string{"http://example.com:65535/"}},
	{"userinfo look-alikes after the authority", "http://example.com", []string{
		"http://example.com/@other.example", "http://example.com?@other.example", "http://example.com#@other.example",
		"http://example.com/http://other.example/",
	}},
	{"the longest label", "http://" + label63 + ".example", []string{"http://" + label63 + ".example/"}},
	{"the longest name", "http://" + name253, []string{"http://" + name253 + "/"}},
}

var (
	label63 = strings.Repeat("a", 63)
	name253 = strings.Repeat(label63+".", 3) + strings.Repeat("b", 61)
)

func TestRFC9309_2_3_OneScopeHasOneKey(t *testing.T) {
	t.Parallel()
	for _, tt := range sameOrigin {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, rawURL := range tt.urls {
				o := mustParse(t, rawURL)
				if got := o.String(); got != tt.key {
					t.Errorf("Parse(%q) = %q, want %q", rawURL, got, tt.key)
				}
				if again := mustParse(t, o.String()); again != o {
					t.Errorf("Parse(%q) = %+v, want %+v", o.String(), again, o)
				}
				u, err := url.Parse(rawURL)
				if err != nil {
					t.Fatal(err)
				}
				if fromURL, err := origin.FromURL(u); err != nil || fromURL != o {
					t.Errorf("FromURL(%q) = %+v, %v, want %+v", rawURL, fromURL, err, o)
				}
				if fromAuthority, err := origin.FromAuthority(u.Scheme, u.Host); err != nil || fromAuthority != o {
					t.Errorf("FromAuthority(%q, %q) = %+v, %v, want %+v", u.Scheme, u.Host, fromAuthority, err, o)
				}
			}
		})
	}
}

// badAuthorities are authorities that are refused, with the part that the error blames and a word
// of its reason.
var badAuthorities = []struct {
	name, authority, part, reason string
}{
	{"empty", "", "host", "empty"},
	{"port alone", ":80", "host", "empty"},
	{"ignored code points alone", "\u00ad", "host", "empty"},
	{"user", "user@example.com", "userinfo", "not allowed"},
	{"user and password", "user:secret@example.com:80", "userinfo", "not allowed"},
	{"empty userinfo", "@example.com", "userinfo", "not allowed"},
	{"two @", "a@b@example.com", "userinfo", "not allowed"},

	{"leading dot", ".example.com", "host", "empty label"},
	{"inner empty label", "a..example.com", "host", "empty label"},
	{"two trailing dots, port", "example.com..:80", "host", "empty label"},
	{"two trailing dots on an address", "127.0.0.1..", "host", "empty label"},
	{"two trailing dots", "example.com..", "host", "empty label"},
	{"dot alone", ".", "host", "empty"},
	{"label of 64", label63 + "a.example", "host", "63 bytes"},
	{"name of 254", name253 + "b", "host", "253 bytes"},
	{"label of 64 as punycode", strings.Repeat("ä", 60) + ".example", "host", "63 bytes"},
	{"huge", strings.Repeat("ä.", 100_000), "host", "253 bytes"},

	{"space", "exa mple.com", "host", "byte"},
	{"trailing space", "example.com ", "host", "byte"},
	{"backslash", `example.com\evil`, "host", "byte"},
	{"slash", "example.com/evil", "host", "byte"},
	{"sub-delimiter", "a!b.example", "host", "byte"},
	{"wildcard", "*.example.com", "host", "byte"},
	{"CR LF", "example.com\r\nX-y", "host", "byte"},
	{"NUL", "example.com\x00.evil", "host", "byte"},
	{"DEL", "example.com\x7f", "host", "byte"},
	{"a code point that maps to a slash", "℀.example", "host", "byte"},
	{"percent-encoding", "ex%61mple.com", "host", "percent-encoding"},
	{"percent-encoded UTF-8", "ex%C3%A4mple.com", "host", "percent-encoding"},
	{"invalid UTF-8", "ex\xe4mple.com", "host", "UTF-8"},
	{"punycode that does not decode", "xn--a.com", "host", "internationalised"},
	{"punycode of ASCII", "xn--abc-.com", "host", "internationalised"},
	{"empty punycode", "xn--.com", "host", "empty label"},
	{"punycode prefix before UTF-8", "xn--ä.com", "host", "internationalised"},
	{"joiner out of context", "a\u200db.com", "host", "internationalised"},
	{"mixed directions", "1a.مثال", "host", "internationalised"},

	{"IPv4 short", "127.1", "address", "decimal"},
	{"IPv4 hex field", "0x7f.1", "address", "decimal"},
	{"IPv4 hex fields", "0x7f.0x0.0x0.0x1", "address", "decimal"},
	{"IPv4 upper-case hex", "0X7F.0.0.0X1", "address", "decimal"},
	{"IPv4 hex number", "0x7f000001", "address", "decimal"},
	{"IPv4 empty hex number", "0x", "address", "decimal"},
	{"IPv4 decimal number", "2130706433", "address", "decimal"},
	{"IPv4 octal number", "017700000001", "address", "decimal"},
	{"IPv4 octal field", "0177.0.0.1", "address", "decimal"},
	{"IPv4 leading zero", "127.0.0.01", "address", "decimal"},
	{"IPv4 field too large", "127.0.0.256", "address", "decimal"},
	{"IPv4 five fields", "127.0.0.0.1", "address", "decimal"},
	{"name in a numeric top-level domain", "example.123", "address", "decimal"},
	{"zero", "0", "address", "decimal"},
	{"IPv4 full-width digits", "１２７.0.0.1", "address", "ASCII"},
	{"IPv4 full-width dots", "127．0．0．1", "address", "ASCII"},
	{"IPv4 circled digits", "①②⑦.0.0.①", "address", "ASCII"},
	{"IPv4 ignored code point", "127.0.0.1\u00ad", "address", "ASCII"},
	{"IPv4 full-width number", "２１３０７０６４３３", "address", "ASCII"},

	{"IPv6 without brackets", "2001:db8::1", "address", "brackets"},
	{"IPv6 not closed", "[::1", "address", "closing bracket"},
	{"IPv6 empty", "[]", "address", "not IPv6"},
	{"IPv6 garbage", "[::g]", "address", "not IPv6"},
	{"IPv6 two brackets", "[[::1]]", "address", "after its bracket"},
	{"IPv6 space", "[::1 ]", "address", "not IPv6"},
	{"IPv4 in brackets", "[127.0.0.1]", "address", "not IPv6"},
	{"future address", "[v1.fe80::a]", "address", "not IPv6"},
	{"IPv6 trailing garbage", "[::1]x", "address", "after its bracket"},
	{"IPv6 trailing dot", "[::1].", "address", "after its bracket"},
	{"IPv6 zone", "[fe80::1%eth0]", "address", "zone"},
	{"IPv6 encoded zone", "[fe80::1%25eth0]", "address", "zone"},
	{"IPv4-mapped", "[::ffff:127.0.0.1]", "address", "IPv4 address 127.0.0.1"},
	{"IPv4-mapped in hex", "[::ffff:7f00:1]", "address", "IPv4 address 127.0.0.1"},
	{"IPv6 not compressed", "[0:0:0:0:0:0:0:1]", "address", "write ::1"},
	{"IPv6 leading zeros", "[2001:0db8::1]", "address", "write 2001:db8::1"},
	{"IPv6 dotted tail", "[64:ff9b::127.0.0.1]", "address", "write 64:ff9b::7f00:1"},
	{"name in brackets", "[example.com]", "address", "not IPv6"},
	{"bracket after a name", "example.com[::1]", "port", "decimal"},

	{"port 0", "example.com:0", "port", "zero"},
	{"port leading zero", "example.com:080", "port", "zero"},
	{"port 65536", "example.com:65536", "port", "65535"},
	{"port overflow", "example.com:18446744073709551696", "port", "65535"},
	{"port plus", "example.com:+80", "port", "decimal"},
	{"port minus", "example.com:-80", "port", "decimal"},
	{"port name", "example.com:http", "port", "decimal"},
	{"port trailing garbage", "example.com:80x", "port", "decimal"},
	{"port full-width", "example.com:８０", "port", "decimal"},
	{"two ports", "example.com:80:80", "port", "decimal"},
	{"IPv6 port 0", "[::1]:0", "port", "zero"},
	{"IPv6 port garbage", "[::1]:80x", "port", "decimal"},
}

func TestAuthorityRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range badAuthorities {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, scheme := range []string{"http", "https", "ftp"} {
				o, err := origin.FromAuthority(scheme, tt.authority)
				checkRefused(t, o, err, tt.part, tt.reason)
			}
		})
	}
}

// FromURL must refuse the authorities that url.Parse accepts.
func TestURLRefused(t *testing.T) {
	t.Parallel()
	decoded := map[string]bool{"percent-encoded UTF-8": true} // url.Parse decodes it: see FromURL
	seen := 0
	for _, tt := range badAuthorities {
		u, err := url.Parse("http://" + tt.authority + "/x")
		if err != nil || strings.ContainsRune(tt.authority, '/') || decoded[tt.name] {
			continue
		}
		seen++
		o, err := origin.FromURL(u)
		checkRefused(t, o, err, tt.part, tt.reason)
	}
	if seen < 30 {
		t.Errorf("url.Parse accepts %d of the refused authorities, want at least 30", seen)
	}
}

func TestParseRefused(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, url, part, reason string }{
		{"empty", "", "url", "absolute"},
		{"relative", "/robots.txt", "url", "absolute"},
		{"no scheme", "//example.com/", "url", "absolute"},
		{"authority alone", "example.com", "url", "absolute"},
		{"host and port", "example.com:80", "url", "absolute"},
		{"opaque", "http:example.com", "url", "absolute"},
		{"one slash", "http:/example.com", "url", "absolute"},
		{"URL in a query", "/x?u=http://example.com", "url", "absolute"},
		{"URL after credentials", "user:secret@example.com/://x", "url", "absolute"},
		{"empty scheme", "://example.com", "scheme", "not one of"},
		{"leading space", " http://example.com", "scheme", "not one of"},
		{"unknown scheme", "gopher://example.com/", "scheme", "not one of"},
		{"file", "file:///etc/passwd", "scheme", "not one of"},
		{"websocket", "wss://example.com/", "scheme", "not one of"},
		{"long s is no s", "http\u017f://example.com/", "scheme", "not one of"},
		{"no authority", "http:///x", "host", "empty"},
		{"slashes alone", "http://", "host", "empty"},
		{"line feed in the path", "http://example.com/\nx", "url", "control"},
		{"tab in the host", "http://exa\tmple.com/", "url", "control"},
		{"backslash before another host", `http://example.com\@other.example/`, "userinfo", "not allowed"},
		{"backslash for a slash", `http:\\example.com`, "url", "absolute"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o, err := origin.Parse(tt.url)
			checkRefused(t, o, err, tt.part, tt.reason)
		})
	}
}

func TestFromURLRefusesWhatHasNoAuthority(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name         string
		url          *url.URL
		part, reason string
	}{
		{"nil", nil, "url", "missing"},
		{"zero", &url.URL{}, "url", "absolute"},
		{"path alone", &url.URL{Path: "/x"}, "url", "absolute"},
		{"CONNECT target", &url.URL{Host: "example.com:443"}, "url", "absolute"},
		{"opaque", &url.URL{Scheme: "http", Opaque: "example.com"}, "url", "//"},
		{"opaque beside a host", &url.URL{Scheme: "http", Host: "example.com", Opaque: "//other.example/"}, "url", "//"},
		{"no host", &url.URL{Scheme: "http", Path: "/x"}, "host", "empty"},
		{"userinfo", &url.URL{Scheme: "http", User: url.UserPassword("u", "secret"), Host: "example.com"}, "userinfo", "not allowed"},
		{"empty userinfo", &url.URL{Scheme: "http", User: &url.Userinfo{}, Host: "example.com"}, "userinfo", "not allowed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o, err := origin.FromURL(tt.url)
			checkRefused(t, o, err, tt.part, tt.reason)
		})
	}
}

// checkRefused fails unless err blames part for reason and is fit to be logged, and o is zero.
func checkRefused(t *testing.T, o origin.Origin, err error, part, reason string) {
	t.Helper()
	if err == nil {
		t.Errorf("got %+v, want an error", o)
		return
	}
	if !o.IsZero() {
		t.Errorf("got origin %+v with error %v, want the zero origin", o, err)
	}
	if gotPart, gotReason := blamed(err); gotPart != part || !strings.Contains(gotReason, reason) {
		t.Errorf("got %q, want part %q, reason with %q", err, part, reason)
	}
	checkFitForLog(t, err)
}

// blamed returns the part that an error names, and its reason, or nothing for an error of another
// package.
func blamed(err error) (part, reason string) {
	text, ours := strings.CutPrefix(err.Error(), "origin: ")
	if !ours {
		return "", ""
	}
	part, reason, _ = strings.Cut(text, " ")
	value, _ := strconv.QuotedPrefix(reason) // empty for no value
	return part, strings.TrimPrefix(reason[len(value):], " ")
}

func checkFitForLog(t *testing.T, refused error) {
	t.Helper()
	text := refused.Error()
	if len(text) > 600 {
		t.Errorf("the error text has %d bytes, want at most 600", len(text))
	}
	checkPrintable(t, text)
	if strings.Contains(text, "secret") {
		t.Errorf("error text %q contains a password", text)
	}
}

func checkPrintable(t *testing.T, text string) {
	t.Helper()
	if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }); i >= 0 {
		t.Errorf("error text %q is not printable ASCII from byte %d", text, i)
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	tests := []struct{ authority, want string }{
		{"a..b", `origin: host "a..b" has an empty label`},
		{"", `origin: host is empty`},
		{"user:secret@a.example", `origin: userinfo "...@a.example" is not allowed`},
		{"a\"\n.example", `origin: host "a\"\n.example" has a byte that no host name has`},
	}
	for _, tt := range tests {
		_, err := origin.FromAuthority("http", tt.authority)
		if err == nil || err.Error() != tt.want {
			t.Errorf("FromAuthority(%q): %v, want %s", tt.authority, err, tt.want)
		}
	}
}

// TestParseSite checks that only a URL of a whole site, or of its robots.txt, names an origin.
func TestParseSite(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"http://h": "http://h", "HTTP://H:80/": "http://h", "https://h:8443/robots.txt": "https://h:8443", "http://h:1": "http://h:1",
		"http://h/page": "", "http://h/robots.txt/": "", "http://h/?q": "", "http://h/#f": "", "http://h:0": "", "http://h:65536": "", "h": "",
	} {
		if o, err := origin.ParseSite(url); (err == nil) != (want != "") || err == nil && o.String() != want {
			t.Errorf("ParseSite(%s) = %s, %v, want %q", url, o, err, want)
		}
	}
}

// TestUnmarshalText checks that an origin is read in the spelling of MarshalText alone, so that no
// key names an origin twice.
func TestUnmarshalText(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		"http://h": true, "https://h:8443": true, "http://[::1]:81": true,
		"http://H": false, "http://h:80": false, "http://h/": false, "h": false, "": false,
	} {
		var o origin.Origin
		if err := o.UnmarshalText([]byte(text)); (err == nil) != ok {
			t.Errorf("%q: error %v", text, err)
		}
		if got, err := o.MarshalText(); err != nil || ok && string(got) != text || !ok && !o.IsZero() {
			t.Errorf("%q becomes %q, %v", text, got, err)
		}
	}
}
