// Package process runs a gateway in a process of its own, for a measurement on Linux.
package process

import (
	"bytes"
	"context"
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

// Gateway is a running gateway, with a folder for its files.
type Gateway struct {
	Addr string

	dir    string
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

// Start runs a gateway by a command with the Caddyfile that write returns for a port of 127.0.0.1
// and a folder. The gateway accepts connections when Start returns.
func Start(ctx context.Context, command []string, write func(port, dir string) (caddyfile string, err error)) (*Gateway, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	g := &Gateway{dir: dir}
	if err := g.start(ctx, command, write); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return g, nil
}

func (g *Gateway) start(ctx context.Context, command []string, write func(port, dir string) (string, error)) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	g.Addr = listener.Addr().String()
	_ = listener.Close()
	_, port, _ := net.SplitHostPort(g.Addr)
	text, err := write(port, g.dir)
	if err != nil {
		return err
	}
	file := filepath.Join(g.dir, "Caddyfile")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	args := append(command[1:len(command):len(command)], "run", "--config", file, "--adapter", "caddyfile")
	g.cmd = exec.CommandContext(ctx, command[0], args...)
	g.cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+g.dir, "XDG_CONFIG_HOME="+g.dir)
	g.cmd.Stderr = &g.stderr
	if err := g.cmd.Start(); err != nil {
		return err
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", g.Addr)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(deadline) {
			g.Stop()
			return fmt.Errorf("%w: %s", err, g.stderr.Bytes())
		}
	}
}

// Stop ends the process and removes its files.
func (g *Gateway) Stop() {
	_ = g.cmd.Process.Signal(syscall.SIGTERM)
	_ = g.cmd.Wait()
	_ = os.RemoveAll(g.dir)
}

// clockTick is the unit of CPU times in /proc on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// CPU returns the user and system time of the process.
func (g *Gateway) CPU() (used time.Duration, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", g.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// Fields count from the closing bracket of the command, which may contain blanks: utime and
	// stime are 14 and 15.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the CPU time: %w", err)
		}
		used += time.Duration(ticks) * clockTick
	}
	return used, nil
}

// Peak returns the peak memory of the process according to the kernel.
func (g *Gateway) Peak() string {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.cmd.Process.Pid))
	if err != nil {
		return "unknown"
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}
