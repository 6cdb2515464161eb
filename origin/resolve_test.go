package origin_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/origin"
)

// resolvedPaths are paths and the first of their other forms; empty for paths without one.
var resolvedPaths = []struct{ path, want string }{
	{"/", ""},
	{"/a/b.html?c=../d;e//f\\g", ""},
	{"/a/", ""},
	{"/.well-known/security.txt", ""},
	{"/...", ""},
	{"/a/..b/c../.d/e.", ""},
	{"/a%2eb/%2ec", ""},
	{"/caf%C3%A9/%e0%a4%ae/%E0%A4%AF", ""},
	{"/%", ""},
	{"/%2", ""},
	{"/%zz/%%32e", ""},
	{"/%252e%252e/%255c/%252f", ""},
	{"/a%3cb/%3f..", ""},
	{"/a?", ""},
	{"/?/../", ""},
	{"/a#/b", ""},

	// RFC 3986 section 5.2.4.
	{"/a/b/c/./../../g", "/a/g"},
	{"/a/./b", "/a/b"},
	{"/a/.", "/a/"},
	{"/a/b/..", "/a/"},
	{"/a/b/../", "/a/"},
	{"/..", "/"},
	{"/.", "/"},
	{"/../../../a", "/a"},
	{"/a/../../b", "/b"},
	{"/..?q=/../", "/?q=/../"},

	// Dots and slashes in every spelling.
	{"/x/%2e%2E/a", "/a"},
	{"/x/.%2e/a", "/a"},
	{"/%2e/a", "/a"},
	{"/x/..%2fa", "/a"},
	{"/x%2F..%2Fa", "/a"},
	{"/%2fa", "/a"},
	{"/x/..%5ca", "/a"},
	{`/x\..\a`, "/a"},
	{`\a`, "/a"},
	{"/x%5C%2e%2E%5ca/%2f", "/a/"},
	{"//a", "/a"},
	{"/a//b///c//", "/a/b/c/"},
	{"/x//../a", "/a"},
	{"/%c0%ae%C0%AE/a", "/a"},
	{"/x/%c0%ae./a", "/a"},
	{"/x%c0%af..%C1%9Ca", "/a"},
	{"/x/%e0%80%ae%f0%80%80%ae%e0%80%afa%f0%80%81%9cb", "/a/b"},
	{"/x%E0%80%afa", "/x/a"},

	// Parameters.
	{"/a;b", "/a"},
	{"/a;b=c/d;e?f;g", "/a/d?f;g"},
	{"/x/..;/a", "/a"},
	{"/x/..;y=z/a", "/a"},
	{"/.;x/a", "/a"},
	{"/;x/a", "/a"},
	{"/x/%2e%2e;y/a;z", "/a"},
	{"/a/;x", "/a/"},
	{"/a;x/", "/a/"},
	{"/x;%2f..%2fa", "/x"},
	{"/a%3bb", "/a"},
	{"/x/..%3b/a", "/a"},
	{"/a;..", "/a"},

	// URLs that are data, up to the next slash.
	{"/share/https%3A%2F%2Fother.example%2Fsearch%2F", ""},
	{"/share/HTTP%3a%2f%2Fother.example%2Fsearch%2F?u=%2f", ""},
	{"/share/https:%2F%2Fother.example%2Fsearch%2F", ""},
	{"/share/url=https%3A%2F%2Fo%2Fs", ""},
	{"/share/https%3A%2F%2Fo%2Fs?u=/../p", ""},
	{"/wiki/User%3A%2F%2Fo%2Fs", "/wiki/User%3A/o/s"},
	{"/share/u%3Dhttps%3A%2F%2Fo%2Fs", ""},
	{"/https%3A%2F%2Fprivate%2F", ""},
	{"/share/https%3A%2F%2Fo%2Fhttps%3A%2F%2Fp%2Fq", ""},
	{"/share/https%3A%2F%2Fo%2F%252e%252e%252fprivate", ""},
	{"/share/https%3A%2F%2Fo%2Fs/a%2Fb", "/share/https%3A%2F%2Fo%2Fs/a/b"},
	{"//share/https%3A%2F%2Fo%2Fs", "/share/https%3A%2F%2Fo%2Fs"},
	{"/a%2Fb/https%3A%2F%2Fo%2Fs", "/a/b/https%3A%2F%2Fo%2Fs"},
	{"/share/https%3A%2F%2Fo%5Cs", `/share/https%3A%2F%2Fo/s`},
	{"/share/https%3A%2F%2Fo%c0%afs", `/share/https%3A%2F%2Fo/s`},
	{"/share/https%3A%2F%2Fo%2F..%2Fs", "/share/https%3A/s"},
	{"/share/https%3A%2F%2F%2e%2e%2f%2E%2Fs", "/share/s"},
	{"/share/https%3A%2F%2Fo%2Fs/../p", "/share/https%3A/o/p"},
	{"/x/../share/https%3A%2F%2Fo%2Fs", "/share/https%3A/o/s"},
	{"/share/https%3A%2F%2Fo%2Fs;x", "/share/https%3A/o/s"},
	{"/x;https%3A%2F%2Fprivate", "/x"},
	{"/x%3bhttps%3A%2F%2Fprivate", "/x/private"},
	{"/share/ahttps%3A%2F%2Fo%2Fs", "/share/ahttps%3A/o/s"},
	{"/share/a-http%3A%2F%2Fo%2Fs", "/share/a-http%3A/o/s"},
	{"/share%2Fhttps%3A%2F%2Fo%2Fs", "/share/https%3A/o/s"},
	{"/share%2Fa/https%3A%2F%2Fo%2Fs", "/share/a/https%3A%2F%2Fo%2Fs"},
	{"/share/ftp%3A%2F%2Fo%2Fs", ""},
	{"/share/WSS%3a%2f%2fo%2fs", ""},
	{"/share/http\u017f%3A%2F%2Fo%2Fs", "/share/http\u017f%3A/o/s"},
	{"/share/sftp%3A%2F%2Fo%2Fs", "/share/sftp%3A/o/s"},
	{"/share/c%3A%2F%2Fo%2Fs", "/share/c%3A/o/s"},
	{"/share/https%253A%252F%252Fo%2Fs", "/share/https%253A%252F%252Fo/s"},
	{"/share/https%3A//o%2Fs", "/share/https%3A/o/s"},
	{"/share/https%3A/%2Fo%2Fs", "/share/https%3A/o/s"},
	{"/share/https%3A%2Fo%2Fs", "/share/https%3A/o/s"},
	{"/share/https%2F%2Fo", "/share/https/o"},

	// What begins with no slash.
	{"", "/"},
	{"?q", "/?q"},
	{"a/../b", "/b"},
	{"..", "/"},
}

func TestResolve(t *testing.T) {
	t.Parallel()
	for _, tt := range resolvedPaths {
		forms, _ := origin.Resolve(tt.path)
		if tt.want == "" && len(forms) > 0 || tt.want != "" && (len(forms) == 0 || forms[0] != tt.want) {
			t.Errorf("Resolve(%q) = %q, want %q first", tt.path, forms, tt.want)
		}
		checkResolved(t, tt.path)
	}
}

// TestResolveForEveryServer checks paths that servers resolve differently: each result must be one
// of the forms.
func TestResolveForEveryServer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		path string
		want []string
	}{
		{"//private;%2f../s", []string{"/s", "/private/s"}},                           // decoding first, Tomcat
		{"//private/..;/s", []string{"/s", "/private/..;/s"}},                         // Tomcat, nginx
		{"/x/../private//../s", []string{"/s", "/private/s"}},                         // with and without merging slashes
		{"/pub/../private/..;/pub/x", []string{"/pub/x", "/private/..;/pub/x"}},       // Tomcat, nginx
		{"/x/..%3b/private/s", []string{"/private/s"}},                                // Tomcat behind a proxy that decodes
		{`/x/..%5cprivate/s`, []string{"/private/s"}},                                 // IIS
		{"/x%2f..%2fprivate/..%2fs", []string{"/s", "/x%2f..%2fprivate/..%2fs"}},      // with and without decoding
		{"/a/%2e%2e%5cprivate;x/..;y/s", []string{"/s", "/a/s", "/private;x/..;y/s"}}, // many differences at once
	} {
		forms, _ := origin.Resolve(tt.path)
		forms = append(forms, tt.path)
		for _, want := range tt.want {
			if !slices.Contains(forms, want) {
				t.Errorf("Resolve(%q) = %q lacks %q", tt.path, forms, want)
			}
		}
	}
}

// TestResolveOfTooManyForms checks that the forms are bounded.
func TestResolveOfTooManyForms(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/;../b/..;%2f%5c/..%2f../%5c%3b..//..%5c/..;", "//b/b%3b..%2f%5c/..%5c../b%2f%3b..%3b%5c/b;..%5c.."} {
		if forms, ok := origin.Resolve(path); ok || forms != nil {
			t.Errorf("Resolve(%q) = %d forms, %t, want none, false", path, len(forms), ok)
		}
		checkResolved(t, path)
	}
}

var (
	escapedSlash = regexp.MustCompile(`(?i)%2f|%c0%af|%e0%80%af|%f0%80%80%af`)
	backslash    = regexp.MustCompile(`(?i)\\|%5c|%c1%9c|%e0%81%9c|%f0%80%81%9c`)
	semicolon    = regexp.MustCompile(`(?i);|%3b|%c0%bb|%e0%80%bb|%f0%80%80%bb`)
	dotSpellings = regexp.MustCompile(`(?i)%2e|%c0%ae|%e0%80%ae|%f0%80%80%ae`)
	upper        = regexp.MustCompile(`[A-Z]`)
	otherEscape  = regexp.MustCompile(`%[013-9a-f][0-9a-f]$`) // than %2f
)

// server resolves paths like one server, according to the documentation of Resolve.
type server struct{ merges, decodes, backslashes, cutsRaw, cuts bool }

func (s server) resolve(path string) string {
	path, query, hasQuery := strings.Cut(path, "?")
	if s.cutsRaw {
		path = regexp.MustCompile(`;[^/]*`).ReplaceAllString(path, "")
	}
	if s.decodes {
		path = escapedSlash.ReplaceAllString(path, "/")
	}
	if s.backslashes {
		path = backslash.ReplaceAllString(path, "/")
	}
	segments := strings.Split(path, "/")
	if len(segments) > 1 && segments[0] == "" {
		segments = segments[1:]
	}
	var kept []string
	slash := false // whether the path ends with a slash
	for i, name := range segments {
		if s.cuts {
			name = semicolon.Split(name, 2)[0]
		}
		dots := dotSpellings.ReplaceAllString(name, ".")
		switch {
		case dots == ".", dots == "" && (s.merges || i == len(segments)-1):
			slash = true
		case dots == "..":
			kept, slash = kept[:max(len(kept)-1, 0)], true
		default:
			kept, slash = append(kept, name), false
		}
	}
	resolved := "/" + strings.Join(kept, "/")
	if slash && len(kept) > 0 {
		resolved += "/"
	}
	if hasQuery {
		resolved += "?" + query
	}
	return resolved
}

// hideData replaces the data in a path, that is each %2f of a URL of HTTP, FTP or WebSocket up to
// the next slash, if the path has neither a dot segment nor a semicolon in any spelling.
func hideData(path string) string {
	before, query, hasQuery := strings.Cut(path, "?")
	plain := dotSpellings.ReplaceAllString(escapedSlash.ReplaceAllString(backslash.ReplaceAllString(before, "/"), "/"), ".")
	if semicolon.MatchString(before) || slices.ContainsFunc(strings.Split(plain, "/"), func(s string) bool { return s == "." || s == ".." }) {
		return path
	}
	segments := strings.Split(before, "/")
	for i, s := range segments {
		folded := upper.ReplaceAllStringFunc(s, strings.ToLower) // ToLower would change the length of other bytes
		start := len(s)
		for _, scheme := range []string{"http", "https", "ftp", "ftps", "ws", "wss"} {
			for at := range s {
				escape := at >= 3 && otherEscape.MatchString(folded[at-3:at])
				rest, begins := strings.CutPrefix(folded[at:], scheme)
				begins = begins && (strings.HasPrefix(rest, "%3a%2f%2f") || strings.HasPrefix(rest, ":%2f%2f"))
				if begins && (at == 0 || escape || !strings.ContainsAny(folded[at-1:at], "abcdefghijklmnopqrstuvwxyz0123456789+-.")) {
					start = min(start, at)
				}
			}
		}
		segments[i] = s[:start] + strings.NewReplacer("%2f", "\x01", "%2F", "\x02").Replace(s[start:])
	}
	if hasQuery {
		return strings.Join(segments, "/") + "?" + query
	}
	return strings.Join(segments, "/")
}

// checkResolved compares Resolve with all possible servers, behind any number of proxies.
func checkResolved(t *testing.T, path string) {
	t.Helper()
	asked := path
	path = hideData(path)
	want, hops := make(map[string]bool), []string{path}
	most := min(max(64<<10/max(len(path), 1), 8), 64)
	for i := 0; i < len(hops) && len(want) <= most; i++ {
		for n := range 1 << 5 {
			form := server{n&1 != 0, n&2 != 0, n&4 != 0, n&8 != 0, n&16 != 0}.resolve(hops[i])
			if form != path && !want[form] {
				want[form] = true
				hops = append(hops, form)
			}
		}
	}
	shown := make(map[string]bool)
	for form := range want {
		shown[strings.NewReplacer("\x01", "%2f", "\x02", "%2F").Replace(form)] = true
	}
	path, want = asked, shown
	got, ok := origin.Resolve(path)
	if !ok || len(want) > most {
		if ok || len(want) <= most {
			t.Errorf("Resolve(%q) = %q, %t, want false since there are %d forms", path, got, ok, len(want))
		}
		return
	}
	for _, form := range got {
		if !want[form] {
			t.Errorf("Resolve(%q): no server makes %q, or it is returned twice", path, form)
		}
		delete(want, form)
	}
	for form := range want {
		t.Errorf("Resolve(%q) = %q lacks %q", path, got, form)
	}
}

// TestResolveBoundsLongForms checks that fewer forms of a long path are judged, so that a path of
// 16 KiB takes no more work per rule than several short ones.
func TestResolveBoundsLongForms(t *testing.T) {
	t.Parallel()
	const nineteen, five = "/!/a;b/%2fc\\d/..;/%3bx/", "//a;b/..%2fc/"
	for _, tt := range []struct {
		path string
		want int
	}{
		{nineteen, 19},
		{nineteen + strings.Repeat("a", 3<<10), 19},
		{nineteen + strings.Repeat("a", 4<<10), -1},
		{five, 5},
		{five + strings.Repeat("a", 16<<10), 5},
		{"//" + strings.Repeat("a", 1<<20), 1},
	} {
		forms, ok := origin.Resolve(tt.path)
		if !ok {
			forms = nil
		}
		if len(forms) != max(tt.want, 0) || ok != (tt.want >= 0) {
			t.Errorf("%.40s…, %d bytes: %d forms, %v, want %d", tt.path, len(tt.path), len(forms), ok, tt.want)
		}
	}
}

// FuzzResolve checks Resolve against a model of servers.
func FuzzResolve(f *testing.F) {
	for _, tt := range resolvedPaths {
		f.Add(tt.path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if !strings.ContainsAny(path, "\x00\x01\x02") { // the test uses these as marks
			checkResolved(t, path)
		}
	})
}
