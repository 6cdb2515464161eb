// Package rig runs the real binary for the packages of tests under integration/:
//
//	func TestMain(m *testing.M) { rig.Main(m.Run) }
//
//	func TestIt(t *testing.T) {
//		site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
//		g := rig.New(t, rig.Config{Engine: rig.Unpaced})
//		answer := g.MustFetch("Tester/1.0", site.URL("/private"))
//		line := g.Logs(1)[0]
//		...
//	}
//
// A [Gateway] is a running process; it stops with its test. [Wire] is a connection for bytes that
// no client would send, [SecureSite] an https origin, [TLSPort] a gateway's port for TLS, [FakeDNS]
// a name server. [Audit] and [Simulate] run the commands of these names on a log.
package rig

import (
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// Binary is the path of the crawlgate under test, built once for all packages.
var Binary string

// Main runs the tests of a package with [Binary], and exits.
func Main(tests func() int) {
	flag.Parse()
	// Parallel tests mostly wait: for clocks, limits and LoadsMachine.
	if err := flag.Set("test.parallel", strconv.Itoa(8*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
	os.Exit(run(tests))
}

// shared is a folder for the tests of this process.
var shared string

func run(tests func() int) int {
	var err error
	if shared, err = os.MkdirTemp("", "cg"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(shared)
	if Binary = os.Getenv("CRAWLGATE_BIN"); Binary != "" {
		return tests()
	}
	Binary = filepath.Join(checkoutFile("bin"), "crawlgate")
	if RaceEnabled {
		Binary += "-race"
	}
	if err := build(Binary); err != nil {
		fmt.Fprintf(os.Stderr, "building crawlgate: %v\n", err)
		return 1
	}
	return tests()
}

// build builds the gateway, with cgo if the tests use it, so that they share compiled packages. The
// file stays: the next package finds it, and go rebuilds it only after a change. CRAWLGATE_BIN
// names another binary, such as one to be released. Under the race detector the gateway runs under
// it too. If two packages need the binary at once, one waits until the other has built it.
func build(out string) error {
	done, err := turn("build", syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer done()
	if err := os.MkdirAll(filepath.Dir(out), 0o700); err != nil {
		return err
	}
	args := []string{"build", "-o", out}
	if RaceEnabled {
		args = append(args, "-race")
	}
	if text, err := exec.Command("go", append(args, "github.com/crawlgate/crawlgate/cmd/crawlgate")...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, text)
	}
	return nil
}

// checkoutFile returns a path outside the checkout for a file of a kind, for this user alone.
func checkoutFile(kind string) string {
	checkout := fnv.New64a()
	_, _ = checkout.Write([]byte(testdocs.Path()))
	return filepath.Join(os.TempDir(), fmt.Sprintf("crawlgate-%s-%d-%x", kind, os.Getuid(), checkout.Sum64()))
}

// turn waits for a turn of a kind among the processes that test this checkout. With LOCK_EX the
// turn is exclusive, with LOCK_SH others with LOCK_SH share it. The system ends the turn with the
// process.
func turn(kind string, how int) (done func(), err error) {
	file, err := os.Create(checkoutFile(kind) + ".lock")
	if err != nil {
		return nil, err
	}
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(int(file.Fd()), how)
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("locking %s: %w", file.Name(), err)
	}
	return func() { _ = file.Close() }, nil
}

// LoadsMachine marks a test that uses much of the CPUs. Only one such test runs at a time, over all
// packages, beside tests that wait. Two would take the time from each other that their bounds
// assume.
func LoadsMachine(t *testing.T) {
	t.Helper()
	takeTurn(t, syscall.LOCK_EX)
}

// NeedsQuiet marks a test that mostly waits, longer than others, and whose bounds a loaded machine
// breaks. It runs beside others of its kind, but not beside any of [LoadsMachine].
func NeedsQuiet(t *testing.T) {
	t.Helper()
	takeTurn(t, syscall.LOCK_SH)
}

func takeTurn(t *testing.T, how int) {
	t.Helper()
	t.Parallel()
	done, err := turn("load", how)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
}

// Need returns the path of a program that a test runs. Without it the test is skipped; in CI it
// fails.
func Need(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("CRAWLGATE_REQUIRE_ALL") == "1" {
		t.Fatalf("%s is required and missing: %v", name, err)
	}
	t.Skipf("%s is not installed", name)
	return ""
}

// Long reports whether tests of scale run in full size, which takes some minutes: CRAWLGATE_LONG=1.
// The results are in bench/overhead/RESULTS.md.
func Long() bool { return os.Getenv("CRAWLGATE_LONG") == "1" }
