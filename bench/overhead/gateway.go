package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// variant is one of the gateways that are compared.
type variant struct{ name, directive string }

var enforcing = variant{"enforce", "robots"}

var variants = []variant{
	{"bare", "bare"},
	{"off", "robots {\n\t\tmode off\n\t}"},
	enforcing,
	{"sealed", "robots"}, // with -log, the log is sealed
}

// caddyfile disables what limits the load, since there is only one origin.
const caddyfile = `{
	admin off
	persist_config off
	robots {
		store none
		pace {
			rate off
			concurrency 10000
		}
		egress {
			allow_private 127.0.0.0/8
			trust_ca %[4]s
		}
	}
}

http://:%[1]s {
	bind 127.0.0.1
	%[2]s
	%[3]s
}
`

// gateway is a running process.
type gateway struct {
	name  string
	addr  string
	dir   string
	cmd   *exec.Cmd
	roots *x509.CertPool // that clients trust inside tunnels
}

// startGateway runs a gateway that trusts the certificate of the secure origin.
func startGateway(ctx context.Context, v variant, secure *site, log bool) (*gateway, error) {
	dir, err := os.MkdirTemp("", "overhead")
	if err != nil {
		return nil, err
	}
	g := &gateway{name: v.name, dir: dir}
	if err := g.start(ctx, v, secure, log); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return g, nil
}

func (g *gateway) start(ctx context.Context, v variant, secure *site, log bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	g.addr = listener.Addr().String()
	_ = listener.Close()
	_, port, _ := net.SplitHostPort(g.addr)
	logging := ""
	if log {
		// Compressing a full file takes seconds, which would count for whichever gateway does it.
		output := "file " + filepath.Join(g.dir, "access.log") + " {\n\t\t\troll_disabled\n\t\t}"
		if v.name == "sealed" {
			output = "robots_evidence {\n\t\t\t" + output + "\n\t\t}"
		}
		logging = "log {\n\t\toutput " + output + "\n\t}"
	}
	trusted, config := filepath.Join(g.dir, "origins.pem"), filepath.Join(g.dir, "Caddyfile")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.server.Certificate().Raw})
	if err := os.WriteFile(trusted, certificate, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(config, fmt.Appendf(nil, caddyfile, port, logging, v.directive, trusted), 0o600); err != nil {
		return err
	}
	g.cmd = exec.CommandContext(ctx, self, "run", "--config", config, "--adapter", "caddyfile")
	g.cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+g.dir, "XDG_CONFIG_HOME="+g.dir)
	var stderr bytes.Buffer
	g.cmd.Stderr = &stderr
	if err := g.cmd.Start(); err != nil {
		return err
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", g.addr)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(deadline) {
			g.stop()
			return fmt.Errorf("%w: %s", err, stderr.Bytes())
		}
	}
}

func (g *gateway) stop() {
	_ = g.cmd.Process.Signal(syscall.SIGTERM)
	_ = g.cmd.Wait()
	_ = os.RemoveAll(g.dir)
}

// clockTick is the unit of CPU times in /proc on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// cpu returns the user and system time of the process.
func (g *gateway) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", g.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// Fields count from the closing bracket of the command, which may contain blanks: utime and
	// stime are 14 and 15.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var used time.Duration
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the CPU time: %w", err)
		}
		used += time.Duration(ticks) * clockTick
	}
	return used, nil
}
