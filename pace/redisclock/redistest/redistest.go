// Package redistest starts real Redis servers for tests.
package redistest

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Server is a real redis-server on a free loopback port, for one test.
type Server struct {
	tb   testing.TB
	port string
	cmd  *exec.Cmd
}

// Start starts a server, and stops it when the test ends. Without redis-server on
// this machine the test is skipped, unless CRAWLGATE_REQUIRE_ALL=1.
func Start(tb testing.TB) *Server {
	tb.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CRAWLGATE_REQUIRE_ALL") == "1" {
			tb.Fatalf("redis-server is required: %v", err)
		}
		tb.Skipf("redis-server is not installed: %v", err)
	}
	s := &Server{tb: tb}
	tb.Cleanup(s.Kill)
	Eventually(tb, "redis-server got a port", func() bool {
		s.port = freePort(tb)
		return s.try()
	})
	return s
}

// freePort is a port that was free a moment ago.
func freePort(tb testing.TB) string {
	tb.Helper()
	var config net.ListenConfig
	l, err := config.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// URL returns the URL of the server.
func (s *Server) URL() string { return "redis://127.0.0.1:" + s.port }

// Start starts the server again, with an empty memory, and waits until it
// answers.
func (s *Server) Start() {
	s.tb.Helper()
	Eventually(s.tb, "redis-server has its port back", s.try)
}

// try starts the server. It reports whether it is this process that answers at
// the port: another one may have taken it.
func (s *Server) try() bool {
	//nolint:gosec // the arguments are our own
	s.cmd = exec.CommandContext(s.tb.Context(), "redis-server", "--port", s.port, "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--dir", s.tb.TempDir())
	if err := s.cmd.Start(); err != nil {
		s.tb.Fatalf("starting redis-server: %v", err)
	}
	ours := "process_id:" + strconv.Itoa(s.cmd.Process.Pid) + "\r\n"
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if strings.Contains(s.Say("INFO server"), ours) {
			return true
		}
	}
	s.Kill()
	return false
}

// Kill ends it as a power cut would.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Say sends one inline command and returns the beginning of the answer, empty
// when nobody answers.
func (s *Server) Say(command string) string {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(s.tb.Context(), "tcp", "127.0.0.1:"+s.port)
	if err != nil {
		return ""
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte(command + "\r\n")); err != nil {
		return ""
	}
	answer := make([]byte, 1<<16)
	n, err := c.Read(answer)
	if err != nil {
		return ""
	}
	return string(answer[:n])
}

// Eventually waits for what another process does; nothing tells us when.
func Eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	tb.Fatalf("it never came that %s", what)
}
