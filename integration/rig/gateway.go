package rig

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Gateway is a running crawlgate process.
type Gateway struct {
	T      *testing.T
	Dir    string // config, data, logs and admin socket
	Addr   string // of the proxy
	Cmd    *exec.Cmd
	Config Config        // in force
	Exited chan struct{} // closed when the process has ended
	Stderr *Tail
}

// Config has the options that differ between tests. All others are as a company would set them.
type Config struct {
	Engine string // lines of the global robots block, without egress
	Egress string // lines of its egress block; loopback is allowed in any case
	Site   string // lines of the site's robots block
	Around string // further directives of the site
	Global string // further global options
	Sites  string // further sites
	Admin  string // address of the admin endpoint; a unix socket if empty
	Public bool   // loopback is not allowed as origin

	Env    []string // further variables of the process
	Wrap   []string // a command that runs the gateway's command
	Stdout string   // a file for its standard output
	Stderr string   // a file for its standard error; tests read that too
}

// Caddyfile writes the gateway's configuration, with its admin socket, its log, and loopback
// allowed as origin.
func (g *Gateway) Caddyfile(c Config) string {
	_, port, _ := net.SplitHostPort(g.Addr)
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
`, g.AdminAddress(c), c.Engine, c.Egress, port, g.AccessLog(), c.Around, c.Site, c.Global, allow, c.Sites)
}

// AdminAddress returns the address of the admin endpoint in a configuration.
func (g *Gateway) AdminAddress(c Config) string {
	if c.Admin != "" {
		return c.Admin
	}
	return "unix/" + g.AdminSocket()
}

// AdminSocket returns the socket of the admin endpoint, for configurations without an address.
func (g *Gateway) AdminSocket() string { return filepath.Join(g.Dir, "admin.sock") }

// AccessLog returns the path of the access log.
func (g *Gateway) AccessLog() string { return filepath.Join(g.Dir, "access.log") }

// Store returns the path of the store.
func (g *Gateway) Store() string { return filepath.Join(g.Dir, "caddy", "crawlgate", "robots.db") }

// New runs the binary on a free port and waits until it answers.
func New(t *testing.T, c Config) *Gateway {
	t.Helper()
	g := &Gateway{T: t, Dir: TempDir(t)}
	var err error
	for range 5 { // another process may take the port before the start
		g.Addr = FreePort(t)
		if err = g.Start(c); err == nil {
			return g
		}
		if g.Exited != nil {
			g.Kill() // another gateway may have answered at the port
		}
	}
	t.Fatalf("starting the gateway: %v", err)
	return nil
}

// Start runs the binary and waits until it answers. A gateway that was stopped or killed continues
// with its data, at the same port.
func (g *Gateway) Start(c Config) error {
	if err := g.Launch(c); err != nil {
		return err
	}
	return g.Ready()
}

// captured has the flags with which a service supervisor opens the files of standard streams.
const captured = os.O_APPEND | os.O_CREATE | os.O_WRONLY

// Launch runs the binary.
func (g *Gateway) Launch(c Config) error {
	config := filepath.Join(g.Dir, "Caddyfile")
	if err := os.WriteFile(config, []byte(g.Caddyfile(c)), 0o600); err != nil {
		return err
	}
	command := append(slices.Clone(c.Wrap), Binary, "run", "--config", config, "--adapter", "caddyfile")
	g.Cmd, g.Config = exec.Command(command[0], command[1:]...), c
	g.Cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+g.Dir, "XDG_CONFIG_HOME="+g.Dir, "GORACE=halt_on_error=1")
	g.Cmd.Env = append(g.Cmd.Env, c.Env...)
	if c.Stdout != "" {
		out, err := os.OpenFile(c.Stdout, captured, 0o600)
		if err != nil {
			return err
		}
		defer out.Close() // the process has its own descriptor
		g.Cmd.Stdout = out
	}
	g.Stderr = new(Tail)
	g.Cmd.Stderr = g.Stderr
	var stderr *os.File // nil without a file
	if c.Stderr != "" {
		var err error
		if stderr, err = os.OpenFile(c.Stderr, captured, 0o600); err != nil {
			return err
		}
		g.Cmd.Stderr = io.MultiWriter(g.Stderr, stderr)
	}
	if err := g.Cmd.Start(); err != nil {
		return err
	}
	cmd, exited := g.Cmd, make(chan struct{})
	g.Exited = exited
	go func() {
		_ = cmd.Wait()
		_ = stderr.Close() // closing nil is only an error
		close(exited)
	}()
	g.T.Cleanup(g.Stop)
	return nil
}

// Ready waits for the gateway's own page, and then for everything else that the configuration
// starts, such as other ports.
func (g *Gateway) Ready() error {
	ctx, cancel := context.WithTimeout(g.T.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.Addr+"/", http.NoBody)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultTransport.RoundTrip(req); err == nil {
			_ = resp.Body.Close()
			resp, err := g.AskAdmin(ctx, "/config/") // Caddy answers when it has started everything
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			return err
		}
		select {
		case <-tick.C:
		case <-g.Exited:
			return fmt.Errorf("the gateway exited: %s", g.Stderr)
		case <-ctx.Done():
			return fmt.Errorf("the gateway does not answer: %s", g.Stderr)
		}
	}
}

// Stop shuts the process down gracefully and waits for it. Its log is then complete.
func (g *Gateway) Stop() { g.Signal(syscall.SIGTERM) }

// Kill kills the process, like a power cut.
func (g *Gateway) Kill() { g.Signal(syscall.SIGKILL) }

// Signal ends the process with sig, and checks that nothing in it has failed.
func (g *Gateway) Signal(sig syscall.Signal) {
	g.T.Helper()
	select {
	case <-g.Exited:
	default:
		_ = g.Cmd.Process.Signal(sig)
	}
	select {
	case <-g.Exited:
	case <-time.After(20 * time.Second):
		g.T.Errorf("the gateway did not exit on %v: %s", sig, g.Stderr)
		_ = g.Cmd.Process.Kill()
		<-g.Exited
	}
	// net/http recovers the panic of a handler, so the exit status does not show it.
	for _, word := range []string{"panic", "DATA RACE", "fatal error"} {
		if out := g.Stderr.String(); strings.Contains(out, word) {
			g.T.Errorf("%q in the gateway's own log: %s", word, out)
		}
	}
}

// Reload loads another configuration into the running process, like an operator.
func (g *Gateway) Reload(c Config) error {
	config := filepath.Join(g.Dir, "Caddyfile")
	if err := os.WriteFile(config, []byte(g.Caddyfile(c)), 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(g.T.Context(), Binary, "reload", "--force", "--config", config, "--adapter", "caddyfile",
		"--address", g.AdminAddress(g.Config))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("reload: %w: %s", err, out)
	}
	g.Config = c
	// The old configuration's listener closes a moment later. A connection in its queue is then
	// lost, as with any server. Tests of other things wait until the listener is closed.
	Eventually(g.T, "the old listener to close", func() bool { return g.Listeners() <= 1 })
	return nil
}

// Listeners returns the number of sockets that listen at the gateway's port, or 0 if the system
// does not tell.
func (g *Gateway) Listeners() (n int) {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return 0
	}
	const listening = "0A"
	addr := netip.MustParseAddrPort(g.Addr)
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) > 3 && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", addr.Port())) && fields[3] == listening {
			n++
		}
	}
	return n
}

// AskAdmin requests a path from the admin endpoint.
func (g *Gateway) AskAdmin(ctx context.Context, path string) (*http.Response, error) {
	client, base := http.DefaultClient, "http://"+g.Config.Admin
	if g.Config.Admin == "" {
		base = "http://localhost"
		client = &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", g.AdminSocket())
			},
		}}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	return client.Do(req)
}

// Metric returns the sum of a counter or gauge over its labels, from the admin endpoint.
func (g *Gateway) Metric(name string) float64 {
	g.T.Helper()
	resp, err := g.AskAdmin(g.T.Context(), "/metrics")
	if err != nil {
		g.T.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		g.T.Fatal(err)
	}
	var sum float64
	for line := range strings.Lines(string(body)) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' '):]), 64)
		if err != nil {
			g.T.Fatalf("metric %s: %v", name, err)
		}
		sum += v
	}
	return sum
}

// LimitDescriptors sets the number of files that the gateway may have open.
func (g *Gateway) LimitDescriptors(n int) {
	g.T.Helper()
	pid := strconv.Itoa(g.Cmd.Process.Pid)
	if out, err := exec.Command(Need(g.T, "prlimit"), "--pid", pid, fmt.Sprintf("--nofile=%d:", n)).CombinedOutput(); err != nil {
		g.T.Fatalf("prlimit: %v: %s", err, out)
	}
}
