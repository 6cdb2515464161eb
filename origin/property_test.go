package origin_test

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/crawlgate/crawlgate/origin"
)

// TestSpellingsOfOneOriginAreEqual draws an origin and spells it differently in every way that
// denotes the same scope.
func TestSpellingsOfOneOriginAreEqual(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := drawOrigin(t)
		respelt := respell(t, o)
		got, err := origin.Parse(respelt)
		if err != nil {
			t.Fatalf("Parse(%q), a spelling of %v: %v", respelt, o, err)
		}
		if got != o || got.String() != o.String() {
			t.Fatalf("Parse(%q) = %+v, want %+v", respelt, got, o)
		}
	})
}

// TestOriginsAreEqualExactlyIfTheirStringsAre draws two origins from a small set, so that equal
// ones are frequent.
func TestOriginsAreEqualExactlyIfTheirStringsAre(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawOrigin(t), drawOrigin(t)
		if (a == b) != (a.String() == b.String()) {
			t.Fatalf("%+v and %+v have the strings %q and %q", a, b, a, b)
		}
		if (a == b) != (a.Scheme+" "+a.HostPort() == b.Scheme+" "+b.HostPort()) {
			t.Fatalf("%+v and %+v have the dial targets %q and %q", a, b, a.HostPort(), b.HostPort())
		}
	})
}

func drawOrigin(t *rapid.T) origin.Origin {
	host := rapid.OneOf(
		rapid.SampledFrom([]string{
			"example.com", "www.example.com", "localhost", "a_b.example", "xn--exmple-cua.com",
			"r3---sn-x.example", "127.0.0.1", "192.0.2.1", "::1", "2001:db8::a", "fe80::1",
		}),
		rapid.StringMatching(`([a-z0-9_-]{1,10}\.){0,3}[a-wyz][a-z]{0,5}`),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 4, 4), func(b []byte) string {
			return netip.AddrFrom4([4]byte(b)).String()
		}),
	).Draw(t, "host")
	if strings.Contains(host, "xn--") && host != "xn--exmple-cua.com" {
		t.Skip("most random punycode is invalid")
	}
	return origin.Origin{
		Scheme: rapid.SampledFrom([]string{"http", "https", "ftp"}).Draw(t, "scheme"),
		Host:   host,
		Port:   uint16(rapid.OneOf(rapid.SampledFrom([]int{80, 443, 21}), rapid.IntRange(1, 65535)).Draw(t, "port")),
	}
}

// respell draws a URL that denotes o in another way.
func respell(t *rapid.T, o origin.Origin) string {
	host := o.Host
	_, isAddr := o.Addr()
	switch {
	case strings.Contains(host, ":"):
		host = "[" + maybeUpper(t, host) + "]"
	case isAddr:
		// An address has only one spelling.
	case host == "xn--exmple-cua.com" && rapid.Bool().Draw(t, "unicode"):
		host = maybeUpper(t, "exämple.com")
	default:
		host = strings.Map(func(r rune) rune { return respellRune(t, r) }, host)
	}
	port := ":" + strconv.Itoa(int(o.Port))
	if defaults := map[string]uint16{"http": 80, "https": 443, "ftp": 21}; defaults[o.Scheme] == o.Port {
		port = rapid.SampledFrom([]string{"", ":", port}).Draw(t, "port text")
	}
	rest := rapid.SampledFrom([]string{"", "/", "/a@b:1", "?q=@", "#f@x", "/%2F//"}).Draw(t, "rest")
	return maybeUpper(t, o.Scheme) + "://" + host + port + rest
}

func maybeUpper(t *rapid.T, s string) string {
	if rapid.Bool().Draw(t, "upper") {
		return strings.ToUpper(s)
	}
	return s
}

// respellRune draws r, its upper case or its full-width form.
func respellRune(t *rapid.T, r rune) rune {
	switch form := rapid.IntRange(0, 9).Draw(t, "form"); {
	case form == 0 && 'a' <= r && r <= 'z':
		return r - 'a' + 'A'
	case form == 1 && r > ' ' && r <= '~':
		return r - '!' + '！'
	case form == 2 && r == '.':
		return '。'
	default:
		return r
	}
}

func FuzzParse(f *testing.F) {
	for _, tt := range sameOrigin {
		for _, rawURL := range tt.urls {
			f.Add(rawURL)
		}
	}
	for _, tt := range badAuthorities {
		if len(tt.authority) < 1000 {
			f.Add("http://" + tt.authority)
		}
	}
	f.Fuzz(func(t *testing.T, rawURL string) {
		o, err := origin.Parse(rawURL)
		if err != nil {
			checkFuzzError(t, o, err)
			return
		}
		checkCanonical(t, o)
		if u, err := url.Parse(rawURL); err == nil {
			if fromURL, err := origin.FromURL(u); err != nil || fromURL != o {
				t.Errorf("FromURL(%q) = %+v, %v, but Parse gives %+v", rawURL, fromURL, err, o)
			}
		}
	})
}

// FuzzAuthorityPairs searches for two spellings for which the origins are equal and the keys are
// not, or vice versa.
func FuzzAuthorityPairs(f *testing.F) {
	f.Add("http", "example.com", "http", "EXAMPLE.com:80")
	f.Add("http", "exämple.com", "https", "xn--exmple-cua.com")
	f.Add("http", "[::1]", "http", "[::1]:81")
	f.Fuzz(func(t *testing.T, schemeA, authorityA, schemeB, authorityB string) {
		a, err := origin.FromAuthority(schemeA, authorityA)
		if err != nil {
			checkFuzzError(t, a, err)
			return
		}
		b, err := origin.FromAuthority(schemeB, authorityB)
		if err != nil {
			checkFuzzError(t, b, err)
			return
		}
		checkCanonical(t, a)
		checkCanonical(t, b)
		if (a == b) != (a.String() == b.String()) {
			t.Errorf("%+v and %+v have the strings %q and %q", a, b, a, b)
		}
	})
}

func FuzzNewTarget(f *testing.F) {
	for _, tt := range targetPaths {
		u := mustURL(f, tt.requestURI)
		f.Add(u.Host, u.Path, u.RawPath, u.RawQuery, u.ForceQuery)
	}
	f.Add("example.com", "/a\nb", "/a%0ab", "q\x00", false)
	f.Add("example.com", "//a", "", "", true)
	f.Fuzz(func(t *testing.T, host, path, rawPath, rawQuery string, forceQuery bool) {
		u := &url.URL{Scheme: "http", Host: host, Path: path, RawPath: rawPath, RawQuery: rawQuery, ForceQuery: forceQuery}
		target, err := origin.NewTarget(u)
		if err != nil {
			checkFuzzError(t, target.Origin, err)
			return
		}
		checkCanonical(t, target.Origin)
		checkSent(t, target)
		if sent := target.URL(); path != "" && sent.Path != path && !strings.Contains(rawPath, "#") {
			t.Errorf("the path %q is sent as another path, %q", path, sent.Path)
		}
	})
}

// FuzzRequestTarget checks whatever a client can put in a request line.
func FuzzRequestTarget(f *testing.F) {
	for _, tt := range targetPaths {
		f.Add(tt.requestURI)
	}
	f.Fuzz(func(t *testing.T, requestURI string) {
		u, err := url.ParseRequestURI(requestURI)
		if err != nil {
			return
		}
		target, err := origin.NewTarget(u)
		if err != nil {
			checkFuzzError(t, target.Origin, err)
			return
		}
		checkCanonical(t, target.Origin)
		checkSent(t, target)
		checkOctetsKept(t, requestURI, target)
	})
}

// checkOctetsKept checks that a target's path is the path of the request line, except that illegal
// bytes are escaped.
func checkOctetsKept(t *testing.T, requestURI string, target origin.Target) {
	t.Helper()
	_, afterScheme, _ := strings.Cut(requestURI, "://")
	start := strings.IndexAny(afterScheme, "/?")
	if start < 0 {
		start = len(afterScheme)
	}
	sent, _, _ := strings.Cut(afterScheme[start:], "#")
	rest := target.Path
	if !strings.HasPrefix(sent, "/") {
		rest = strings.TrimPrefix(rest, "/")
	}
	for i := range len(sent) {
		escape := "%" + strings.ToUpper(strconv.FormatUint(uint64(sent[i])|0x100, 16)[1:])
		switch {
		case strings.HasPrefix(rest, sent[i:i+1]):
			rest = rest[1:]
		case strings.HasPrefix(rest, escape) && !legalOctet(sent[i]):
			rest = rest[3:]
		default:
			t.Errorf("byte %d of %q is neither kept nor escaped in %q", i, sent, target.Path)
			return
		}
	}
	if rest != "" {
		t.Errorf("%q at the end of %q is not in %q", rest, target.Path, sent)
	}
}

// legalOctet is an independent reading of RFC 3986 appendix A: pchar, slash, question mark and
// percent sign, and the brackets that net/url accepts.
func legalOctet(c byte) bool {
	return strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!$&'()*+,;=:@/?%[]", c) >= 0
}

// checkCanonical checks what the documentation of Origin promises for every origin.
func checkCanonical(t *testing.T, o origin.Origin) {
	t.Helper()
	if again, err := origin.Parse(o.String()); err != nil || again != o {
		t.Errorf("Parse(%q) = %+v, %v, want %+v", o.String(), again, err, o)
	}
	if again, err := origin.FromAuthority(o.Scheme, o.HostPort()); err != nil || again != o {
		t.Errorf("FromAuthority(%q) = %+v, %v, want %+v", o.HostPort(), again, err, o)
	}
	if o.Scheme != "http" && o.Scheme != "https" && o.Scheme != "ftp" {
		t.Errorf("scheme %q, want http, https or ftp", o.Scheme)
	}
	if o.Port == 0 {
		t.Errorf("%+v has port 0", o)
	}
	if addr, ok := o.Addr(); ok {
		if addr.String() != o.Host || addr.Zone() != "" || addr.Is4In6() {
			t.Errorf("host %q is not the canonical spelling of the address %v", o.Host, addr)
		}
		return
	}
	if _, err := netip.ParseAddr(o.Host); err == nil {
		t.Errorf("Addr() does not return the address %q", o.Host)
	}
	if o.Host != strings.ToLower(o.Host) || len(o.Host) > 253 || strings.Trim(o.Host, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
		t.Errorf("host %q is not a canonical name", o.Host)
	}
	for label := range strings.SplitSeq(o.Host, ".") {
		if label == "" || len(label) > 63 {
			t.Errorf("host %q has the label %q, want 1 to 63 bytes", o.Host, label)
		}
	}
}

func checkFuzzError(t *testing.T, o origin.Origin, err error) {
	t.Helper()
	if !o.IsZero() {
		t.Errorf("got origin %+v with error %v, want the zero origin", o, err)
	}
	if part, reason := blamed(err); part == "" || reason == "" {
		t.Errorf("error %v has no part or no reason", err)
	}
	checkPrintable(t, err.Error())
}
