package integration

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// What the tests of this package call by shorter names.
var (
	caFile       = rig.CAFile
	eventually   = rig.Eventually
	freePort     = rig.FreePort
	loadsMachine = rig.LoadsMachine
	need         = rig.Need
	tempDir      = rig.TempDir
)

type tail = rig.Tail

const (
	paceOff     = rig.PaceOff
	raceEnabled = rig.RaceEnabled
)

// binary is the crawlgate under test.
var binary string

func TestMain(m *testing.M) {
	rig.Main(func() int {
		binary = rig.Binary
		return m.Run()
	})
}

// gateway is one running crawlgate process, and what the tests of this package ask of it.
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
type gatewayConfig rig.Config

// rig is the gateway as package rig knows it.
func (g *gateway) rig() *rig.Gateway {
	return &rig.Gateway{T: g.t, Dir: g.dir, Addr: g.addr, Cmd: g.cmd, Config: rig.Config(g.config), Exited: g.exited, Stderr: g.stderr}
}

// runs takes over the process that r runs.
func (g *gateway) runs(r *rig.Gateway) {
	g.cmd, g.config, g.exited, g.stderr = r.Cmd, gatewayConfig(r.Config), r.Exited, r.Stderr
}

// startGateway runs the binary on a free port and waits until it answers.
func startGateway(t *testing.T, c gatewayConfig) *gateway {
	t.Helper()
	r := rig.New(t, rig.Config(c))
	g := &gateway{t: t, dir: r.Dir, addr: r.Addr}
	g.runs(r)
	return g
}

// start runs the binary and waits until it answers. A gateway that was stopped or killed goes on with its data, at the
// same port.
func (g *gateway) start(c gatewayConfig) error {
	r := g.rig()
	err := r.Start(rig.Config(c))
	g.runs(r)
	return err
}

// launch runs the binary.
func (g *gateway) launch(c gatewayConfig) error {
	r := g.rig()
	err := r.Launch(rig.Config(c))
	g.runs(r)
	return err
}

// reload loads another configuration into the running process, as an operator does.
func (g *gateway) reload(c gatewayConfig) error {
	err := g.rig().Reload(rig.Config(c))
	if err == nil {
		g.config = c
	}
	return err
}

func (g *gateway) caddyfile(c gatewayConfig) string { return g.rig().Caddyfile(rig.Config(c)) }
func (g *gateway) adminSocket() string              { return g.rig().AdminSocket() }
func (g *gateway) accessLog() string                { return g.rig().AccessLog() }
func (g *gateway) store() string                    { return g.rig().Store() }
func (g *gateway) metric(name string) float64       { return g.rig().Metric(name) }
func (g *gateway) limitDescriptors(n int)           { g.rig().LimitDescriptors(n) }
func (g *gateway) stop()                            { g.rig().Stop() }
func (g *gateway) kill()                            { g.rig().Kill() }

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
	resp, err := g.rig().Admin(ctx, path)
	if err != nil {
		return answer{}, err
	}
	return readAnswer(resp)
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
