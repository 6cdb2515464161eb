package rig

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// SystemPython is Debian's, for which requests and Scrapy are installed.
const SystemPython = "/usr/bin/python3"

// Missing is [Need] for what is no program.
func Missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CRAWLGATE_REQUIRE_ALL") == "1" {
		t.Fatalf("%s is required and missing", what)
	}
	t.Skipf("%s is not installed", what)
}

// NodePrograms copies a folder of Node programs and installs their dependencies.
func NodePrograms(t *testing.T, folder ...string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(folder...))); err != nil {
		t.Fatal(err)
	}
	InstallNode(t, dir)
	return dir
}

// InstallNode installs what the Node programs in a folder need.
func InstallNode(t *testing.T, dir string) {
	t.Helper()
	install := exec.Command(Need(t, "npm"), "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		Missing(t, dir+" (npm ci: "+err.Error()+": "+string(out)+")")
	}
}

// RunBounded runs a program for two minutes at most and returns its standard output. Its failure is the test's.
func RunBounded(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	bounded := exec.CommandContext(ctx, cmd.Path, cmd.Args[1:]...)
	bounded.Dir, bounded.Env, bounded.Stdin = cmd.Dir, cmd.Env, cmd.Stdin
	bounded.WaitDelay = time.Second // children that hold the pipes do not hold the test
	var stdout, stderr bytes.Buffer
	bounded.Stdout, bounded.Stderr = &stdout, &stderr
	if err := bounded.Run(); err != nil {
		t.Fatalf("%s: %v\n%s\n%s", cmd.Path, err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.String()
}
