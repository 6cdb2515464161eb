//go:build slow

package operate

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// TestUnit checks the packages' unit with systemd: it can be loaded, and its exposure is low.
func TestUnit(t *testing.T) {
	t.Parallel()
	analyze := rig.Need(t, "systemd-analyze")
	text, err := os.ReadFile(testdocs.Path("packaging", "crawlgate.service"))
	if err != nil {
		t.Fatal(err)
	}
	// `verify` needs the program of ExecStart.
	local := strings.ReplaceAll(string(text), "/usr/bin/crawlgate", rig.Binary)
	if local == string(text) {
		t.Fatal("the unit does not start /usr/bin/crawlgate")
	}
	unit := filepath.Join(rig.TempDir(t), "crawlgate.service")
	if err := os.WriteFile(unit, []byte(local), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), analyze, "verify", unit).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	out, err = exec.CommandContext(t.Context(), analyze, "security", "--offline=true", unit).CombinedOutput()
	if err != nil {
		t.Fatalf("systemd-analyze security: %v\n%s", err, out)
	}
	level := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindSubmatch(out)
	if level == nil {
		t.Fatalf("the output has no exposure level:\n%s", out)
	}
	if exposure, err := strconv.ParseFloat(string(level[1]), 64); err != nil || exposure > 2.5 {
		t.Errorf("exposure %s, error %v, want at most 2.5\n%s", level[1], err, out)
	}
}

// TestWayOutUnit checks with systemd the unit of examples/egress, which loads the rules at boot.
func TestWayOutUnit(t *testing.T) {
	t.Parallel()
	analyze := rig.Need(t, "systemd-analyze")
	nft := rig.Need(t, "nft")
	text, err := os.ReadFile(testdocs.Path("examples", "egress", "crawlers-nftables.service"))
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(rig.TempDir(t), "crawlers-nftables.service")
	if err := os.WriteFile(unit, []byte(strings.ReplaceAll(string(text), "/usr/sbin/nft", nft)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), analyze, "verify", unit).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
