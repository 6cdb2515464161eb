//go:build slow

package operate

import (
	"debug/buildinfo"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/internal/version"
)

// TestOwnerAndContact checks that refusals, log and audit name the person responsible for a
// crawler.
func TestOwnerAndContact(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK(rig.Rules))
	g := rig.New(t, rig.Config{Site: "agent newsbot {\nowner \"team news\"\ncontact news@acme.example\n}\nagent otherbot"})
	refused := site.URL(rig.PrivatePage)
	text := g.MustFetch("newsbot/1.0", refused)
	if !strings.Contains(text.Body, "\nowner:       team news\ncontact:     news@acme.example\n") {
		t.Errorf("the refusal as text lacks the owner: %s", text.Body)
	}
	w := g.Dial()
	problem, err := w.Ask(http.MethodGet, "GET "+refused+" HTTP/1.1\r\nHost: "+rig.HostOf(refused)+
		"\r\nUser-Agent: newsbot/1.0\r\nAccept: application/json\r\n\r\n")
	if err != nil || !strings.Contains(problem.Body, `"owner": "team news"`) || !strings.Contains(problem.Body, `"contact": "news@acme.example"`) {
		t.Errorf("the refusal as JSON: error %v, %s", err, problem.Body)
	}
	g.Logs(2) // a line may come after the next request's
	if other := g.MustFetch("otherbot/1.0", refused); strings.Contains(other.Body, "owner") || strings.Contains(other.Body, "contact:") {
		t.Errorf("an agent without an owner: %s", other.Body)
	}
	g.Stop()
	lines := g.ReadLogs()
	if len(lines) != 3 || lines[0].Robots.Owner != "team news" || lines[0].Robots.Contact != "news@acme.example" {
		t.Errorf("the log has %+v", lines)
	}
	if strings.Contains(lines[2].Raw, `"owner"`) || strings.Contains(lines[2].Raw, `"contact"`) {
		t.Errorf("the log line of an agent without an owner: %s", lines[2].Raw)
	}
	agents := rig.Audit(t, "--store", g.Store(), g.AccessLog()).Totals.Agents
	if len(agents) != 2 || agents[0].Owner != "team news" || agents[0].Contact != "news@acme.example" || agents[1].Owner+agents[1].Contact != "" {
		t.Errorf("the audit has the agents %+v", agents)
	}
}

// built returns the version in the build information of the binary under test.
func built(t *testing.T) string {
	t.Helper()
	info, err := buildinfo.ReadFile(rig.Binary)
	if err != nil {
		t.Fatal(err)
	}
	if info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

// TestHelp checks that the type of a problem is a page of the running version, or of the
// operator's.
func TestHelp(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.Status(http.StatusNotFound))
	ref := version.Ref(built(t))
	check := func(engine, kind, more string) {
		g := rig.New(t, rig.Config{Engine: engine, Site: "deny " + site.Origin().Host})
		a, err := g.Dial().Ask(http.MethodGet, "GET "+site.URL("/")+" HTTP/1.1\r\nHost: "+site.Origin().Host+"\r\nAccept: application/json\r\n\r\n")
		var problem enforce.Problem
		if err != nil || json.Unmarshal([]byte(a.Body), &problem) != nil {
			t.Fatalf("%v: %s", err, a.Body)
		}
		if more = strings.ReplaceAll(more, "GATEWAY", g.Addr); problem.Type != kind || problem.More != more {
			t.Errorf("%q: type %s, more %s", engine, problem.Type, problem.More)
		}
	}
	check("", "https://github.com/crawlgate/crawlgate/blob/"+ref+"/docs/problems/operator-deny.md", "http://GATEWAY/docs/problems/operator-deny")
	own := "https://wiki.acme.example/robots?why=operator-deny"
	check("help https://wiki.acme.example/robots?why=", own, own)
}

// TestVersion checks that the command, each log line, /health and the fetches of robots.txt tell
// the build.
func TestVersion(t *testing.T) {
	t.Parallel()
	want := built(t)
	for _, args := range [][]string{{"version"}, {"--version"}} {
		out, err := exec.CommandContext(t.Context(), rig.Binary, args...).Output()
		if err != nil || !strings.HasPrefix(string(out), "Crawlgate "+want+", Caddy v2.") || strings.Count(string(out), "\n") != 1 {
			t.Errorf("%v: error %v, output %q", args, err, out)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	for engine, name := range map[string]string{"": host, "gateway east-1": "east-1"} {
		g := rig.New(t, rig.Config{Engine: engine})
		if a := rig.Get(t, http.DefaultClient, "http://"+g.Addr+"/health"); a.Body != "ok\ncrawlgate "+want+"\n" {
			t.Errorf("/health is %q", a.Body)
		}
		g.MustFetch("Tester/1.0", site.URL("/"))
		agent := "crawlgate/" + strings.TrimPrefix(want, "v") + " (+https://github.com/crawlgate/crawlgate)"
		if got := site.RobotsExchanges()[0].Header.Get("User-Agent"); got != agent {
			t.Errorf("User-Agent %q, want %q", got, agent)
		}
		// The line of a request with a password is written in another place.
		g.MustFetch("Tester/1.0", strings.Replace(site.URL("/"), "//", "//user:secret@", 1))
		g.Stop()
		for _, line := range g.ReadLogs() {
			if line.Robots.Gateway != name || line.Robots.Version != want || line.Robots.Schema != 2 {
				t.Errorf("%q: %s", engine, line.Raw)
			}
		}
		if n := len(g.ReadLogs()); n != 2 {
			t.Errorf("%d lines, want 2", n)
		}
	}
}

// TestSchema2 checks that a line names the configuration in force, independent of the gateway's
// name, and that it has the time at which its request was sent, if it was.
func TestSchema2(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK(rig.Rules))
	first := rig.Config{Engine: "gateway east-1", Egress: "dial_timeout 5s"}
	g := rig.New(t, first)
	digests := make(map[string][]string)
	for i, step := range []struct {
		name   string
		config rig.Config
	}{
		{"first", first},
		{"first", rig.Config{Engine: "gateway east-2", Egress: first.Egress}},
		{"site", rig.Config{Engine: first.Engine, Egress: first.Egress, Site: "deny never.example"}},
		{"engine", rig.Config{Engine: first.Engine, Egress: "dial_timeout 6s"}},
		{"first", first},
	} {
		if i > 0 {
			if err := g.Reload(step.config); err != nil {
				t.Fatal(err)
			}
		}
		before := float64(time.Now().UnixMicro()) / 1e6
		g.MustFetch("Tester/1.0", site.URL("/"))
		after := float64(time.Now().UnixMicro()) / 1e6
		g.Logs(2*i + 1) // a line may come after the next request's
		g.MustFetch("Tester/1.0", site.URL("/private"))
		lines := g.Logs(2 * (i + 1))[2*i:]
		if sent := float64(lines[0].Robots.SentAt); sent < before || sent > after {
			t.Errorf("%s: sent at %f, want between %f and %f", step.name, sent, before, after)
		}
		if r := lines[1].Robots; r.Decision != "deny" || r.SentAt != 0 || r.Config != lines[0].Robots.Config {
			t.Errorf("%s: %s", step.name, lines[1].Raw)
		}
		digests[lines[0].Robots.Config] = append(digests[lines[0].Robots.Config], step.name)
	}
	var got []string
	for digest, names := range digests {
		if len(digest) != 16 {
			t.Errorf("the digest of the configuration is %q, want 16 characters", digest)
		}
		got = append(got, strings.Join(names, " "))
	}
	slices.Sort(got)
	if want := []string{"engine", "first first first", "site"}; !slices.Equal(got, want) {
		t.Errorf("digests %v, want %v", got, want)
	}
}
