package fetch

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// soft is a server that answers 5xx: to /robots.txt with one page, to all other paths with another
// one.
type soft struct {
	status, probeStatus int
	page, probePage     string
	header              string
	probes              []string
}

func (s *soft) RoundTrip(req *http.Request) (*http.Response, error) {
	status, page := s.status, s.page
	if req.URL.Path != "/robots.txt" {
		s.probes = append(s.probes, req.URL.String())
		status, page = s.probeStatus, s.probePage
	}
	page = strings.ReplaceAll(page, "PATH", req.URL.Path)
	h := http.Header{}
	if s.header != "" {
		h.Set("Content-Encoding", s.header)
	}
	return &http.Response{
		StatusCode: status, Header: h, ProtoMajor: 2,
		Body: io.NopCloser(strings.NewReader(page)), ContentLength: int64(len(page)), Request: req,
	}, nil
}

const (
	pageNotFound = `<!DOCTYPE html><html><head><title>Page not found</title><style>.host{}</style>
<script>var connection = "database";</script></head><body class="gateway"><h1>Page not found</h1>
<p>We are sorry, but the page PATH could not be found.</p><a href="/">Home</a></body></html>`
	outagePage = `<html><title>Error</title><body>Could not connect to database: host not found. Page not found.</body></html>`
)

// TestGoogle_Soft404 checks when a 5xx counts as a 404, as Google's specification has it.
func TestGoogle_Soft404(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		server soft
		absent bool
		probes int
	}{
		{"proven", soft{500, 500, pageNotFound, pageNotFound, "", nil}, true, 1},
		{"501", soft{501, 501, pageNotFound, pageNotFound, "", nil}, true, 1},
		{"plain text", soft{500, 500, "404 not found: PATH", "404 not found: PATH", "", nil}, true, 1},
		{"two words", soft{500, 500, "<h1>Not Found</h1>", "<h1>Not Found</h1>", "", nil}, true, 1},
		{"507 is want of room", soft{507, 507, pageNotFound, pageNotFound, "", nil}, false, 0},
		{"520 is a gateway", soft{520, 520, pageNotFound, pageNotFound, "", nil}, false, 0},
		{"503 is an outage", soft{503, 503, pageNotFound, pageNotFound, "", nil}, false, 0},
		{"502 is a gateway", soft{502, 502, pageNotFound, pageNotFound, "", nil}, false, 0},
		{"504 is a gateway", soft{504, 504, pageNotFound, pageNotFound, "", nil}, false, 0},
		{"429 is no 5xx", soft{429, 429, pageNotFound, pageNotFound, "", nil}, false, 0},
		{"430 is no 5xx", soft{430, 430, pageNotFound, pageNotFound, "", nil}, false, 0},
		{"page without words", soft{500, 500, "", "", "", nil}, false, 0},
		{"page about an error", soft{500, 500, "Internal Server Error", "Internal Server Error", "", nil}, false, 0},
		{"page about an outage", soft{500, 500, outagePage, outagePage, "", nil}, false, 0},
		{"not found in a script", soft{500, 500, "<script>page not found</script>Oops", "", "", nil}, false, 0},
		{"not found in an attribute", soft{500, 500, `<p title="page not found">Oops</p>`, "", "", nil}, false, 0},
		{"probe finds a page", soft{500, 200, pageNotFound, "hello", "", nil}, false, 1},
		{"probe finds nothing properly", soft{500, 404, pageNotFound, pageNotFound, "", nil}, false, 1},
		{"probe is redirected", soft{500, 302, pageNotFound, pageNotFound, "", nil}, false, 1},
		{"probe fails otherwise", soft{500, 502, pageNotFound, pageNotFound, "", nil}, false, 1},
		{"probe says otherwise", soft{500, 500, pageNotFound, "Internal Server Error", "", nil}, false, 1},
		{"probe says it in other words", soft{500, 500, pageNotFound, "404 not found, sorry", "", nil}, false, 1},
		{"probe says it of a database", soft{500, 500, pageNotFound, pageNotFound + "database", "", nil}, false, 1},
		{"unknown coding", soft{500, 500, pageNotFound, pageNotFound, "compress", nil}, false, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := tt.server
			out := New(Config{Transport: &server, Soft404: true}).Fetch(t.Context(), mustKey(t, "https://a.example"), nil)
			w := want{KindUnreachable, CauseStatus}
			if tt.absent {
				w = want{KindAbsent, CauseSoft404}
			}
			w.check(t, out)
			if len(server.probes) != tt.probes || out.Status != tt.server.status {
				t.Errorf("probes %q, status %d", server.probes, out.Status)
			}

			server.probes = nil
			off := New(Config{Transport: &server}).Fetch(t.Context(), mustKey(t, "https://a.example"), nil)
			want{KindUnreachable, CauseStatus}.check(t, off)
			if server.probes != nil {
				t.Errorf("probes %q although they are off", server.probes)
			}
		})
	}
}

// TestExt_Soft404CodedTail checks a coded error page that continues after its end, which cannot be
// read reliably.
func TestExt_Soft404CodedTail(t *testing.T) {
	t.Parallel()
	page := encode(t, "gzip", []byte(pageNotFound))
	for tail, w := range map[int]want{0: {KindAbsent, CauseSoft404}, 200_000: {KindUnreachable, CauseStatus}} {
		raw := answer(500, string(append(slices.Clone(page), make([]byte, tail)...)), "Content-Encoding: gzip")
		out, _ := fetchScript(t, Config{Soft404: true}, map[string]string{"*": raw})
		w.check(t, out)
	}
}

// TestExt_Soft404Probe checks that each probe requests an unpredictable path from the origin that
// gave the answer.
func TestExt_Soft404Probe(t *testing.T) {
	t.Parallel()
	server := &soft{status: 500, probeStatus: 500, page: pageNotFound, probePage: pageNotFound}
	f := New(Config{UserAgent: testAgent, Soft404: true, Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.URL.Host == "a.example" {
			h := http.Header{"Location": {"https://b.example:8443/robots.txt"}}
			return &http.Response{StatusCode: 301, Header: h, Body: http.NoBody, Request: req}, nil
		}
		checkRequest(t, req)
		if req.UserAgent() != testAgent {
			t.Errorf("probe as %q", req.UserAgent())
		}
		return server.RoundTrip(req)
	})})
	seen := map[string]bool{}
	for range 3 {
		out := f.Fetch(t.Context(), mustKey(t, "http://a.example"), nil)
		want{KindAbsent, CauseSoft404}.check(t, out)
		if _, _, ok := out.Shared(); ok {
			t.Error("Shared accepts a soft 404")
		}
	}
	for _, probe := range server.probes {
		if !strings.HasPrefix(probe, "https://b.example:8443/") || len(probe) < 50 || seen[probe] {
			t.Errorf("probe %q", probe)
		}
		seen[probe] = true
	}
	if len(server.probes) != 3 {
		t.Errorf("%d probes, want 3", len(server.probes))
	}
}

// errorPages returns the pages in a file by their names.
func errorPages(tb testing.TB, file string) map[string]string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "errorpages", file))
	if err != nil {
		tb.Fatal(err)
	}
	pages := map[string]string{}
	for _, part := range strings.Split(string(text), "\n== ")[1:] {
		name, body, _ := strings.Cut(part, "\n")
		if _, twice := pages[name]; twice {
			tb.Errorf("two pages have the name %q", name)
		}
		pages[name] = body
	}
	return pages
}

// TestGoogle_OutagePages checks that no page of a server in trouble counts as a missing file, with
// any checked status, even for an unknown origin.
func TestGoogle_OutagePages(t *testing.T) {
	t.Parallel()
	pages := errorPages(t, "outage.txt")
	if len(pages) < 100 {
		t.Errorf("%d pages, want at least 100", len(pages))
	}
	for name, page := range pages {
		for _, status := range []int{500, 501} {
			server := &soft{status: status, probeStatus: status, page: page, probePage: page}
			out := New(Config{Transport: server, Soft404: true}).Fetch(t.Context(), mustKey(t, "https://a.example"), nil)
			if out.Kind != KindUnreachable || out.Cause != CauseStatus || server.probes != nil {
				t.Errorf("%s, with %d: %s/%s, probes %q", name, status, out.Kind, out.Cause, server.probes)
			}
		}
	}
}

// TestGoogle_Soft404Pages checks that pages about a missing page count as a missing file, unless
// rules are known.
func TestGoogle_Soft404Pages(t *testing.T) {
	t.Parallel()
	for name, page := range errorPages(t, "soft404.txt") {
		server := &soft{status: 500, probeStatus: 500, page: page, probePage: page}
		out := New(Config{Transport: server, Soft404: true}).Fetch(t.Context(), mustKey(t, "https://a.example"), nil)
		if out.Kind != KindAbsent || out.Cause != CauseSoft404 {
			t.Errorf("%s: %s/%s, want absent by a soft 404", name, out.Kind, out.Cause)
		}
	}
}

// TestGoogle_Soft404KeepsRules checks that a 5xx does not remove known rules of any age.
func TestGoogle_Soft404KeepsRules(t *testing.T) {
	t.Parallel()
	soft := Outcome{Kind: KindAbsent, Cause: CauseSoft404, Status: 500, Hops: []string{"http://b.example/"}, Retried: true}
	for name, tt := range map[string]struct {
		before Record
		want   Access
		state  State
	}{
		"never asked":                {Record{}, AccessAllow, StateAbsent},
		"absent":                     {after(Policy{}, 0*hour, gone), AccessAllow, StateAbsent},
		"failing without a copy":     {after(Policy{}, 0*hour, broken), AccessAllow, StateAbsent},
		"rules in their TTL":         {after(Policy{}, 20*hour, good), AccessRules, StateRules},
		"rules past it":              {after(Policy{}, 0*hour, good), AccessDeny, StateUnreachable},
		"rules of a year ago":        {after(Policy{}, -365*day, good), AccessDeny, StateUnreachable},
		"failing with a copy":        {after(Policy{}, 0*hour, good, 25*hour, broken), AccessDeny, StateUnreachable},
		"failing with a lost copy":   {lost(after(Policy{}, 0*hour, good, 25*hour, broken)), AccessDeny, StateUnreachable},
		"failing long with a copy":   {after(Policy{}, -40*day, good, -39*day, broken), AccessLastGood, StateUnreachable},
		"an empty file is rules too": {after(Policy{}, 0*hour, Outcome{Kind: KindRules}), AccessDeny, StateUnreachable},
	} {
		now := t0.Add(30 * hour)
		r := (Policy{}).Next(tt.before, soft, now)
		if a := (Policy{}).Access(r, now); a != tt.want || r.State != tt.state {
			t.Errorf("%s: %s, %s; want %s, %s", name, r.State, a, tt.state, tt.want)
		}
		if f := r.LastFailure; tt.state != StateAbsent && (f.Cause != CauseStatus || f.Status != 500 || f.Hops == nil || r.Attempts < 2) {
			t.Errorf("%s: the record is %+v", name, r)
		}
	}
}

// lost removes a record's body, like a store that has lost it.
func lost(r Record) Record {
	text := *r.LastGood
	text.Body, r.LastGood = nil, &text
	return r
}

func says(text string) bool {
	at := &url.URL{Scheme: "http", Host: "a.example", Path: "/robots.txt"}
	return readErrorPage([]byte(text), at).saysNotFound()
}

func TestExt_SaysNotFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"Page not found":         true,
		"<h1>Not Found</h1>":     true,
		"404 Not Found":          true,
		"Error 404. Not found!":  true,
		"ERROR 404 - NOT FOUND!": true,
		"The requested URL /robots.txt was not found on this server.": true,
		"The requested URL http://a.example/robots.txt was not found": true,
		"/robots.txt not found":                                                 true,
		"robots.txt does not exist":                                             true,
		"The page you are looking for does not exist.":                          true,
		"That page doesn&#39;t exist":                                           true,
		"That page doesn't exist":                                               true,
		"This page can’t be found":                                              true,
		"We couldn't find the page you were looking for":                        true,
		"The requested file could not be found.":                                true,
		"No such page":                                                          true,
		"The requested resource was not found on this server":                   true,
		"The document you requested does not exist":                             true,
		"This address does not exist":                                           true,
		"<title>Shop</title><p>Page not found. " + strings.Repeat("More. ", 10): true,
		"<h1>Oops</h1><h2>Page not found</h2>":                                  true,
		"<h1>Unclosed: page not found<p>" + strings.Repeat("word ", 50):         true,
		"<title>Page not found</title>" + strings.Repeat("<p>word ", 5000):      true,
		"<title>Page not found</title><script>" + strings.Repeat("word ", 50):   true,
		"Seite nicht gefunden":                                                  true,
		"Page introuvable":                                                      true,
		"Página no encontrada":                                                  true,
		"Страница не найдена":                                                   true,

		"":                             false,
		"Not Found":                    false, // what?
		"Internal Server Error":        false,
		"not":                          false,
		"found not":                    false,
		"page found":                   false,
		"Key not found":                false,
		"User not found":               false,
		"Host not found":               false,
		"File not found":               false,
		"No such file":                 false,
		"Template file not found":      false,
		"Config file not found":        false,
		"Class page not found":         false,
		"The file pages was not found": false,
		"Database page not found":      false,
		"The handler for this page was not found":                                    false,
		"Page not found in the cache":                                                false,
		"The page was not found because nobody woke":                                 false,
		"Requested resource not found":                                               false, // DynamoDB, of its table
		"Document not found":                                                         false,
		"document does not exist":                                                    false,
		"Address not found":                                                          false,
		"Page not found: upstream connection refused":                                false,
		"Fatal error: page not found":                                                false,
		"The page is temporarily unavailable, not to be found":                       false,
		"page x x x not found":                                                       false,
		"Service page. We found that you are not welcome":                            false,
		"<title>500</title><h1>Page not found</h1>":                                  false,
		"<p title='page not found'>Oops":                                             false,
		"<!-- page not found -->Oops":                                                false,
		"<script>page not found":                                                     false,
		"<h1>Oops</h1>" + strings.Repeat("<p>word ", 30) + "<h2>Page not found</h2>": false, // neither a headline nor a short page
	} {
		if got := says(text); got != want {
			t.Errorf("says(%.80q) = %v, want %v", text, got, want)
		}
	}
}

// TestExt_OutageWords checks that each of these words beside "page not found" shows a server in
// trouble, which may be missing a file of its own.
func TestExt_OutageWords(t *testing.T) {
	t.Parallel()
	if !says("Page not found here") {
		t.Error("a page about a missing page is not recognized")
	}
	traces := []string{
		"cannot connect", "line 12", "object reference", "server error", "timed out", "at render (", "at com.example.Page.load(", "app:12:34",
		`c:\inetpub`, " /var/www/", "'/app/views", "(/usr/src/", "=/home/x/", " /srv/x/", " /opt/x/", " /etc/x/", " /mnt/x/", " /data/x/", " /www/x/",
		" /code/x/", " /root/x/", " /tmp/x/", " /workspace/x/", " /src/x/", "NullPointerException", "TypeError",
	}
	for ending := range strings.FieldsSeq("go py rb php php7 phtml js mjs cjs ts tsx jsx java cs cshtml chtml asp aspx ejs erb haml twig pug hbs " +
		"mustache blade vue pl lua ex exs kt scala tmpl tpl jsp dll sql yml yaml toml json") {
		traces = append(traces, "index."+ending)
	}
	words := strings.Fields(`aborted backend backtrace bucket class cluster config configuration connect connection container controller database
		debug denied deployment directory dns domain down eacces econnrefused econnreset eexist emfile enoent enotfound eperm etimedout exception
		failed failure fatal gateway goroutine guru host hostname ingress instance invalid maintenance meditation module mysql namespace nil null
		outage overload overloaded panic php pod postgres postgresql query redis runtime schema segmentation sql sqlstate ssl stack stacktrace syntax
		table temporarily template tenant timeout trace traceback unavailable uncaught undefined unexpected unhandled upstream warning wrong`)
	for _, sign := range append(traces, words...) {
		if says("Page not found here\n" + sign) {
			t.Errorf("%q is not recognized as trouble", sign)
		}
	}
}

func TestExt_AlikePages(t *testing.T) {
	t.Parallel()
	page := func(id string) []string {
		return words(fmt.Sprintf("Page not found. This page does not exist here. Request %s at %s. Go to the home page or search our shop.", id, id))
	}
	if !alike(page("robots"), page("qwertz")) {
		t.Error("pages that differ in an id are not alike")
	}
	if alike(page("robots"), words("Page not found")) {
		t.Error("a long and a short page are alike")
	}
	if alike(nil, nil) {
		t.Error("pages without words are alike")
	}
}

// BenchmarkErrorPage measures the slowest pages, because an error page is hostile input too.
func BenchmarkErrorPage(b *testing.B) {
	for _, unit := range []string{"<", "<script", "<p>", "<script>", "page ", "\xff", "é "} {
		page := []byte(strings.Repeat(unit, maxErrorPage/len(unit)))
		b.Run(fmt.Sprintf("%q", unit), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				says(string(page))
			}
		})
	}
}
