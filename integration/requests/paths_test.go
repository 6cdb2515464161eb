package requests

import (
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// spelling is a row of testdata/paths.tsv.
type spelling struct {
	path string // as a client writes it
	deny bool
}

// sent returns the path as a client sends it. A URL has no raw backslash (RFC 3986 section 2).
func (s spelling) sent() string { return strings.ReplaceAll(s.path, `\`, "%5C") }

// readSpellings reads the table and checks that its rows are useful.
func readSpellings(t *testing.T) (all []spelling) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "paths.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	denied := 0
	for line := range strings.Lines(string(text)) {
		verdict, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok {
			continue // a comment
		}
		s := spelling{rest, verdict == "deny"}
		if reaches := reachesPrivate(s.sent()); reaches != s.deny || strings.HasPrefix(s.path, "/private") {
			t.Errorf("%s: the row is wrong or useless; a server serves the private page: %t", s.path, reaches)
		}
		if s.deny {
			denied++
		}
		all = append(all, s)
	}
	if denied < 120 || len(all)-denied < denied {
		t.Errorf("the table has %d rows to deny and %d to pass, want at least 120 and no fewer", denied, len(all)-denied)
	}
	return all
}

// servers has functions that resolve a request target like known servers. They share no code with
// the gateway.
var servers = map[string]func(target string) string{
	"nginx": func(target string) string {
		decoded, _ := url.PathUnescape(beforeQuery(target))
		return path.Clean("/" + decoded)
	},
	"Tomcat": func(target string) string { return asTomcat(beforeQuery(target)) },
	"Tomcat behind nginx": func(target string) string { // nginx decodes, encodes percent signs, and forwards that
		decoded, _ := url.PathUnescape(beforeQuery(target))
		return asTomcat(strings.ReplaceAll(path.Clean("/"+decoded), "%", "%25"))
	},
	"RFC 3986": func(target string) string { // keeps runs of slashes
		u := (&url.URL{Path: "/"}).ResolveReference(&url.URL{Path: strings.ReplaceAll(beforeQuery(target), "%2e", ".")})
		return u.Path
	},
	"Windows, with a lenient decoder of UTF-8": func(target string) string {
		decoded, _ := url.PathUnescape(beforeQuery(target))
		return path.Clean("/" + strings.NewReplacer(`\`, "/", "\xc0\xae", ".", "\xc0\xaf", "/", "\xc1\x9c", "/", "\xe0\x80\xae", ".",
			"\xe0\x80\xaf", "/", "\xf0\x80\x80\xae", ".").Replace(decoded))
	},
}

// asTomcat resolves a target like Tomcat: it removes parameters before decoding. It accepts encoded
// slashes and backslashes, which Tomcat has options for.
func asTomcat(target string) string {
	var segments []string
	for segment := range strings.SplitSeq(target, "/") {
		name, _, _ := strings.Cut(segment, ";")
		segments = append(segments, name)
	}
	decoded, _ := url.PathUnescape(strings.Join(segments, "/"))
	return path.Clean("/" + strings.ReplaceAll(decoded, `\`, "/"))
}

func beforeQuery(target string) string {
	before, _, _ := strings.Cut(target, "?")
	return before
}

// reachesPrivate reports whether one of the servers would serve a page below /private.
func reachesPrivate(target string) bool {
	for _, resolve := range servers {
		if p := resolve(target); p == "/private" || strings.HasPrefix(p, "/private/") {
			return true
		}
	}
	return false
}

// TestPathSpellings requests a disallowed page in all spellings that one of the servers resolves to
// it, and others in the same spellings. Disallowed pages do not reach the origin. All others do,
// byte for byte.
func TestPathSpellings(t *testing.T) {
	t.Parallel()
	all := readSpellings(t)
	server := testorigin.Start(t, testorigin.Config{})
	for _, paths := range []string{"strict", "as_sent"} {
		site := server.Site(t, testorigin.SiteConfig{})
		site.SetRobots(testorigin.OK("User-agent: *\nDisallow: /private\n"))
		g := rig.New(t, rig.Config{Engine: rig.Unpaced, Site: map[string]string{"as_sent": "paths as_sent"}[paths]})
		var want []string
		forms := make(map[string]enforce.PathForm) // by the URI as the client wrote it
		for _, s := range all {
			resolved, _ := origin.Resolve(s.sent())
			status, form := http.StatusOK, enforce.PathForm("")
			switch {
			case len(resolved) > 0 && paths == "as_sent":
				form = enforce.PathAsSent
			case s.deny:
				status, form = http.StatusForbidden, enforce.PathResolved
			case len(resolved) > 0:
				form = enforce.PathBoth
			}
			a := g.MustFetch("Tester/1.0", site.URL(s.path))
			if a.Status != status {
				t.Errorf("%s: %s: status %d, want %d", paths, s.path, a.Status, status)
			}
			said := func(form string) bool { return strings.Contains(a.Body, "\njudged as:   "+form+"\n") }
			if status == http.StatusForbidden && !slices.ContainsFunc(resolved, said) {
				t.Errorf("%s: %s: the refusal names none of %q: %s", paths, s.path, resolved, a.Body)
			}
			forms[site.URL(s.path)] = form
			if status == http.StatusOK {
				want = append(want, s.sent())
			}
		}
		var got []string
		for _, e := range site.PageExchanges() {
			if got = append(got, e.Target); paths == "strict" && reachesPrivate(e.Target) {
				t.Errorf("%s reached the origin, although a server would serve the private page for it", e.Target)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: the origin got\n%q\nwant\n%q", paths, got, want)
		}
		g.Stop()
		checkForms(t, g, forms)
		rig.Audit(t, "--store", g.Store(), g.AccessLog()).Clean(t, paths)
	}
}

// checkForms compares the forms in the log with the wanted ones, by URI.
func checkForms(t *testing.T, g *rig.Gateway, forms map[string]enforce.PathForm) {
	t.Helper()
	for _, l := range g.ReadLogs() {
		want, ok := forms[l.Request.URI]
		if !ok || l.Robots.Form != want {
			t.Errorf("%s: the log has the form %q, want %q; requested: %t", l.Request.URI, l.Robots.Form, want, ok)
		}
		delete(forms, l.Request.URI)
	}
	if len(forms) > 0 {
		t.Errorf("the log lacks %v", forms)
	}
}

// TestPathSpellingsInATunnel sends spellings inside TLS.
func TestPathSpellingsInATunnel(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	site := rig.StartSecureSite(t, authority, nil)
	g := rig.New(t, rig.Config{Engine: rig.Unpaced}.Trusting(authority))
	tunnel := g.Tunnel(site.Authority())
	inner, err := tunnel.Over(t, &tls.Config{RootCAs: g.Authority(), ServerName: "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]int{
		"/x/../private/page.html": http.StatusForbidden, "//private/page.html": http.StatusForbidden,
		"/x/..%2fprivate/page.html": http.StatusForbidden, "/x/..;/private/page.html": http.StatusForbidden,
		"/x/../private/open.html": http.StatusOK, "/x/../news/a.html": http.StatusOK,
	} {
		a, err := inner.Ask(http.MethodGet, fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: Tester/1.0\r\n\r\n", target, site.Authority()))
		if err != nil || a.Status != want {
			t.Errorf("%s: status %d, error %v, want %d", target, a.Status, err, want)
		}
	}
	got := site.Targets()
	slices.Sort(got)
	if want := []string{"/x/../news/a.html", "/x/../private/open.html"}; !slices.Equal(got, want) {
		t.Errorf("the site got %q, want %q", got, want)
	}
}

// TestURLInAPath checks that a URL in a path, with its slashes escaped, does not count as folders
// of the site: a rule about a folder anywhere does not match it. Anything that could reach such a
// folder is still refused.
func TestURLInAPath(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nDisallow: */search/*\nDisallow: /private\n"))
	g := rig.New(t, rig.Config{Engine: rig.Unpaced})
	for path, want := range map[string]int{
		"/share/https%3A%2F%2Fother.example%2Fsearch%2F": http.StatusOK, "/share?u=https%3A%2F%2Fother.example%2Fsearch%2F": http.StatusOK,
		"/share/https:%2f%2Fother.example%2fsearch%2F": http.StatusOK, "/https%3A%2F%2Fprivate%2F": http.StatusOK,
		"/share%2Fsearch%2Fhttps%3A%2F%2Fo": http.StatusForbidden, "/share/https%3A%2F%2Fo/search/": http.StatusForbidden,
		"/x/../share/https%3A%2F%2Fo%2Fsearch%2F": http.StatusForbidden, "/share/https%3A%2F%2Fo%2Fsearch%2F;": http.StatusForbidden,
		"/share/xhttps%3A%2F%2Fo%2Fsearch%2F": http.StatusForbidden, "/share/c%3A%2F%2Fo%2Fsearch%2F": http.StatusForbidden,
		"/share/https%3A//o%2Fsearch%2F": http.StatusForbidden, "/share/https%3A%2F%2Fo%5Csearch%5C": http.StatusForbidden,
	} {
		if a := g.MustFetch("Tester/1.0", site.URL(path)); a.Status != want {
			t.Errorf("%s: status %d, want %d: %s", path, a.Status, want, a.Body)
		}
	}
	g.Stop()
	rig.Audit(t, "--store", g.Store(), g.AccessLog()).Clean(t, "a URL in a path")
}

// TestDollarInsideARule checks RFC 9309 section 2.2.2 for the byte $: raw or as %24, it is the same
// in a rule and in a target, except a $ that closes the rule (section 2.2.3).
func TestDollarInsideARule(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nDisallow: /raw$inside\nDisallow: /escaped%24inside\nDisallow: /closing$\n"))
	g := rig.New(t, rig.Config{Engine: rig.Unpaced})
	for path, want := range map[string]int{
		"/raw$inside": http.StatusForbidden, "/raw%24inside/x": http.StatusForbidden,
		"/escaped$inside": http.StatusForbidden, "/escaped%24inside/x": http.StatusForbidden,
		"/closing": http.StatusForbidden, "/closing$": http.StatusOK, "/closing%24": http.StatusOK, "/raw": http.StatusOK,
	} {
		if a := g.MustFetch("Tester/1.0", site.URL(path)); a.Status != want {
			t.Errorf("%s: status %d, want %d: %s", path, a.Status, want, a.Body)
		}
	}
}

// TestPathsOfPieces tries all paths of up to four pieces, and many longer ones. The gateway must
// refuse a path if one of the servers resolves it to a private one.
func TestPathsOfPieces(t *testing.T) {
	t.Parallel()
	pieces := []string{"/", "/private", "/x", "/..", "/.", "/..;", ";y", ";..", "%2f", "%2f..", "%5c", "%3b", "%2e", "https%3A%2F%2F", "/y=http:%2f%2f"}
	group := robotstxt.Parse([]byte("User-agent: *\nDisallow: /private\n")).Select(robotstxt.Agent{})
	check := func(path string) {
		m, _, _ := enforce.MatchPath(group, http.MethodGet, path, enforce.PathsStrict)
		if m.Allowed && reachesPrivate(path) {
			t.Errorf("%s is allowed, although a server resolves it to a private path", path)
		}
	}
	var build func(path string, left int)
	build = func(path string, left int) {
		check(path)
		for _, piece := range pieces {
			if left > 0 {
				build(path+piece, left-1)
			}
		}
	}
	build("/", 4)
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 50_000 {
		path := "/"
		for range 5 + n%4 {
			path += pieces[random.IntN(len(pieces))]
		}
		check(path)
	}
}
