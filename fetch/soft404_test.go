package fetch

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// soft is a server that answers 5xx: to /robots.txt with one page, to all other
// paths with another.
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
	outage = `<html><title>Error</title><body>Could not connect to database: host not found. Page not found.</body></html>`
)

func TestSeed000_Soft404(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		server soft
		absent bool
		probes int
	}{
		{"proven", soft{500, 500, pageNotFound, pageNotFound, "", nil}, true, 1},
		{"other 5xx", soft{501, 501, pageNotFound, pageNotFound, "", nil}, true, 1},
		{"plain text", soft{500, 500, "404 not found: PATH", "404 not found: PATH", "", nil}, true, 1},
		{"two words", soft{500, 500, "<h1>Not Found</h1>", "<h1>Not Found</h1>", "", nil}, true, 1},
		{"503 is an outage", soft{503, 503, pageNotFound, pageNotFound, "", nil}, false, 0},
		{"502 is a gateway", soft{502, 502, pageNotFound, pageNotFound, "", nil}, false, 0},
		{"504 is a gateway", soft{504, 504, pageNotFound, pageNotFound, "", nil}, false, 0},
		{"429 is no 5xx", soft{429, 429, pageNotFound, pageNotFound, "", nil}, false, 0},
		{"430 is no 5xx", soft{430, 430, pageNotFound, pageNotFound, "", nil}, false, 0},
		{"page without words", soft{500, 500, "", "", "", nil}, false, 0},
		{"page about an error", soft{500, 500, "Internal Server Error", "Internal Server Error", "", nil}, false, 0},
		{"page about an outage", soft{500, 500, outage, outage, "", nil}, false, 0},
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
			out := New(Config{Transport: &server, Soft404: true}).Fetch(t.Context(), mustOrigin(t, "https://a.example"), nil)
			w := want{KindUnreachable, CauseStatus}
			if tt.absent {
				w = want{KindAbsent, CauseSoft404}
			}
			w.check(t, out)
			if len(server.probes) != tt.probes || out.Status != tt.server.status {
				t.Errorf("probed %q, status %d", server.probes, out.Status)
			}

			server.probes = nil
			off := New(Config{Transport: &server}).Fetch(t.Context(), mustOrigin(t, "https://a.example"), nil)
			want{KindUnreachable, CauseStatus}.check(t, off)
			if server.probes != nil {
				t.Errorf("probed %q although it is off", server.probes)
			}
		})
	}
}

// TestExt_Soft404Probe: each probe asks the origin that gave the answer, for a
// path that nobody can foresee.
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
		out := f.Fetch(t.Context(), mustOrigin(t, "http://a.example"), nil)
		want{KindAbsent, CauseSoft404}.check(t, out)
		if _, _, ok := out.Shared(); ok {
			t.Error("a soft 404 is shared")
		}
	}
	for _, probe := range server.probes {
		if !strings.HasPrefix(probe, "https://b.example:8443/") || len(probe) < 50 || seen[probe] {
			t.Errorf("probe %q", probe)
		}
		seen[probe] = true
	}
	if len(server.probes) != 3 {
		t.Errorf("%d probes", len(server.probes))
	}
}

func TestExt_SaysNotFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"Not Found":             true,
		"Page not found":        true,
		"404 Not Found nginx":   true,
		"Error 404. Not found!": true,
		"The requested URL /robots.txt was not found on this server.": true,
		"The page you are looking for does not exist.":                true,
		"That page doesn&#39;t exist":                                 true,
		"That page doesn't exist":                                     true,
		"This page can’t be found":                                    true,
		"No such file":                                                true,
		"Seite nicht gefunden":                                        true,
		"Page introuvable":                                            true,
		"Página no encontrada":                                        true,
		"Страница не найдена":                                         true,

		"":                        false,
		"Internal Server Error":   false,
		"not":                     false,
		"found not":               false,
		"Key not found":           false,
		"User not found":          false,
		"Host not found":          false,
		"Template file not found": false,
		"Config file not found":   false,
		"Class page not found":    false,
		"Page not found: upstream connection refused":          false,
		"Fatal error: page not found":                          false,
		"The page is temporarily unavailable, not to be found": false,
		"page " + strings.Repeat("x ", 7) + "not found":        false,
		"page " + strings.Repeat("x ", 6) + "not found":        true,
		"Service page. We found that you are not welcome":      false,
	} {
		if got := saysNotFound(pageWords([]byte(text), "/robots.txt")); got != want {
			t.Errorf("saysNotFound(%q) = %v", text, got)
		}
	}
}

func TestExt_AlikePages(t *testing.T) {
	t.Parallel()
	page := func(id string) []string {
		return pageWords(fmt.Appendf(nil, "Page not found. The page /%s does not exist here. Request %s at %s. Go to the home page or search our shop.", id, id, id), "/"+id)
	}
	if !alike(page("robots"), page("qwertz")) {
		t.Error("pages that differ in an id are not alike")
	}
	if alike(page("robots"), pageWords([]byte("Page not found"), "/")) {
		t.Error("a long and a short page are alike")
	}
	if alike(nil, nil) {
		t.Error("pages without words are alike")
	}
}

// BenchmarkErrorPage has the pages that take longest: an error page is hostile
// input as well.
func BenchmarkErrorPage(b *testing.B) {
	for _, unit := range []string{"<", "<script", "<p>", "<script>", "page ", "\xff", "é "} {
		page := []byte(strings.Repeat(unit, maxErrorPage/len(unit)))
		b.Run(fmt.Sprintf("%q", unit), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				saysNotFound(pageWords(page, "/robots.txt"))
			}
		})
	}
}
