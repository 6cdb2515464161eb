package signals

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

const tdmPath = "/.well-known/tdmrep.json"

// tdmConfig reads TDM files for two agents, one with a purpose that needs them and one without.
var tdmConfig = rig.Config{
	Engine: "user_agent \"acmegate/1.0\"\nsignals {\ntdm_file on\n}\nfetch {\ntimeout 2s\n}\n" + rig.PaceOff,
	Site: `
		agent trainer {
			purpose train-ai
			preferences deny
		}
		agent watcher {
			purpose tdm
		}
		agent seeker {
			purpose search
		}`,
}

// tdmSite returns a site with a robots.txt and a TDM file.
func tdmSite(t *testing.T, server *testorigin.Server, robots string, file testorigin.Behaviour) *testorigin.Site {
	t.Helper()
	s := server.Site(t, testorigin.SiteConfig{})
	s.SetRobots(testorigin.OK(robots))
	s.SetPages(testorigin.OK("the page"))
	s.SetPath(tdmPath, file)
	return s
}

// asked returns the number of exchanges of a site for a path.
func asked(s *testorigin.Site, path string) (n int) {
	for _, e := range s.PageExchanges() {
		if e.Path == path {
			n++
		}
	}
	return n
}

// TestTDMFile checks that with `tdm_file on` a site's TDM file refuses an agent that has one of its
// purposes before the request. The file is fetched once, and not for other agents. A file that
// cannot be fetched or parsed refuses nothing (TDMRep, "TDM File on the Origin Server"). The audit
// computes the decisions again.
func TestTDMFile(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	const (
		open   = "User-agent: *\nDisallow: /x\n"
		closed = `[{"location":"/a","tdm-reservation":1}]`
	)
	other := tdmSite(t, server, open, testorigin.OK(closed))
	reserved := tdmSite(t, server, open, testorigin.OK(closed))
	without := tdmSite(t, server, open, testorigin.OK(closed))
	without.SetRobots(testorigin.Status(404))
	g := rig.New(t, tdmConfig)
	for _, tt := range []struct {
		name    string
		agent   string
		site    *testorigin.Site
		path    string
		status  int
		fetches int // of the file, in total so far
	}{
		{"another purpose", "seeker", reserved, "/a", 200, 0},
		{"reserved", "trainer", reserved, "/a", 403, 1},
		{"another path", "trainer", reserved, "/b", 200, 1},
		{"reserved, logged only", "watcher", reserved, "/a", 200, 1},
		{"no robots.txt", "trainer", without, "/a", 403, 1},
		{"404", "trainer", tdmSite(t, server, open, testorigin.Status(404)), "/a", 200, 1},
		{"500", "trainer", tdmSite(t, server, open, testorigin.Status(500)), "/a", 200, 1},
		{"no answer", "trainer", tdmSite(t, server, open, testorigin.HangBeforeHead()), "/a", 200, 1},
		{"reset", "trainer", tdmSite(t, server, open, testorigin.ResetAtOnce()), "/a", 200, 2}, // a broken first answer is fetched again
		{"a comma too many", "trainer", tdmSite(t, server, open, testorigin.OK(closed[:len(closed)-1]+",]")), "/a", 200, 1},
		{"too large", "trainer", tdmSite(t, server, open, testorigin.OK(closed+strings.Repeat(" ", 100<<10))), "/a", 200, 1},
		{"too large to be fetched", "trainer", tdmSite(t, server, open, testorigin.OK(closed+"\n"+strings.Repeat(" ", 600<<10))), "/b", 200, 1},
		{"no JSON", "trainer", tdmSite(t, server, open, testorigin.HTML()), "/a", 200, 1},
		{"redirect", "trainer", tdmSite(t, server, open, testorigin.Redirect(http.StatusFound, other.URL(tdmPath))), "/a", 200, 1},
		{"disallowed", "trainer", tdmSite(t, server, "User-agent: acmegate\nDisallow: /.well-known/\n", testorigin.OK(closed)), "/a", 200, 0},
		{"disallowed to the agent alone", "trainer", tdmSite(t, server, "User-agent: trainer\nDisallow: /.well-known/\n", testorigin.OK(closed)), "/a", 403, 1},
	} {
		sent := asked(tt.site, tt.path)
		a := g.MustFetch(tt.agent+"/1.0", tt.site.URL(tt.path))
		passed := asked(tt.site, tt.path) > sent
		if a.Status != tt.status || passed != (tt.status == 200) || asked(tt.site, tdmPath) != tt.fetches {
			t.Errorf("%s: status %d, %s, sent %t, %d fetches of the file", tt.name, a.Status, a.Body, passed, asked(tt.site, tdmPath))
		}
	}
	if n := asked(other, tdmPath); n > 0 {
		t.Errorf("%d fetches of the file behind the redirect, want 0", n)
	}
	if out, err := g.Robots("show", "--json", reserved.Origin().String()); err != nil || !strings.Contains(out, `"tdm_file":"read"`) {
		t.Errorf("show: output %s, error %v", out, err)
	}
	g.Stop()
	checkTDMLog(t, g)
}

// checkTDMLog checks the log's fields about TDM files, and the audits of the log and of a forged
// one.
func checkTDMLog(t *testing.T, g *rig.Gateway) {
	t.Helper()
	read, unread := 0, map[string]int{}
	for _, l := range g.ReadLogs() {
		for _, field := range l.Robots.SignalFields {
			if why, found := strings.CutPrefix(field, "tdm file unread: "); found && l.Robots.SignalsCut {
				unread[why]++
			}
		}
		if strings.HasSuffix(l.Robots.SignalsRead, "+tdm_file") {
			read++
		}
	}
	if read != 5 { // the three of the site that reserves rights, the one without a robots.txt, and the last one
		t.Errorf("%d lines have a TDM file, want 5", read)
	}
	for _, why := range []string{
		"status", "timeout", "reset", "redirects", "robots.txt does not allow it",
		"reading a tdm file: invalid character '<' looking for beginning of value", "reading a tdm file: invalid character ']' looking for beginning of value",
	} {
		if unread[why] != 1 {
			t.Errorf("%d lines have %q, want 1: %v", unread[why], why, unread)
		}
	}
	if n := unread["tdm file: more than 64 KiB"]; n != 2 {
		t.Errorf("%d files are too large, want 2: %v", n, unread)
	}
	if r := rig.Audit(t, "--store", g.Store(), g.AccessLog()); r.Status != 0 || len(r.Findings) > 0 || len(r.Errors) > 0 {
		t.Errorf("the audit returned %+v", r)
	}
	text, err := os.ReadFile(g.AccessLog())
	if err != nil {
		t.Fatal(err)
	}
	forged := filepath.Join(rig.TempDir(t), "access.log")
	content := strings.ReplaceAll(string(text), `\"tdm-reservation\":1`, `\"tdm-reservation\":0`)
	if err := os.WriteFile(forged, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := rig.Audit(t, "--store", g.Store(), forged); len(r.Findings) != 4 || r.Findings[0].Kind != "preference" {
		t.Errorf("the audit of a forged log returned %+v", r)
	}
}

// TestTDMFileIsFetchedOnce checks that concurrent requests share one fetch, that a reload keeps the
// result, and that a purge removes it.
func TestTDMFileIsFetchedOnce(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	site := tdmSite(t, server, "User-agent: *\nAllow: /\n", testorigin.OK(`[{"location":"/a","tdm-reservation":1}]`))
	g := rig.New(t, tdmConfig)
	var requests sync.WaitGroup
	for range 50 {
		requests.Go(func() {
			if a, err := g.Fetch("trainer/1.0", site.URL("/a")); err != nil || a.Status != http.StatusForbidden {
				t.Errorf("status %d, error %v, want 403", a.Status, err)
			}
		})
	}
	requests.Wait()
	reloaded := tdmConfig
	reloaded.Engine += "\nhelp https://wiki.example.com/robots/"
	if err := g.Reload(reloaded); err != nil {
		t.Fatal(err)
	}
	if a := g.MustFetch("trainer/1.0", site.URL("/a")); a.Status != http.StatusForbidden || asked(site, tdmPath) != 1 || asked(site, "/a") != 0 {
		t.Errorf("status %d; %d requests for the file, %d for the page", a.Status, asked(site, tdmPath), asked(site, "/a"))
	}
	if out, err := g.Robots("purge", site.Origin().String()); err != nil {
		t.Fatal(out, err)
	}
	if g.MustFetch("trainer/1.0", site.URL("/a")); asked(site, tdmPath) != 2 {
		t.Errorf("after the purge, %d fetches of the file, want 2", asked(site, tdmPath))
	}
}
