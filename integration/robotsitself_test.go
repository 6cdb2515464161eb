package integration

import (
	"net/http"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// send makes a request with a method and a User-Agent on a connection of its own; fields are further lines of its head.
func (g *gateway) send(method, rawURL, userAgent string, fields ...string) answer {
	g.t.Helper()
	w := g.dial()
	defer w.Close()
	a, err := w.ask(method, method+" "+rawURL+" HTTP/1.1\r\nHost: "+hostOf(rawURL)+"\r\nUser-Agent: "+userAgent+"\r\nContent-Length: 0\r\n"+
		strings.Join(append(fields, "\r\n"), "\r\n"))
	if err != nil {
		g.t.Fatalf("%s %s: %v", method, rawURL, err)
	}
	return a
}

// TestRobotsTxtIsAllowedToBeRead holds RFC 9309 section 2.2.2: /robots.txt may be fetched whatever the rules say. What else
// a request does to it is judged by the rules.
func TestRobotsTxtIsAllowedToBeRead(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	closed, open := server.Site(t, testorigin.SiteConfig{}), server.Site(t, testorigin.SiteConfig{})
	closed.SetRobots(testorigin.OK("User-agent: *\nDisallow: /\n"))
	open.SetRobots(testorigin.OK("User-agent: *\nDisallow: /private\n"))
	g := startGateway(t, gatewayConfig{Engine: unpaced})
	for _, tt := range []struct {
		method, path string
		status       int
		reason       enforce.Reason
	}{
		{http.MethodGet, "/robots.txt", http.StatusOK, enforce.ReasonRobotsTxt},
		{http.MethodHead, "/robots.txt", http.StatusOK, enforce.ReasonRobotsTxt},
		{http.MethodPost, "/robots.txt", http.StatusForbidden, enforce.ReasonDisallowed},
		{http.MethodPut, "/robots.txt", http.StatusForbidden, enforce.ReasonDisallowed},
		{http.MethodDelete, "/robots.txt", http.StatusForbidden, enforce.ReasonDisallowed},
		{http.MethodOptions, "/robots.txt", http.StatusForbidden, enforce.ReasonDisallowed},
		{"get", "/robots.txt", http.StatusForbidden, enforce.ReasonDisallowed},
		{http.MethodPost, "/robots%2Etxt", http.StatusForbidden, enforce.ReasonDisallowed},
		{http.MethodGet, "/robots.txt?", http.StatusForbidden, enforce.ReasonDisallowed},
	} {
		if a := g.send(tt.method, closed.URL(tt.path), "Tester/1.0"); a.status != tt.status {
			t.Errorf("%s %s: status %d, want %d: %s", tt.method, tt.path, a.status, tt.status, a.body)
		}
		lines := g.readLogs()
		eventually(t, "the line", func() bool {
			lines = g.readLogs()
			return len(lines) > 0 && lines[len(lines)-1].Request.URI == closed.URL(tt.path) && lines[len(lines)-1].Request.Method == tt.method
		})
		if r := lines[len(lines)-1].Robots.Reason; r != tt.reason {
			t.Errorf("%s %s: logged as %s, want %s", tt.method, tt.path, r, tt.reason)
		}
	}
	for _, e := range closed.Exchanges() {
		if e.Method != http.MethodGet {
			t.Errorf("%s %s reached the site", e.Method, e.Target)
		}
	}
	// Where no rule speaks of it, a POST passes and reaches the site.
	if a := g.send(http.MethodPost, open.URL("/robots.txt"), "Tester/1.0"); a.status != http.StatusOK {
		t.Errorf("POST where nothing forbids it: status %d: %s", a.status, a.body)
	}
	posted := false
	for _, e := range open.Exchanges() {
		posted = posted || e.Method == http.MethodPost
	}
	if !posted {
		t.Errorf("the POST did not reach the site: %+v", open.Exchanges())
	}
	g.stop()
	audit(t, "--store", g.store(), g.accessLog()).clean(t, "methods at /robots.txt")
}
