//go:build slow

package evidence

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/evidence"
	"github.com/crawlgate/crawlgate/evidence/sealer"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// ofFleet returns the configuration of a gateway of a fleet with a sealed log.
func ofFleet(s *rig.SealedLog, name, url, lines string) rig.Config {
	c := s.Config("every 50ms 1\n" + lines)
	c.Engine = rig.FleetEngine(name, url, 2)
	return c
}

const aloneMessage = "the checkpoints of an access log stay on this machine"

// TestEvidencePeers checks that each of two gateways of a fleet has the checkpoints of the other in
// its log. Then one log is set back with its leaves and checkpoints, which its own key cannot show.
// The log of the other gateway must show it.
func TestEvidencePeers(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	a, b, single := rig.NewSealedLog(t), rig.NewSealedLog(t), rig.NewSealedLog(t)
	gwA := rig.New(t, ofFleet(a, "gwa", redis.URL(), ""))
	ask := func(g *rig.Gateway, n int) {
		for range n {
			if got := rig.Get(t, g.Client("somebot"), site.URL("/")); got.Status != http.StatusOK {
				t.Errorf("status %d, want 200", got.Status)
			}
		}
		rig.Eventually(t, "all is sealed", func() bool { return g.Metric("crawlgate_evidence_unsealed_lines") == 0 })
	}
	ask(gwA, 5)
	yesterday := t.TempDir()
	size := sizeOf(t, a)
	gwA.Stop()
	if err := os.CopyFS(yesterday, os.DirFS(a.Dir)); err != nil {
		t.Fatal(err)
	}
	if err := gwA.Start(ofFleet(a, "gwa", redis.URL(), "")); err != nil {
		t.Fatal(err)
	}
	ask(gwA, 20)
	rig.Eventually(t, "redis has the checkpoint of gwa", func() bool {
		return strings.Contains(redis.Say("HVALS {crawlgate}:fleet:acks"), fmt.Sprintf(`gwa/access/1\n%d\n`, sizeOf(t, a)))
	})
	gwB := rig.New(t, ofFleet(b, "gwb", redis.URL(), ""))
	gwSingle := rig.New(t, single.Config(""))
	var heard evidence.Checkpoint
	rig.Eventually(t, "gwb has the checkpoint of gwa", func() bool {
		heard = heardOf(t, b, "gwa")
		return heard.Size > size+20
	})
	redis.Kill() // no request waits for it
	began := time.Now()
	ask(gwB, 5)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("5 requests took %v without Redis, want at most 5s", took)
	}
	for _, g := range []*rig.Gateway{gwA, gwB, gwSingle} {
		g.Stop()
		if alone := strings.Contains(g.Stderr.String(), aloneMessage); alone != (g == gwSingle) {
			t.Errorf("the warning that checkpoints stay on the machine: %t", alone)
		}
	}
	if found := b.Check(); found.Verdict != "PASS" {
		t.Errorf("the verifier returned %+v, want PASS", found)
	}
	both := func(of string) rig.AuditRun {
		return rig.Audit(t, "--seal", "--evidence", filepath.Join(of, "evidence")+","+filepath.Join(b.Dir, "evidence"), "--store", gwA.Store(), of, b.Dir)
	}
	if r := both(a.Dir); len(r.Findings) > 0 {
		t.Errorf("unchanged log: findings %+v, want none", r.Findings)
	}
	if r := rig.Audit(t, "--seal", "--store", gwA.Store(), yesterday); len(r.Findings) > 0 {
		t.Errorf("the log that was set back, alone: findings %+v, want none", r.Findings)
	}
	r := both(yesterday)
	if r.Status != 1 || len(r.Findings) != 1 || r.Findings[0].Kind != "seal_tail" || r.Findings[0].File != filepath.Join(yesterday, "access.log") ||
		!strings.Contains(r.Findings[0].Message, "their checkpoint is in the line "+filepath.Join(b.Dir, "access.log")) {
		t.Errorf("set back: status %d, findings %+v", r.Status, r.Findings)
	}
}

// sizeOf returns the size of the newest checkpoint of a log.
func sizeOf(t *testing.T, s *rig.SealedLog) int64 {
	t.Helper()
	state, err := sealer.ReadState(filepath.Join(s.Dir, "evidence"), "access", 0)
	if err != nil {
		t.Fatal(err)
	}
	return state.Checkpoint.Size
}

// heardOf returns the largest checkpoint of a gateway in the log of another one.
func heardOf(t *testing.T, s *rig.SealedLog, gateway string) (heard evidence.Checkpoint) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.Dir, "access.log"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var l struct {
			Msg, Note string
			Log       string `json:"peer_log"`
		}
		if json.Unmarshal([]byte(line), &l) != nil || l.Msg != "peer" || !strings.HasPrefix(l.Log, gateway+"/") {
			continue
		}
		h, err := evidence.ReadClaim(l.Note)
		if err != nil {
			t.Fatal(err)
		}
		if h.Size > heard.Size {
			heard = h
		}
	}
	return heard
}
