package origin_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/origin"
)

// resolvedPaths are paths and what they resolve to; empty is the path itself.
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
	{"/a%3bb/%3f..", ""},
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
	{"/x;%2f..%2fa", "/a"},
	{"/a;..", "/a"},

	// What begins with no slash.
	{"", "/"},
	{"?q", "/?q"},
	{"a/../b", "/b"},
	{"..", "/"},
}

func TestResolve(t *testing.T) {
	t.Parallel()
	for _, tt := range resolvedPaths {
		want := tt.want
		if want == "" {
			want = tt.path
		}
		if got := origin.Resolve(tt.path); got != want {
			t.Errorf("Resolve(%q) = %q, want %q", tt.path, got, want)
		}
		checkResolved(t, tt.path)
	}
}

// TestResolveDoesNotAllocate where there is nothing to resolve.
func TestResolveDoesNotAllocate(t *testing.T) {
	for _, tt := range resolvedPaths {
		path := tt.path + strings.Repeat("/.long", 100)
		if path == origin.Resolve(path) && testing.AllocsPerRun(10, func() { origin.Resolve(path) }) != 0 {
			t.Errorf("Resolve(%q) allocates", path)
		}
	}
}

var (
	slashSpellings = regexp.MustCompile(`(?i)\\|%2f|%5c|%c0%af|%c1%9c|%e0%80%af|%e0%81%9c|%f0%80%80%af|%f0%80%81%9c`)
	dotSpellings   = regexp.MustCompile(`(?i)%2e|%c0%ae|%e0%80%ae|%f0%80%80%ae`)
)

// resolveSlowly is Resolve as its documentation tells, and nothing else.
func resolveSlowly(path string) string {
	path, query, hasQuery := strings.Cut(path, "?")
	var kept []string
	slash := false // at the end
	for segment := range strings.SplitSeq(slashSpellings.ReplaceAllString(path, "/"), "/") {
		name, _, _ := strings.Cut(segment, ";")
		switch dotSpellings.ReplaceAllString(name, ".") {
		case "", ".":
			slash = true
		case "..":
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

// checkResolved holds what the doc of Resolve promises.
func checkResolved(t *testing.T, path string) {
	t.Helper()
	got := origin.Resolve(path)
	if want := resolveSlowly(path); got != want {
		t.Errorf("Resolve(%q) = %q, the model says %q", path, got, want)
	}
	if again := origin.Resolve(got); again != got {
		t.Errorf("Resolve(%q) = %q, which resolves to %q", path, got, again)
	}
	before, query, _ := strings.Cut(got, "?")
	if _, asSent, _ := strings.Cut(path, "?"); query != asSent {
		t.Errorf("Resolve(%q) = %q has another query", path, got)
	}
	switch {
	case !strings.HasPrefix(before, "/"):
		t.Errorf("Resolve(%q) = %q does not begin with a slash", path, got)
	case strings.Contains(before, "//"), strings.ContainsAny(before, `\;`), slashSpellings.MatchString(before):
		t.Errorf("Resolve(%q) = %q has something left to resolve", path, got)
	}
	for segment := range strings.SplitSeq(before, "/") {
		if dots := dotSpellings.ReplaceAllString(segment, "."); dots == "." || dots == ".." {
			t.Errorf("Resolve(%q) = %q has the dot segment %q", path, got, segment)
		}
	}
}

// FuzzResolve holds Resolve against a model of it.
func FuzzResolve(f *testing.F) {
	for _, tt := range resolvedPaths {
		f.Add(tt.path)
	}
	f.Fuzz(func(t *testing.T, path string) { checkResolved(t, path) })
}
