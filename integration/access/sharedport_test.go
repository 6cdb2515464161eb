//go:build slow

package access

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// needSocketTable skips the test if the system has no table of listening processes.
func needSocketTable(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells at which addresses other processes listen")
	}
}

// second runs another gateway, with its own data, until it exits.
func second(t *testing.T, addr string, c rig.Config, command ...string) (status int, output string) {
	t.Helper()
	g := &rig.Gateway{T: t, Dir: rig.TempDir(t), Addr: addr}
	config := filepath.Join(g.Dir, "Caddyfile")
	if err := os.WriteFile(config, []byte(g.Caddyfile(c)), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, rig.Binary, append(command, "--config", config, "--adapter", "caddyfile")...)
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+g.Dir, "XDG_CONFIG_HOME="+g.Dir)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if ctx.Err() != nil || err != nil && !errors.As(err, &exit) {
		t.Errorf("%q did not end by itself: %v: %s", command, err, out)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// TestSecondProcessAtTheSamePort starts a second gateway at the port of a busy one, many times,
// because Caddy starts its apps in any order. Each second gateway exits with a message, and the
// clients of the first do not notice.
func TestSecondProcessAtTheSamePort(t *testing.T) {
	t.Parallel()
	needSocketTable(t)
	g := rig.New(t, rig.Config{})
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	asked := make([]int, 4)
	for i := range asked {
		clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // a new connection for each request
			for ; ctx.Err() == nil; asked[i]++ {
				if a, err := rig.TryGet(t.Context(), client, "http://"+g.Addr+"/health"); err != nil || a.Status != http.StatusOK {
					t.Errorf("a client of the first gateway got status %d, body %q, error %v", a.Status, a.Body, err)
				}
			}
		})
	}
	for range 8 {
		began := time.Now()
		status, out := second(t, g.Addr, rig.Config{}, "run")
		if status != 1 || !strings.Contains(out, "address "+g.Addr+": another process listens at "+g.Addr+" already") {
			t.Errorf("the second process exited with %d, want 1 and a message about the port: %s", status, out)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the second process took %v to exit, want at most 5s", took)
		}
	}
	stop()
	clients.Wait()
	for i, n := range asked {
		if n < 20 {
			t.Errorf("client %d has sent %d requests, want at least 20", i, n)
		}
	}
	for _, command := range []string{"validate", "adapt"} {
		if status, out := second(t, g.Addr, rig.Config{}, command); status != 0 {
			t.Errorf("%s ended with %d beside a gateway: %s", command, status, out)
		}
	}
	if status, out := second(t, g.Addr, rig.Config{}, "adapt", "--validate"); status != 0 {
		t.Errorf("adapt --validate ended with %d beside a gateway: %s", status, out)
	}
}

// TestSecondProcessAtOverlappingAddresses shares the port of the admin endpoint, of another site,
// and of an address that stands for all addresses of the machine.
func TestSecondProcessAtOverlappingAddresses(t *testing.T) {
	t.Parallel()
	needSocketTable(t)
	admin, site := portOf(t), portOf(t)
	g := rig.New(t, rig.Config{Admin: "127.0.0.1:" + admin, Sites: "http://127.0.0.1:" + site + " {\nrespond first\n}"})
	_, port, _ := net.SplitHostPort(g.Addr)
	for _, tt := range []struct {
		name string
		c    rig.Config
		says string
	}{
		{"admin", rig.Config{Admin: "127.0.0.1:" + admin}, ":" + admin},
		{"admin on all addresses", rig.Config{Admin: ":" + admin}, ":" + admin},
		{"a site", rig.Config{Sites: "http://127.0.0.1:" + site + " {\nrespond second\n}"}, ":" + site},
		{"a site on all addresses", rig.Config{Sites: "http://:" + site + " {\nrespond second\n}"}, ":" + site},
		{"a gateway on all addresses", rig.Config{Sites: "http://:" + port + " {\nrobots\n}"}, ":" + port},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			status, out := second(t, rig.FreePort(t), tt.c, "run")
			if status != 1 || !strings.Contains(out, tt.says) || !strings.Contains(out, "another process") {
				t.Errorf("the second process exited with %d, want 1 and the message %q: %s", status, tt.says, out)
			}
		})
	}
}

// TestSecondProcessAtTheAdminSocket starts a second gateway with the admin socket of one that is busy. It ends, and the
// first one still takes orders and reloads. A socket that a killed process left behind does not hinder a start.
func TestSecondProcessAtTheAdminSocket(t *testing.T) {
	t.Parallel()
	g := rig.New(t, rig.Config{})
	status, out := second(t, rig.FreePort(t), rig.Config{Admin: g.AdminAddress(g.Config) + "|0660"}, "run")
	if status != 1 || !strings.Contains(out, "admin endpoint unix/"+g.AdminSocket()+": another process listens there already") {
		t.Errorf("the second process ended with %d: %s", status, out)
	}
	if out, err := rig.RunBinary(t, "robots", "deny", "host", "shop.example", "--gateway", "unix/"+g.AdminSocket()); err != nil {
		t.Errorf("an order to the first gateway: %v: %s", err, out)
	}
	if err := g.Reload(rig.Config{Engine: rig.Unpaced}); err != nil {
		t.Errorf("a reload of the first gateway: %v", err)
	}
	g.Kill()
	if err := g.Start(g.Config); err != nil {
		t.Errorf("a start after a kill: %v", err)
	}
}

// TestReloadToASharedPort adds a site at a port of another process. The reload fails, and the
// gateway goes on as before.
func TestReloadToASharedPort(t *testing.T) {
	t.Parallel()
	needSocketTable(t)
	const reusePort = 15 // SO_REUSEPORT, which package syscall does not have
	reusing := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, reusePort, 1) }), err)
	}}
	l, err := reusing.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	g := rig.New(t, rig.Config{})
	err = g.Reload(rig.Config{Sites: "http://" + strings.Replace(l.Addr().String(), "127.0.0.1", "", 1) + " {\nbind 127.0.0.1\nrespond shared\n}"})
	if err == nil || !strings.Contains(err.Error(), "another process listens at "+l.Addr().String()+" already") {
		t.Errorf("the reload returned %v, want an error about the port", err)
	}
	if a := rig.Get(t, http.DefaultClient, "http://"+g.Addr+"/health"); a.Status != http.StatusOK {
		t.Errorf("after the refused reload: status %d, want 200: %s", a.Status, a.Body)
	}
	_ = l.Close()
	if err := g.Reload(rig.Config{Engine: rig.Unpaced}); err != nil {
		t.Errorf("the next reload: %v", err)
	}
}
