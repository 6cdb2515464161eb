package requests

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestConnectRefusalIsOneSegment reads refusals of CONNECT in one call, because some clients read
// only the first segment.
func TestConnectRefusalIsOneSegment(t *testing.T) {
	t.Parallel()
	g := rig.NewTunnelGateway(t, testorigin.Start(t, testorigin.Config{}), "connect deny")
	for range 50 { // a single read may get two segments
		w := g.Dial()
		if _, err := io.WriteString(w, "CONNECT 127.0.0.1:443 HTTP/1.1\r\nHost: 127.0.0.1:443\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		first := make([]byte, 64<<10)
		n, err := w.Conn.Read(first)
		rest, _ := io.ReadAll(w.Conn)
		if head, body, _ := strings.Cut(string(first[:n]), "\r\n\r\n"); err != nil || body == "" || !strings.HasPrefix(head, "HTTP/1.1 403 ") || len(rest) > 0 {
			t.Fatalf("the first read got %q, the rest %q, error %v; want the whole refusal at once", first[:n], rest, err)
		}
		_ = w.Close()
	}
}

// breaksOffAfter returns a handler of a site without robots.txt that breaks off each answer after a
// while.
func breaksOffAfter(while time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, "the first part")
		_ = http.NewResponseController(w).Flush()
		time.Sleep(while)
		panic(http.ErrAbortHandler)
	}
}

// TestTruncationOfHTTP10 breaks off answers that end with their connection, for all kinds of
// requests over HTTP/1.0. The client must not take a part for the whole answer.
func TestTruncationOfHTTP10(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	breakOff := breaksOffAfter(0)
	secure := rig.StartSecureSite(t, authority, breakOff)
	plain := httptest.NewServer(breakOff)
	defer plain.Close()
	host := strings.TrimPrefix(plain.URL, "http://")
	c, port := rig.Config{Engine: rig.Unpaced}.Trusting(authority).WithTLSPort(t, authority, "")
	g := rig.New(t, c)
	overH2 := func(authority string) *rig.Wire {
		conn, err := rig.ConnectOver(t.Context(), port.H2(t), authority)
		if err != nil {
			t.Fatal(err)
		}
		return newWire(conn)
	}
	for _, tt := range []struct {
		name, target, host string
		open               func() *rig.Wire
	}{
		{"absolute form", plain.URL + "/page", host, g.Dial},
		{"absolute form by TLS", plain.URL + "/page", host, func() *rig.Wire { return port.Dial(t) }},
		{"https in absolute form", secure.At("/page"), secure.Authority(), g.Dial},
		{"plain HTTP in a tunnel", "/page", host, func() *rig.Wire { return g.Tunnel(host) }},
		{"inside a tunnel", "/page", secure.Authority(), func() *rig.Wire { return rig.Inside(t, g.Tunnel(secure.Authority())) }},
		{"plain HTTP in a tunnel by HTTP/2", "/page", host, func() *rig.Wire { return overH2(host) }},
		{"inside a tunnel by HTTP/2", "/page", secure.Authority(), func() *rig.Wire { return rig.Inside(t, overH2(secure.Authority())) }},
	} {
		w := tt.open()
		if _, err := io.WriteString(w, "GET "+tt.target+" HTTP/1.0\r\nHost: "+tt.host+"\r\nUser-Agent: Tester/1.0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		all, err := io.ReadAll(w)
		stream, isStream := errors.AsType[http2.StreamError](err)
		if !strings.HasPrefix(string(all), "HTTP/1.0 200 ") || err == nil ||
			!errors.Is(err, syscall.ECONNRESET) && !isStream && !strings.Contains(err.Error(), "INTERNAL_ERROR") {
			t.Errorf("%s: the client got error %v, stream error %v, after %.300q", tt.name, err, stream, all)
		}
		_ = w.Close()
	}
	for _, l := range g.Logs(7) {
		if l.Request.Method == http.MethodGet && (l.Status != http.StatusOK || l.Robots.Decision != "error") {
			t.Errorf("the log line is %s", l.Raw)
		}
	}
}

// TestStalledUpload lets clients stop in the middle of a body.
func TestStalledUpload(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	swallow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/robots.txt" {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		w.WriteHeader(http.StatusNotFound)
	})
	secure := rig.StartSecureSite(t, authority, swallow)
	plain := httptest.NewServer(swallow)
	defer plain.Close()
	g := rig.New(t, rig.Config{
		Engine: rig.Unpaced, Global: "servers {\ntimeouts {\nread_body_idle 500ms\n}\nlistener_wrappers {\nrobots\n}\n}",
	}.Trusting(authority))
	host := strings.TrimPrefix(plain.URL, "http://")
	sent := 0
	for _, way := range []struct {
		name, target, host string
		open               func() *rig.Wire
	}{
		{"absolute form", plain.URL + "/page", host, g.Dial},
		{"https in absolute form", secure.At("/page"), secure.Authority(), g.Dial},
		{"plain HTTP in a tunnel", "/page", host, func() *rig.Wire { return g.Tunnel(host) }},
		{"inside a tunnel", "/page", secure.Authority(), func() *rig.Wire { return rig.Inside(t, g.Tunnel(secure.Authority())) }},
	} {
		for _, upload := range []string{
			"Content-Length: 100\r\n\r\nsome", "Transfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n", "Content-Length: 100\r\n\r\n",
			"Transfer-Encoding: chunked\r\n\r\n5\r\nsom", "Expect: 100-continue\r\nContent-Length: 100\r\n\r\n",
		} {
			w := way.open()
			_ = w.SetDeadline(time.Now().Add(20 * time.Second))
			began := time.Now()
			sent++
			a, err := uploadOver(w, "POST "+way.target+" HTTP/1.1\r\nHost: "+way.host+"\r\nUser-Agent: Tester/1.0\r\n"+upload)
			if err != nil || a.Status != http.StatusRequestTimeout || !strings.Contains(a.Header.Get("Crawlgate-Decision"), "client_timeout") {
				t.Errorf("%s, %q: status %d, error %v after %v, want 408: %v %.100s", way.name, upload, a.Status, err, time.Since(began), a.Header, a.Body)
			}
			_ = w.Close()
		}
	}
	for _, expect := range []bool{false, true} {
		conn, err := g.Tunnel(secure.Authority()).Over(t, &tls.Config{InsecureSkipVerify: true, ServerName: "localhost", NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		fields := []string{":method", "POST", ":scheme", "https", ":authority", secure.Authority(), ":path", "/page", "user-agent", "Tester/1.0"}
		if expect {
			fields = append(fields, "expect", "100-continue")
		}
		sent++
		a, err := rig.NewRawH2(t, conn).Open(fields...)
		for err == nil && a.Status == http.StatusContinue {
			a, err = rig.Answer{}, errors.New("only 100")
		}
		if err != nil || a.Status != http.StatusRequestTimeout {
			t.Errorf("HTTP/2, Expect %t: status %d, error %v, want 408: %v", expect, a.Status, err, a.Header)
		}
	}
	lines := make(map[enforce.Reason]int)
	rig.Eventually(t, fmt.Sprint("the lines of the uploads: ", lines), func() bool {
		clear(lines)
		for _, l := range g.ReadLogs() {
			if l.Request.Method == http.MethodPost {
				lines[l.Robots.Reason]++
			}
		}
		return lines["client_timeout"] == sent
	})
}

// uploadOver sends bytes and reads the answer after 100 Continue.
func uploadOver(w *rig.Wire, raw string) (rig.Answer, error) {
	a, err := w.Ask(http.MethodPost, raw)
	if err == nil && a.Status == http.StatusContinue {
		a, err = w.Ask(http.MethodPost, "")
	}
	return a, err
}

func newWire(conn net.Conn) *rig.Wire {
	_ = conn.SetDeadline(time.Now().Add(rig.Patience))
	return &rig.Wire{Conn: conn, Reader: bufio.NewReader(conn)}
}

// TestBrokenOffIsTimed breaks answers off after a while, for all kinds of requests. The log line
// has the duration of the request, and the client gets the first part of the answer.
func TestBrokenOffIsTimed(t *testing.T) {
	t.Parallel()
	const while = 400 * time.Millisecond
	authority := rig.NewTestCA(t)
	breakOff := breaksOffAfter(while)
	secure := rig.StartSecureSite(t, authority, breakOff)
	plain := httptest.NewServer(breakOff)
	defer plain.Close()
	host := strings.TrimPrefix(plain.URL, "http://")
	c, port := rig.Config{Engine: rig.Unpaced}.Trusting(authority).WithTLSPort(t, authority, "")
	g := rig.New(t, c)
	for _, tt := range []struct {
		target, host string
		open         func() *rig.Wire
	}{
		{plain.URL + "/absolute", host, g.Dial},
		{plain.URL + "/byTLS", host, func() *rig.Wire { return port.Dial(t) }},
		{"/plain", host, func() *rig.Wire { return g.Tunnel(host) }},
		{"/inside", secure.Authority(), func() *rig.Wire { return rig.Inside(t, g.Tunnel(secure.Authority())) }},
	} {
		w := tt.open()
		if _, err := io.WriteString(w, "GET "+tt.target+" HTTP/1.1\r\nHost: "+tt.host+"\r\nUser-Agent: Tester/1.0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		all, _ := io.ReadAll(w)
		if s := string(all); !strings.HasPrefix(s, "HTTP/1.1 200 ") || !strings.Contains(s, "the first part") || strings.HasSuffix(s, "\r\n0\r\n\r\n") {
			t.Errorf("%s: the client got %.300q", tt.target, all)
		}
		_ = w.Close()
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, secure.At("/http2"), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	over := tls.Client(g.Tunnel(secure.Authority()).Conn, &tls.Config{InsecureSkipVerify: true, ServerName: "localhost", NextProtos: []string{"h2"}})
	h2, err := new(http2.Transport).NewClientConn(over) //nolint:staticcheck // http.Transport cannot use an existing connection
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := h2.RoundTrip(req); err != nil {
		t.Error(err)
	} else if part, err := io.ReadAll(resp.Body); err == nil || string(part) != "the first part" {
		t.Errorf("over HTTP/2, the client got %q, error %v", part, err)
	}
	_ = over.Close()
	gets := 0
	for _, l := range g.Logs(8) {
		if l.Request.Method != http.MethodGet {
			continue
		}
		gets++
		if took := l.Duration; l.Status != http.StatusOK || l.Robots.Decision != "error" || took < while.Seconds() || took > 10 {
			t.Errorf("the log line is %s", l.Raw)
		}
		if r := l.Robots; r.DecidedAt <= 0 || r.EndedAt.Time().Sub(r.DecidedAt.Time()) < while || r.SentAt < r.DecidedAt || r.SentAt > r.EndedAt {
			t.Errorf("the times in the log line are wrong: %s", l.Raw)
		}
	}
	if gets != 5 {
		t.Errorf("%d log lines, want 5", gets)
	}
}
