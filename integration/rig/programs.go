package rig

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// SystemPython is Debian's Python, which has requests and Scrapy.
const SystemPython = "/usr/bin/python3"

// Missing is like [Need] for something that is not a program.
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

// installed has the folders with npm's packages, by their lock files.
var installed sync.Map

// InstallNode does the same as `npm ci` in a folder. It installs the packages of a lock file once
// for all tests of a process and then links them, because no test changes them.
func InstallNode(t *testing.T, dir string) {
	t.Helper()
	npm, cp := Need(t, "npm"), Need(t, "cp")
	lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	install, _ := installed.LoadOrStore(sha256.Sum256(lock), sync.OnceValues(func() (modules string, err error) {
		return npmCI(npm, dir)
	}))
	modules, err := install.(func() (string, error))()
	if err != nil {
		Missing(t, dir+": "+err.Error())
	}
	if out, err := exec.CommandContext(t.Context(), cp, "-al", modules, dir).CombinedOutput(); err != nil {
		t.Fatalf("linking %s: %v: %s", modules, err, out)
	}
}

// npmCI installs the packages of a folder in another folder, from npm's cache as far as possible.
func npmCI(npm, dir string) (modules string, err error) {
	at, err := os.MkdirTemp(shared, "npm")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(at, name), text, 0o600); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir, cmd.WaitDelay = at, time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w: %s", err, out)
	}
	return filepath.Join(at, "node_modules"), nil
}

// RunBounded runs a program for at most two minutes and returns its standard output. A failure ends
// the test.
func RunBounded(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	bounded := exec.CommandContext(ctx, cmd.Path, cmd.Args[1:]...)
	bounded.Dir, bounded.Env, bounded.Stdin = cmd.Dir, cmd.Env, cmd.Stdin
	bounded.WaitDelay = time.Second // do not wait for children that hold the pipes
	var stdout, stderr bytes.Buffer
	bounded.Stdout, bounded.Stderr = &stdout, &stderr
	if err := bounded.Run(); err != nil {
		t.Fatalf("%s: %v\n%s\n%s", cmd.Path, err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.String()
}
