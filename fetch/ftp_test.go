package fetch

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// ftpServer speaks enough FTP to be asked for one file, and can be told to
// answer any command with something else.
type ftpServer struct {
	replies map[string]string // by command word; "" is the greeting
	file    []byte            // sent after RETR
	cutData bool              // data connection is reset in the middle
	stall   bool              // data connection never ends

	mu       sync.Mutex
	commands []string
}

// serve runs one control connection.
func (s *ftpServer) serve(conn net.Conn) {
	reply := func(word, otherwise string) bool {
		if custom, ok := s.replies[word]; ok {
			say(conn, custom+"\r\n")
			return false
		}
		say(conn, otherwise+"\r\n")
		return true
	}
	if !reply("", "220 ready") {
		return
	}
	var ports []*ftpPort
	defer func() {
		for _, port := range ports {
			port.close()
		}
	}()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		s.mu.Lock()
		s.commands = append(s.commands, lines.Text())
		s.mu.Unlock()
		word, _, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case "USER":
			reply(word, "331 password please")
		case "PASS":
			reply(word, "230 hello")
		case "FEAT":
			reply(word, "211 none")
		case "TYPE":
			reply(word, "200 binary")
		case "EPSV":
			port := newFTPPort()
			ports = append(ports, port)
			reply(word, fmt.Sprintf("229 passive (|||%d|)", port.number()))
		case "PASV":
			port := newFTPPort()
			ports = append(ports, port)
			// The address is a lie: nobody may be led to it.
			reply(word, fmt.Sprintf("227 passive (10,0,0,1,%d,%d)", port.number()>>8, port.number()&255))
		case "RETR":
			if !reply(word, "150 here it comes") {
				continue
			}
			s.transfer(conn, <-ports[len(ports)-1].conns)
			reply("226", "226 done")
		case "QUIT":
			say(conn, "221 bye\r\n")
			return
		default:
			say(conn, "502 what?\r\n")
		}
	}
}

// ftpPort accepts data connections until it is closed.
type ftpPort struct {
	ln    net.Listener
	conns chan net.Conn
}

func newFTPPort() *ftpPort {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	p := &ftpPort{ln: ln, conns: make(chan net.Conn, 1)}
	go func() {
		defer close(p.conns)
		if conn, err := ln.Accept(); err == nil {
			p.conns <- conn
		}
	}()
	return p
}

func (p *ftpPort) number() int { return p.ln.Addr().(*net.TCPAddr).Port }

func (p *ftpPort) close() {
	hangUp(p.ln)
	for conn := range p.conns {
		hangUp(conn)
	}
}

func (s *ftpServer) transfer(control, data net.Conn) {
	defer hangUp(data)
	say(data, string(s.file))
	if s.stall {
		listen(control)
	}
	if s.cutData {
		hangUpHard(data)
	}
}

// dialLog dials for real and notes the addresses.
type dialLog struct {
	mu    sync.Mutex
	addrs []string
	deny  func(n int, address string) error
}

func (d *dialLog) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d.mu.Lock()
	d.addrs = append(d.addrs, address)
	n := len(d.addrs)
	d.mu.Unlock()
	if d.deny != nil {
		if err := d.deny(n, address); err != nil {
			return nil, err
		}
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// fetchFTPFrom runs one retrieval from s.
func fetchFTPFrom(t *testing.T, s *ftpServer, d *dialLog) Outcome {
	t.Helper()
	addr := rawServer(t, s.serve)
	f := New(Config{Transport: noTransport(t), DialFTP: d.dial})
	out := f.Fetch(t.Context(), mustOrigin(t, "ftp://"+addr), testAgent)
	checkOutcome(t, out)
	return out
}

func noTransport(t *testing.T) roundTripper {
	t.Helper()
	return func(req *http.Request) (*http.Response, error) {
		t.Errorf("HTTP request for %s", req.URL)
		return nil, io.EOF
	}
}

func TestSeed000_FTP(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		server *ftpServer
		want   want
	}{
		{"file", &ftpServer{file: []byte(rules)}, want{KindRules, ""}},
		{"empty file", &ftpServer{}, want{KindRules, ""}},
		{"no password asked", &ftpServer{file: []byte(rules), replies: map[string]string{"USER": "230 hello"}}, want{KindRules, ""}},
		{"long greeting", &ftpServer{file: []byte(rules), replies: map[string]string{"PASS": "230-" + strings.Repeat("x\r\n", 1000) + "230 hello"}}, want{KindRules, ""}},
		{"features", &ftpServer{file: []byte(rules), replies: map[string]string{"FEAT": "211-has\r\n UTF8\r\n MLST x\r\n211 end"}}, want{KindRules, ""}},
		{"no EPSV", &ftpServer{file: []byte(rules), replies: map[string]string{"EPSV": "502 no"}}, want{KindRules, ""}},

		{"no file", &ftpServer{replies: map[string]string{"RETR": "550 no such file"}}, want{KindAbsent, CauseFTP}},
		{"busy file", &ftpServer{replies: map[string]string{"RETR": "450 later"}}, want{KindUnreachable, CauseFTP}},
		{"RETR unknown", &ftpServer{replies: map[string]string{"RETR": "502 what?"}}, want{KindUnreachable, CauseFTP}},
		{"bad name", &ftpServer{replies: map[string]string{"RETR": "553 no"}}, want{KindUnreachable, CauseFTP}},
		{"550 to PASV is not about the file", &ftpServer{replies: map[string]string{"EPSV": "550 no", "PASV": "550 no"}}, want{KindUnreachable, CauseFTP}},
		{"550 to PASS is not about the file", &ftpServer{replies: map[string]string{"PASS": "550 no"}}, want{KindUnreachable, CauseFTP}},
		{"550 to TYPE is not about the file", &ftpServer{replies: map[string]string{"TYPE": "550 no"}}, want{KindUnreachable, CauseFTP}},
		{"550 at the end is not about the file", &ftpServer{file: []byte(rules), replies: map[string]string{"226": "550 gone"}}, want{KindUnreachable, CauseTruncated}},
		{"no anonymous user", &ftpServer{replies: map[string]string{"USER": "530 no"}}, want{KindUnreachable, CauseFTP}},
		{"login refused", &ftpServer{replies: map[string]string{"PASS": "530 no"}}, want{KindUnreachable, CauseFTP}},
		{"too many users", &ftpServer{replies: map[string]string{"": "421 later"}}, want{KindUnreachable, CauseFTP}},
		{"no FTP", &ftpServer{replies: map[string]string{"": "HTTP/1.1 400 Bad Request"}}, want{KindUnreachable, CauseProtocol}},
		{"nonsense to USER", &ftpServer{replies: map[string]string{"USER": "hm"}}, want{KindUnreachable, CauseProtocol}},
		{"nonsense to PASV", &ftpServer{replies: map[string]string{"EPSV": "229 hm", "PASV": "227 hm"}}, want{KindUnreachable, CauseProtocol}},
		{"endless greeting", &ftpServer{replies: map[string]string{"": strings.Repeat("220-hello\r\n", 1<<18)}}, want{KindUnreachable, CauseProtocol}},
		{"endless line", &ftpServer{replies: map[string]string{"USER": "331 " + strings.Repeat("x", 1<<20)}}, want{KindUnreachable, CauseProtocol}},
		{"aborted", &ftpServer{file: []byte(rules), replies: map[string]string{"226": "426 aborted"}}, want{KindUnreachable, CauseTruncated}},
		{"local error", &ftpServer{file: []byte(rules), replies: map[string]string{"226": "451 disk"}}, want{KindUnreachable, CauseTruncated}},
		{"data reset", &ftpServer{file: []byte(rules), cutData: true, replies: map[string]string{"226": "426 aborted"}}, want{KindUnreachable, CauseTruncated}},
		{"aborted before the limit", &ftpServer{file: make([]byte, MinSize-1), replies: map[string]string{"226": "426 aborted"}}, want{KindUnreachable, CauseTruncated}},
		{"too long a file", &ftpServer{file: bytes.Repeat([]byte("0123456789"), 100_000)}, want{KindRules, ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := &dialLog{}
			out := fetchFTPFrom(t, tt.server, d)
			tt.want.check(t, out)
			if out.Status != 0 {
				t.Errorf("status %d", out.Status)
			}
			if out.Kind == KindRules {
				if expect := tt.server.file[:min(len(tt.server.file), MinSize)]; !bytes.Equal(out.Body, expect) || out.Truncated != (len(tt.server.file) > MinSize) {
					t.Errorf("body of %d, truncated is %v", len(out.Body), out.Truncated)
				}
			}
			for _, addr := range d.addrs {
				if !strings.HasPrefix(addr, "127.0.0.1:") {
					t.Errorf("dialed %s", addr)
				}
			}
		})
	}
}

// TestRFC9309_2_5_FTPAbortedAtTheLimit: what counts had arrived.
func TestRFC9309_2_5_FTPAbortedAtTheLimit(t *testing.T) {
	t.Parallel()
	out := fetchFTPFrom(t, &ftpServer{file: make([]byte, MinSize), replies: map[string]string{"226": "426 aborted"}}, &dialLog{})
	want{KindRules, ""}.check(t, out)
	if len(out.Body) != MinSize || !out.Truncated {
		t.Errorf("body of %d, truncated is %v", len(out.Body), out.Truncated)
	}
}

func TestSeed000_FTPCommands(t *testing.T) {
	t.Parallel()
	s := &ftpServer{file: []byte(rules)}
	fetchFTPFrom(t, s, &dialLog{})
	s.mu.Lock()
	defer s.mu.Unlock()
	want := []string{"USER anonymous", "PASS anonymous@", "FEAT", "TYPE I", "EPSV", "RETR /robots.txt"}
	if got := s.commands; len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
		t.Errorf("commands %q", got)
	}
}

// TestExt_FTPGuard: both connections pass the guard, and it is what refuses them.
func TestExt_FTPGuard(t *testing.T) {
	t.Parallel()
	for refused := 1; refused <= 2; refused++ {
		d := &dialLog{deny: func(n int, _ string) error {
			if n == refused {
				return &net.OpError{Op: "dial", Err: guardError{}}
			}
			return nil
		}}
		want{KindUnreachable, CauseForbiddenAddress}.check(t, fetchFTPFrom(t, &ftpServer{file: []byte(rules)}, d))
		if len(d.addrs) < refused {
			t.Errorf("dialed %q", d.addrs)
		}
	}
}

func TestExt_FTPFailures(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err  error
		want want
	}{
		"dns":     {&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host"}}, want{KindUnreachable, CauseDNS}},
		"refused": {&net.OpError{Op: "dial", Err: errors.New("connection refused")}, want{KindUnreachable, CauseConnect}},
	} {
		d := &dialLog{deny: func(int, string) error { return tt.err }}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.want.check(t, fetchFTPFrom(t, &ftpServer{}, d))
		})
	}
	t.Run("not configured", func(t *testing.T) {
		t.Parallel()
		out := New(Config{Transport: noTransport(t)}).Fetch(t.Context(), mustOrigin(t, "ftp://a.example"), testAgent)
		want{KindUnreachable, CauseFTP}.check(t, out)
	})
}

// TestExt_FTPLimits runs on the bubble's clock, over pipes: their peers have no
// TCP address, which a session must survive as well.
func TestExt_FTPLimits(t *testing.T) {
	t.Parallel()
	login := func(conn net.Conn) {
		r := bufio.NewReader(conn)
		for _, reply := range []string{"331 pass", "230 hello", "211 none", "200 binary", "229 (|||99|)", "150 comes"} {
			_, _ = r.ReadString('\n')
			say(conn, reply+"\r\n")
		}
	}
	greet := func(conn net.Conn) { say(conn, "220 ready\r\n") }
	silent := func(conn net.Conn) { listen(conn) }
	tests := []struct {
		name          string
		control, data func(net.Conn)
		want          want
		took          time.Duration
	}{
		{"no greeting", silent, nil, want{KindUnreachable, CauseTimeout}, 10 * time.Second},
		{"no reply", func(conn net.Conn) {
			greet(conn)
			silent(conn)
		}, nil, want{KindUnreachable, CauseTimeout}, 10 * time.Second},
		{"stalled data", func(conn net.Conn) {
			greet(conn)
			login(conn)
			silent(conn)
		}, func(conn net.Conn) {
			say(conn, "User-agent")
			silent(conn)
		}, want{KindUnreachable, CauseTimeout}, 5 * time.Second},
		{"drip-fed data", func(conn net.Conn) {
			greet(conn)
			login(conn)
			silent(conn)
		}, func(conn net.Conn) { drip(conn, strings.Repeat("#", 100), 4*time.Second) }, want{KindUnreachable, CauseTimeout}, 20 * time.Second},
		{"drip-fed greeting", func(conn net.Conn) { drip(conn, strings.Repeat("2", 100), 9*time.Second) }, nil, want{KindUnreachable, CauseTimeout}, 20 * time.Second},
		{"no end of transfer", func(conn net.Conn) {
			greet(conn)
			login(conn)
			silent(conn)
		}, func(net.Conn) {}, want{KindUnreachable, CauseTimeout}, 10 * time.Second},
		{"all well", func(conn net.Conn) {
			greet(conn)
			login(conn)
			say(conn, "226 done\r\n")
			silent(conn)
		}, func(conn net.Conn) { say(conn, rules) }, want{KindRules, ""}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var servers sync.WaitGroup
				var addrs []string
				f := New(Config{Transport: noTransport(t), DialFTP: func(_ context.Context, _, address string) (net.Conn, error) {
					addrs = append(addrs, address)
					client, server := net.Pipe()
					serve := tt.control
					if len(addrs) == 2 {
						serve = tt.data
					}
					servers.Go(func() {
						defer hangUp(server)
						serve(server)
					})
					return client, nil
				}})
				started := time.Now()
				out := f.Fetch(t.Context(), mustOrigin(t, "ftp://a.example"), testAgent)
				took := time.Since(started)
				servers.Wait()
				tt.want.check(t, out)
				if took != tt.took {
					t.Errorf("took %s, want %s", took, tt.took)
				}
				if expect := []string{"a.example:21", "a.example:99"}; !slices.Equal(addrs, expect[:len(addrs)]) {
					t.Errorf("dialed %q", addrs)
				}
			})
		})
	}
}

// TestExt_FTPCallerLeaves: a session ends with its caller.
func TestExt_FTPCallerLeaves(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	addr := rawServer(t, func(conn net.Conn) {
		cancel()
		listen(conn)
	})
	out := New(Config{Transport: noTransport(t), DialFTP: (&dialLog{}).dial}).Fetch(ctx, mustOrigin(t, "ftp://"+addr), testAgent)
	want{KindUnreachable, CauseCanceled}.check(t, out)
}
