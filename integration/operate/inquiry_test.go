//go:build slow

package operate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// blocksOf returns the code blocks of a page.
func blocksOf(t *testing.T, page string) *section {
	t.Helper()
	b := &section{t: t}
	for _, m := range fenced.FindAllStringSubmatch(testdocs.Text(t, page), -1) {
		b.left = append(b.left, strings.ReplaceAll(m[3], "\n"+m[1], "\n"))
		b.kinds = append(b.kinds, m[2])
	}
	return b
}

// sealed waits until the log has the given number of requests, and each line has a checkpoint.
func (m *machine) sealed(requests int) {
	m.t.Helper()
	rig.Eventually(m.t, "the seals of all lines", func() bool {
		lines := bytes.Count(readFile(m.t, m.path("var/log/crawlgate/access.log")), []byte(`"robots":{`))
		return lines == requests && m.g.Metric("crawlgate_evidence_unsealed_lines") == 0
	})
}

// TestInquiryPage types the commands of docs/inquiry.md in order. They count, explain, prove and
// stop, as the page promises.
func TestInquiryPage(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	site, other := server.Site(t, testorigin.SiteConfig{}), server.Site(t, testorigin.SiteConfig{})
	for _, s := range []*testorigin.Site{site, other} {
		s.SetRobots(testorigin.OK(rig.Rules))
	}
	m := newMachine(t)
	m.start(m.config(""))
	for _, url := range []string{site.URL(rig.OpenPage), site.URL(rig.PrivatePage), other.URL(rig.OpenPage)} {
		m.g.MustFetch("AcmeBot", url)
	}
	m.sealed(3)
	host := strings.TrimPrefix(site.URL(""), "http://")
	name, _, _ := strings.Cut(host, ":")
	today := time.Now().UTC()
	m.replace = []string{
		"2026-11-20", today.AddDate(0, 0, -1).Format(time.DateOnly), "2026-11-23", today.AddDate(0, 0, 2).Format(time.DateOnly),
		"localhost:2019", "unix/" + m.g.AdminSocket(), "https://shop.example/private/x", site.URL(rig.PrivatePage), "shop.example", name,
	}
	b := blocksOf(t, "inquiry.md")
	sum := sha256.Sum256([]byte(rig.Rules))
	for _, want := range [][]string{
		{"refused 1 (50.0%) of 2 requests"},
		{"Disallow: ", hex.EncodeToString(sum[:])},
		{"PASS: ", " 0 findings, 0 not proven\n"},
		{name},
	} {
		said := m.types(b.next("sh"))
		for _, text := range want {
			if !strings.Contains(said, text) {
				t.Errorf("the output lacks %q: %s", text, said)
			}
		}
	}
	if len(b.left) > 0 {
		t.Errorf("the test does not type %q", b.left)
	}
	if a := m.g.MustFetch("AcmeBot", site.URL(rig.OpenPage)); a.Status != http.StatusForbidden || a.Header.Get("Crawlgate-Decision") != "deny; reason=kill_switch" {
		t.Errorf("after the stop: status %d, header %v", a.Status, a.Header)
	}
	if a := m.g.MustFetch("AcmeBot", other.URL(rig.OpenPage)); a.Status != http.StatusOK {
		t.Errorf("at another site: status %d, header %v, want 200", a.Status, a.Header)
	}
}

// reportedMachine returns a machine with a sealed log of two requests, one of them refused. It
// types commands for November 2026 with the current month.
func reportedMachine(t *testing.T) *machine {
	t.Helper()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK(rig.Rules))
	m := newMachine(t)
	m.start(m.config(""))
	for _, path := range []string{rig.OpenPage, rig.PrivatePage} {
		m.g.MustFetch("AcmeBot", site.URL(path))
	}
	m.sealed(2)
	month := time.Now().UTC().AddDate(0, 0, 1-time.Now().UTC().Day())
	m.replace = []string{"2026-11-01", month.Format(time.DateOnly), "2026-12-01", month.AddDate(0, 1, 0).Format(time.DateOnly)}
	return m
}

// TestReportPage types the command of docs/report.md. The report has the title, the statement, and
// the lines for a signature. The flags limit the report, and a file that cannot be read makes the
// exit status 2.
func TestReportPage(t *testing.T) {
	t.Parallel()
	m := reportedMachine(t)
	b := blocksOf(t, "report.md")
	command := b.next("sh")
	m.types(command)
	page := string(readFile(t, m.path("root/report.html")))
	for _, want := range []string{"<h1>Acme Ltd: crawling in November 2026</h1>", "refused 1 (50.0%) of 2 requests from ", "Date, signature"} {
		if !strings.Contains(page, want) {
			t.Errorf("the report lacks %q: %s", want, page)
		}
	}
	if len(b.left) > 0 {
		t.Errorf("the test does not type %q", b.left)
	}
	for _, flag := range []string{"--agent OtherBot", "--host other.example", "--owner nobody"} {
		m.types(strings.Replace(command, "--format", flag+" --format", 1))
		if page := string(readFile(t, m.path("root/report.html"))); strings.Contains(page, "of 2 requests") {
			t.Errorf("%s does not limit the report", flag)
		}
	}
	m.write("var/log/crawlgate/broken.xz", "\xfd7zXZ\x00broken", 0o600)
	if err := m.command(command).Run(); err == nil || err.Error() != "exit status 2" {
		t.Errorf("a file that cannot be read: error %v, want exit status 2", err)
	}
}
