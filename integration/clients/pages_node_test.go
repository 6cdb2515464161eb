package clients

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// installed runs what a page types up to `npm ci` where the registry can be reached, which is not where clients run, and gives
// the rest. A page without it is left as it is.
func installed(t *testing.T, dir, script string) string {
	t.Helper()
	before, after, node := strings.Cut(script, "npm ci\n")
	if !node {
		return script
	}
	npmCI(t, dir, before+"npm ci")
	return before + after
}

// npmCI runs a command that installs packages, by npm's cache as far as it goes.
func npmCI(t *testing.T, dir, command string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-eu", "-c", command)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	cmd.Env = append(os.Environ(), "npm_config_prefer_offline=true", "npm_config_ignore_scripts=true", "npm_config_audit=false", "npm_config_fund=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		rig.Missing(t, command+" ("+err.Error()+": "+string(out)+")")
	}
}

// crawleeWithoutSettings puts the crawls of integration/clients/crawlee into a copy of a project that has Crawlee.
func crawleeWithoutSettings(t *testing.T, dir string) {
	t.Helper()
	if err := os.CopyFS(dir, os.DirFS(testdocs.Path(filepath.Join("integration", "clients", "crawlee")))); err != nil {
		t.Fatal(err)
	}
	npmCI(t, dir, "npm ci")
}
