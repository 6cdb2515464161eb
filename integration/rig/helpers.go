package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TempDir returns a folder with a short path, because the path of a unix socket has at most about
// 100 bytes.
func TempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cg") //nolint:usetesting // t.TempDir is long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// FreePort returns an address whose port is free on all addresses, and stays reserved. The gateway
// counts its own port as its own on each address, so no site may use it.
func FreePort(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", testorigin.ReservePort(t))
}

// CAFile writes the CA of the origins to a file, for trust_ca.
func CAFile(t *testing.T, server *testorigin.Server) string {
	t.Helper()
	file := filepath.Join(TempDir(t), "ca.pem")
	if err := os.WriteFile(file, server.CAPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Eventually polls until done returns true, for a bounded time. It waits for what another process
// does.
func Eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for: %s", what)
		}
	}
}

// Tail keeps the last bytes that are written to it, such as the process's own log.
type Tail struct {
	mu  sync.Mutex
	buf []byte
}

// tailSize is enough for the goroutine dump of a panic.
const tailSize = 256 << 10

// Write implements [io.Writer].
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if extra := len(t.buf) - tailSize; extra > 0 {
		t.buf = append(t.buf[:0], t.buf[extra:]...)
	}
	return len(p), nil
}

func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

// PaceOff is a configuration that holds no request.
const PaceOff = "pace {\nrate off\nbackoff off\nconcurrency 4000\nqueue 4000\nwait 60s\n}"

// FleetEngine returns the configuration of one gateway of a fleet.
func FleetEngine(name, url string, expect int) string {
	return fmt.Sprintf("gateway %s\n%s\nfleet redis %s {\nexpect %d\n}", name, PaceOff, url, expect)
}
