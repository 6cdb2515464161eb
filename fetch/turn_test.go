package fetch

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// turnLog is a Turn that notes what it is told, and may hold answers back.
type turnLog struct {
	mu    sync.Mutex
	calls []string
	hold  func(context.Context)
}

func (l *turnLog) note(call string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, call)
}

func (l *turnLog) Asked() { l.note("asked") }

func (l *turnLog) Answered(ctx context.Context) {
	l.note("answered")
	if l.hold != nil {
		l.hold(ctx)
	}
}

func (l *turnLog) want(t *testing.T, calls ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.calls, calls) {
		t.Errorf("told %v, want %v", l.calls, calls)
	}
}

// TestExt_TurnIsToldOfEachHop: a retrieval waits for each answer anew, and for the
// made-up path of a soft 404.
func TestExt_TurnIsToldOfEachHop(t *testing.T) {
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
	l := &turnLog{}
	tr := realTransport(t)
	tr.DisableKeepAlives = true
	out := New(Config{Transport: tr, Soft404: true}).Fetch(WithTurn(t.Context(), l), mustOrigin(t, "http://"+addr))
	want{KindAbsent, CauseSoft404}.check(t, out)
	l.want(t, "asked", "answered", "asked", "answered", "asked", "answered")
}

// TestExt_TurnOfAHangingServer: who never answers is never told of.
func TestExt_TurnOfAHangingServer(t *testing.T) {
	t.Parallel()
	addr := rawServer(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	l := &turnLog{}
	out := New(Config{Transport: realTransport(t), HeaderTimeout: 50 * time.Millisecond}).
		Fetch(WithTurn(t.Context(), l), mustOrigin(t, "http://"+addr))
	want{KindUnreachable, CauseTimeout}.check(t, out)
	l.want(t, "asked")
}

// TestExt_TurnHoldsTheAnswerBack: nothing is read before it is the retrieval's turn,
// however much the server sends; the end of the context ends the wait.
func TestExt_TurnHoldsTheAnswerBack(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	addr := rawServer(t, func(conn net.Conn) {
		_ = conn.(*net.TCPConn).SetWriteBuffer(1 << 10)
		if n, err := conn.Read(make([]byte, 1<<10)); n == 0 {
			t.Error(err)
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		for {
			n, err := conn.Write(make([]byte, 64<<10))
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	l := &turnLog{hold: func(ctx context.Context) {
		time.Sleep(100 * time.Millisecond) // the server's, to send what it can
		leave()
		<-ctx.Done()
	}}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
		}
		return c, err
	}
	tr := realTransport(t)
	tr.DialContext = dial
	out := New(Config{Transport: tr}).Fetch(WithTurn(ctx, l), mustOrigin(t, "http://"+addr))
	want{KindUnreachable, CauseCanceled}.check(t, out)
	// The buffers of the two kernels, and one of net/http, are all that is filled.
	if n := sent.Load(); n > 400<<10 {
		t.Errorf("%d octets were taken before the turn", n)
	}
	l.want(t, "asked", "answered")
}

func TestExt_TurnOfFTP(t *testing.T) {
	t.Parallel()
	l := &turnLog{}
	addr := testorigin.StartFTP(t, ftpSite(rules))
	f := New(Config{Transport: ftpTransport(t)})
	want{KindRules, ""}.check(t, f.Fetch(WithTurn(t.Context(), l), mustOrigin(t, "ftp://"+addr)))
	l.want(t, "asked", "answered")
}

// TestExt_FaultsOfOurOwn: what the machine lacks is no failure of the site's.
func TestExt_FaultsOfOurOwn(t *testing.T) {
	t.Parallel()
	fetchWith := func(err error) Outcome {
		rt := roundTripper(func(*http.Request) (*http.Response, error) { return nil, err })
		return New(Config{Transport: rt}).Fetch(t.Context(), mustOrigin(t, "http://a.example"))
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
