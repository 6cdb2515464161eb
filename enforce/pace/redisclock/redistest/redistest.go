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
	t    testing.TB
	port string
	cmd  *exec.Cmd
}

// Start starts a server, and stops it when the test ends. Without redis-server on
// this machine the test is skipped, unless CRAWLGATE_REQUIRE_ALL=1.
func Start(t testing.TB) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CRAWLGATE_REQUIRE_ALL") == "1" {
			t.Fatalf("redis-server is required: %v", err)
		}
		t.Skipf("redis-server is not installed: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, port: port}
	s.Start()
	t.Cleanup(s.Kill)
	return s
}

// URL is that of the server.
func (s *Server) URL() string { return "redis://127.0.0.1:" + s.port }

// Start starts the server again, with an empty memory and waits until it answers.
func (s *Server) Start() {
	s.t.Helper()
	s.cmd = exec.Command("redis-server", "--port", s.port, "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--dir", s.t.TempDir())
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("starting redis-server: %v", err)
	}
	Eventually(s.t, "redis-server answers", func() bool {
		return strings.HasPrefix(s.Say("PING"), "+PONG")
	})
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
	c, err := net.DialTimeout("tcp", "127.0.0.1:"+s.port, time.Second)
	if err != nil {
		return ""
	}
	defer c.Close()
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
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("it never came that %s", what)
}
