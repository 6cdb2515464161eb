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

// foreign matches text that gives this program Caddy's name, or leads to Caddy's manual.
var foreign = regexp.MustCompile(`Caddy (process|instance|binary)|(?m:^| |'|")caddy [a-z]|docs/command-line`)

// TestCommandsThatReplaceTheBinary checks that Caddy's commands that replace the binary only report
// that they are disabled, that no help text offers them, and that help and manual have this
// program's name and links.
func TestCommandsThatReplaceTheBinary(t *testing.T) {
	t.Parallel()
	// Use a copy, which a command could replace without harm.
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
		cmd.Env = append(os.Environ(), "HTTPS_PROXY=http://127.0.0.1:9") // a faulty command must not download anything
		all, _ := cmd.CombinedOutput()
		return string(all), cmd.ProcessState.ExitCode()
	}
	removed := []string{"upgrade", "add-package", "remove-package"}
	for _, name := range removed {
		for _, args := range [][]string{{name}, {name, "github.com/example/module"}, {name, "--keep-backup"}, {name, "--help"}} {
			out, status := run(args...)
			if status != 1 || !strings.Contains(out, "docs/operate.md") || strings.Contains(out, "EXPERIMENTAL") {
				t.Errorf("%q: status %d, want 1 and a link to docs/operate.md: %s", args, status, out)
			}
		}
	}
	pages := rig.TempDir(t)
	if out, status := run("manpage", "--directory", pages); status != 0 {
		t.Fatalf("manpage: status %d, %s", status, out)
	}
	manual, err := filepath.Glob(pages + "/*")
	if err != nil || len(manual) < 20 {
		t.Errorf("%d manual pages, error %v, want at least 20", len(manual), err)
	}
	overview, err := os.ReadFile(filepath.Join(pages, "crawlgate.8"))
	if err != nil {
		t.Error(err)
	}
	for _, page := range manual {
		text, err := os.ReadFile(page)
		if name := foreign.FindString(string(text)); err != nil || name != "" {
			t.Errorf("%s contains %q, error %v", page, name, err)
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
				t.Errorf("%s offers the command %s", what, name)
			}
		}
		if !strings.Contains(text, "trust") {
			t.Errorf("%s lacks the other commands: %s", what, text)
		}
	}
}
