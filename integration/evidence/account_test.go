//go:build slow

package evidence

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crawlgate/crawlgate/evidence"
	"github.com/crawlgate/crawlgate/evidence/sealer"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestDishonestAccounts seals a log that reports its own deletion and lines lost to a full disk.
// Such a log must not pass, and each of these reports is missed if it is removed.
func TestDishonestAccounts(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	s := rig.NewSealedLog(t)
	g := rig.New(t, s.Config("every 50ms 1"))
	log := filepath.Join(s.Dir, "access.log")
	askUntil := func(what, text string) {
		t.Helper()
		rig.Eventually(t, what, func() bool {
			rig.Get(t, g.Client("somebot"), site.URL("/"))
			return bytes.Contains(rig.Unpacked(t, log), []byte(text))
		})
	}
	askUntil("a checkpoint", `"msg":"checkpoint"`)
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the log is there again", func() bool {
		rig.Get(t, g.Client("somebot"), site.URL("/"))
		text, _ := os.ReadFile(log)
		return bytes.Contains(text, []byte(`"msg":"deleted"`))
	})
	var was unix.Rlimit
	if err := unix.Prlimit(g.Cmd.Process.Pid, unix.RLIMIT_FSIZE, nil, &was); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []unix.Rlimit{{Max: was.Max}, was} {
		if err := unix.Prlimit(g.Cmd.Process.Pid, unix.RLIMIT_FSIZE, &limit, nil); err != nil {
			t.Fatal(err)
		}
		rig.Get(t, g.Client("somebot"), site.URL("/"))
	}
	askUntil("lines that are lost", `"msg":"lost"`)
	g.Stop()
	m := &tampered{t, s, g.Store(), s.Files()}
	r := m.audit(s.Dir)
	for _, want := range []string{"the log could not be written: ", "their file was deleted while it was written, as " + log} {
		if r.Status != 2 || len(r.Findings) > 0 || !strings.Contains(strings.Join(r.Errors, "\n"), want) {
			t.Errorf("unchanged log: status %d, findings %+v, want the error %q, got %q", r.Status, r.Findings, want, r.Errors)
		}
	}
	lines := slices.Collect(bytes.Lines(rig.Unpacked(t, log)))
	for _, msg := range []string{"deleted", "lost", "closed"} {
		at := slices.IndexFunc(lines, func(line []byte) bool { return bytes.Contains(line, []byte(`"msg":"`+msg+`"`)) })
		m.want("the line taken: "+msg, 0, func(string) {}, func(l [][]byte) [][]byte { return slices.Delete(l, at, at+1) }, "seal_missing", at+1)
	}
}

// restart starts a gateway on an existing log for a while, with other options of its file, and
// returns the findings of the audit.
func (m *tampered) restart(site *testorigin.Site, dir, roll string, args ...string) (r rig.AuditRun) {
	m.t.Helper()
	s := &rig.SealedLog{T: m.t, Dir: dir}
	c := s.Config("every 200ms 100")
	c.Global = strings.Replace(c.Global, "roll_keep 1000", roll, 1)
	g := rig.New(m.t, c)
	for range 150 {
		rig.Get(m.t, g.Client("somebot"), site.URL("/"))
	}
	g.Stop()
	r = m.audit(dir, args...)
	r.Findings = slices.DeleteFunc(r.Findings, func(f rig.AuditFinding) bool { return !strings.HasPrefix(f.Kind, "seal_") })
	return r
}

// launder sets the state of a copy back to an earlier time, rewrites n lines after its newest
// checkpoint, and lets a gateway seal them.
func (m *tampered) launder(site *testorigin.Site, early string, n int, args ...string) (rig.AuditRun, string, int) {
	t := m.t
	t.Helper()
	state, err := sealer.ReadState(filepath.Join(early, "evidence"), "access", 0)
	if err != nil {
		t.Fatal(err)
	}
	var lines [][]byte
	for _, name := range m.files {
		lines = append(lines, slices.Collect(bytes.Lines(rig.Unpacked(t, name)))...)
	}
	size := int(state.Checkpoint.Size)
	asked := sealOfLine.ReplaceAll(lines[slices.IndexFunc(lines, func(l []byte) bool { return bytes.Contains(l, []byte(`"robots":{`)) })], []byte("}\n"))
	lines = lines[:size]
	for i := range n {
		lines = append(lines, evidence.Splice(bytes.Clone(asked), state.Checkpoint.LogID, int64(size+i)))
	}
	dir := filepath.Join(t.TempDir(), "log")
	if err := os.CopyFS(filepath.Join(dir, "evidence"), os.DirFS(filepath.Join(early, "evidence"))); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "access.log")
	if err := os.WriteFile(name, bytes.Join(lines, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	return m.restart(site, dir, "roll_keep 1000", args...), name, len(lines)
}

// TestDishonestRestarts changes a log before a gateway goes on with it. The audit must find what
// the gateway then seals, if necessary with a checkpoint from elsewhere.
func TestDishonestRestarts(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	s, early := rig.NewSealedLog(t), filepath.Join(t.TempDir(), "early")
	g := rig.New(t, s.Config("every 200ms 100"))
	ask := func() {
		for range 150 {
			rig.Get(t, g.Client("somebot"), site.URL("/"))
		}
	}
	ask()
	g.Kill()
	if err := os.CopyFS(early, os.DirFS(s.Dir)); err != nil {
		t.Fatal(err)
	}
	if err := g.Start(s.Config("every 200ms 100")); err != nil {
		t.Fatal(err)
	}
	ask()
	g.Stop()
	m, kept := &tampered{t, s, g.Store(), s.Files()}, filepath.Join(s.State(), "1", "heads")
	if r := m.audit(s.Dir); r.Status != 0 {
		t.Fatalf("unchanged log: status %d, findings %+v, errors %v", r.Status, r.Findings, r.Errors)
	}
	found := func(what string, r rig.AuditRun, kind, file string, line int, says string) {
		t.Helper()
		if !slices.ContainsFunc(r.Findings, func(f rig.AuditFinding) bool {
			return f.Kind == kind && strings.HasPrefix(f.File, file) && (line == 0 || f.Line == line) && strings.Contains(f.Message, says)
		}) {
			t.Errorf("%s: status %d, want %s in %s: %s; findings %+v, errors %q", what, r.Status, kind, file, says, r.Findings, r.Errors)
		}
	}
	// Two logs under one key are consistent by themselves. Only a checkpoint kept elsewhere tells
	// them apart.
	fork := filepath.Join(t.TempDir(), "fork")
	if err := os.CopyFS(fork, os.DirFS(early)); err != nil {
		t.Fatal(err)
	}
	if r := m.restart(site, fork, "roll_keep 1000"); len(r.Findings) > 0 || len(r.Errors) > 0 {
		t.Errorf("a fork, alone: findings %+v, errors %q, want none", r.Findings, r.Errors)
	}
	found("a fork", m.audit(fork, "--head", kept), "seal_fork", kept, 0, "the key was used for two logs; they differ in a line from number")

	// Lines that a start has sealed are consistent too, up to the number that a crash may leave.
	r, _, _ := m.launder(site, early, 100)
	if len(r.Findings) > 0 || len(r.Errors) > 0 {
		t.Errorf("laundered below the bound, alone: findings %+v, errors %q, want none", r.Findings, r.Errors)
	}
	r, _, _ = m.launder(site, early, 100, "--head", kept)
	found("laundered below the bound", r, "seal_fork", kept, 0, "the key was used for two logs")
	r, name, lines := m.launder(site, early, 8001)
	found("laundered", r, "seal_reset", name, 1, "8001 lines from line")
	found("laundered", r, "seal_unsealed", strings.Replace(name, ".log", "-", 1), lines-8000, "8001 lines of gw1.acme.example/access/1 from number")

	// Remove the first lines, and then change the terms as if the lines had expired.
	all := slices.Collect(bytes.Lines(rig.Unpacked(t, m.files[0])))
	cut := filepath.Join(t.TempDir(), "cut")
	if err := os.CopyFS(filepath.Join(cut, "evidence"), os.DirFS(filepath.Join(s.Dir, "evidence"))); err != nil {
		t.Fatal(err)
	}
	rotated := "access-" + time.Now().UTC().Format("2006-01-02T15-04-05.000") + "-size.log"
	opened := slices.IndexFunc(all[1:], func(l []byte) bool { return bytes.Contains(l, []byte(`"msg":"opened"`)) }) + 1 // of the second start
	for file, lines := range map[string][][]byte{rotated: all[50:100], "access.log": all[100:]} {
		if err := os.WriteFile(filepath.Join(cut, file), bytes.Join(lines, nil), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r = m.audit(cut)
	found("first lines taken", r, "seal_missing", filepath.Join(cut, rotated), 1, "the first 50 lines")
	r = m.restart(site, cut, "roll_keep 1")
	want := fmt.Sprintf("%s:%d says that it is kept for 90 days in 1000 files besides the newest, 0 for any number; ", filepath.Join(cut, "access.log"), opened-99)
	if r.Status != 2 || !strings.Contains(strings.Join(r.Errors, "\n"), want) {
		t.Errorf("the terms changed: status %d, want %s; findings %+v, errors %q", r.Status, want, r.Findings, r.Errors)
	}
}
