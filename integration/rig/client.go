package rig

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// Patience bounds every exchange of a test with the gateway.
const Patience = 60 * time.Second

// Client returns a Go client that sends everything through the gateway, loopback targets included.
func (g *Gateway) Client(userAgent string) *http.Client {
	proxy := &url.URL{Scheme: "http", Host: g.Addr}
	base := &http.Transport{Proxy: http.ProxyURL(proxy), MaxIdleConnsPerHost: 256, DisableCompression: true}
	g.T.Cleanup(base.CloseIdleConnections)
	return &http.Client{
		Transport:     &AgentTransport{userAgent, base},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       Patience,
	}
}

// AgentTransport sends every request with its own User-Agent.
type AgentTransport struct {
	UserAgent string
	Base      *http.Transport
}

// RoundTrip implements [http.RoundTripper].
func (a *AgentTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("User-Agent", a.UserAgent)
	return a.Base.RoundTrip(r)
}

// CloseIdleConnections closes the connections that are kept; [http.Client.CloseIdleConnections]
// calls it.
func (a *AgentTransport) CloseIdleConnections() { a.Base.CloseIdleConnections() }

// Answer is a whole response, read.
type Answer struct {
	Status int
	Reason string // the reason phrase
	Header http.Header
	Body   string
}

// Get requests a URL and reads the answer. An error ends the test.
func Get(t *testing.T, c *http.Client, rawURL string) Answer {
	t.Helper()
	a, err := TryGet(t.Context(), c, rawURL)
	if err != nil {
		t.Fatalf("GET %s: %v", rawURL, err)
	}
	return a
}

// TryGet requests a URL and reads the answer.
func TryGet(ctx context.Context, c *http.Client, rawURL string) (Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, rawURL, http.NoBody)
	if err != nil {
		return Answer{}, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return Answer{}, err
	}
	return ReadAnswer(resp)
}

// ReadAnswer reads a response to its end and closes its body.
func ReadAnswer(resp *http.Response) (Answer, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	_, reason, _ := cutStatus(resp.Status)
	return Answer{resp.StatusCode, reason, resp.Header, string(body)}, err
}

// cutStatus splits "403 Forbidden".
func cutStatus(status string) (code, reason string, ok bool) {
	if len(status) < 4 {
		return status, "", false
	}
	return status[:3], status[4:], true
}

// Wire is a connection on which a test writes raw bytes.
type Wire struct {
	net.Conn
	Reader *bufio.Reader
}

// Dial connects to the gateway.
func (g *Gateway) Dial() *Wire {
	g.T.Helper()
	conn, err := (&net.Dialer{}).DialContext(g.T.Context(), "tcp", g.Addr)
	if err != nil {
		g.T.Fatal(err)
	}
	g.T.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(Patience))
	return &Wire{conn, bufio.NewReader(conn)}
}

// Read reads from the buffer of Ask and then from the connection.
func (w *Wire) Read(p []byte) (int, error) { return w.Reader.Read(p) }

// Ask sends bytes and reads one response to the method.
func (w *Wire) Ask(method, raw string) (Answer, error) {
	if _, err := io.WriteString(w, raw); err != nil {
		return Answer{}, fmt.Errorf("writing: %w", err)
	}
	resp, err := http.ReadResponse(w.Reader, &http.Request{Method: method})
	if err != nil {
		return Answer{}, err
	}
	return ReadAnswer(resp)
}

// Fetch requests an absolute URL of any scheme, exactly as written, on a new connection.
func (g *Gateway) Fetch(userAgent, rawURL string) (Answer, error) {
	g.T.Helper()
	w := g.Dial()
	defer w.Close()
	return w.Ask(http.MethodGet, "GET "+rawURL+" HTTP/1.1\r\nHost: "+HostOf(rawURL)+"\r\nUser-Agent: "+userAgent+"\r\n\r\n")
}

// Through returns two ways to request a path of an authority through the gateway: in absolute form,
// and as plain HTTP in a tunnel.
func (g *Gateway) Through(method, authority, path string) map[string]func() (Answer, error) {
	request := func(target string) string {
		return method + " " + target + " HTTP/1.1\r\nHost: " + authority + "\r\nUser-Agent: Tester/1.0\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
	}
	return map[string]func() (Answer, error){
		"absolute form": func() (Answer, error) {
			w := g.Dial()
			defer w.Close()
			return w.Ask(method, request("http://"+authority+path))
		},
		"tunnel": func() (Answer, error) {
			w := g.Dial()
			defer w.Close()
			resp := w.Connect(g.T, authority, "Tester/1.0")
			if resp.StatusCode != http.StatusOK {
				return ReadAnswer(resp)
			}
			return w.Ask(method, request(path))
		},
	}
}

// HostOf returns the host and port of a URL.
func HostOf(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return u.Host
}

// Robots runs a command of `crawlgate robots` against the gateway, and returns its output.
func (g *Gateway) Robots(command string, args ...string) (string, error) {
	g.T.Helper()
	return RunBinary(g.T, append([]string{"robots", command, "--gateway", "unix/" + g.AdminSocket()}, args...)...)
}

// RunBinary runs the binary to its end, and returns its output.
func RunBinary(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), Binary, args...).CombinedOutput()
	return string(out), err
}

// MustFetch is like Fetch, but an error ends the test.
func (g *Gateway) MustFetch(userAgent, rawURL string) Answer {
	g.T.Helper()
	a, err := g.Fetch(userAgent, rawURL)
	if err != nil {
		g.T.Fatalf("GET %s: %v", rawURL, err)
	}
	return a
}

// Admin requests a path from the admin endpoint and reads the answer. An error ends the test.
func (g *Gateway) Admin(path string) Answer {
	g.T.Helper()
	a, err := g.TryAdmin(g.T.Context(), path)
	if err != nil {
		g.T.Fatal(err)
	}
	return a
}

// TryAdmin requests a path from the admin endpoint and reads the answer.
func (g *Gateway) TryAdmin(ctx context.Context, path string) (Answer, error) {
	resp, err := g.AskAdmin(ctx, path)
	if err != nil {
		return Answer{}, err
	}
	return ReadAnswer(resp)
}

// Authority returns the gateway's CA for intercepted tunnels, as clients get it.
func (g *Gateway) Authority() *x509.CertPool {
	g.T.Helper()
	pool := x509.NewCertPool()
	if a := Get(g.T, http.DefaultClient, "http://"+g.Addr+"/ca.crt"); !pool.AppendCertsFromPEM([]byte(a.Body)) {
		g.T.Fatalf("/ca.crt is not a certificate: status %d, %s", a.Status, a.Body)
	}
	return pool
}

// Usage is the time and memory that a process has used so far.
type Usage struct {
	Cpu     time.Duration
	PeakRSS int64 // bytes
}

// Usage reads the usage of the gateway's process from the system.
func (g *Gateway) Usage() Usage {
	g.T.Helper()
	u, err := usageOf(g.Cmd.Process.Pid)
	if err != nil {
		g.T.Fatal(err)
	}
	return u
}

func usageOf(pid int) (u Usage, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	// Fields count from the closing bracket of the command, which may contain blanks; utime and
	// stime are 14 and 15.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	for _, f := range fields[11:13] {
		ticks, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return u, err
		}
		u.Cpu += time.Duration(ticks) * 10 * time.Millisecond
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			u.PeakRSS = kib << 10
			return u, err
		}
	}
	return u, errors.New("no VmHWM")
}

// TunnelRules are rules that leave one crawler unrestricted.
const TunnelRules = "User-agent: Free\nDisallow:\n\nUser-agent: *\nDisallow: /private\n"

// Connect sends a CONNECT and returns its answer. If the status is 200, the connection is the
// tunnel.
func (w *Wire) Connect(t *testing.T, authority, userAgent string) *http.Response {
	t.Helper()
	head := "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n"
	if userAgent != "" {
		head += "User-Agent: " + userAgent + "\r\n"
	}
	return w.Handshake(t, head+"\r\n")
}

// Handshake sends the bytes of a CONNECT.
func (w *Wire) Handshake(t *testing.T, raw string) *http.Response {
	t.Helper()
	if _, err := io.WriteString(w, raw); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(w.Reader, &http.Request{Method: http.MethodConnect})
	if err != nil {
		t.Fatalf("CONNECT: %v", err)
	}
	return resp
}

// Over starts TLS inside the tunnel.
func (w *Wire) Over(t *testing.T, config *tls.Config) (*Wire, error) {
	t.Helper()
	conn := tls.Client(w, config)
	if err := conn.HandshakeContext(t.Context()); err != nil {
		return nil, err
	}
	return &Wire{conn, bufio.NewReader(conn)}, nil
}

// NewTunnelGateway starts a gateway that trusts the CA of the origins.
func NewTunnelGateway(t *testing.T, server *testorigin.Server, site string) *Gateway {
	t.Helper()
	return New(t, Config{Site: site, Egress: "trust_ca " + CAFile(t, server)})
}

// ClientHello returns the first message of a TLS client to a host. It has no server name if the
// host is an address.
func ClientHello(t *testing.T, host string) string {
	t.Helper()
	client, server := net.Pipe()
	go func() { _ = tls.Client(client, &tls.Config{ServerName: host}).HandshakeContext(t.Context()) }()
	hello := make([]byte, 4096)
	n, err := server.Read(hello)
	_, _ = client.Close(), server.Close()
	if err != nil || n < 24 {
		t.Fatalf("%d bytes of a handshake, error %v", n, err)
	}
	return string(hello[:n])
}

// ErrUnread is the error of a connection that the gateway closed without an answer.
var ErrUnread = errors.New("closed before CONNECT was read")

// Unread wraps the errors of a closed connection in [ErrUnread].
func Unread(err error) error {
	for _, closed := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, closed) {
			return fmt.Errorf("%w: %w", ErrUnread, err)
		}
	}
	return err
}
