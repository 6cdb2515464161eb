package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// sealedLog is a log of a gateway that is sealed, besides the ordinary one.
type sealedLog struct {
	t   *testing.T
	dir string
}

func newSealedLog(t *testing.T) *sealedLog {
	t.Helper()
	return &sealedLog{t, tempDir(t)}
}

// config writes a configuration with the sealed log; lines are options of the writer.
func (s *sealedLog) config(lines string) gatewayConfig {
	return gatewayConfig{
		Engine: "gateway gw1.acme.example\npace {\nrate off\nconcurrency 64\n}",
		Global: fmt.Sprintf(`log sealed {
			output robots_evidence {
				file %s {
					roll_size 1MiB
					roll_keep 1000
				}
				%s
			}
			include http.log.access
		}`, filepath.Join(s.dir, "access.log"), lines),
	}
}

func (s *sealedLog) state() string { return filepath.Join(s.dir, "evidence", "access") }

// files lists the log's files, the oldest first.
func (s *sealedLog) files() []string {
	s.t.Helper()
	names, err := filepath.Glob(filepath.Join(s.dir, "access-*"))
	if err != nil {
		s.t.Fatal(err)
	}
	slices.Sort(names)
	return append(names, filepath.Join(s.dir, "access.log"))
}

// verified is what verify_evidence.py prints: a program that was written from docs/evidence.md alone.
type verified struct {
	Verdict     string
	Generations map[string]struct {
		Lines, Checkpoints, Newest int
	}
	Findings, Incomplete []auditFinding
}

// verify has files of a log recomputed.
func verify(t *testing.T, args ...string) (found verified) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), need(t, "python3"), append([]string{"clients/verify_evidence.py", "--json"}, args...)...).Output()
	if jsonErr := json.Unmarshal(out, &found); jsonErr != nil || (err == nil) != (found.Verdict == "PASS") {
		t.Fatalf("verify_evidence.py %q: %v, %v\n%s", args, err, jsonErr, out)
	}
	return found
}

func (s *sealedLog) check() verified {
	return verify(s.t, append([]string{s.state()}, s.files()...)...)
}

// agree holds that the verifier comes to the verdict of an audit with --seal on the one log in a folder.
func (r *auditRun) agree(t *testing.T, args []string) {
	t.Helper()
	var kept, folders []string
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "--head", "--vkey":
			kept = append(kept, args[i], args[i+1])
			i++
		case "--store", "--gateway":
			i++
		case "--seal", "--strict":
		default:
			folders = append(folders, args[i])
		}
	}
	states, err := filepath.Glob(filepath.Join(folders[0], "evidence", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(folders) > 1 || len(states) != 1 {
		return
	}
	files := logFiles(t, folders[0])
	for i, name := range files {
		if packed, ok := strings.CutSuffix(name, ".zst"); ok && !slices.Contains(files, packed) { // which Python's library does not read
			files[i] = filepath.Join(t.TempDir(), filepath.Base(packed))
			if err := os.WriteFile(files[i], unpacked(t, name), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	verdict := "PASS"
	if slices.ContainsFunc(r.findings, func(f auditFinding) bool { return strings.HasPrefix(f.Kind, "seal_") }) {
		verdict = "FAIL"
	} else if len(r.errors) > 0 {
		verdict = "INCOMPLETE"
	}
	if v := verify(t, slices.Concat(kept, states, files)...); v.Verdict != verdict {
		t.Errorf("verify_evidence.py says %s, robots audit %s: %+v %+v; %+v %q", v.Verdict, verdict, v.Findings, v.Incomplete, r.findings, r.errors)
	}
}

// crawl sends requests from several clients until the context ends, and counts those that were answered.
func (g *gateway) crawl(ctx context.Context, site *testorigin.Site, clients int) (answered *atomic.Int64, wait func()) {
	answered = new(atomic.Int64)
	var crawling sync.WaitGroup
	long := strings.Repeat("x", 1500) // of a line, so that files fill
	for i := range clients {
		crawling.Go(func() {
			client := g.client("somebot")
			for j := 0; ctx.Err() == nil; j++ {
				if a, err := tryGet(ctx, client, site.URL(fmt.Sprintf("/%d/%d?%s", i, j, long))); err == nil && a.status == http.StatusOK {
					answered.Add(1)
				} else {
					pause(ctx, 20*time.Millisecond) // the gateway is away
				}
			}
		})
	}
	return answered, crawling.Wait
}

// TestEvidence kills the gateway five times under load, with rotation and packing: an independent program recomputes every
// checkpoint from the lines that are there. Then it finds one byte that was changed.
func TestEvidence(t *testing.T) {
	loadsMachine(t)
	origin := testorigin.Start(t, testorigin.Config{})
	site := origin.Site(t, testorigin.SiteConfig{})
	s := newSealedLog(t)
	g := startGateway(t, s.config(""))
	ctx, cancel := context.WithCancel(t.Context())
	answered, wait := g.crawl(ctx, site, 8)
	moments := rand.New(rand.NewPCG(7, 1))
	const kills = 5
	for range kills {
		pause(ctx, 1500*time.Millisecond+time.Duration(moments.Int64N(int64(time.Second))))
		g.kill()
		if err := g.start(s.config("")); err != nil {
			t.Fatal(err)
		}
	}
	pause(ctx, time.Second)
	if err := g.reload(s.config("every 200ms 100")); err != nil { // other settings of the same log
		t.Fatal(err)
	}
	pause(ctx, time.Second)
	cancel()
	wait()
	g.stop()

	found := s.check()
	one, ok := found.Generations["gw1.acme.example/access/1"]
	if found.Verdict != "PASS" || !ok || len(found.Generations) != 1 {
		t.Fatalf("%+v", found)
	}
	resumed, packed, lines := 0, 0, 0
	for _, name := range s.files() {
		if strings.HasSuffix(name, ".gz") {
			packed++
		}
		text := string(unpacked(t, name))
		resumed += strings.Count(text, `"late":{"from":`)
		lines += strings.Count(text, `"msg":"handled request"`)
	}
	t.Logf("%d requests answered, %d lines of them, %d in all, %d checkpoints, %d of %d files packed, resumed %d times",
		answered.Load(), lines, one.Lines, one.Checkpoints, packed, len(s.files()), resumed)
	if packed < 3 || one.Newest != one.Lines-1 || resumed == 0 || int64(lines) < answered.Load()-8*kills {
		t.Error("that is too little")
	}

	victim := s.files()[len(s.files())-1]
	text, err := os.ReadFile(victim)
	if err != nil {
		t.Fatal(err)
	}
	text[strings.Index(string(text), `"handled request"`)+5] ^= 1
	if err := os.WriteFile(victim, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if found := s.check(); len(found.Findings) == 0 {
		t.Error("a changed byte was not found")
	}
}

// TestEvidenceReloads: a reload may change some settings of a sealed log, and is refused for others.
func TestEvidenceReloads(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	s := newSealedLog(t)
	g := startGateway(t, s.config(""))
	asked := 0
	ask := func() { // and waits for its line, which belongs before a reload
		get(t, g.client("somebot"), site.URL("/"))
		asked++
		eventually(t, "the line of a request", func() bool {
			return strings.Count(string(unpacked(t, filepath.Join(s.dir, "access.log"))), `"msg":"handled request"`) >= asked
		})
	}
	ask()
	for _, tt := range []struct {
		lines, err string
	}{
		{"", ""},
		{"every 100ms 10\nheads " + filepath.Join(s.dir, "heads"), ""},
		{"name other", filepath.Join(s.dir, "access.log") + ": another process writes this log, or it is sealed under another name or state folder: that takes a restart"},
		{"key " + s.dir, "reading the key: read " + s.dir + ": is a directory"},
		{"key " + filepath.Join(s.dir, "new.key"), ""},
	} {
		before := len(s.check().Generations)
		err := g.reload(s.config(tt.lines))
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Fatalf("%q: got %v\nwant %s", tt.lines, err, tt.err)
		}
		ask()
		if n := len(s.check().Generations); strings.HasPrefix(tt.lines, "key") != (n > before) && err == nil {
			t.Errorf("%q: %d generations, %d before", tt.lines, n, before)
		}
	}
	second := &gateway{t: t, dir: tempDir(t), addr: freePort(t)}
	for _, lines := range []string{"", "state " + filepath.Join(t.TempDir(), "other")} {
		if err := second.start(s.config(lines)); err == nil || !strings.Contains(err.Error(), "another process writes this log") {
			t.Errorf("a second process, %q: %v", lines, err)
		}
	}
	eventually(t, "all lines to be sealed", func() bool { return g.metric("crawlgate_evidence_unsealed_lines") == 0 })
	g.stop()
	found := s.check()
	if len(found.Findings) > 0 || len(found.Generations) != 2 {
		t.Errorf("%+v", found)
	}
	// Opened, checkpoint, a request and its robots.txt, checkpoint, closed, checkpoint.
	if second := found.Generations["gw1.acme.example/access/2"]; second.Lines != 7 || second.Newest != 6 {
		t.Errorf("the second generation: %+v", second)
	}
	// One for the reload with other settings, one or more for those with other keys, and one for the end.
	if n := strings.Count(string(unpacked(t, filepath.Join(s.dir, "access.log"))), `"logger":"crawlgate.evidence","msg":"closed"`); n < 3 {
		t.Errorf("the log says %d times that it was closed", n)
	}
}

// TestEvidenceRefuses: with on_failure refuse, nothing passes while the log cannot be sealed, and all does when it can.
func TestEvidenceRefuses(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	s := newSealedLog(t)
	g := startGateway(t, s.config("every 50ms 1\non_failure refuse"))
	client := g.client("somebot")
	if a := get(t, client, site.URL("/")); a.status != http.StatusOK {
		t.Fatalf("status %d", a.status)
	}
	generation := filepath.Join(s.state(), "1")
	if err := os.Rename(generation, generation+".away"); err != nil {
		t.Fatal(err)
	}
	var refused answer
	eventually(t, "a refusal", func() bool {
		refused = get(t, client, site.URL("/"))
		return refused.status != http.StatusOK
	})
	if refused.status != http.StatusServiceUnavailable || refused.header.Get("Retry-After") == "" ||
		!strings.Contains(refused.header.Get("Crawlgate-Decision"), "reason=evidence_unavailable") {
		t.Errorf("%d %v", refused.status, refused.header)
	}
	if up := g.metric("crawlgate_evidence_up"); up != 0 {
		t.Errorf("crawlgate_evidence_up %g", up)
	}
	if a := get(t, http.DefaultClient, "http://"+g.addr+"/"); a.status != http.StatusOK {
		t.Errorf("the gateway's own page: status %d", a.status)
	}
	if err := os.Rename(generation+".away", generation); err != nil {
		t.Fatal(err)
	}
	eventually(t, "requests to pass", func() bool { return get(t, client, site.URL("/")).status == http.StatusOK })
	if out := g.stderr.String(); !strings.Contains(out, "access log cannot be written or sealed") || !strings.Contains(out, "access log is written and sealed again") {
		t.Errorf("the process log: %s", out)
	}
	g.stop()
	if found := s.check(); len(found.Findings) > 0 {
		t.Errorf("%+v", found)
	}
}

// TestEvidenceCommands: what the commands print of a running gateway, and that a line is proven by the Python of the docs.
func TestEvidenceCommands(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	s := newSealedLog(t)
	g := startGateway(t, s.config("every 50ms 1"))
	for range 5 {
		get(t, g.client("somebot"), site.URL("/"))
	}
	eventually(t, "all lines to be sealed", func() bool { return g.metric("crawlgate_evidence_unsealed_lines") == 0 })
	show := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), binary, append([]string{"robots", "evidence", "--gateway", "unix/" + g.adminSocket()}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
		return string(out)
	}
	key, head := show("key"), show("head")
	size := strings.Split(head, "\n")[1]
	cmd := exec.CommandContext(t.Context(), binary, "robots", "evidence", "--gateway", "unix/"+g.adminSocket(), "prove", size)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "line "+size+" is not in the newest checkpoint: lines are numbered from 0") {
		t.Errorf("prove %s: %v: %s", size, err, out)
	}
	if !strings.HasPrefix(key, "gw1.acme.example/access/1+") || !strings.HasPrefix(head, "gw1.acme.example/access/1\n") {
		t.Errorf("key %q, head %q", key, head)
	}
	if answer := g.admin("/robots/evidence").body; !strings.Contains(answer, `"vkey":"`+strings.TrimSpace(key)) {
		t.Errorf("the admin API: %s", answer)
	}
	page, err := os.ReadFile("../docs/evidence.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(page), "```python\n")
	program, _, _ = strings.Cut(program, "```")
	python := need(t, "python3")
	for seq := range 6 {
		proof := show("prove", fmt.Sprint(seq))
		for _, tt := range []struct{ proof, want string }{{proof, "True\n"}, {strings.Replace(proof, "info", "inf0", 1), "False\n"}} {
			cmd := exec.CommandContext(t.Context(), python, "-c", program)
			cmd.Stdin = strings.NewReader(tt.proof)
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != tt.want {
				t.Errorf("line %d: %v: %s\n%s", seq, err, out, tt.proof)
			}
		}
	}
}

// TestEvidenceName: the identity of a log has the name of the gateway that its lines have, by default the host's.
func TestEvidenceName(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	for option, want := range map[string]string{"": host, "gateway eu/7.acme.example": "eu/7.acme.example"} {
		s := newSealedLog(t)
		config := s.config("")
		config.Engine = option
		g := startGateway(t, config)
		get(t, g.client("somebot"), site.URL("/"))
		g.stop()
		text := string(unpacked(t, filepath.Join(s.dir, "access.log")))
		if !strings.Contains(text, `"gateway":"`+want+`"`) || !strings.Contains(text, `"log":"`+want+`/access/1"`) {
			t.Errorf("%q: want %s in %s", option, want, text)
		}
	}
}
