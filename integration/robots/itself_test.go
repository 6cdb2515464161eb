//go:build slow

package robots

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// sendTo sends a request with a method and a User-Agent on a new connection; fields are further
// lines of its head.
func sendTo(g *rig.Gateway, method, rawURL, userAgent string, fields ...string) rig.Answer {
	g.T.Helper()
	w := g.Dial()
	defer w.Close()
	a, err := w.Ask(method, method+" "+rawURL+" HTTP/1.1\r\nHost: "+rig.HostOf(rawURL)+"\r\nUser-Agent: "+userAgent+"\r\nContent-Length: 0\r\n"+
		strings.Join(append(fields, "\r\n"), "\r\n"))
	if err != nil {
		g.T.Fatalf("%s %s: %v", method, rawURL, err)
	}
	return a
}

// TestRobotsTxtIsAllowedToBeRead checks RFC 9309 section 2.2.2: /robots.txt may be fetched whatever
// the rules say. Other requests for it are judged by the rules.
func TestRobotsTxtIsAllowedToBeRead(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	closed, open := server.Site(t, testorigin.SiteConfig{}), server.Site(t, testorigin.SiteConfig{})
	closed.SetRobots(testorigin.OK("User-agent: *\nDisallow: /\n"))
	open.SetRobots(testorigin.OK("User-agent: *\nDisallow: /private\n"))
	g := rig.New(t, rig.Config{Engine: rig.Unpaced})
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
		if a := sendTo(g, tt.method, closed.URL(tt.path), "Tester/1.0"); a.Status != tt.status {
			t.Errorf("%s %s: status %d, want %d: %s", tt.method, tt.path, a.Status, tt.status, a.Body)
		}
		lines := g.ReadLogs()
		rig.Eventually(t, "the line", func() bool {
			lines = g.ReadLogs()
			return len(lines) > 0 && lines[len(lines)-1].Request.URI == closed.URL(tt.path) && lines[len(lines)-1].Request.Method == tt.method
		})
		if r := lines[len(lines)-1].Robots.Reason; r != tt.reason {
			t.Errorf("%s %s: the log has the reason %s, want %s", tt.method, tt.path, r, tt.reason)
		}
	}
	for _, e := range closed.Exchanges() {
		if e.Method != http.MethodGet {
			t.Errorf("%s %s reached the site", e.Method, e.Target)
		}
	}
	// A POST that no rule matches passes and reaches the site.
	if a := sendTo(g, http.MethodPost, open.URL("/robots.txt"), "Tester/1.0"); a.Status != http.StatusOK {
		t.Errorf("POST without a matching rule: status %d, want 200: %s", a.Status, a.Body)
	}
	posted := false
	for _, e := range open.Exchanges() {
		posted = posted || e.Method == http.MethodPost
	}
	if !posted {
		t.Errorf("the POST did not reach the site: %+v", open.Exchanges())
	}
	g.Stop()
	rig.Audit(t, "--store", g.Store(), g.AccessLog()).Clean(t, "methods at /robots.txt")
}

// whoAgents are agents that a request on loopback matches only by its source. All other requests
// are refused as unidentified.
const whoAgents = "unidentified deny\nagent AlphaBot {\nuser_agent AlphaBot\n}\nagent FarBot {\nuser_agent FarBot\nfrom 192.0.2.0/24\n}"

// TestRobotsTxtForWhoeverAsks fetches robots.txt with User-Agents for which everything else is
// refused. The robots libraries of crawlers send their own User-Agent, and take 403 for "everything
// is disallowed".
func TestRobotsTxtForWhoeverAsks(t *testing.T) {
	t.Parallel()
	const rules = "User-agent: *\nDisallow: /private\n"
	authority := rig.NewTestCA(t)
	secure := rig.StartSecureSite(t, authority, nil)
	server := testorigin.Start(t, testorigin.Config{})
	site, denied := server.Site(t, testorigin.SiteConfig{}), server.Site(t, testorigin.SiteConfig{Host: "127.0.0.9"})
	site.SetRobots(testorigin.OK(rules))
	g := rig.New(t, rig.Config{Engine: rig.Unpaced, Site: whoAgents + "\ndeny 127.0.0.9"}.Trusting(authority))
	house := rig.New(t, rig.Config{Engine: rig.Unpaced, Site: "agent AlphaBot {\nuser_agent AlphaBot\n}\nagent House {\nfrom 127.0.0.0/8\n}"})
	for _, tt := range []struct {
		gateway   *rig.Gateway
		userAgent string
		reason    enforce.Reason // for a page
	}{
		{g, "Python-urllib/3.11", enforce.ReasonUnidentified},
		{g, "", enforce.ReasonUnidentified},
		{g, strings.Repeat("x", 5000), enforce.ReasonUnidentified},
		{g, "FarBot/1.0", enforce.ReasonAgentMismatch},
		{house, "AlphaBot/1.0", enforce.ReasonUserAgentConflict},
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			a := sendTo(tt.gateway, method, site.URL("/robots.txt"), tt.userAgent)
			if want := map[string]string{http.MethodGet: rules}[method]; a.Status != http.StatusOK || a.Body != want {
				t.Errorf("%s robots.txt as %.20q: status %d, want 200 with the rules: %s", method, tt.userAgent, a.Status, a.Body)
			}
		}
		for _, refused := range []struct{ method, path string }{{"GET", rig.OpenPage}, {"POST", "/robots.txt"}, {"GET", "/robots.txt?x"}} {
			a := sendTo(tt.gateway, refused.method, site.URL(refused.path), tt.userAgent)
			if want := "deny; reason=" + string(tt.reason); a.Status != http.StatusForbidden || a.Header.Get(enforce.HeaderDecision) != want {
				t.Errorf("%s %s as %.20q: status %d, decision %s, want %s", refused.method, refused.path, tt.userAgent, a.Status, a.Header.Get(enforce.HeaderDecision), want)
			}
		}
	}
	if a := rig.Get(t, g.SecureClient("Python-urllib/3.11", 1), secure.At("/robots.txt")); a.Status != http.StatusOK || a.Body != rig.SecureRules {
		t.Errorf("inside a tunnel: status %d, want 200 with the rules: %s", a.Status, a.Body)
	}
	if a := rig.Get(t, g.SecureClient("Python-urllib/3.11", 1), secure.At("/")); a.Status != http.StatusForbidden {
		t.Errorf("a page inside a tunnel: status %d, want 403", a.Status)
	}
	// Hosts on the operator's deny list stay denied.
	if a := sendTo(g, http.MethodGet, denied.URL("/robots.txt"), "Python-urllib/3.11"); a.Header.Get(enforce.HeaderDecision) != "deny; reason=operator_deny" {
		t.Errorf("a denied host: status %d, header %v", a.Status, a.Header)
	}
	out, err := exec.CommandContext(t.Context(), rig.Binary, "robots", "deny", "all", "--gateway", "unix/"+g.AdminSocket()).CombinedOutput()
	if err != nil {
		t.Fatalf("deny all: %v: %s", err, out)
	}
	if a := sendTo(g, http.MethodGet, site.URL("/robots.txt"), "Python-urllib/3.11"); a.Header.Get(enforce.HeaderDecision) != "deny; reason=kill_switch" {
		t.Errorf("after deny all: status %d, header %v", a.Status, a.Header)
	}
}

// TestRobotsTxtNeedsCredentials checks that robots.txt needs credentials too if agents are named by
// them.
func TestRobotsTxtNeedsCredentials(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK(someDisallowed))
	hash, err := exec.CommandContext(t.Context(), rig.Binary, "hash-password", "--plaintext", "right", "--algorithm", "bcrypt", "--bcrypt-cost", "10").Output()
	if err != nil {
		t.Fatal(err)
	}
	g := rig.New(t, rig.Config{Engine: rig.Unpaced, Site: "agent CredBot {\ncredential cred " + strings.TrimSpace(string(hash)) + "\n}"})
	for password, want := range map[string]int{"": http.StatusProxyAuthRequired, "wrong": http.StatusProxyAuthRequired, "right": http.StatusOK} {
		var fields []string
		if password != "" {
			fields = append(fields, "Proxy-Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte("cred:"+password)))
		}
		if a := sendTo(g, http.MethodGet, site.URL("/robots.txt"), "Python-urllib/3.11", fields...); a.Status != want {
			t.Errorf("password %q: status %d, want %d", password, a.Status, want)
		}
	}
}

// TestRobotsTxtForPython uses Python's urllib.robotparser, which sends "Python-urllib/3.x" and
// takes 403 for a disallowed site.
func TestRobotsTxtForPython(t *testing.T) {
	t.Parallel()
	python := rig.Need(t, "python3")
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: AlphaBot\nDisallow: /private\n\nUser-agent: *\nDisallow: /\n"))
	g := rig.New(t, rig.Config{Engine: rig.Unpaced, Site: whoAgents})
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, filepath.Join("testdata", "robotparser.py"), site.URL("/robots.txt"), "AlphaBot",
		site.URL(rig.OpenPage), site.URL(rig.PrivatePage))
	cmd.Env = append(os.Environ(), "http_proxy=http://"+g.Addr, "no_proxy=", "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if want := fmt.Sprintf("%s True\n%s False\n", site.URL(rig.OpenPage), site.URL(rig.PrivatePage)); err != nil || string(out) != want {
		t.Errorf("robotparser printed %q, error %v, want %q", out, err, want)
	}
}

// TestRobotsTxtIsServedAsJudged checks that crawlers get exactly the lines of a file above 500 KiB
// (RFC 9309 section 2.5) that the gateway uses, not half a line that disallows the whole site. The
// log has the hash of that text.
func TestRobotsTxtIsServedAsJudged(t *testing.T) {
	t.Parallel()
	const head, tail = "User-agent: *\nDisallow: /private\n", "\nDisallow: /"
	whole := head + strings.Repeat("#", robotstxt.MaxSize-len(head)-len(tail))
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK(whole + tail + "never-mind\nDisallow: /x\n"))
	g := rig.New(t, rig.Config{Engine: rig.Unpaced})
	want := whole + "\n"
	if a := g.MustFetch("Tester/1.0", site.URL("/robots.txt")); a.Status != http.StatusOK || a.Body != want {
		t.Errorf("status %d, %d bytes that end in %q, want %d bytes", a.Status, len(a.Body), a.Body[max(len(a.Body)-20, 0):], len(want))
	}
	for path, status := range map[string]int{"/x": http.StatusOK, rig.PrivatePage: http.StatusForbidden} {
		if a := g.MustFetch("Tester/1.0", site.URL(path)); a.Status != status {
			t.Errorf("%s: status %d, want %d", path, a.Status, status)
		}
	}
	sha := fmt.Sprintf("%x", sha256.Sum256([]byte(want)))
	if a := g.Admin("/robots/body?sha256=" + sha); a.Status != http.StatusOK || a.Body != want {
		t.Errorf("the text by its hash: status %d, %d bytes", a.Status, len(a.Body))
	}
	if out, err := g.Robots("show", site.Origin().String()); err != nil || !strings.Contains(out, sha) {
		t.Errorf("show: error %v, output %s; want %s", err, out, sha)
	}
	for _, l := range g.ReadLogs() {
		if fmt.Sprintf("%x", l.Robots.SHA256) != sha && fmt.Sprint(l.Robots.SHA256) != sha {
			t.Errorf("%s rests on %v, want %s", l.Request.URI, l.Robots.SHA256, sha)
		}
	}
	g.Stop()
	rig.Audit(t, "--store", g.Store(), g.AccessLog()).Clean(t, "a file above 500 KiB")
}
