package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// gateway is the binary under test.
type gateway struct {
	addr string
	dir  string
	cmd  *exec.Cmd
}

// config makes the robots.txt of the known origins expire within the run, so that refreshes happen
// during the storm.
const config = `{
	admin off
	persist_config off
	robots {
		store file %s
		cache {
			ttl 30s
		}
		fetch {
			timeout %s
			parallel %d
		}
		pace {
			rate off
			concurrency 100000
			queue 100000
		}
		egress {
			allow_private 127.0.0.0/8
		}
	}
}

http://:%s {
	bind 127.0.0.1
	log {
		output file %s
	}
	robots
}
`

func startGateway(ctx context.Context, s settings) (*gateway, error) {
	if s.gateway == "" {
		return nil, errors.New("no -gateway")
	}
	dir, err := os.MkdirTemp("", "storm")
	if err != nil {
		return nil, err
	}
	g := &gateway{dir: dir}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g.addr = l.Addr().String()
	_, port, _ := net.SplitHostPort(g.addr)
	if err := l.Close(); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "Caddyfile")
	text := fmt.Sprintf(config, filepath.Join(dir, "robots.db"), s.timeout, s.parallel, port, filepath.Join(dir, "access.log"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	out, err := os.Create(filepath.Join(dir, "stderr.log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }() // the gateway has its own copy
	command := []string{s.gateway, "run", "--config", file, "--adapter", "caddyfile"}
	if s.pin {
		command = append([]string{"taskset", "-c", strconv.Itoa(gatewayCPU)}, command...)
	}
	g.cmd = exec.CommandContext(ctx, command[0], command[1:]...)
	g.cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	g.cmd.Stderr = out
	if err := g.cmd.Start(); err != nil {
		return nil, err
	}
	if err := g.ready(ctx); err != nil {
		g.stop()
		return nil, err
	}
	return g, nil
}

// cpu returns the CPU time of the gateway, which depends less than latencies on other programs of
// the machine.
func (g *gateway) cpu() time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", g.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux port of Go
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	var sum time.Duration
	for _, i := range []int{11, 12} { // utime and stime, proc(5)
		if n, err := strconv.ParseInt(fields[i], 10, 64); err == nil {
			sum += time.Duration(n) * tick
		}
	}
	return sum
}

// peak returns the peak memory of the gateway according to the kernel.
func (g *gateway) peak() string {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.cmd.Process.Pid))
	if err != nil {
		return "unknown"
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

// gatewayCPU is the CPU that only the gateway uses with -pin.
const gatewayCPU = 0

// stayOff restarts this program in its place without the given CPU. Once restarted, it does
// nothing.
func stayOff(cpu int) error {
	const pinned = "STORM_PINNED"
	if os.Getenv(pinned) != "" {
		return nil
	}
	if runtime.NumCPU() < 2 {
		return errors.New("there is no other CPU")
	}
	taskset, err := exec.LookPath("taskset")
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	others := fmt.Sprintf("%d-%d", cpu+1, cpu+runtime.NumCPU()-1)
	return syscall.Exec(taskset, append([]string{"taskset", "-c", others, self}, os.Args[1:]...), append(os.Environ(), pinned+"=1"))
}

// ready waits until the gateway accepts connections.
func (g *gateway) ready(ctx context.Context) error {
	for range 300 {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", g.addr)
		if err == nil {
			return conn.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	text, _ := os.ReadFile(filepath.Join(g.dir, "stderr.log"))
	return fmt.Errorf("the gateway does not answer: %s", text)
}

func (g *gateway) stop() {
	_ = g.cmd.Process.Signal(syscall.SIGTERM)
	_ = g.cmd.Wait()
	_ = os.RemoveAll(g.dir)
}
