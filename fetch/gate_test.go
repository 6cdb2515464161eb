package fetch

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// openGate counts answers, and checks that a fetch has finished one before the next comes.
type openGate struct {
	tb    testing.TB
	calls int
	last  context.Context
}

func (g *openGate) pass(ctx context.Context) {
	if g.last != nil && g.last.Err() == nil {
		g.tb.Error("two answers of one fetch are read at once")
	}
	g.calls, g.last = g.calls+1, ctx
}

// want checks the number of answers, and that none is still being read.
func (g *openGate) want(calls int) {
	g.tb.Helper()
	if g.calls != calls || g.last != nil && g.last.Err() == nil {
		g.tb.Errorf("%d answers, want %d; the last is still being read: %v", g.calls, calls, g.last != nil && g.last.Err() == nil)
	}
}

// TestExt_GateOfEachHop checks that each answer passes the gate, even for the made-up path of the
// soft 404 probe.
func TestExt_GateOfEachHop(t *testing.T) {
	t.Parallel()
	addr := rawServer(t, func(conn net.Conn) {
		line := make([]byte, 1<<10)
		n, _ := conn.Read(line)
		switch text := string(line[:n]); {
		case strings.HasPrefix(text, "GET /robots.txt "):
			_, _ = io.WriteString(conn, "HTTP/1.1 302 Found\r\nLocation: /next\r\nContent-Length: 0\r\n\r\n")
		default:
			page := "<h1>Page not found</h1>"
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 500 Oops\r\nContent-Length: %d\r\n\r\n%s", len(page), page)
		}
	})
	g := &openGate{tb: t}
	tr := realTransport(t)
	tr.DisableKeepAlives = true
	out := New(Config{Transport: tr, Soft404: true}).Fetch(t.Context(), mustKey(t, "http://"+addr), g.pass)
	want{KindAbsent, CauseSoft404}.check(t, out)
	g.want(3)
}

// TestExt_GateOfAHangingServer checks that a server that never answers needs no gate.
func TestExt_GateOfAHangingServer(t *testing.T) {
	t.Parallel()
	addr := rawServer(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	g := &openGate{tb: t}
	out := New(Config{Transport: realTransport(t), Timeout: 50 * time.Millisecond}).
		Fetch(t.Context(), mustKey(t, "http://"+addr), g.pass)
	want{KindUnreachable, CauseTimeout}.check(t, out)
	g.want(0)
}

// TestExt_GateHoldsTheAnswerBack checks that nothing is read before the gate opens, however much
// the server sends, and that the end of the context ends the wait.
func TestExt_GateHoldsTheAnswerBack(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	stuck := make(chan struct{}) // closed when the server cannot send more
	addr := rawServer(t, func(conn net.Conn) {
		defer close(stuck)
		_ = conn.(*net.TCPConn).SetWriteBuffer(1 << 10)
		if n, err := conn.Read(make([]byte, 1<<10)); n == 0 {
			t.Error(err)
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		for sent.Load() < 4<<20 {
			_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			n, err := conn.Write(make([]byte, 64<<10))
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	calls := 0
	gate := func(ctx context.Context) {
		calls++
		<-stuck
		leave()
		<-ctx.Done()
	}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
		}
		return c, err
	}
	tr := realTransport(t)
	tr.DialContext = dial
	out := New(Config{Transport: tr}).Fetch(ctx, mustKey(t, "http://"+addr), gate)
	want{KindUnreachable, CauseCanceled}.check(t, out)
	// Only the buffers of the two kernels and one of net/http may be filled.
	if n := sent.Load(); n > 400<<10 {
		t.Errorf("the server sent %d bytes before the gate opened, want at most 400 KiB", n)
	}
	if calls != 1 {
		t.Errorf("the gate got %d calls, want 1", calls)
	}
}

// TestExt_GateInTheLimit checks that the time at the gate counts for the limit of a fetch.
func TestExt_GateInTheLimit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name              string
		first, gate, rest time.Duration // until the first byte, at the gate, until the end of the header
		want              want
	}{
		{"in time", 3 * time.Second, 9 * time.Second, 7 * time.Second, want{KindRules, ""}},
		{"late in all", 7 * time.Second, 7 * time.Second, 7 * time.Second, want{KindUnreachable, CauseTimeout}},
		{"too late at the gate", 3 * time.Second, time.Hour, 0, want{KindUnreachable, CauseTimeout}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				read := make(chan struct{}) // closed when the gate has opened
				tr := pipeTransport(t, func(conn net.Conn) {
					request(conn)
					time.Sleep(tt.first)
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
					<-read
					time.Sleep(tt.rest)
					_, _ = io.WriteString(conn, "Content-Length: 0\r\n\r\n")
				})
				gate := func(ctx context.Context) {
					defer close(read)
					select {
					case <-time.After(tt.gate):
					case <-ctx.Done():
					}
				}
				out := New(Config{Transport: tr}).Fetch(t.Context(), mustKey(t, "http://a.example"), gate)
				tt.want.check(t, out)
				if out.Duration > 20*time.Second {
					t.Errorf("the fetch took %v, want at most 20s", out.Duration)
				}
			})
		})
	}
}

func TestExt_GateOfFTP(t *testing.T) {
	t.Parallel()
	g := &openGate{tb: t}
	addr := testorigin.StartFTP(t, ftpSite(rules))
	f := New(Config{Transport: ftpTransport(t)})
	want{KindRules, ""}.check(t, f.Fetch(t.Context(), mustKey(t, "ftp://"+addr), g.pass))
	g.want(1)
}

// TestExt_FaultsOfOurOwn checks that a lack of this machine's resources is no failure of the site.
func TestExt_FaultsOfOurOwn(t *testing.T) {
	t.Parallel()
	fetchWith := func(err error) Outcome {
		rt := roundTripper(func(*http.Request) (*http.Response, error) { return nil, err })
		return New(Config{Transport: rt}).Fetch(t.Context(), mustKey(t, "http://a.example"), nil)
	}
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for _, err := range []error{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL, syscall.ENETUNREACH, syscall.ENETDOWN,
		dial(fmt.Errorf("socket: %w", syscall.EMFILE)),
		dial(&net.DNSError{Err: "dial udp 10.9.8.7:53: socket: too many open files", Name: "a.example"}),
	} {
		out := fetchWith(dial(err))
		want{KindUnreachable, CauseLocal}.check(t, out)
		if strings.Contains(out.Detail, "10.9.8.7") {
			t.Errorf("detail %q names the resolver", out.Detail)
		}
	}
	for err, cause := range map[error]Cause{
		syscall.EHOSTUNREACH: CauseConnect, syscall.ECONNREFUSED: CauseConnect, syscall.EACCES: CauseConnect,
		&net.DNSError{Err: "server misbehaving", Name: "a.example"}: CauseDNS,
	} {
		want{KindUnreachable, cause}.check(t, fetchWith(dial(err)))
	}
}
