//go:build slow

package robots

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
)

// TestWhose4xx checks RFC 9309 section 2.3.1.3, which is about the answer to the crawler. If a site
// rejects the gateway, the gateway fetches in the crawler's name. That answer applies to this
// crawler only.
func TestWhose4xx(t *testing.T) { //nolint:tparallel // its cases share a site
	t.Parallel()
	site := &rig.Bouncer{Known: map[string]string{"AcmeBot": "User-agent: AcmeBot\nDisallow: /private\n", "DownBot": "503"}}
	server := httptest.NewServer(site)
	defer server.Close()
	for name, c := range map[string]rig.Config{
		"tokens": {},
		"agents": {Site: "agent acmebot {\nuser_agent AcmeBot\n}\nagent bob {\nuser_agent BobBot\n}\nagent down {\nuser_agent DownBot\n}\nunidentified allow"},
	} {
		t.Run(name, func(t *testing.T) {
			site.Forget()
			g := rig.New(t, c)
			crawl := func() {
				for _, step := range []struct {
					agent, page string
					status      int
				}{
					{"AcmeBot/1.0", rig.PrivatePage, 403},
					{"AcmeBot/2.0 (+https://acme.example)", rig.OpenPage, 200},
					{"BobBot/1.0", rig.PrivatePage, 200},
					{"DownBot/1.0", rig.OpenPage, 403},
					{"", rig.PrivatePage, 200},
				} {
					if a := g.MustFetch(step.agent, server.URL+step.page); a.Status != step.status {
						t.Errorf("%s, %s: status %d, %s, want %d", step.agent, step.page, a.Status, a.Body, step.status)
					}
				}
			}
			crawl()
			if a := g.MustFetch("AcmeBot/1.0", server.URL+"/robots.txt"); a.Body != site.Known["AcmeBot"] {
				t.Errorf("robots.txt for AcmeBot: status %d, %q", a.Status, a.Body)
			}
			if a := g.MustFetch("BobBot/1.0", server.URL+"/robots.txt"); a.Status != http.StatusNotFound {
				t.Errorf("robots.txt for BobBot: status %d, %q", a.Status, a.Body)
			}
			wantAsked(t, site, 1, 1, 1)
			g.Stop()
			if err := g.Start(c); err != nil {
				t.Fatal(err)
			}
			crawl()
			wantAsked(t, site, 1, 1, 2) // an answer like the gateway's is not kept
			agent := map[string]string{"tokens": "AcmeBot", "agents": "acmebot"}[name]
			if out, err := g.Robots("show", server.URL); err != nil || !strings.Contains(out, "AcmeBot, DownBot") {
				t.Errorf("show: error %v, output %s", err, out)
			}
			if out, err := g.Robots("show", "--as", "AcmeBot", server.URL); err != nil || !regexp.MustCompile(`(?m)^fetched as +AcmeBot$`).MatchString(out) {
				t.Errorf("show --as: error %v, output %s", err, out)
			}
			out, err := rig.RunBinary(t, "robots", "check", "--json", "--gateway", "unix/"+g.AdminSocket(), "--agent", agent, server.URL+rig.PrivatePage)
			if err == nil || !strings.Contains(out, `"fetched_as":"AcmeBot"`) || !strings.Contains(out, `"decision":"deny"`) {
				t.Errorf("check: error %v, output %s", err, out)
			}
			g.Stop()
			for _, l := range g.ReadLogs() {
				want := map[string]string{"AcmeBot": "AcmeBot", "DownBot": "DownBot"}[strings.Split(l.Robots.UserAgent, "/")[0]]
				if l.Robots.FetchedAs != want {
					t.Errorf("%s is decided by the answer for %q: %s", l.Robots.UserAgent, l.Robots.FetchedAs, l.Raw)
				}
			}
			why, err := rig.RunBinary(t, "robots", "why", "--store", g.Store(), "--url", server.URL+rig.PrivatePage, "--limit", "9", g.AccessLog())
			if err != nil || !strings.Contains(why, `line 2, "/private" of group "AcmeBot"`) || !strings.Contains(why, "Today's text is the same") {
				t.Errorf("why: error %v, output %s", err, why)
			}
			r := rig.Audit(t, "--store", g.Store(), g.AccessLog())
			if r.Status != 0 || len(r.Findings) > 0 {
				t.Errorf("the audit: status %d, findings %+v, %s", r.Status, r.Findings, r.Stderr)
			}
		})
	}
}

func wantAsked(t *testing.T, s *rig.Bouncer, own, acme, bob int) {
	t.Helper()
	got := []int{s.Times("crawlgate/"), s.Times("AcmeBot"), s.Times("BobBot")}
	if !slices.Equal(got, []int{own, acme, bob}) {
		t.Errorf("the gateway, AcmeBot and BobBot fetched robots.txt %d times, want %d: %q", got, []int{own, acme, bob}, s.Asked())
	}
}

// TestWhose4xxIsBounded checks that a client that invents names causes a bounded number of fetches.
// All further names are refused.
func TestWhose4xxIsBounded(t *testing.T) {
	t.Parallel()
	site := &rig.Bouncer{}
	server := httptest.NewServer(site)
	defer server.Close()
	g := rig.New(t, rig.Config{Site: "mode enforce"})
	for i := range 70 {
		a := g.MustFetch(fmt.Sprintf("Bot%d/1.0", i), server.URL+rig.OpenPage)
		if want := i < 64; (a.Status == http.StatusOK) != want {
			t.Fatalf("name %d: status %d, %s", i, a.Status, a.Body)
		}
	}
	if n := site.Times("Bot"); n != 64 {
		t.Errorf("%d fetches in the names of crawlers, want 64", n)
	}
	g.Stop()
	lines := g.ReadLogs()
	if last := lines[len(lines)-1].Robots; last.Reason != enforce.ReasonUnreachable || !strings.Contains(last.Detail, "64 other agents") {
		t.Errorf("the last log line is %+v", last)
	}
}
