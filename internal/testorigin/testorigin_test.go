package testorigin_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const rules = "User-agent: *\nDisallow: /private\nCrawl-delay: 1\n"

// newTransport returns an HTTP/1.1 transport for which every host is a site of server and the only
// CA is the server's.
func newTransport(t *testing.T, server *testorigin.Server) *http.Transport {
	t.Helper()
	transport := &http.Transport{
		DialContext:        server.DialContext,
		TLSClientConfig:    &tls.Config{RootCAs: server.CAPool()},
		DisableCompression: true,
		// The transport's handshakes outlive the requests they are for.
		TLSHandshakeTimeout: 5 * time.Second,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// get returns status and body, or the first error.
func get(ctx context.Context, transport http.RoundTripper, url string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

func mustGet(t *testing.T, transport http.RoundTripper, url string) (status int, body string) {
	t.Helper()
	status, body, err := get(t.Context(), transport, url)
	if err != nil {
		t.Fatalf("GET %s: %v", url, err)
	}
	return status, body
}

// send writes bytes to a site and returns its answer, up to the end of the connection.
func send(t *testing.T, server *testorigin.Server, site *testorigin.Site, raw string) string {
	t.Helper()
	conn := dial(t, server, site)
	if _, err := io.WriteString(conn, raw); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

func dial(t *testing.T, server *testorigin.Server, site *testorigin.Site) net.Conn {
	t.Helper()
	conn, err := server.DialContext(t.Context(), "tcp", site.Origin().HostPort())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// exchange writes one request and reads its response on a connection that stays.
func exchange(t *testing.T, conn net.Conn, r *bufio.Reader, request string) *http.Response {
	t.Helper()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp
}

// recorder is a TB that records failures and panics with them, to test helpers.
type recorder struct{ testing.TB }

func (recorder) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// mustPanic runs f and fails unless it panics with a text that contains want.
func mustPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
			t.Errorf("panic %q, want one with %q", got, want)
		}
	}()
	f()
}
