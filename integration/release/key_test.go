package release

import (
	"os/exec"
	"strings"
	"testing"
)

// TestReleaseNeedsKey checks that the script makes no release without a key, and tells how to give
// it one.
func TestReleaseNeedsKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{"": "set CRAWLGATE_SIGNING_KEY", "no/such/file": "no/such/file"} {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), "../../packaging/release.sh", dir+"/dist")
		cmd.Env = append(cmd.Environ(), "CRAWLGATE_SIGNING_KEY="+key)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("key %q: error %v, output %s", key, err, out)
		}
	}
}
