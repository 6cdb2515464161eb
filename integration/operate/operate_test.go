//go:build slow

package operate

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// typeBackup restores the archive on a fresh machine, which must have the same rulesets, orders,
// certificate authority, log and configuration.
func typeBackup(t *testing.T, b *section) {
	t.Helper()
	rig.Need(t, "tar")
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	m := newMachine(t)
	m.start(m.config(""))
	m.g.MustFetch("somebot", site.URL("/page"))
	if out, err := m.g.Robots("deny", "agent", "badbot", "--reason", "complaint 7"); err != nil {
		t.Fatalf("deny: %v: %s", err, out)
	}
	authority := m.g.Authority()
	m.types(b.next("sh"))
	if a := m.g.MustFetch("somebot", site.URL("/page")); a.Status != http.StatusOK { // the gateway runs again
		t.Errorf("status %d after the backup", a.Status)
	}
	m.g.Stop()

	fetched := len(site.RobotsExchanges())
	fresh := newMachine(t)
	fresh.g.Config = fresh.config("")
	if err := os.Rename(m.path("root/backup.tgz"), fresh.path("root/backup.tgz")); err != nil {
		t.Fatal(err)
	}
	fresh.types(b.next("sh"))
	if a := fresh.g.MustFetch("somebot", site.URL("/page")); a.Status != http.StatusOK || len(site.RobotsExchanges()) != fetched {
		t.Errorf("status %d; %d fetches of robots.txt before and %d after", a.Status, fetched, len(site.RobotsExchanges()))
	}
	if a := fresh.g.MustFetch("badbot", site.URL("/page")); a.Header.Get("Crawlgate-Decision") != "deny; reason=kill_switch" {
		t.Errorf("an order is not in force: status %d, header %v", a.Status, a.Header)
	}
	if !fresh.g.Authority().Equal(authority) {
		t.Error("the restored authority differs")
	}
	for _, name := range []string{"etc/crawlgate/Caddyfile", "var/log/crawlgate/evidence/access/key"} {
		old, err := os.ReadFile(m.path(name))
		if restored, restoredErr := os.ReadFile(fresh.path(name)); err != nil || restoredErr != nil || !bytes.Equal(old, restored) {
			t.Errorf("%s differs after the restore; errors %v, %v", name, err, restoredErr)
		}
	}
	fresh.g.Stop()
	r := rig.Audit(t, "--store", fresh.g.Store(), "--seal", fresh.path("var/log/crawlgate"))
	if r.Clean(t, "the log that was restored and goes on"); r.Totals.Checked != 3 {
		t.Errorf("the audit checked %d lines, want 3", r.Totals.Checked)
	}
}

// TestWhatToFile types the commands of docs/audit.md for a period. The report has its requests, and
// the audit of the log prints PASS with all lines proven.
func TestWhatToFile(t *testing.T) {
	t.Parallel()
	m := reportedMachine(t)
	_, block, _ := strings.Cut(testdocs.Sections(t, "audit.md")["What to file"], "```sh\n")
	block, _, _ = strings.Cut(block, "```")
	m.types(block)
	page, audited := string(readFile(t, m.path("root/november.html"))), string(readFile(t, m.path("root/november.audit")))
	for _, want := range []string{"<h1>Acme: November 2026</h1>", "refused 1 (50.0%) of 2 requests from ", " of 1 crawler: 1 (50.0%) by a rule of robots.txt", "Every line has a seal"} {
		if !strings.Contains(page, want) {
			t.Errorf("the report lacks %q: %s", want, page)
		}
	}
	if !strings.HasPrefix(audited, "PASS: ") || !strings.Contains(audited, " 0 findings, 0 not proven\n") {
		t.Error(audited)
	}
}

// typeRotateAuthority checks that clients that trust both roots notice nothing, and that those with
// only the old root fail after the change.
func typeRotateAuthority(t *testing.T, b *section) {
	t.Helper()
	origins := rig.NewTestCA(t)
	site := rig.StartSecureSite(t, origins, nil)
	m := newMachine(t)
	m.start(m.config("").Trusting(origins))
	before := m.g.Authority()
	m.replace = []string{":3999", portOf(t, rig.FreePort(t))}
	// The block's last command runs until Ctrl-C.
	beside, said := m.command(strings.Replace(b.next("sh"), "\nXDG_DATA_HOME=", "\nexec env XDG_DATA_HOME=", 1)), new(rig.Tail)
	beside.Stderr = said
	if err := beside.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = beside.Process.Kill() })
	rig.Eventually(t, "the gateway beside to be ready", func() bool { return strings.Contains(said.String(), `"msg":"ready"`) })
	_ = beside.Process.Signal(syscall.SIGINT)
	if err := beside.Wait(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	pool := func(name string) *x509.CertPool {
		pool := x509.NewCertPool()
		if pem, err := os.ReadFile(m.path(name)); err != nil || !pool.AppendCertsFromPEM(pem) {
			t.Fatal(err)
		}
		return pool
	}
	after := pool("root/new-ca/caddy/pki/authorities/robots/root.crt")
	m.types(b.next("sh"))
	both := pool("root/roots.crt")
	trusted := func(want string) {
		t.Helper()
		for name, pool := range map[string]*x509.CertPool{"old": before, "new": after, "both": both} {
			_, err := m.g.OneTunnel(site, pool)
			if ok := name == "both" || name == want; ok != (err == nil) {
				t.Errorf("clients that trust %s, with the %s authority in use: %v", name, want, err)
			}
		}
	}
	trusted("old")
	m.types(b.next("sh"))
	trusted("new")
	if !m.g.Authority().Equal(after) {
		t.Error("/ca.crt is not the new root")
	}
}

// typeDisk checks that the commands show the files and the metrics, and that the page's numbers of
// bytes fit a log.
func typeDisk(t *testing.T, b *section) {
	t.Helper()
	m := newMachine(t)
	m.start(m.config(""))
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	const lines = 200
	for i := range lines {
		m.g.MustFetch("AcmeBot/1.0 (+https://crawl.acme.example/)", site.URL(fmt.Sprintf("/news/2026/11/27/an-article-of-the-day-%d.html", i)))
	}
	rig.Eventually(t, "the oldest line to be known", func() bool {
		return strings.Contains(m.g.Admin("/metrics").Body, "crawlgate_evidence_oldest_line_seconds{")
	})
	if formula := b.next(""); !strings.Contains(formula, "(1315 / 10 + 32)") {
		t.Error(formula)
	}
	out := m.types(b.next("sh"))
	for _, want := range []string{"/var/log/crawlgate\n", "/var/lib/crawlgate\n", "Use%", "crawlgate_evidence_lines_total{", "crawlgate_evidence_kept{"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	count := regexp.MustCompile(`crawlgate_evidence_lines_total\{[^}]*\} (\d+)`).FindStringSubmatch(out)
	if n, err := strconv.Atoi(count[1]); err != nil || n < lines {
		t.Errorf("error %v, output %s", err, count)
	}
	m.g.Stop()
	text, err := os.ReadFile(m.path("var/log/crawlgate/access.log"))
	if err != nil {
		t.Fatal(err)
	}
	n := bytes.Count(text, []byte("\n"))
	if each := len(text) / n; each < 1315*2/3 || each > 1315*3/2 {
		t.Errorf("%d bytes a line, docs/operate.md has 1,315", each)
	}
	tiles := 0
	err = filepath.WalkDir(m.path("var/log/crawlgate/evidence"), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			info, infoErr := d.Info()
			if err = infoErr; err == nil {
				tiles += int(info.Size())
			}
		}
		return err
	})
	if err != nil || tiles < 32*n || tiles > 64*n+64<<10 {
		t.Errorf("%d bytes of evidence for %d lines, docs/operate.md has 32 a line: %v", tiles, n, err)
	}
}

// typeLogrotate checks that logrotate copies and truncates the log, and that the gateway goes on in
// the same file.
func typeLogrotate(t *testing.T, b *section) {
	t.Helper()
	rig.Need(t, "logrotate")
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	m := newMachine(t)
	config := m.config("")
	config.Global = fmt.Sprintf("log plain {\noutput file %s { roll_disabled }\ninclude http.log.access\n}\n", m.path("var/log/crawlgate/plain.log"))
	config.Global = strings.ReplaceAll(config.Global, "{ roll_disabled }", "{\nroll_disabled\n}")
	m.start(config)
	m.g.MustFetch("AcmeBot", site.URL("/before"))
	m.write("etc/logrotate.d/crawlgate", strings.ReplaceAll(b.next(""), "/var/log/", m.root+"/var/log/"), 0o644)
	m.g.Logs(1)
	m.types(strings.Replace(b.next("sh"), "--force", "--state logrotate.state --force", 1))
	m.g.MustFetch("AcmeBot", site.URL("/after"))
	for name, want := range map[string]string{"plain.log": "/after", "plain.log.1": "/before"} {
		rig.Eventually(t, "the line in "+name, func() bool {
			text, err := os.ReadFile(m.path("var/log/crawlgate/" + name))
			return err == nil && bytes.Contains(text, []byte(want)) && bytes.Count(text, []byte(`"robots":`)) == 1
		})
	}
}

// typeStreams checks that a log from an archive has the same audit as the files, packed or not, and
// from several gateways.
func typeStreams(t *testing.T, b *section) {
	t.Helper()
	for _, program := range []string{"gzip", "zstdcat", "xzcat"} {
		rig.Need(t, program)
	}
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nCrawl-delay: 0.05\nDisallow: /private\n"))
	m, other := newMachine(t), newMachine(t)
	m.start(m.config(""))
	config := other.config("")
	config.Engine += "\ngateway other"
	other.start(config)
	const asked = 40
	for i := range asked {
		page := site.URL([]string{"/private/", "/page/"}[i%2] + strconv.Itoa(i))
		m.g.MustFetch("AcmeBot", page)
		other.g.MustFetch("AcmeBot", page)
	}
	other.g.Stop()
	m.g.Stop() // seals all lines
	if err := m.g.Start(m.g.Config); err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(readFile(t, m.path("var/log/crawlgate/access.log")), []byte("\n"))
	mixed := slices.Concat(lines, bytes.SplitAfter(readFile(t, other.path("var/log/crawlgate/access.log")), []byte("\n")))
	slices.SortStableFunc(mixed, func(a, b []byte) int { return cmp.Compare(loggedAt(a), loggedAt(b)) })
	half := len(lines) / 2
	m.write("archive/one", string(bytes.Join(lines[:half], nil)), 0o600)
	m.write("archive/two", string(bytes.Join(lines[half:], nil)), 0o600)
	m.write("archive/stream", "{\"msg\":\"of another program\"}\n"+string(bytes.Join(mixed, nil)), 0o600)
	m.types(`cd "$ARCHIVE"
gzip -k one two && cat one.gz two.gz > access.log.gz && rm one.gz two.gz
cat one two | xz -c > "$OLDPWD/access.log.xz"
for part in one two; do zstd -q -c $part; done > "$OLDPWD/access.log.zst"`)
	sections := strings.SplitAfter(b.next("sh"), "audit -\n")
	check := func(command string, requests int) {
		t.Helper()
		out := m.types(command)
		if !strings.HasPrefix(out, "PASS: ") || !regexp.MustCompile(`\n  checked +`+strconv.Itoa(requests)+`\n`).MatchString(out) {
			t.Errorf("%s:\n%s", command, out)
		}
	}
	for _, command := range sections {
		check(command, asked)
	}
	check(b.next("sh"), 2*asked)
	if out := m.types(b.next("sh")); !strings.Contains(out, " refused 20 (50.0%) of 40 requests of 1 crawler") {
		t.Error(out)
	}
	check(b.next("sh"), asked)
}

// loggedAt returns the time of a line, as a collector reads it.
func loggedAt(line []byte) float64 {
	var l struct{ TS float64 }
	_ = json.Unmarshal(line, &l) // the last one is empty
	return l.TS
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
