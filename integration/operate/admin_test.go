//go:build slow

package operate

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// The users of TestAdminEndpointOfPackages. They need no names.
const (
	service, group, member, stranger = 64010, 64011, 64012, 65534
)

// packaged is a gateway with the Caddyfile of the packages, and with their folders in a temporary
// folder.
type packaged struct {
	t                           *testing.T
	dir, config, proxy, metrics string
}

// run runs the binary as a user with one group.
func (p *packaged) run(uid, gid uint32, args ...string) (string, int) {
	p.t.Helper()
	cmd := p.command(p.t.Context(), uid, gid, args...)
	out, _ := cmd.CombinedOutput() // the status has the outcome
	return string(out), cmd.ProcessState.ExitCode()
}

func (p *packaged) command(ctx context.Context, uid, gid uint32, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `umask 027; exec "$@"`, "sh", p.dir + "/crawlgate"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	cmd.Dir, cmd.Env = "/", []string{
		"PATH=" + os.Getenv("PATH"), "XDG_DATA_HOME=" + p.dir + "/lib", "XDG_CONFIG_HOME=" + p.dir + "/lib", "CRAWLGATE_LOG=" + p.dir + "/log/access.log",
		"CRAWLGATE_GATEWAY=unix/" + p.dir + "/run/admin.sock",
	}
	return cmd
}

// newPackaged makes the folders like systemd, and starts the gateway like the unit.
func newPackaged(t *testing.T) *packaged {
	t.Helper()
	p := &packaged{t: t, dir: rig.TempDir(t), proxy: rig.FreePort(t), metrics: rig.FreePort(t)}
	binary, err := os.ReadFile(rig.Binary)
	errs := []error{err, os.Chmod(p.dir, 0o755), os.WriteFile(p.dir+"/crawlgate", binary, 0o755)}
	for name, mode := range map[string]fs.FileMode{"lib": 0o700, "log": 0o750, "run": 0o750} {
		errs = append(errs, os.Mkdir(filepath.Join(p.dir, name), mode), os.Chown(filepath.Join(p.dir, name), service, group))
	}
	text, err := os.ReadFile(testdocs.Path("packaging", "Caddyfile"))
	p.config = p.dir + "/Caddyfile"
	_, proxyPort, _ := net.SplitHostPort(p.proxy)
	_, metricsPort, _ := net.SplitHostPort(p.metrics)
	local := strings.NewReplacer("/run/crawlgate/", p.dir+"/run/", ":3128", ":"+proxyPort, ":3129", ":"+metricsPort).Replace(string(text))
	if err := errors.Join(append(errs, err, os.WriteFile(p.config, []byte(local), 0o644))...); err != nil {
		t.Fatal(err)
	}
	cmd := p.command(context.Background(), service, group, "run", "--config", p.config)
	log := new(rig.Tail)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("%v: %s", err, log.String())
		}
	})
	rig.Eventually(t, "the gateway to answer", func() bool { return p.status(http.MethodGet, p.proxy, "/health", "") == http.StatusOK })
	return p
}

// status returns the status of an answer, or 0 without an answer.
func (p *packaged) status(method, addr, path, body string) int {
	r, err := http.NewRequestWithContext(p.t.Context(), method, "http://"+addr+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// TestAdminEndpointOfPackages checks that, with the Caddyfile of the packages, root and the members
// of the group can give and lift stops, the members only in their own names. No other user can,
// even after a reload.
func TestAdminEndpointOfPackages(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		if os.Getenv("CRAWLGATE_REQUIRE_ALL") == "1" {
			t.Fatal("root is required")
		}
		t.Skip("not root")
	}
	p := newPackaged(t)
	held := func(want string) {
		t.Helper()
		if out, status := p.run(0, 0, "robots", "deny"); status != 0 || !strings.Contains(out, want) {
			t.Errorf("robots deny: status %d, output %s, want %s", status, out, want)
		}
	}
	socket := p.dir + "/run/admin.sock"
	shut := func() {
		t.Helper()
		if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o660 {
			t.Errorf("the socket: %v, error %v, want the mode 0660", info, err)
		}
		for _, args := range [][]string{
			{"robots", "deny", "all", "--by", "dora"},
			{"robots", "undeny", "host", "held.example", "--by", "dora"},
			{"robots", "deny"},
			{"stop", "--address", "unix/" + socket},
			{"reload", "--config", p.config, "--force"},
			{"reload", "--config", p.config, "--address", p.metrics},
		} {
			if out, status := p.run(stranger, stranger, args...); status == 0 || !strings.Contains(out, "permission denied") && !strings.Contains(out, "404") {
				t.Errorf("%q of another user: status %d, %s", args, status, out)
			}
		}
		for _, path := range []string{"/robots/deny", "/load", "/stop", "/config/"} {
			for _, addr := range []string{p.metrics, p.proxy} {
				if status := p.status(http.MethodPost, addr, path, `{"scope":"all"}`); status < 300 {
					t.Errorf("POST %s%s: status %d, want an error", addr, path, status)
				}
			}
		}
		held("held.example")
	}
	if out, status := p.run(0, 0, "robots", "deny", "host", "held.example", "--by", "dora"); status != 0 || !strings.Contains(out, ", by dora;") {
		t.Errorf("root gives a stop in another name: status %d, %s", status, out)
	}
	shut()
	if out, status := p.run(service, group, "reload", "--config", p.config, "--force"); status != 0 {
		t.Errorf("a reload: status %d, %s", status, out)
	}
	shut()
	out, status := p.run(stranger, stranger, "robots", "deny")
	if status != 2 || !strings.Contains(out, "members of the group") {
		t.Errorf("the message for another user: status %d, %s", status, out)
	}
	if out, status := p.run(member, group, "robots", "deny", "host", "shop.example", "--by", "dora"); status != 0 || !strings.Contains(out, "stopped: host shop.example, by uid 64012;") {
		t.Errorf("a member gives a stop in another name: status %d, %s", status, out)
	}
	if out, status := p.run(member, group, "robots", "undeny", "host", "held.example", "--by", "dora"); status != 0 || !strings.Contains(out, "lifted by uid 64012: stop of host held.example, by dora") {
		t.Errorf("a member lifts a stop: status %d, %s", status, out)
	}
	if out, status := p.run(member, group, "robots", "undeny", "host", "held.example"); status != 1 || !strings.Contains(out, "there is no such order: host held.example; stopped: host shop.example") {
		t.Errorf("a lift of no stop: status %d, %s", status, out)
	}
	held("shop.example")
	if status := p.status(http.MethodGet, p.metrics, "/metrics", ""); status != http.StatusOK {
		t.Errorf("the metrics: status %d, want 200", status)
	}
}
