//go:build slow

package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
	"github.com/crawlgate/crawlgate/robotscache"
)

// TestAuditAfterPurge purges a robots.txt that the site has changed. The audit must judge no line
// by an answer that the line does not rest on, and must prove each line (docs/audit.md).
func TestAuditAfterPurge(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	open, closed := testorigin.OK("User-agent: *\nDisallow: /x\n"), testorigin.OK("User-agent: *\nDisallow: /a\n")
	absent, failing := testorigin.Status(http.StatusNotFound), testorigin.Status(http.StatusServiceUnavailable)
	g := rig.New(t, rig.Config{Engine: rig.PaceOff})
	lines := 0
	for _, change := range [][2]testorigin.Behaviour{{open, closed}, {closed, open}, {absent, closed}, {open, absent}, {open, failing}, {absent, failing}, {open, open}} {
		site := server.Site(t, testorigin.SiteConfig{})
		site.SetPages(testorigin.OK("the page"))
		for _, robots := range change {
			site.SetRobots(robots)
			for range 3 {
				g.MustFetch("AcmeBot/1.0", site.URL("/a"))
				lines++
			}
			if out, err := g.Robots("purge", site.Origin().String()); err != nil {
				t.Fatal(out, err)
			}
		}
		g.MustFetch("AcmeBot/1.0", site.URL("/a"))
		lines++
	}
	g.Logs(lines)
	r := rig.Audit(t, "--gateway", "unix/"+g.AdminSocket(), g.AccessLog())
	if r.Clean(t, "after purges"); r.Totals.Checked != int64(lines) {
		t.Errorf("the audit checked %d lines, want %d", r.Totals.Checked, lines)
	}
}

// TestAuditHistory checks that the log of a crawl alone proves which robots.txt was in force at
// each line, whatever happens to the gateway, the sites and the store. A line that was changed to
// rest on an older text is found.
func TestAuditHistory(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	g := rig.New(t, rig.Config{Engine: rig.PaceOff})
	crowd := &rig.Bouncer{Known: map[string]string{"AcmeBot": "User-agent: *\nDisallow: /x\n", "Failing": "503"}}
	bouncing := httptest.NewServer(crowd)
	defer bouncing.Close()
	site, other := server.Site(t, testorigin.SiteConfig{}), server.Site(t, testorigin.SiteConfig{})
	open, closed := "User-agent: *\nDisallow: /x\n", "User-agent: *\nDisallow: /a\n"
	lines := 0
	crawl := func() {
		t.Helper()
		for _, agent := range []string{"AcmeBot", "Failing", "Stranger"} {
			for _, url := range []string{site.URL("/a"), other.URL("/a"), bouncing.URL + "/a"} {
				g.MustFetch(agent+"/1.0", url)
				lines++
			}
		}
		g.Logs(lines)
	}
	command := func(args ...string) {
		t.Helper()
		if out, err := g.Robots(args[0], args[1:]...); err != nil && args[0] != "refresh" { // which exits with 1 for a 503
			t.Fatal(out, err)
		}
	}
	for _, s := range []*testorigin.Site{site, other} {
		s.SetPages(testorigin.OK("the page"))
		s.SetRobots(testorigin.OK(open))
	}
	crawl()
	for _, robots := range []testorigin.Behaviour{testorigin.Status(503), testorigin.Status(404), testorigin.OK(closed), testorigin.Status(403), testorigin.OK(open)} {
		site.SetRobots(robots)
		crawl()
		command("refresh", site.Origin().String())
		command("refresh", bouncing.URL)
		crawl()
	}
	site.SetRobots(testorigin.OK(closed))
	command("refresh", site.Origin().String())
	g.Kill() // perhaps before this was saved
	if err := g.Start(g.Config); err != nil {
		t.Fatal(err)
	}
	crawl()
	reloaded := g.Config
	reloaded.Engine += "\nhelp https://wiki.example.com/robots/"
	if err := g.Reload(reloaded); err != nil {
		t.Fatal(err)
	}
	crawl()
	command("purge", bouncing.URL)
	command("purge", other.Origin().String())
	crawl()
	g.Stop()
	if err := g.Start(reloaded); err != nil {
		t.Fatal(err)
	}
	crawl()
	g.Stop()
	first, later := g.AccessLog()+".first", lines
	if err := os.Rename(g.AccessLog(), first); err != nil {
		t.Fatal(err)
	}
	if err := g.Start(reloaded); err != nil {
		t.Fatal(err)
	}
	lines = 0
	crawl()
	g.Stop()
	rig.Audit(t, "--store", g.Store(), g.AccessLog()).Clean(t, "the log of a start alone") // a start logs again all records that it uses
	if err := os.Rename(first, g.AccessLog()); err != nil {
		t.Fatal(err)
	}
	lines = later

	emptied := storeWithoutHistory(t, g.Store())
	if r := rig.Audit(t, "--store", emptied, g.AccessLog()); r.Totals.Checked != int64(lines) {
		t.Errorf("the audit checked %d lines, want %d", r.Totals.Checked, lines)
	} else {
		r.Clean(t, "with texts alone")
	}
	for _, forge := range []struct {
		what string
		from func(l map[string]any) bool // the first line that fits gives what its robots.txt says to the last line
	}{
		{"an older text", func(r map[string]any) bool { return r["reason"] == "no_rule" && r["fetched_as"] == nil }},
		{"no robots.txt", func(r map[string]any) bool { return r["reason"] == "absent" && r["fetched_as"] == nil }},
	} {
		forged, at := forgedLine(t, g.AccessLog(), site.Origin().String(), forge.from)
		r := rig.Audit(t, "--store", emptied, forged)
		if r.Status != 1 || len(r.Findings) != 1 || r.Findings[0].Kind != "history" || r.Findings[0].Line != at || !strings.Contains(r.Findings[0].Message, "state rules from ") {
			t.Errorf("%s: status %d, %+v, want line %d; %s", forge.what, r.Status, r.Findings, at, r.Stderr)
		}
	}
}

// TestAuditHistoryOfStaleAnswers lets answers expire soon, so that the last good text of a failing
// site follows them, and the text of a redirect's target. A line that rests on an expired text is
// found.
func TestAuditHistoryOfStaleAnswers(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	g := rig.New(t, rig.Config{Engine: "cache {\nttl 1s\n}\nfetch {\nretry 1s 1s\nunreachable stale\n}\n" + rig.PaceOff})
	site, leads := server.Site(t, testorigin.SiteConfig{}), server.Site(t, testorigin.SiteConfig{})
	leads.SetRobots(testorigin.Redirect(http.StatusMovedPermanently, site.URL("/robots.txt")))
	lines := 0
	crawl := func(robots testorigin.Behaviour, want string) {
		t.Helper()
		site.SetRobots(robots)
		rig.Eventually(t, want, func() bool {
			for _, s := range []*testorigin.Site{site, leads} {
				g.MustFetch("AcmeBot/1.0", s.URL("/a"))
				lines++
			}
			last := g.Logs(lines)[lines-2:]
			return last[0].Robots.State == want && last[1].Robots.State == want
		})
	}
	for _, s := range []*testorigin.Site{site, leads} {
		s.SetPages(testorigin.OK("the page"))
	}
	crawl(testorigin.OK("User-agent: *\nDisallow: /x\n"), "rules")
	crawl(testorigin.Status(http.StatusServiceUnavailable), "unreachable")
	crawl(testorigin.OK("User-agent: *\nDisallow: /y\n"), "rules")
	crawl(testorigin.Status(http.StatusNotFound), "absent")
	crawl(testorigin.Status(http.StatusServiceUnavailable), "unreachable")
	g.Stop()
	r := rig.Audit(t, "--store", g.Store(), g.AccessLog())
	if r.Clean(t, "stale answers"); r.Totals.Checked != int64(lines) || r.Totals.Replayed == 0 {
		t.Errorf("the audit checked %d lines, want %d; replayed %d", r.Totals.Checked, lines, r.Totals.Replayed)
	}
	forged, at := forgedLine(t, g.AccessLog(), site.Origin().String(), func(r map[string]any) bool { return r["state"] == "absent" })
	if r := rig.Audit(t, "--store", g.Store(), forged); len(r.Findings) != 1 || r.Findings[0].Kind != "history" || r.Findings[0].Line != at {
		t.Errorf("a line after its answer expired: findings %+v, want one of the kind history", r.Findings)
	}
}

// TestAuditHistoryAfterAFullDisk loses the line about a new robots.txt while the disk is full. Both
// plain and sealed logs must repeat it before the next line that rests on it.
func TestAuditHistoryAfterAFullDisk(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetPages(testorigin.OK("the page"))
	sealed := rig.NewSealedLog(t)
	for name, c := range map[string]rig.Config{"file": {Engine: rig.PaceOff}, "sealed": sealed.Config("")} {
		g := rig.New(t, c)
		log := map[string]string{"file": g.AccessLog(), "sealed": filepath.Join(sealed.Dir, "access.log")}[name]
		site.SetRobots(testorigin.OK("User-agent: *\nDisallow: /x\n"))
		ask := func() { g.MustFetch("AcmeBot/1.0", site.URL("/a")) }
		ask()
		g.Logs(1)
		var was unix.Rlimit
		full, now := unix.Rlimit{}, func(limit *unix.Rlimit) {
			if err := unix.Prlimit(g.Cmd.Process.Pid, unix.RLIMIT_FSIZE, limit, &was); err != nil {
				t.Fatal(err)
			}
		}
		now(nil)
		before := was
		full.Max = was.Max
		now(&full)
		site.SetRobots(testorigin.OK("User-agent: *\nDisallow: /y\n"))
		_, _ = g.Robots("refresh", site.Origin().String())
		ask()
		now(&before)
		ask()
		ask()
		g.Stop()
		r := rig.Audit(t, "--store", g.Store(), log)
		if len(r.Findings) > 0 || len(r.Totals.NotProvable) > 0 || r.Totals.Checked < 3 {
			t.Errorf("%s: %d lines, findings %+v, not provable %v", name, r.Totals.Checked, r.Findings, r.Totals.NotProvable)
		}
	}
}

// TestAuditHistoryOfAFleet checks that each log of gateways with a shared store proves its own
// lines, in a folder of its own or in one file with the others.
func TestAuditHistoryOfAFleet(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetPages(testorigin.OK("the page"))
	var gateways []*rig.Gateway
	for i := range 2 {
		gateways = append(gateways, rig.New(t, rig.Config{Engine: fmt.Sprintf("gateway gw%d\nstore redis %s\n%s", i, redis.URL(), rig.PaceOff)}))
	}
	lines := 0
	for i, rules := range []string{"/x", "/a", "/y", "/a", "/z"} {
		site.SetRobots(testorigin.OK("User-agent: *\nDisallow: " + rules + "\n"))
		command := []string{"refresh", "purge"}[i%2]
		if out, err := gateways[i%2].Robots(command, site.Origin().String()); err != nil {
			t.Fatal(out, err)
		}
		for _, n := range []int{i % 2, 1 - i%2} {
			for range 2 {
				gateways[n].MustFetch("AcmeBot/1.0", site.URL("/a"))
			}
		}
		lines += 2
	}
	known := false
	args := []string{"--gateway", "unix/" + gateways[0].AdminSocket()}
	var all []string
	for _, g := range gateways {
		g.Logs(lines)
		known = known || slices.Contains(eventsIn(t, g.AccessLog(), site.Origin().String()), robotscache.EventKnown)
		text, err := os.ReadFile(g.AccessLog())
		if err != nil {
			t.Fatal(err)
		}
		args, all = append(args, g.AccessLog()), slices.AppendSeq(all, strings.Lines(string(text)))
	}
	if !known {
		t.Error("no gateway took a record from another one")
	}
	rig.Audit(t, args...).Clean(t, "two logs")
	slices.SortStableFunc(all, func(a, b string) int { return strings.Compare(timeOf(a), timeOf(b)) })
	path := filepath.Join(rig.TempDir(t), "access.log")
	if err := os.WriteFile(path, []byte(strings.Join(all, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	r := rig.Audit(t, append(args[:2:2], path)...)
	if r.Clean(t, "one log"); r.Totals.Checked != int64(2*lines) {
		t.Errorf("the audit checked %d lines, want %d", r.Totals.Checked, 2*lines)
	}
}

// timeOf returns the time of a line as a padded text.
func timeOf(line string) string {
	_, rest, _ := strings.Cut(line, `"ts":`)
	ts, _, _ := strings.Cut(rest, ",")
	return fmt.Sprintf("%-20s", ts)
}

// storeWithoutHistory returns a copy of a store that has texts and no origins.
func storeWithoutHistory(t *testing.T, store string) string {
	t.Helper()
	data, err := os.ReadFile(store)
	path := filepath.Join(rig.TempDir(t), "emptied.db")
	if err = errors.Join(err, os.WriteFile(path, data, 0o600)); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		if err := tx.DeleteBucket([]byte("origins")); err != nil {
			return err
		}
		_, err := tx.CreateBucket([]byte("origins"))
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// forgedLine returns a copy of a log whose last line about an origin repeats an earlier one, some
// seconds later.
func forgedLine(t *testing.T, log, origin string, from func(robots map[string]any) bool) (path string, at int) {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	var earlier, last map[string]any
	for i, line := range lines {
		var object map[string]any
		if len(line) == 0 {
			continue
		}
		if err := json.Unmarshal(line, &object); err != nil {
			t.Fatal(err)
		}
		robots, ok := object["robots"].(map[string]any)
		if !ok || robots["origin"] != origin {
			continue
		}
		if earlier == nil && from(robots) {
			earlier = robots
		}
		last, at = object, i+1
	}
	later := last["ts"].(float64) + 10
	earlier["decided_at"], earlier["sent_at"], earlier["ended_at"] = later, later, later
	earlier["agent"], earlier["tokens"] = last["robots"].(map[string]any)["agent"], last["robots"].(map[string]any)["tokens"]
	last["robots"], last["ts"], last["status"] = earlier, later, 200
	if lines[at-1], err = json.Marshal(last); err != nil {
		t.Fatal(err)
	}
	lines[at-1] = append(lines[at-1], '\n')
	path = filepath.Join(rig.TempDir(t), "access.log")
	if err := os.WriteFile(path, slices.Concat(lines...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, at
}

// TestAnswersInEachLog checks that each access log of a site with the directive has the line about
// a robots.txt before the first line that depends on it: logs of the server, of hosts and of
// log_name, and sealed logs. Logs of other sites have no such line.
func TestAnswersInEachLog(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{})
	site.SetPages(testorigin.OK("the page"))
	site.SetRobots(testorigin.OK("User-agent: *\nDisallow: /x\n"))
	dir := rig.TempDir(t)
	file := func(name string) string { return filepath.Join(dir, name+".log") }
	log := func(name, options string) string {
		return fmt.Sprintf("log %s {\noutput file %s {\nroll_disabled\n}\n%s\n}\n", name, file(name), options)
	}
	unlogged, named := rig.FreePort(t), rig.FreePort(t)
	g := rig.New(t, rig.Config{
		Engine: rig.PaceOff,
		Global: log("all", "include http.log.access") + log("own", "include http.log.access.own") + log("process", "exclude http.log.access"),
		Around: log("hosts", "hostnames other.example"),
		Sites: fmt.Sprintf("http://%s {\nbind 127.0.0.1\nrobots\n}\nhttp://%s {\nbind 127.0.0.1\nlog {\noutput discard\n}\nlog_name own\nrobots\n}\n",
			strings.Replace(unlogged, "127.0.0.1", "", 1), strings.Replace(named, "127.0.0.1", "", 1)),
	})
	g.MustFetch("AcmeBot/1.0", site.URL("/a"))
	if out, err := g.Robots("purge", site.Origin().String()); err != nil {
		t.Fatal(out, err)
	}
	g.MustFetch("AcmeBot/1.0", site.URL("/a"))
	g.Logs(2)
	want := []string{robotscache.EventFetched, "request", robotscache.EventPurged, robotscache.EventFetched, "request"}
	for name, want := range map[string][]string{g.AccessLog(): want, file("own"): {want[0], want[2], want[3]}, file("hosts"): {want[0], want[2], want[3]}, file("process"): nil} {
		if got := eventsIn(t, name, site.Origin().String()); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := eventsIn(t, file("all"), site.Origin().String()); !slices.Contains(got, "request") || !slices.Contains(got, robotscache.EventPurged) || got[0] != robotscache.EventFetched {
		t.Errorf("the log of all sites has the events %q", got)
	}
	reloaded := g.Config
	reloaded.Global += log("late", "include http.log.access.log0")
	if err := g.Reload(reloaded); err != nil {
		t.Fatal(err)
	}
	g.MustFetch("AcmeBot/1.0", site.URL("/a"))
	g.MustFetch("AcmeBot/1.0", site.URL("/a"))
	g.Logs(4)
	if got, want := eventsIn(t, file("late"), site.Origin().String()), []string{robotscache.EventKnown, "request", "request"}; !slices.Equal(got, want) {
		t.Errorf("a log that a reload has started: %q, want %q", got, want)
	}
}

// eventsIn returns the events that a log has about an origin.
func eventsIn(t *testing.T, file, origin string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var l struct {
			Msg    string
			Robots *struct{ Origin string }
			Answer *robotscache.Answer `json:"robots_txt"`
		}
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		switch {
		case l.Answer != nil && l.Msg == "robots.txt" && l.Robots == nil && l.Answer.Origin == origin:
			all = append(all, l.Answer.Event)
		case l.Robots != nil && l.Robots.Origin == origin && l.Answer == nil:
			all = append(all, "request")
		}
	}
	return all
}
