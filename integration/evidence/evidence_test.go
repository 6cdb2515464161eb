//go:build slow

package evidence

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// crawlAll sends requests from several clients until the context ends, and counts those that were
// answered.
func crawlAll(g *rig.Gateway, ctx context.Context, site *testorigin.Site, clients int) (answered *atomic.Int64, wait func()) {
	answered = new(atomic.Int64)
	var crawling sync.WaitGroup
	long := strings.Repeat("x", 1500) // long lines, so that files fill
	for i := range clients {
		crawling.Go(func() {
			client := g.Client("somebot")
			for j := 0; ctx.Err() == nil; j++ {
				if a, err := rig.TryGet(ctx, client, site.URL(fmt.Sprintf("/%d/%d?%s", i, j, long))); err == nil && a.Status == http.StatusOK {
					answered.Add(1)
				} else {
					rig.Pause(ctx, 20*time.Millisecond) // the gateway is down
				}
			}
		})
	}
	return answered, crawling.Wait
}

// TestEvidence kills the gateway five times under load, with rotation and packing. An independent
// program recomputes every checkpoint from the lines, and then finds one changed byte.
func TestEvidence(t *testing.T) {
	rig.LoadsMachine(t)
	origin := testorigin.Start(t, testorigin.Config{})
	site := origin.Site(t, testorigin.SiteConfig{})
	s := rig.NewSealedLog(t)
	g := rig.New(t, s.Config(""))
	ctx, cancel := context.WithCancel(t.Context())
	answered, wait := crawlAll(g, ctx, site, 8)
	moments := rand.New(rand.NewPCG(7, 1))
	const kills = 5
	for range kills {
		rig.Pause(ctx, time.Second+time.Duration(moments.Int64N(int64(500*time.Millisecond)))) // a checkpoint is written each second
		g.Kill()
		if err := g.Start(s.Config("")); err != nil {
			t.Fatal(err)
		}
	}
	rig.Pause(ctx, time.Second)
	if err := g.Reload(s.Config("every 200ms 100")); err != nil { // other settings of the same log
		t.Fatal(err)
	}
	rig.Pause(ctx, time.Second)
	cancel()
	wait()
	g.Stop()

	found := s.Check()
	one, ok := found.Generations["gw1.acme.example/access/1"]
	if found.Verdict != "PASS" || !ok || len(found.Generations) != 1 {
		t.Fatalf("the verifier returned %+v, want PASS with one generation", found)
	}
	resumed, packed, lines := 0, 0, 0
	for _, name := range s.Files() {
		if strings.HasSuffix(name, ".gz") {
			packed++
		}
		text := string(rig.Unpacked(t, name))
		resumed += strings.Count(text, `"late":{"from":`)
		lines += strings.Count(text, `"msg":"handled request"`)
	}
	t.Logf("%d requests answered, %d lines of them, %d in all, %d checkpoints, %d of %d files packed, resumed %d times",
		answered.Load(), lines, one.Lines, one.Checkpoints, packed, len(s.Files()), resumed)
	if packed < 3 || one.Newest != one.Lines-1 || resumed == 0 || int64(lines) < answered.Load()-8*kills {
		t.Error("too few lines, packed files or resumed logs")
	}

	victim := s.Files()[len(s.Files())-1]
	text, err := os.ReadFile(victim)
	if err != nil {
		t.Fatal(err)
	}
	text[strings.Index(string(text), `"handled request"`)+5] ^= 1
	if err := os.WriteFile(victim, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if found := s.Check(); len(found.Findings) == 0 {
		t.Error("a changed byte was not found")
	}
}

// TestEvidenceReloads checks which settings of a sealed log a reload may change.
func TestEvidenceReloads(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	s := rig.NewSealedLog(t)
	g := rig.New(t, s.Config(""))
	asked := 0
	ask := func() { // also waits for its line, which belongs before a reload
		rig.Get(t, g.Client("somebot"), site.URL("/"))
		asked++
		rig.Eventually(t, "the line of a request", func() bool {
			return strings.Count(string(rig.Unpacked(t, filepath.Join(s.Dir, "access.log"))), `"msg":"handled request"`) >= asked
		})
	}
	ask()
	for _, tt := range []struct {
		lines, err string
	}{
		{"", ""},
		{"every 100ms 10\nheads " + filepath.Join(s.Dir, "heads"), ""},
		{"name other", filepath.Join(s.Dir, "access.log") + ": another process writes this log, or this process seals it under another name or state folder: to change these, restart it"},
		{"key " + s.Dir, "reading the key: read " + s.Dir + ": is a directory"},
		{"key " + filepath.Join(s.Dir, "new.key"), ""},
	} {
		before := len(s.Check().Generations)
		err := g.Reload(s.Config(tt.lines))
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Fatalf("%q: got %v\nwant %s", tt.lines, err, tt.err)
		}
		ask()
		if n := len(s.Check().Generations); strings.HasPrefix(tt.lines, "key") != (n > before) && err == nil {
			t.Errorf("%q: %d generations, %d before the reload", tt.lines, n, before)
		}
	}
	second := &rig.Gateway{T: t, Dir: rig.TempDir(t), Addr: rig.FreePort(t)}
	for _, lines := range []string{"", "state " + filepath.Join(t.TempDir(), "other")} {
		if err := second.Start(s.Config(lines)); err == nil || !strings.Contains(err.Error(), "another process writes this log") {
			t.Errorf("a second process, %q: error %v, want a refusal", lines, err)
		}
	}
	rig.Eventually(t, "all lines to be sealed", func() bool { return g.Metric("crawlgate_evidence_unsealed_lines") == 0 })
	g.Stop()
	found := s.Check()
	if len(found.Findings) > 0 || len(found.Generations) != 2 {
		t.Errorf("the verifier returned %+v, want two generations without findings", found)
	}
	// The lines are: opened, checkpoint, a request and its robots.txt, checkpoint, closed,
	// checkpoint.
	if second := found.Generations["gw1.acme.example/access/2"]; second.Lines != 7 || second.Newest != 6 {
		t.Errorf("the second generation is %+v, want 7 lines", second)
	}
	// One line is of the reload with other settings, one or more are of those with other keys, and
	// one is of the end.
	if n := strings.Count(string(rig.Unpacked(t, filepath.Join(s.Dir, "access.log"))), `"logger":"crawlgate.evidence","msg":"closed"`); n < 3 {
		t.Errorf(`the log has %d lines "closed", want at least 3`, n)
	}
}

// TestEvidenceRefuses checks that, with on_failure refuse, no request passes while the log cannot
// be sealed, and that requests pass when it can again.
func TestEvidenceRefuses(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	s := rig.NewSealedLog(t)
	g := rig.New(t, s.Config("every 50ms 1\non_failure refuse"))
	client := g.Client("somebot")
	if a := rig.Get(t, client, site.URL("/")); a.Status != http.StatusOK {
		t.Fatalf("status %d, want 200", a.Status)
	}
	generation := filepath.Join(s.State(), "1")
	if err := os.Rename(generation, generation+".away"); err != nil {
		t.Fatal(err)
	}
	var refused rig.Answer
	rig.Eventually(t, "a refusal", func() bool {
		refused = rig.Get(t, client, site.URL("/"))
		return refused.Status != http.StatusOK
	})
	if refused.Status != http.StatusServiceUnavailable || refused.Header.Get("Retry-After") == "" ||
		!strings.Contains(refused.Header.Get("Crawlgate-Decision"), "reason=evidence_unavailable") {
		t.Errorf("status %d, header %v, want 503 for evidence_unavailable", refused.Status, refused.Header)
	}
	if up := g.Metric("crawlgate_evidence_up"); up != 0 {
		t.Errorf("crawlgate_evidence_up is %g, want 0", up)
	}
	if a := rig.Get(t, http.DefaultClient, "http://"+g.Addr+"/"); a.Status != http.StatusOK {
		t.Errorf("the gateway's own page: status %d, want 200", a.Status)
	}
	if err := os.Rename(generation+".away", generation); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "requests to pass", func() bool { return rig.Get(t, client, site.URL("/")).Status == http.StatusOK })
	if out := g.Stderr.String(); !strings.Contains(out, "access log cannot be written or sealed") || !strings.Contains(out, "access log is written and sealed again") {
		t.Errorf("the process log lacks a message: %s", out)
	}
	g.Stop()
	if found := s.Check(); len(found.Findings) > 0 {
		t.Errorf("the verifier found %+v, want nothing", found)
	}
}

// TestEvidenceCommands checks the output of the commands for a running gateway, and the proof of a
// line with the Python program of the docs.
func TestEvidenceCommands(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	s := rig.NewSealedLog(t)
	g := rig.New(t, s.Config("every 50ms 1"))
	for range 5 {
		rig.Get(t, g.Client("somebot"), site.URL("/"))
	}
	rig.Eventually(t, "all lines to be sealed", func() bool { return g.Metric("crawlgate_evidence_unsealed_lines") == 0 })
	show := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), rig.Binary, append([]string{"robots", "evidence", "--gateway", "unix/" + g.AdminSocket()}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
		return string(out)
	}
	key, head := show("key"), show("head")
	size := strings.Split(head, "\n")[1]
	cmd := exec.CommandContext(t.Context(), rig.Binary, "robots", "evidence", "--gateway", "unix/"+g.AdminSocket(), "prove", size)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "line "+size+" is not in the newest checkpoint: lines are numbered from 0") {
		t.Errorf("prove %s: error %v, output %s", size, err, out)
	}
	if !strings.HasPrefix(key, "gw1.acme.example/access/1+") || !strings.HasPrefix(head, "gw1.acme.example/access/1\n") {
		t.Errorf("key %q, head %q", key, head)
	}
	if answer := g.Admin("/robots/evidence").Body; !strings.Contains(answer, `"vkey":"`+strings.TrimSpace(key)) {
		t.Errorf("the admin API: %s", answer)
	}
	page, err := os.ReadFile(testdocs.Path("docs", "evidence-format.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(page), "```python\n")
	program, _, _ = strings.Cut(program, "```")
	python := rig.Need(t, "python3")
	for seq := range 6 {
		proof := show("prove", fmt.Sprint(seq))
		for _, tt := range []struct{ proof, want string }{{proof, "True\n"}, {strings.Replace(proof, "info", "inf0", 1), "False\n"}} {
			cmd := exec.CommandContext(t.Context(), python, "-c", program)
			cmd.Stdin = strings.NewReader(tt.proof)
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != tt.want {
				t.Errorf("line %d: error %v, output %s\n%s", seq, err, out, tt.proof)
			}
		}
	}
}

// TestEvidenceName checks that a log is named after the gateway of its lines, by default after the
// host.
func TestEvidenceName(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	for option, want := range map[string]string{"": host, "gateway eu/7.acme.example": "eu/7.acme.example"} {
		s := rig.NewSealedLog(t)
		config := s.Config("")
		config.Engine = option
		g := rig.New(t, config)
		rig.Get(t, g.Client("somebot"), site.URL("/"))
		g.Stop()
		text := string(rig.Unpacked(t, filepath.Join(s.Dir, "access.log")))
		if !strings.Contains(text, `"gateway":"`+want+`"`) || !strings.Contains(text, `"log":"`+want+`/access/1"`) {
			t.Errorf("%q: the log lacks the gateway %s: %s", option, want, text)
		}
	}
}
