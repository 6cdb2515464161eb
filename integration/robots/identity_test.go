//go:build slow

package robots

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// moodySite answers its robots.txt by the name of the client: 403 for attack tools, rules for all
// others. It records the User-Agents of these requests.
type moodySite struct {
	mu    sync.Mutex
	asked []string
}

func (s *moodySite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/robots.txt" {
		_, _ = io.WriteString(w, "page\n")
		return
	}
	agent := r.Header.Get("User-Agent")
	s.mu.Lock()
	s.asked = append(s.asked, agent)
	s.mu.Unlock()
	if strings.Contains(agent, "sqlmap") {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	_, _ = io.WriteString(w, rig.Rules)
}

func (s *moodySite) agents() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}

// TestRobotsTxtIsFetchedAsTheEngine checks that a site's answer to one client does not apply to
// others. RFC 9309 section 2.3.1.3 makes a 403 an absent file, so one client with a bad name would
// lift the rules for all.
func TestRobotsTxtIsFetchedAsTheEngine(t *testing.T) {
	t.Parallel()
	site := new(moodySite)
	server := httptest.NewServer(site)
	defer server.Close()
	g := rig.New(t, rig.Config{})
	for _, agent := range []string{"sqlmap/1.9", "AcmeBot/1.0"} {
		if a := g.MustFetch(agent, server.URL+rig.PrivatePage); a.Status != http.StatusForbidden || !strings.Contains(a.Body, "(line 2)") {
			t.Errorf("%s: status %d, want 403 by line 2: %s", agent, a.Status, a.Body)
		}
	}
	agents := site.agents()
	if len(agents) != 1 || !strings.HasPrefix(agents[0], "crawlgate/") || !strings.HasSuffix(agents[0], " (+https://github.com/crawlgate/crawlgate)") {
		t.Errorf("robots.txt was fetched by %q", agents)
	}
	if log := g.Stderr.String(); !strings.Contains(log, "set user_agent") {
		t.Errorf("the log does not warn that the contact is missing: %s", log)
	}
}

// TestRobotsTxtIsFetchedAsConfigured checks that first fetches, refreshes and probes have the
// operator's user_agent.
func TestRobotsTxtIsFetchedAsConfigured(t *testing.T) {
	t.Parallel()
	const engine = "AcmeCrawl/1.0 (+https://acme.example/bot)"
	site := new(moodySite)
	server := httptest.NewServer(site)
	defer server.Close()
	g := rig.New(t, rig.Config{Engine: `user_agent "` + engine + `"`})
	g.MustFetch("AcmeBot/1.0", server.URL+rig.OpenPage)
	if out, err := g.Robots("refresh", server.URL); err != nil {
		t.Errorf("refresh: %v: %s", err, out)
	}
	agents := site.agents()
	if len(agents) != 2 || agents[0] != engine || agents[1] != engine {
		t.Errorf("robots.txt was fetched by %q, want %q twice", agents, engine)
	}
	if log := g.Stderr.String(); strings.Contains(log, "set user_agent") {
		t.Errorf("the log warns that the contact is missing: %s", log)
	}
}
