//go:build slow

package evidence

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestAuditOfASealedLog audits a log that was sealed over a kill and rotations. The audit must find
// nothing in it, and each way of tampering at its file and line.
func TestAuditOfASealedLog(t *testing.T) {
	rig.LoadsMachine(t)
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	s := rig.NewSealedLog(t)
	g := crawlOverAKill(s, site, 3, func() {})

	names := make([]string, 0, 8)
	for _, name := range s.Files() {
		names = append(names, filepath.Base(name))
	}
	if len(names) < 3 {
		t.Fatalf("the log has the files %v, want at least 3; the gateway's own log ends: %s", names, g.Stderr)
	}
	if r := rig.Audit(t, "--seal", "--strict", "--store", g.Store(), s.Dir); r.Status != 0 || len(r.Findings) > 0 {
		t.Fatalf("unchanged log: status %d, findings %+v", r.Status, r.Findings)
	}
	last := len(names) - 1
	for _, tt := range []struct {
		name string
		file int // the changed one
		edit func(lines [][]byte) [][]byte
		want string // kind
		at   int    // line; 0 for the last one
	}{
		{"a byte", 0, func(l [][]byte) [][]byte {
			l[9] = bytes.Replace(l[9], []byte(`"handled`), []byte(`"Handled`), 1)
			return l
		}, "seal_changed", 10},
		{"six lines cut", 1, func(l [][]byte) [][]byte { return slices.Delete(l, 20, 26) }, "seal_missing", 21},
		{"two lines swapped", 1, func(l [][]byte) [][]byte {
			l[30], l[31] = l[31], l[30]
			return l
		}, "seal_order", 32},
		{"a line again", 0, func(l [][]byte) [][]byte { return slices.Insert(l, 12, l[3]) }, "seal_extra", 13},
		{"a line without a seal", 0, func(l [][]byte) [][]byte { return slices.Insert(l, 12, []byte("{}\n")) }, "seal_extra", 13},
		{"the tail cut", last, func(l [][]byte) [][]byte { return l[:len(l)-3] }, "seal_tail", 0},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(s.Dir)); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, names[tt.file])
		lines := slices.Collect(bytes.Lines(rig.Unpacked(t, name)))
		lines = tt.edit(lines)
		if err := os.WriteFile(name, bytes.Join(lines, nil), 0o600); err != nil {
			t.Fatal(err)
		}
		if tt.at == 0 {
			tt.at = len(lines)
		}
		r := rig.Audit(t, "--seal", "--store", g.Store(), dir)
		if r.Status != 1 || len(r.Findings) != 1 || r.Findings[0].Kind != tt.want || r.Findings[0].Line != tt.at || r.Findings[0].File != name {
			t.Errorf("%s: status %d, findings %+v; want %s at %s:%d", tt.name, r.Status, r.Findings, tt.want, name, tt.at)
		}
	}
	tamperFolder(s, g, names)
}

// crawlOverAKill crawls, with a kill of the gateway, until the log has the given number of files,
// and stops the gateway. It calls killed between the kill and the restart. The log is kept small,
// because each audit of its copies reads all of it.
func crawlOverAKill(s *rig.SealedLog, site *testorigin.Site, files int, killed func()) *rig.Gateway {
	s.T.Helper()
	site.SetRobots(testorigin.OK(rig.Rules))
	g := rig.New(s.T, s.Config("every 200ms 100"))
	ctx, cancel := context.WithCancel(s.T.Context())
	defer cancel()
	_, wait := crawlAll(g, ctx, site, 4)
	until := func(files int) {
		for end := time.Now().Add(time.Minute); rotated(s) < files-1 && time.Now().Before(end); { // a busy machine writes fewer lines
			rig.Pause(ctx, 20*time.Millisecond)
		}
		rig.Pause(ctx, 250*time.Millisecond) // time for a checkpoint
	}
	until(files / 2)
	g.Kill()
	killed()
	if err := g.Start(s.Config("every 200ms 100")); err != nil {
		s.T.Fatal(err)
	}
	until(files)
	cancel()
	wait()
	g.Stop()
	return g
}

// rotated counts the files of a log besides the newest. A file that is being packed exists up to
// three times: unpacked, packed, and packed in part.
func rotated(s *rig.SealedLog) int {
	names := make(map[string]bool)
	for _, name := range s.Files() {
		plain, _, _ := strings.Cut(filepath.Base(name), ".log")
		names[plain] = true
	}
	return len(names) - 1
}

// tamperFolder removes a whole file, and sets the evidence back to its first checkpoint.
func tamperFolder(s *rig.SealedLog, g *rig.Gateway, names []string) {
	t := s.T
	t.Helper()
	for what, change := range map[string]func(dir string) error{
		"seal_missing": func(dir string) error { return os.Remove(filepath.Join(dir, names[1])) },
		"seal_head": func(dir string) error {
			heads := filepath.Join(dir, "evidence", "access", "1", "heads")
			text, err := os.ReadFile(heads)
			if err != nil {
				return err
			}
			first, _, _ := strings.Cut(string(text), "\n--\n")
			return os.WriteFile(heads, []byte(first+"\n--\n"), 0o600)
		},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(s.Dir)); err != nil {
			t.Fatal(err)
		}
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		if r := rig.Audit(t, "--seal", "--store", g.Store(), dir); r.Status != 1 || len(r.Findings) != 1 || r.Findings[0].Kind != what {
			t.Errorf("%s: status %d, findings %+v", what, r.Status, r.Findings)
		}
	}
}
