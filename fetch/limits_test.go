package fetch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Limits use the bubble's clock, so a test of 20 seconds takes no time.

// fetchPipe fetches from serve and returns the outcome and the duration.
func fetchPipe(t *testing.T, cfg Config, serve func(net.Conn)) (Outcome, time.Duration) {
	t.Helper()
	cfg.Transport = pipeTransport(t, serve)
	started := time.Now()
	out := New(cfg).Fetch(t.Context(), mustKey(t, "http://a.example"), nil)
	took := time.Since(started)
	if out.Duration != took || !out.Started.Equal(started) {
		t.Errorf("outcome is from %s for %s, want %s for %s", out.Started, out.Duration, started, took)
	}
	checkOutcome(t, out)
	return out, took
}

// request reads one request, so that the client's writes do not block.
func request(conn net.Conn) *http.Request {
	r := bufio.NewReader(conn)
	req, err := http.ReadRequest(r)
	if err != nil {
		return &http.Request{}
	}
	return req
}

// drip writes s, one byte every pause.
func drip(conn net.Conn, s string, pause time.Duration) {
	for i := range len(s) {
		time.Sleep(pause)
		if _, err := io.WriteString(conn, s[i:i+1]); err != nil {
			return
		}
	}
}

func TestExt_Limits(t *testing.T) {
	t.Parallel()
	const head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
	silent := func(conn net.Conn) { listen(conn) }
	tests := []struct {
		name  string
		cfg   Config
		serve func(net.Conn)
		took  time.Duration
		late  string
	}{
		{"no header", Config{}, silent, 20 * time.Second, "header"},
		{"no header, longer limit", Config{Timeout: time.Minute}, silent, time.Minute, "header"},
		{"no header, shorter limit", Config{Timeout: 7 * time.Second}, silent, 7 * time.Second, "header"},
		{"drip-fed header", Config{}, func(conn net.Conn) {
			request(conn)
			drip(conn, strings.Repeat("X", 1000), 500*time.Millisecond)
		}, 20 * time.Second, "header"},
		{"stalled body", Config{}, func(conn net.Conn) {
			request(conn)
			say(conn, head+"User-agent: *\n")
			silent(conn)
		}, 20 * time.Second, "body"},
		{"stalled body, own limit", Config{Timeout: time.Second}, func(conn net.Conn) {
			request(conn)
			say(conn, head)
			silent(conn)
		}, time.Second, "body"},
		{"stalled chunk", Config{}, func(conn net.Conn) {
			request(conn)
			say(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab")
			silent(conn)
		}, 20 * time.Second, "body"},
		{"stalled coded body", Config{}, func(conn net.Conn) {
			request(conn)
			say(conn, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 100\r\n\r\n\x1f\x8b")
			silent(conn)
		}, 20 * time.Second, "body"},
		{"drip-fed body", Config{}, func(conn net.Conn) {
			request(conn)
			say(conn, head)
			drip(conn, strings.Repeat("#", 1000), 4*time.Second)
		}, 20 * time.Second, "body"},
		{"drip-fed redirects", Config{}, func(conn net.Conn) {
			req := request(conn)
			time.Sleep(4500 * time.Millisecond)
			say(conn, answer(302, "", "Location: "+req.RequestURI+"x", "Connection: close"))
		}, 20 * time.Second, "header"},
		{"drip-fed interim answers", Config{}, func(conn net.Conn) {
			request(conn)
			drip(conn, strings.Repeat("HTTP/1.1 103 E\r\n\r\n", 100), 100*time.Millisecond)
		}, 20 * time.Second, "header"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				out, took := fetchPipe(t, tt.cfg, tt.serve)
				want{KindUnreachable, CauseTimeout}.check(t, out)
				if took != tt.took || !strings.Contains(out.Detail, tt.late) {
					t.Errorf("took %s (%s), want %s for the %s", took, out.Detail, tt.took, tt.late)
				}
			})
		})
	}
}

// TestExt_SlowIsNotBroken checks that a complete answer within the limit is good, however the
// server spends the time.
func TestExt_SlowIsNotBroken(t *testing.T) {
	t.Parallel()
	for name, pauses := range map[string][2]time.Duration{
		"slow header": {19 * time.Second, 0}, "slow body": {0, 9500 * time.Millisecond}, "slow in all": {9 * time.Second, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				out, took := fetchPipe(t, Config{}, func(conn net.Conn) {
					request(conn)
					time.Sleep(pauses[0])
					say(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
					drip(conn, "ab", pauses[1])
				})
				want{KindRules, ""}.check(t, out)
				if string(out.Body) != "ab" || took != pauses[0]+2*pauses[1] {
					t.Errorf("body %q after %s, want ab", out.Body, took)
				}
			})
		})
	}
}

// TestExt_CallerLeaves checks that a caller that gives up is no failure of the origin, in any phase
// and for any cause. A caller's deadline is a limit.
func TestExt_CallerLeaves(t *testing.T) {
	t.Parallel()
	phases := map[string]func(net.Conn){
		"header": func(conn net.Conn) { listen(conn) },
		"body": func(conn net.Conn) {
			request(conn)
			say(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
			listen(conn)
		},
	}
	ways := map[string]struct {
		context func(context.Context) (context.Context, context.CancelFunc)
		cause   Cause
	}{
		"cancel": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, CauseCanceled},
		"cancel with a cause": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(time.Second, func() { cancel(errors.New("shutting down")) })
			return ctx, func() { cancel(nil) }
		}, CauseCanceled},
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, CauseTimeout},
	}
	for phase, serve := range phases {
		for way, tt := range ways {
			t.Run(fmt.Sprintf("%s in the %s", way, phase), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := tt.context(t.Context())
					defer cancel()
					started := time.Now()
					out := New(Config{Transport: pipeTransport(t, serve)}).Fetch(ctx, mustKey(t, "http://a.example"), nil)
					want{KindUnreachable, tt.cause}.check(t, out)
					if took := time.Since(started); took != time.Second {
						t.Errorf("the fetch took %s, want 1s", took)
					}
				})
			})
		}
	}
}

// TestRFC9309_2_5_WholeLines checks that the kept part of a longer file ends with a whole line,
// because half a path is a wider rule than the site wrote. The same text is kept, judged, shown and
// served. A file of one line has no such part and no rule.
func TestRFC9309_2_5_WholeLines(t *testing.T) {
	t.Parallel()
	fill := func(head, tail string) string { return head + strings.Repeat("#", MinSize-len(head)-len(tail)) + tail }
	for _, c := range []struct{ name, file, want string }{
		{"in a path", fill("User-agent: *\n", "\nDisallow: /") + "private/\n", fill("User-agent: *\n", "\nDisallow: /")[:MinSize-len("Disallow: /")]},
		{"CR", fill("User-agent: *\r", "\rDisallow: /") + "x\r", fill("User-agent: *\r", "\rDisallow: /")[:MinSize-len("Disallow: /")]},
		{"behind a line", fill("User-agent: *\n", "\n") + "Disallow: /\n", fill("User-agent: *\n", "\n")},
		{"inside of CRLF", fill("User-agent: *\n", "\r") + "\nDisallow: /\n", fill("User-agent: *\n", "\r")},
		{"a whole file", fill("User-agent: *\n", "\nDisallow: /"), fill("User-agent: *\n", "\nDisallow: /")},
		{"one line", fill("", "") + "x", fill("", "")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out, _ := fetchScript(t, Config{}, map[string]string{"*": answer(200, c.file)})
			want{KindRules, ""}.check(t, out)
			if string(out.Body) != c.want || out.Truncated != (len(c.file) > MinSize) {
				t.Errorf("%d bytes that end in %q, truncated is %v", len(out.Body), out.Body[len(out.Body)-20:], out.Truncated)
			}
		})
	}
}

// TestRFC9309_2_5_SizeLimit checks that the first 500 KiB are the file, and that no more is read
// than necessary to see that there is more.
func TestRFC9309_2_5_SizeLimit(t *testing.T) {
	t.Parallel()
	const limit = MinSize
	tests := []struct {
		name            string
		size, announced int
		maxSize         int
		want            want
		truncated       bool
	}{
		{"one less", limit - 1, limit - 1, 0, want{KindRules, ""}, false},
		{"exactly", limit, limit, 0, want{KindRules, ""}, false},
		{"one more", limit + 1, limit + 1, 0, want{KindRules, ""}, true},
		{"endless", 1 << 40, 1 << 40, 0, want{KindRules, ""}, true},
		{"broken off before", limit - 1, limit, 0, want{KindUnreachable, CauseTruncated}, false},
		{"broken off at the limit", limit, limit + 1, 0, want{KindRules, ""}, true},
		{"broken off behind", limit + 1, limit + 9, 0, want{KindRules, ""}, true},
		{"limit raised", limit + 1, limit + 1, limit + 1, want{KindRules, ""}, false},
		{"limit cannot be lowered", limit, limit, 10, want{KindRules, ""}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			body := &counter{left: tt.size, announced: tt.announced}
			f := New(Config{MaxSize: tt.maxSize, Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 200, ContentLength: int64(tt.announced), Body: body, ProtoMajor: 1, Request: req}, nil
			})})
			out := f.Fetch(t.Context(), mustKey(t, "http://a.example"), nil)
			tt.want.check(t, out)
			most := max(limit, tt.maxSize)
			if out.Truncated != tt.truncated || len(out.Body) > most || (out.Truncated && len(out.Body) != most) {
				t.Errorf("body of %d, truncated is %v", len(out.Body), out.Truncated)
			}
			if body.read > most+1 {
				t.Errorf("%d bytes were read, want at most %d", body.read, most+1)
			}
			if !body.closed {
				t.Error("the body was not closed")
			}
		})
	}
}

// counter is a body of a given size that counts the bytes read from it.
type counter struct {
	left, announced int
	read            int
	closed          bool
}

func (c *counter) Read(p []byte) (int, error) {
	n := min(len(p), c.left)
	for i := range n {
		p[i] = '#'
	}
	c.left -= n
	c.read += n
	switch {
	case n > 0:
		return n, nil
	case c.read < c.announced:
		return 0, io.ErrUnexpectedEOF
	default:
		return 0, io.EOF
	}
}

func (c *counter) Close() error {
	c.closed = true
	return nil
}
