//go:build slow

package evidence

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	cosign "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// omniwitness is a process of the witness of github.com/transparency-dev/witness.
type omniwitness struct {
	t    *testing.T
	dir  string
	addr string
	vkey string
	cmd  *exec.Cmd
}

func newOmniwitness(t *testing.T) *omniwitness {
	t.Helper()
	rig.Need(t, "omniwitness")
	w := &omniwitness{t: t, dir: rig.TempDir(t), addr: rig.FreePort(t)}
	skey, vkey, err := note.GenerateKey(rand.Reader, "witness.example")
	if err != nil {
		t.Fatal(err)
	}
	if w.vkey, err = cosign.VKeyToCosignatureV1(vkey); err != nil {
		t.Fatal(err)
	}
	w.write("key", skey)
	return w
}

func (w *omniwitness) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// start runs the witness for the log of the given verifier key. The witness keeps its earlier
// state.
func (w *omniwitness) start(vkey string) {
	w.t.Helper()
	identity, _, _ := strings.Cut(vkey, "+")
	w.write("logs.yaml", fmt.Sprintf("Logs:\n  - Origin: %s\n    URL: http://127.0.0.1/\n    PublicKey: %s\n    Feeder: none\n", identity, strings.TrimSpace(vkey)))
	w.cmd = exec.Command("omniwitness", "--private_key_path", filepath.Join(w.dir, "key"), "--db_file", filepath.Join(w.dir, "db"),
		"--additional_logs", filepath.Join(w.dir, "logs.yaml"), "--listen", w.addr, "--metrics_listen", "127.0.0.1:0")
	out := new(rig.Tail)
	w.cmd.Stdout, w.cmd.Stderr = out, out
	if err := w.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(w.stop)
	rig.Eventually(w.t, "omniwitness to listen", func() bool {
		conn, err := net.Dial("tcp", w.addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

func (w *omniwitness) stop() {
	_ = w.cmd.Process.Kill() // it may have been stopped already
	_ = w.cmd.Wait()
}

// TestOmniwitness checks that transparency-dev's witness cosigns each checkpoint, over restarts of
// both sides, and refuses a log that was set back.
func TestOmniwitness(t *testing.T) {
	t.Parallel()
	w := newOmniwitness(t)
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	s := rig.NewSealedLog(t)
	config := s.Config(fmt.Sprintf("every 50ms 5\nwitness http://%s %s", w.addr, w.vkey))
	g := rig.New(t, config)
	ask := func() {
		t.Helper()
		for range 20 {
			if a := rig.Get(t, g.Client("somebot"), site.URL("/")); a.Status != http.StatusOK {
				t.Fatalf("status %d, want 200", a.Status)
			}
		}
	}
	cosigned := func() {
		t.Helper()
		ask()
		rig.Eventually(t, "the newest checkpoint to be cosigned", func() bool {
			cmd := exec.CommandContext(t.Context(), rig.Binary, "robots", "evidence", "head", "--state", filepath.Join(s.Dir, "evidence"))
			head, err := cmd.Output()
			return err == nil && strings.Contains(string(head), "\n— witness.example ") && g.Metric("crawlgate_evidence_unsealed_lines") == 0
		})
	}
	vkey, err := os.ReadFile(filepath.Join(s.State(), "1", "vkey"))
	if err != nil {
		t.Fatal(err)
	}
	w.start(string(vkey))
	cosigned()
	g.Kill()
	before := rig.TempDir(t)
	if err := os.CopyFS(filepath.Join(before, "log"), os.DirFS(s.Dir)); err != nil {
		t.Fatal(err)
	}
	if err := g.Start(config); err != nil {
		t.Fatal(err)
	}
	cosigned()
	w.stop()
	w.start(string(vkey))
	cosigned()
	if n := g.Metric("crawlgate_evidence_witness_age_seconds"); n <= 0 || n > 60 {
		t.Errorf("crawlgate_evidence_witness_age_seconds is %g, want at most 60", n)
	}
	g.Stop()
	if last, err := os.ReadFile(filepath.Join(s.State(), "1", "checkpoint")); err != nil || !strings.Contains(string(last), "\n— witness.example ") {
		t.Errorf("the last checkpoint has no witness: error %v\n%s", err, last)
	}
	if found := s.Check(); found.Verdict != "PASS" {
		t.Errorf("the verifier returned %+v, want PASS", found)
	}

	if err := os.RemoveAll(s.Dir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(s.Dir, os.DirFS(filepath.Join(before, "log"))); err != nil {
		t.Fatal(err)
	}
	if err := g.Start(config); err != nil {
		t.Fatal(err)
	}
	ask()
	rig.Eventually(t, "the witness to refuse", func() bool {
		return strings.Contains(g.Admin("/robots/evidence").Body, "the log was set back")
	})
}
