// Package redistest starts servers of Redis or Valkey for tests.
package redistest

import (
	"bufio"
	"cmp"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// Server is a server on a free loopback port, for one test.
type Server struct {
	tb      testing.TB
	program string
	dir     string
	port    string
	options []string
	cmd     *exec.Cmd
}

// Program returns the server's program: redis-server, or the one that CRAWLGATE_REDIS_SERVER names,
// such as valkey-server. If it is missing, the test is skipped, or fails with
// CRAWLGATE_REQUIRE_ALL=1.
func Program(tb testing.TB) string {
	tb.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv("CRAWLGATE_REDIS_SERVER"), "redis-server"))
	if err != nil && os.Getenv("CRAWLGATE_REQUIRE_ALL") == "1" {
		tb.Fatalf("a redis server is required: %v", err)
	}
	if err != nil {
		tb.Skipf("there is no redis server: %v", err)
	}
	return path
}

// Start starts a server with further options, such as "--appendonly", "yes", and stops it when the
// test ends. Its files are in a folder of the test, where it finds them after a restart. Without
// options it keeps nothing.
func Start(tb testing.TB, options ...string) *Server {
	tb.Helper()
	s := &Server{tb: tb, program: Program(tb), dir: tb.TempDir(), port: freePort(tb), options: options}
	tb.Cleanup(s.Kill)
	s.Start()
	return s
}

// freePort returns a port that the kernel gives to no other process during the test.
func freePort(tb testing.TB) string {
	tb.Helper()
	return strconv.Itoa(int(testorigin.ReservePort(tb)))
}

// Addr returns the address of the server.
func (s *Server) Addr() string { return "127.0.0.1:" + s.port }

// URL returns the URL of the server.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Dir returns the folder of the server's files.
func (s *Server) Dir() string { return s.dir }

// Start starts the server again with its files, and waits until it answers.
func (s *Server) Start() {
	s.tb.Helper()
	Eventually(s.tb, s.program+" has its port", s.try)
}

// try starts the server. It reports whether this process answers at the port, which another one may
// have taken.
func (s *Server) try() bool {
	//nolint:gosec,noctx // the arguments are our own, and the test ends it
	s.cmd = exec.Command(s.program, append([]string{
		"--port", s.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.dir,
	}, s.options...)...)
	if err := s.cmd.Start(); err != nil {
		s.tb.Fatalf("starting %s: %v", s.program, err)
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

// Remember writes an era in every bucket of the clocks, under the default prefix and the given
// ones, in the given number of databases. A gateway then sees a server that has kept its memory.
func (s *Server) Remember(databases int, prefixes ...string) {
	s.tb.Helper()
	for _, prefix := range append(prefixes, "crawlgate") {
		answer := s.Say(`EVAL "for db = 1, ` + strconv.Itoa(databases) + ` do redis.call('SELECT', db - 1) for i = 0, 1023 do ` +
			`redis.call('HSET', '{` + prefix + `:pace:' .. i .. '}:era', 'since', 1) end end return 1" 0`)
		if answer != ":1\r\n" {
			s.tb.Fatalf("noting the eras: %q", answer)
		}
	}
}

// Kill kills the server, like a power cut.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Say sends one inline command and returns the raw answer, or "" without an answer.
func (s *Server) Say(command string) string {
	c, err := (&net.Dialer{Timeout: time.Second}).Dial("tcp", s.Addr())
	if err != nil {
		return ""
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write([]byte(command + "\r\n")); err != nil {
		return ""
	}
	var answer strings.Builder
	if err := readReply(bufio.NewReader(c), &answer); err != nil {
		return ""
	}
	return answer.String()
}

// readReply copies one reply of the protocol.
func readReply(r *bufio.Reader, to *strings.Builder) error {
	line, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	to.WriteString(line)
	n, _ := strconv.ParseInt(strings.TrimSpace(line[1:]), 10, 64) // 0 for anything but a number
	switch {
	case line[0] == '$' && n >= 0:
		_, err = io.CopyN(to, r, n+2)
	case line[0] == '*':
		for ; n > 0 && err == nil; n-- {
			err = readReply(r, to)
		}
	}
	return err
}

// Eventually polls until ok returns true. It waits for what another process does without notice.
func Eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	tb.Fatalf("timed out waiting for: %s", what)
}
