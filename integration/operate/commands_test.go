package operate

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// TestCommandsThatReplaceTheBinary holds that Caddy's commands that would put another binary in the place of this one
// do nothing but say so, and that nothing leads to them.
func TestCommandsThatReplaceTheBinary(t *testing.T) {
	t.Parallel()
	// A copy, which a command may replace without harm.
	text, err := os.ReadFile(rig.Binary)
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(rig.TempDir(t), "crawlgate")
	if err := os.WriteFile(own, text, 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (out string, status int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), own, args...)
		cmd.Env = append(os.Environ(), "HTTPS_PROXY=http://127.0.0.1:9") // nothing is downloaded, whatever becomes of it
		all, _ := cmd.CombinedOutput()
		return string(all), cmd.ProcessState.ExitCode()
	}
	removed := []string{"upgrade", "add-package", "remove-package"}
	for _, name := range removed {
		for _, args := range [][]string{{name}, {name, "github.com/example/module"}, {name, "--keep-backup"}, {name, "--help"}} {
			out, status := run(args...)
			if status != 1 || !strings.Contains(out, "docs/operate.md") || strings.Contains(out, "EXPERIMENTAL") {
				t.Errorf("%q: %d %s", args, status, out)
			}
		}
	}
	pages := rig.TempDir(t)
	if out, status := run("manpage", "--directory", pages); status != 0 {
		t.Fatalf("manpage: %d %s", status, out)
	}
	manual, err := filepath.Glob(pages + "/*")
	if err != nil || len(manual) < 20 {
		t.Errorf("%d manual pages, %v", len(manual), err)
	}
	overview, err := os.ReadFile(filepath.Join(pages, "crawlgate.8"))
	if err != nil {
		t.Error(err)
	}
	help, _ := run("help")
	words, _ := run("__complete", "")
	script, _ := run("completion", "bash")
	for what, text := range map[string]string{
		"help": help, "completion": words, "completion of bash": script, "manual": string(overview), "list of manual pages": strings.Join(manual, "\n"),
	} {
		for _, name := range removed {
			if strings.Contains(text, name) {
				t.Errorf("%s has %s", what, name)
			}
		}
		if !strings.Contains(text, "trust") {
			t.Errorf("%s has no other commands: %s", what, text)
		}
	}
}
