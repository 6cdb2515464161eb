package integration

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"testing"
	"time"
)

// patience bounds every exchange of a test with the gateway.
const patience = 60 * time.Second

// client is a Go client that sends everything through the gateway, loopback targets included.
func (g *gateway) client(userAgent string) *http.Client {
	proxy := &url.URL{Scheme: "http", Host: g.addr}
	base := &http.Transport{Proxy: http.ProxyURL(proxy), MaxIdleConnsPerHost: 256, DisableCompression: true}
	g.t.Cleanup(base.CloseIdleConnections)
	return &http.Client{
		Transport:     &agentTransport{userAgent, base},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       patience,
	}
}

type agentTransport struct {
	userAgent string
	base      *http.Transport
}

func (a *agentTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("User-Agent", a.userAgent)
	return a.base.RoundTrip(r)
}

// CloseIdleConnections is what http.Client looks for.
func (a *agentTransport) CloseIdleConnections() { a.base.CloseIdleConnections() }

// answer is a whole response, read.
type answer struct {
	status int
	reason string // the reason phrase
	header http.Header
	body   string
}

func get(t *testing.T, c *http.Client, rawURL string) answer {
	t.Helper()
	a, err := tryGet(t.Context(), c, rawURL)
	if err != nil {
		t.Fatalf("GET %s: %v", rawURL, err)
	}
	return a
}

func tryGet(ctx context.Context, c *http.Client, rawURL string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, rawURL, http.NoBody)
	if err != nil {
		return answer{}, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return answer{}, err
	}
	return readAnswer(resp)
}

func readAnswer(resp *http.Response) (answer, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	_, reason, _ := cutStatus(resp.Status)
	return answer{resp.StatusCode, reason, resp.Header, string(body)}, err
}

// cutStatus splits "403 Forbidden".
func cutStatus(status string) (code, reason string, ok bool) {
	if len(status) < 4 {
		return status, "", false
	}
	return status[:3], status[4:], true
}

// wire is a connection on which a test writes its own bytes.
type wire struct {
	net.Conn
	r *bufio.Reader
}

// dial connects to the gateway.
func (g *gateway) dial() *wire {
	g.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(g.t.Context(), "tcp", g.addr)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return &wire{conn, bufio.NewReader(conn)}
}

// Read reads what ask left in the buffer first.
func (w *wire) Read(p []byte) (int, error) { return w.r.Read(p) }

// ask sends bytes and reads one response to the method.
func (w *wire) ask(method, raw string) (answer, error) {
	if _, err := io.WriteString(w, raw); err != nil {
		return answer{}, fmt.Errorf("writing: %w", err)
	}
	resp, err := http.ReadResponse(w.r, &http.Request{Method: method})
	if err != nil {
		return answer{}, err
	}
	return readAnswer(resp)
}

// fetch asks for an absolute URL of any scheme as it is written, on a connection of its own.
func (g *gateway) fetch(userAgent, rawURL string) (answer, error) {
	g.t.Helper()
	w := g.dial()
	defer w.Close()
	return w.ask(http.MethodGet, "GET "+rawURL+" HTTP/1.1\r\nHost: "+hostOf(rawURL)+"\r\nUser-Agent: "+userAgent+"\r\n\r\n")
}

// through asks for a path of an authority through the gateway: by absolute form, and as plain HTTP in a tunnel.
func (g *gateway) through(method, authority, path string) map[string]func() (answer, error) {
	request := func(target string) string {
		return method + " " + target + " HTTP/1.1\r\nHost: " + authority + "\r\nUser-Agent: Tester/1.0\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
	}
	return map[string]func() (answer, error){
		"absolute form": func() (answer, error) {
			w := g.dial()
			defer w.Close()
			return w.ask(method, request("http://"+authority+path))
		},
		"tunnel": func() (answer, error) {
			w := g.dial()
			defer w.Close()
			resp := w.connect(g.t, authority, "Tester/1.0")
			if resp.StatusCode != http.StatusOK {
				return readAnswer(resp)
			}
			return w.ask(method, request(path))
		},
	}
}

func hostOf(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return u.Host
}

// robots runs a command of `crawlgate robots` against the gateway, and returns its output.
func (g *gateway) robots(command string, args ...string) (string, error) {
	g.t.Helper()
	return runBinary(g.t, append([]string{"robots", command, "--address", "unix/" + g.adminSocket()}, args...)...)
}

// runBinary runs the binary to its end, and returns its output.
func runBinary(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput()
	return string(out), err
}

// mustFetch is fetch for a test that cannot go on without an answer.
func (g *gateway) mustFetch(userAgent, rawURL string) answer {
	g.t.Helper()
	a, err := g.fetch(userAgent, rawURL)
	if err != nil {
		g.t.Fatalf("GET %s: %v", rawURL, err)
	}
	return a
}
