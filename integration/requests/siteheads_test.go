package requests

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// rawSite answers with the raw bytes that a path selects, and keeps the request lines and Hosts.
type rawSite struct {
	authority string
	mu        sync.Mutex
	asked     []string
}

func startRawSite(t *testing.T, answers map[string]string) *rawSite {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rawSite{authority: l.Addr().String()}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				s.mu.Lock()
				s.asked = append(s.asked, r.Method+" "+r.RequestURI+" "+r.Host)
				s.mu.Unlock()
				answer, ok := answers[r.RequestURI]
				if !ok {
					answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
				}
				_, _ = io.WriteString(c, answer)
			})
		}
	})
	t.Cleanup(func() { l.Close(); serving.Wait() })
	return s
}

func (s *rawSite) arrived() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

const rulesAnswer = "\r\n\r\nUser-agent: *\nDisallow: /private\n"

// TestHeadsOfSites checks RFC 9112 sections 5.1, 5.2 and 6.3 for robots.txt and for pages. A field
// lost from a head may be a site's refusal, or matter to the crawler.
func TestHeadsOfSites(t *testing.T) {
	t.Parallel()
	g := rig.New(t, rig.Config{Engine: rig.Unpaced})
	for name, tt := range map[string]struct {
		robots string
		broken bool
	}{
		"a blank before the colon of Location": {"HTTP/1.1 302 Found\r\nLocation : /r.txt\r\nContent-Length : 0\r\nConnection: close\r\n\r\n", false},
		"a Location that goes on":              {"HTTP/1.1 302 Found\r\nLocation:\r\n /r.txt\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", false},
		"identity":                             {"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity" + rulesAnswer, false},
		"identity and a length":                {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: identity" + rulesAnswer, false},
		"a blank within Location":              {"HTTP/1.1 302 Found\r\nLoc ation: /r.txt\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", true},
		"a NUL in Location":                    {"HTTP/1.1 302 Found\r\nLocation: /r\x00.txt\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", true},
	} {
		site := startRawSite(t, map[string]string{
			"/robots.txt": tt.robots, "/r.txt": "HTTP/1.1 200 OK" + rulesAnswer,
			"/page": "HTTP/1.1 200 OK\r\nSet-Cookie : a=1\r\nX-Robots-Tag\t: noindex\r\nX Y: z\r\nTransfer-Encoding: identity\r\nContent-Length: 1\r\n\r\nbody",
		})
		if a := g.MustFetch("Tester/1.0", "http://"+site.authority+"/private"); a.Status != 403 || strings.Contains(a.Body, "state:       unreachable") != tt.broken {
			t.Errorf("%s: status %d for a disallowed page, want 403: %s", name, a.Status, a.Body)
		}
		if tt.broken {
			continue
		}
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			for way, ask := range g.Through(method, site.authority, "/page") {
				a, err := ask()
				if err != nil || a.Body != "body" || a.Header.Get("Set-Cookie") != "a=1" || a.Header.Get("X-Robots-Tag") != "noindex" {
					t.Errorf("%s, %s, %s: status %d, header %v, body %q, error %v", name, way, method, a.Status, a.Header, a.Body, err)
				}
			}
		}
	}
}

// TestDotOfTheRoot checks RFC 3986 section 3.2.2: a name with the dot of the root is the same host
// for the rules, the operator and the clock, and the site gets it without the dot.
func TestDotOfTheRoot(t *testing.T) {
	t.Parallel()
	site := startRawSite(t, map[string]string{
		"/robots.txt": "HTTP/1.1 200 OK" + rulesAnswer, "/page": "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody",
	})
	_, port, _ := net.SplitHostPort(site.authority)
	g := rig.New(t, rig.Config{Engine: rig.Unpaced, Site: "deny denied.localhost"})
	for target, want := range map[string]int{
		"http://localhost.:" + port + "/page":       200,
		"http://localhost:" + port + "/page":        200,
		"http://LOCALHOST.:" + port + "/private":    403,
		"http://127.0.0.1.:" + port + "/private":    403,
		"http://denied.localhost.:" + port + "/":    403,
		"http://localhost..:" + port + "/page":      400,
		"http://.:" + port + "/page":                400,
		"http://localhost.%2e:" + port + "/private": 400,
	} {
		if a := g.MustFetch("Tester/1.0", target); a.Status != want {
			t.Errorf("%s: status %d, want %d: %s", target, a.Status, want, a.Body)
		}
	}
	fetches := 0
	for _, asked := range site.arrived() {
		if strings.HasPrefix(asked, "GET /robots.txt localhost") {
			fetches++
		}
		if strings.Contains(asked, ".:") {
			t.Errorf("the site got %s", asked)
		}
	}
	if fetches != 1 {
		t.Errorf("%d fetches of one host's robots.txt, want 1: %q", fetches, site.arrived())
	}
}

// TestOptionsWithoutPath checks RFC 9112 section 3.2.4.
func TestOptionsWithoutPath(t *testing.T) {
	t.Parallel()
	site := startRawSite(t, map[string]string{"*": "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", "/": "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"})
	g := rig.New(t, rig.Config{Engine: rig.Unpaced})
	for _, path := range []string{"", "/"} {
		raw := fmt.Sprintf("OPTIONS http://%s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: Tester/1.0\r\n\r\n", site.authority, path, site.authority)
		if a, err := g.Dial().Ask(http.MethodOptions, raw); err != nil || a.Status != 204 {
			t.Errorf("%q: status %d, error %v, want 204: %s", path, a.Status, err, a.Body)
		}
	}
	want := []string{"GET /robots.txt", "OPTIONS *", "OPTIONS /"}
	for i := range want {
		want[i] += " " + site.authority
	}
	if got := site.arrived(); !slices.Equal(got, want) {
		t.Errorf("the site got %q, want %q", got, want)
	}
}
