package fetch

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/crawlgate/crawlgate/origin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testAgent = "TestBot/1.0 (+https://bot.example/)"

func mustOrigin(tb testing.TB, rawURL string) origin.Origin {
	tb.Helper()
	o, err := origin.Parse(rawURL)
	if err != nil {
		tb.Fatalf("origin.Parse(%q): %v", rawURL, err)
	}
	return o
}

func mustKey(tb testing.TB, rawURL string) Key {
	tb.Helper()
	return Key{Origin: mustOrigin(tb, rawURL)}
}

// script is a transport that answers from a list of raw responses by URL; "*" stands for all other
// URLs. It checks every request.
type script struct {
	tb      testing.TB
	answers map[string]string
	errs    map[string]error

	mu    sync.Mutex
	asked []string
}

func (s *script) RoundTrip(req *http.Request) (*http.Response, error) {
	checkRequest(s.tb, req)
	u := req.URL.String()
	s.mu.Lock()
	s.asked = append(s.asked, u)
	s.mu.Unlock()
	if err := s.errs[u]; err != nil {
		return nil, err
	}
	raw, ok := s.answers[u]
	if !ok {
		raw, ok = s.answers["*"]
	}
	if !ok {
		s.tb.Errorf("unexpected request for %s", u)
		return nil, io.EOF
	}
	return http.ReadResponse(bufio.NewReader(strings.NewReader(raw)), req)
}

// checkRequest checks that a request is a non-conditional GET (Google's specification) and reveals
// nothing but the agent.
func checkRequest(tb testing.TB, req *http.Request) {
	tb.Helper()
	if req.Method != http.MethodGet || req.Body != nil {
		tb.Errorf("request is %s with body %v, want a bare GET", req.Method, req.Body)
	}
	allowed := map[string]bool{"User-Agent": true, "Accept": true, "Accept-Encoding": true}
	for name := range req.Header {
		if !allowed[name] {
			tb.Errorf("request has the header field %s", name)
		}
	}
	if got := req.Header.Get("Accept-Encoding"); got != "gzip, br, zstd, deflate" {
		tb.Errorf("Accept-Encoding = %q", got)
	}
	if req.URL.User != nil || req.URL.Fragment != "" {
		tb.Errorf("request for %s, want no user information or fragment", req.URL)
	}
}

// answer returns a raw HTTP/1.1 response with a Content-Length.
func answer(status int, body string, header ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d Some Reason\r\n", status)
	for _, line := range header {
		b.WriteString(line + "\r\n")
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
	return b.String()
}

// fetchScript fetches http://a.example/robots.txt.
func fetchScript(tb testing.TB, cfg Config, answers map[string]string) (Outcome, *script) {
	tb.Helper()
	s := &script{tb: tb, answers: answers}
	cfg.Transport = s
	return New(cfg).Fetch(tb.Context(), mustKey(tb, "http://a.example"), nil), s
}

// rawServer accepts connections on loopback and passes each to serve, which owns it until it
// returns. It returns the server's host:port.
func rawServer(tb testing.TB, serve func(net.Conn)) string {
	tb.Helper()
	ln, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer hangUp(conn)
				serve(conn)
			})
		}
	})
	tb.Cleanup(func() {
		hangUp(ln)
		wg.Wait()
	})
	return ln.Addr().String()
}

// The servers of these tests ignore errors of their connections, because the fetcher may leave at
// any time.

func say(w io.Writer, s string) { _, _ = io.WriteString(w, s) }

func listen(r io.Reader) { _, _ = io.Copy(io.Discard, r) }

func hangUp(c io.Closer) { _ = c.Close() }

func hangUpHard(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) } // Close then sends a reset

// replying returns a serve function that reads a request and writes raw.
func replying(raw string) func(net.Conn) {
	return func(conn net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			return
		}
		say(conn, raw)
	}
}

// realTransport returns a transport like egress's, without the guard.
func realTransport(tb testing.TB) *http.Transport {
	tb.Helper()
	t := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
		ForceAttemptHTTP2:      true,
	}
	tb.Cleanup(t.CloseIdleConnections)
	return t
}

// fetchReal fetches over real connections.
func fetchReal(tb testing.TB, rawURL string) Outcome {
	tb.Helper()
	return New(Config{Transport: realTransport(tb)}).Fetch(tb.Context(), mustKey(tb, rawURL), nil)
}

// pipeTransport returns an http.Transport whose connections are pipes to serve, for tests in a
// synctest bubble.
func pipeTransport(tb testing.TB, serve func(net.Conn)) *http.Transport {
	tb.Helper()
	var servers sync.WaitGroup
	t := &http.Transport{
		DisableCompression: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			servers.Go(func() {
				defer hangUp(server)
				serve(server)
			})
			return client, nil
		},
	}
	tb.Cleanup(func() {
		t.CloseIdleConnections()
		servers.Wait()
	})
	return t
}

// want is the expected kind and cause of an outcome.
type want struct {
	kind  Kind
	cause Cause
}

func (w want) check(tb testing.TB, out Outcome) {
	tb.Helper()
	if out.Kind != w.kind || out.Cause != w.cause {
		tb.Errorf("outcome is %s/%s (%s), want %s/%s", out.Kind, out.Cause, out.Detail, w.kind, w.cause)
	}
	checkOutcome(tb, out)
}

// checkOutcome checks the invariants of every outcome.
func checkOutcome(tb testing.TB, out Outcome) {
	tb.Helper()
	if out.Kind != KindRules && (out.Body != nil || out.Truncated) {
		tb.Errorf("outcome %s has a body", out.Kind)
	}
	if (out.Kind == KindRules) != (out.Cause == "") {
		tb.Errorf("outcome %s has cause %q", out.Kind, out.Cause)
	}
	if len(out.Detail) > MaxDetail || strings.ContainsFunc(out.Detail, func(r rune) bool { return r < ' ' || r > '~' }) {
		tb.Errorf("the detail %q is not one line of printable ASCII within the bound", out.Detail)
	}
	if out.RetryAfter < 0 || out.RetryAfter > maxRetryAfter || out.MaxAge < 0 {
		tb.Errorf("RetryAfter %s, MaxAge %s", out.RetryAfter, out.MaxAge)
	}
}

// allCauses lists every non-empty cause, in the order of their declaration.
func allCauses() []Cause {
	return []Cause{
		CauseStatus, CauseRedirects, CauseSoft404, CauseDNS, CauseConnect, CauseTLS,
		CauseTimeout, CauseReset, CauseTruncated, CauseEncoding, CauseProtocol,
		CauseForbiddenAddress, CauseForbiddenPort, CauseOwnListener, CauseFTP, CauseLocal, CauseUpstream, CauseCanceled,
	}
}
