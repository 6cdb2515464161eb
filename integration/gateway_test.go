package integration

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// binary is the crawlgate under test, built once for all tests of the package.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	// Parallel tests wait for clocks, limits and loadsMachine most of their time.
	if err := flag.Set("test.parallel", strconv.Itoa(8*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if binary = os.Getenv("CRAWLGATE_BIN"); binary != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "crawlgate-integration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "crawlgate")
	if out, err := buildCommand(binary).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building crawlgate: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// buildCommand builds the gateway as it is released; under the race detector it is watched by it too.
func buildCommand(out string) *exec.Cmd {
	args := []string{"build", "-o", out}
	if raceEnabled {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "github.com/crawlgate/crawlgate/cmd/crawlgate")...)
	if !raceEnabled {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	return cmd
}

// loading is held by the test that loads the machine.
var loading sync.Mutex

// loadsMachine marks a test that takes a good part of the CPUs: one of them runs at a time, beside
// tests that wait. Two took the time from each other by which their bounds are set.
func loadsMachine(t *testing.T) {
	t.Helper()
	t.Parallel()
	loading.Lock()
	t.Cleanup(loading.Unlock)
}

// need finds a program that a test drives. A laptop without it skips the test; CI fails.
func need(t *testing.T, name string) string {
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

// gateway is one running crawlgate process.
type gateway struct {
	t      *testing.T
	dir    string // config, data, logs and admin socket
	addr   string // of the proxy
	cmd    *exec.Cmd
	config gatewayConfig // in force
	exited chan struct{} // closed when the process has ended
	stderr *tail
}

// gatewayConfig is what differs between the tests; everything else is as a company would run it.
type gatewayConfig struct {
	Engine string // lines of the global robots block, but for egress
	Egress string // lines of its egress block; loopback is allowed in any case
	Site   string // lines of the site's robots block
	Around string // further directives of the site
	Global string // further global options
	Sites  string // further sites
	Admin  string // address of the admin endpoint; a unix socket if empty
	Public bool   // loopback is not allowed as origin

	Env    []string // further variables of the process
	Wrap   []string // the words of a command that runs the gateway's
	Stdout string   // a file for what it writes there
}

// caddyfile writes the configuration of a gateway with its admin socket, its log and loopback allowed as origin.
func (g *gateway) caddyfile(c gatewayConfig) string {
	_, port, _ := net.SplitHostPort(g.addr)
	allow := "allow_private 127.0.0.0/8"
	if c.Public {
		allow = ""
	}
	return fmt.Sprintf(`{
	admin %[1]s
	persist_config off
	metrics
	%[8]s
	robots {
		%[2]s
		egress {
			%[9]s
			%[3]s
		}
	}
}

http://:%[4]s {
	bind 127.0.0.1
	log {
		output file %[5]s {
			roll_disabled
		}
		format json
	}
	%[6]s
	robots {
		%[7]s
	}
}
%[10]s
`, g.adminAddress(c), c.Engine, c.Egress, port, g.accessLog(), c.Around, c.Site, c.Global, allow, c.Sites)
}

// adminAddress is where the admin endpoint listens by a configuration.
func (g *gateway) adminAddress(c gatewayConfig) string {
	if c.Admin != "" {
		return c.Admin
	}
	return "unix/" + g.adminSocket()
}

func (g *gateway) adminSocket() string { return filepath.Join(g.dir, "admin.sock") }
func (g *gateway) accessLog() string   { return filepath.Join(g.dir, "access.log") }
func (g *gateway) store() string       { return filepath.Join(g.dir, "caddy", "crawlgate", "robots.db") }

// startGateway runs the binary on a free port and waits until it answers.
func startGateway(t *testing.T, c gatewayConfig) *gateway {
	t.Helper()
	g := &gateway{t: t, dir: tempDir(t)}
	var err error
	for range 5 { // another process may take the port between the look and the start
		g.addr = freePort(t)
		if err = g.start(c); err == nil {
			return g
		}
		if g.exited != nil {
			g.kill() // it may be another gateway that answered at the port
		}
	}
	t.Fatalf("starting the gateway: %v", err)
	return nil
}

// tempDir is short, because the path of a unix socket may have only some 100 octets.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cg") //nolint:usetesting // t.TempDir is long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// freePort is an address at a port that is free on all addresses, and stays so: the gateway takes its own port for its
// own at each of them, a site of the test's there included.
func freePort(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", testorigin.ReservePort(t))
}

// start runs the binary and waits until it answers. A gateway that was stopped or killed goes on with its data, at the
// same port.
func (g *gateway) start(c gatewayConfig) error {
	if err := g.launch(c); err != nil {
		return err
	}
	return g.ready()
}

// launch runs the binary.
func (g *gateway) launch(c gatewayConfig) error {
	config := filepath.Join(g.dir, "Caddyfile")
	if err := os.WriteFile(config, []byte(g.caddyfile(c)), 0o600); err != nil {
		return err
	}
	command := append(slices.Clone(c.Wrap), binary, "run", "--config", config, "--adapter", "caddyfile")
	g.cmd, g.config = exec.Command(command[0], command[1:]...), c
	g.cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+g.dir, "XDG_CONFIG_HOME="+g.dir, "GORACE=halt_on_error=1")
	g.cmd.Env = append(g.cmd.Env, c.Env...)
	if c.Stdout != "" {
		out, err := os.Create(c.Stdout)
		if err != nil {
			return err
		}
		defer out.Close() // the process has its own
		g.cmd.Stdout = out
	}
	g.stderr = new(tail)
	g.cmd.Stderr = g.stderr
	if err := g.cmd.Start(); err != nil {
		return err
	}
	cmd, exited := g.cmd, make(chan struct{})
	g.exited = exited
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	g.t.Cleanup(g.stop)
	return nil
}

// ready waits for the gateway's own page, and then for all else that the configuration starts, such as other ports.
func (g *gateway) ready() error {
	ctx, cancel := context.WithTimeout(g.t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.addr+"/", http.NoBody)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultTransport.RoundTrip(req); err == nil {
			_ = resp.Body.Close()
			_, err := g.tryAdmin(ctx, "/config/") // Caddy answers when it has started all
			return err
		}
		select {
		case <-tick.C:
		case <-g.exited:
			return fmt.Errorf("the gateway ended: %s", g.stderr)
		case <-ctx.Done():
			return fmt.Errorf("the gateway does not answer: %s", g.stderr)
		}
	}
}

// stop ends the process in the orderly way and waits for it. Its log is complete then.
func (g *gateway) stop() { g.signal(syscall.SIGTERM) }

// kill ends it as a power cut would.
func (g *gateway) kill() { g.signal(syscall.SIGKILL) }

func (g *gateway) signal(sig syscall.Signal) {
	g.t.Helper()
	select {
	case <-g.exited:
	default:
		_ = g.cmd.Process.Signal(sig)
	}
	select {
	case <-g.exited:
	case <-time.After(20 * time.Second):
		g.t.Errorf("the gateway did not end on %v: %s", sig, g.stderr)
		_ = g.cmd.Process.Kill()
		<-g.exited
	}
	// net/http recovers the panic of a handler, so the process alone does not tell.
	for _, word := range []string{"panic", "DATA RACE", "fatal error"} {
		if out := g.stderr.String(); strings.Contains(out, word) {
			g.t.Errorf("%q in the gateway's own log: %s", word, out)
		}
	}
}

// reload loads another configuration into the running process, as an operator does.
func (g *gateway) reload(c gatewayConfig) error {
	config := filepath.Join(g.dir, "Caddyfile")
	if err := os.WriteFile(config, []byte(g.caddyfile(c)), 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(g.t.Context(), binary, "reload", "--force", "--config", config, "--adapter", "caddyfile",
		"--address", g.adminAddress(g.config))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("reload: %w: %s", err, out)
	}
	g.config = c
	// The old configuration's listener closes a moment later. A connection that the kernel has put into its queue is lost,
	// as with any server; tests that are not about that go on when it is gone.
	eventually(g.t, "the old listener to close", func() bool { return g.listeners() <= 1 })
	return nil
}

// listeners is how many sockets listen at the gateway's port; 0 where the system does not tell.
func (g *gateway) listeners() (n int) {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return 0
	}
	const listening = "0A"
	addr := netip.MustParseAddrPort(g.addr)
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) > 3 && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", addr.Port())) && fields[3] == listening {
			n++
		}
	}
	return n
}

// admin asks the admin endpoint.
func (g *gateway) admin(path string) answer {
	g.t.Helper()
	a, err := g.tryAdmin(g.t.Context(), path)
	if err != nil {
		g.t.Fatal(err)
	}
	return a
}

func (g *gateway) tryAdmin(ctx context.Context, path string) (answer, error) {
	if g.config.Admin != "" {
		return tryGet(ctx, http.DefaultClient, "http://"+g.config.Admin+path)
	}
	return tryGet(ctx, &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", g.adminSocket())
		},
	}}, "http://localhost"+path)
}

// metric reads the sum of a counter or gauge over its labels from the admin endpoint.
func (g *gateway) metric(name string) float64 {
	g.t.Helper()
	a := g.admin("/metrics")
	var sum float64
	for line := range strings.Lines(a.body) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' '):]), 64)
		if err != nil {
			g.t.Fatalf("metric %s: %v", name, err)
		}
		sum += v
	}
	return sum
}

// caFile is a file with the CA of the origins, for trust_ca.
func caFile(t *testing.T, server *testorigin.Server) string {
	t.Helper()
	file := filepath.Join(tempDir(t), "ca.pem")
	if err := os.WriteFile(file, server.CAPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// authority is the CA by which the gateway intercepts, as clients get it.
func (g *gateway) authority() *x509.CertPool {
	g.t.Helper()
	pool := x509.NewCertPool()
	if a := get(g.t, http.DefaultClient, "http://"+g.addr+"/ca.crt"); !pool.AppendCertsFromPEM([]byte(a.body)) {
		g.t.Fatalf("no CA certificate: %d %s", a.status, a.body)
	}
	return pool
}

// usage is what the process has used so far.
type usage struct {
	cpu     time.Duration
	peakRSS int64 // bytes
}

func (g *gateway) usage() usage {
	g.t.Helper()
	u, err := usageOf(g.cmd.Process.Pid)
	if err != nil {
		g.t.Fatal(err)
	}
	return u
}

func usageOf(pid int) (u usage, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	// Fields count from the closing bracket of the command, which may hold blanks: utime and stime are 14 and 15.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	for _, f := range fields[11:13] {
		ticks, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return u, err
		}
		u.cpu += time.Duration(ticks) * 10 * time.Millisecond
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			u.peakRSS = kib << 10
			return u, err
		}
	}
	return u, errors.New("no VmHWM")
}

// eventually polls, bounded, until done. It is for what another process does in its own time.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// tail keeps the last octets of the process's own log.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

// tailSize holds the goroutine dump of a panic.
const tailSize = 256 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if extra := len(t.buf) - tailSize; extra > 0 {
		t.buf = append(t.buf[:0], t.buf[extra:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
