//go:build slow

package operate

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// foreign is what would give this program another name or the manual of another.
var foreign = regexp.MustCompile(`Caddy (process|instance|binary)|(?m:^| |'|")caddy [a-z]|docs/command-line`)

// TestCommandsThatReplaceTheBinary checks that Caddy's commands that would put another binary in the place of this one
// do nothing but say so, that nothing leads to them, and that help and manual have the name and the links of this program.
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
		cmd.Env = append(os.Environ(), "HTTPS_PROXY=http://127.0.0.1:9") // nothing is downloaded, even if it fails
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
	for _, page := range manual {
		text, err := os.ReadFile(page)
		if name := foreign.FindString(string(text)); err != nil || name != "" {
			t.Errorf("%s: %q, %v", page, name, err)
		}
	}
	if !strings.Contains(string(overview), "crawlgate - makes every crawler of a company obey robots.txt") {
		t.Errorf("the manual begins with %.200s", overview)
	}
	help, _ := run("help")
	for _, args := range [][]string{{"help"}, {"run", "--help"}, {"robots", "deny", "--help"}} {
		text, _ := run(args...)
		if !strings.HasSuffix(text, "https://github.com/crawlgate/crawlgate/blob/main/docs/cli.md\n") || foreign.MatchString(text) {
			t.Errorf("%q: %s", args, text)
		}
	}
	if !strings.HasPrefix(help, "Crawlgate is a forward proxy") {
		t.Errorf("help begins with %.200s", help)
	}
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
