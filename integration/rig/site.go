package rig

import (
	"html"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// Rules is the robots.txt of most sites in these tests.
const Rules = "User-agent: *\nDisallow: /private\nDisallow: /deep/*.pdf$\n"

// The pages that show an origin's state: one that the rules disallow, and one that no rule matches.
const (
	PrivatePage = "/private/page"
	OpenPage    = "/open"
)

var href = regexp.MustCompile(`<a href="([^"]*)"`)

// LinksIn returns the links of a page.
func LinksIn(page string) (links []string) {
	for _, m := range href.FindAllStringSubmatch(page, -1) {
		links = append(links, html.UnescapeString(m[1]))
	}
	return links
}

// Everywhere opens the gateway's egress to all ranges that an operator can open.
const Everywhere = "allow_private 0.0.0.0/0 ::/0"

// Overloaded answers with a status, and with Retry-After unless it is "".
func Overloaded(status int, retryAfter string) testorigin.Behaviour {
	r := testorigin.Response{Status: status, Body: []byte("later\n")}
	if retryAfter != "" {
		r.Header = http.Header{"Retry-After": {retryAfter}}
	}
	return testorigin.Respond(r)
}

// Bouncer is a site that answers 403 to strangers' requests for its robots.txt. Crawlers that it
// knows get their own text, or the status 503.
type Bouncer struct {
	Known map[string]string // the texts, or "503", by User-Agent
	mu    sync.Mutex
	asked []string
}

// ServeHTTP implements [http.Handler].
func (s *Bouncer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/robots.txt" {
		_, _ = io.WriteString(w, "page\n")
		return
	}
	agent := r.Header.Get("User-Agent")
	s.mu.Lock()
	s.asked = append(s.asked, agent)
	text, known := s.Known[agent]
	s.mu.Unlock()
	switch {
	case text == "503":
		w.WriteHeader(http.StatusServiceUnavailable)
	case known:
		_, _ = io.WriteString(w, text)
	default:
		w.WriteHeader(http.StatusForbidden)
	}
}

// Asked returns the User-Agents of all requests for robots.txt.
func (s *Bouncer) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// Times returns the number of requests for robots.txt from User-Agents with the prefix name.
func (s *Bouncer) Times(name string) (n int) {
	for _, a := range s.Asked() {
		if strings.HasPrefix(a, name) {
			n++
		}
	}
	return n
}

// Forget resets the counts.
func (s *Bouncer) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = nil
}
