package h1

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testTimeout = 10 * time.Second
	maxHeader   = 8 << 10
)

// ways are the two transports. The tests require the same behaviour of both.
var ways = map[string]func(*tls.Config) wayOut{
	"h1": func(c *tls.Config) wayOut {
		return New(settings(c), 64)
	},
	"net/http": func(c *tls.Config) wayOut {
		c = c.Clone()
		c.NextProtos = []string{"http/1.1"}
		return settings(c)
	},
}

func settings(c *tls.Config) *http.Transport {
	return &http.Transport{
		DialContext: new(net.Dialer).DialContext, TLSClientConfig: c, TLSHandshakeTimeout: testTimeout, DisableCompression: true,
		ResponseHeaderTimeout: testTimeout, MaxResponseHeaderBytes: maxHeader, IdleConnTimeout: time.Minute,
	}
}

type wayOut interface {
	http.RoundTripper
	CloseIdleConnections()
}

// origin answers each request with what answer writes, and closes the connection if answer returns
// false.
type origin struct {
	url      string
	mu       sync.Mutex
	heads    []string // the heads of all requests, with the numbers of their connections
	answered sync.Cond
	answers  int
}

func newOrigin(t *testing.T, secure func(net.Conn) net.Conn, answer func(c net.Conn, request int) bool) *origin {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &origin{url: "http://" + l.Addr().String()}
	o.answered.L = &o.mu
	if secure != nil {
		o.url = "https://" + l.Addr().String()
	}
	var open sync.WaitGroup
	open.Go(func() {
		for n := 1; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer c.Close()
				if secure != nil {
					c = secure(c)
				}
				o.serve(c, n, answer)
			})
		}
	})
	t.Cleanup(func() { l.Close(); open.Wait() })
	return o
}

// overTLS returns a function that makes the server side of an origin's TLS, or nil for an origin
// without TLS.
func overTLS(config *tls.Config) func(net.Conn) net.Conn {
	if config == nil {
		return nil
	}
	return func(c net.Conn) net.Conn { return tls.Server(c, config) }
}

func (o *origin) serve(c net.Conn, connection int, answer func(net.Conn, int) bool) {
	br := bufio.NewReader(c)
	for {
		var head strings.Builder
		for {
			line, err := br.ReadString('\n')
			if err != nil {
				return
			}
			if head.WriteString(line); line == "\r\n" {
				break
			}
		}
		o.mu.Lock()
		o.heads = append(o.heads, fmt.Sprintf("%d: %s", connection, head.String()))
		n := len(o.heads)
		o.mu.Unlock()
		more := answer(c, n)
		if !more {
			c.Close()
		}
		o.mu.Lock()
		o.answers++
		o.mu.Unlock()
		o.answered.Broadcast()
		if !more {
			return
		}
	}
}

// settle waits until the origin has sent its answers to all requests.
func (o *origin) settle() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.answers < len(o.heads) {
		o.answered.Wait()
	}
}

// connections returns the numbers of the connections of all requests, in order.
func (o *origin) connections() (list []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range o.heads {
		n, _, _ := strings.Cut(h, ":")
		list = append(list, n)
	}
	return list
}

func say(texts ...string) func(net.Conn, int) bool {
	return func(c net.Conn, request int) bool {
		text := texts[min(request, len(texts))-1]
		io.WriteString(c, strings.TrimSuffix(text, closes))
		return !strings.HasSuffix(text, closes)
	}
}

// closes, at the end of a text, makes the origin close the connection.
const closes = "\x00"

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// get sends a request and returns its answer as one line.
func get(t *testing.T, ctx context.Context, w wayOut, method, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header["User-Agent"] = nil
	resp, err := w.RoundTrip(r)
	if err != nil {
		return "error"
	}
	text, err := io.ReadAll(resp.Body)
	if cerr := resp.Body.Close(); cerr != nil {
		t.Errorf("closing the body: %v", cerr)
	}
	s := fmt.Sprintf("%d %q", resp.StatusCode, text)
	for name, values := range resp.Trailer {
		s += fmt.Sprintf(" %s=%s", name, values)
	}
	if err != nil {
		s += " broken"
	}
	return s
}

// TestConformance sends the same requests over both transports to origins of all kinds. The rules
// of RFC 9112 about messages and connections must hold for both.
func TestConformance(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200<<10)
	tests := []struct {
		name    string
		method  string // "" for GET
		answers []string
		want    []string
		over    string // the numbers of the connections of the requests
		onlyH1  bool   // only for Transport: net/http may not yet have noticed bytes on an idle connection
	}{
		{"kept alive", "", []string{ok}, []string{`200 "ok"`, `200 "ok"`}, "1 1", false},
		{"asks to close", "", []string{"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"}, []string{`200 "ok"`, `200 "ok"`}, "1 2", false},
		{"HTTP/1.0", "", []string{"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"}, []string{`200 "ok"`, `200 "ok"`}, "1 2", false},
		{"HTTP/1.0 kept alive", "", []string{"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"}, []string{`200 "ok"`, `200 "ok"`}, "1 1", false},
		{"until the connection closes", "", []string{"HTTP/1.1 200 OK\r\n\r\nok" + closes}, []string{`200 "ok"`, `200 "ok"`}, "1 2", false},
		{"chunked", "", []string{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x=y\r\no\r\n1\r\nk\r\n0\r\n\r\n"}, []string{`200 "ok"`, `200 "ok"`}, "1 1", false},
		{"trailers", "", []string{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-A\r\n\r\n2\r\nok\r\n0\r\nX-A: 1\r\n\r\n"}, []string{`200 "ok" X-A=[1]`, `200 "ok" X-A=[1]`}, "1 1", false},
		{"empty", "", []string{"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"}, []string{`200 ""`, `200 ""`}, "1 1", false},
		{"204", "", []string{"HTTP/1.1 204 No Content\r\n\r\n"}, []string{`204 ""`, `204 ""`}, "1 1", false},
		{"304 with a length", "", []string{"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"}, []string{`304 ""`, `304 ""`}, "1 1", false},
		{"HEAD", "HEAD", []string{"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"}, []string{`200 ""`, `200 ""`}, "1 1", false},
		{"long", "", []string{"HTTP/1.1 200 OK\r\nContent-Length: 204800\r\n\r\n" + long}, []string{`200 "` + long + `"`, `200 "` + long + `"`}, "1 1", false},
		{"interim responses", "", []string{"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + ok}, []string{`200 "ok"`, `200 "ok"`}, "1 1", false},
		{"a change of protocol", "", []string{"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + closes}, []string{`101 ""`, `101 ""`}, "1 2", false},
		{"no HTTP", "", []string{"SSH-2.0-x\r\n" + closes}, []string{"error", "error"}, "1 2", false},
		{"status of two digits", "", []string{"HTTP/1.1 20 OK\r\n\r\n" + closes}, []string{"error", "error"}, "1 2", false},
		{"two lengths", "", []string{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nokx" + closes}, []string{"error", "error"}, "1 2", false},
		{"header too large", "", []string{"HTTP/1.1 200 OK\r\nX: " + long + "\r\n\r\n" + closes}, []string{"error", "error"}, "1 2", false},
		{"interim responses too large", "", []string{strings.Repeat("HTTP/1.1 103 Early Hints\r\nX: 123456789\r\n\r\n", 1000) + ok + closes}, []string{"error", "error"}, "1 2", false},
		{"cut within the header", "", []string{"HTTP/1.1 200 OK\r\nContent-Le" + closes}, []string{"error", "error"}, "1 2", false},
		{"cut within the body", "", []string{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok" + closes}, []string{`200 "ok" broken`, `200 "ok" broken`}, "1 2", false},
		{"cut within a chunk", "", []string{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nok" + closes}, []string{`200 "ok" broken`, `200 "ok" broken`}, "1 2", false},
		{"no last chunk", "", []string{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n" + closes}, []string{`200 "ok" broken`, `200 "ok" broken`}, "1 2", false},
		{"no size of a chunk", "", []string{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxx\r\n" + closes}, []string{`200 "" broken`, `200 "" broken`}, "1 2", false},
		{"no answer over a new connection", "", []string{closes}, []string{"error", "error"}, "1 2", false},
		{"no answer over a kept connection", "", []string{ok, closes, ok}, []string{`200 "ok"`, `200 "ok"`}, "1 1 2", false},
		{"half an answer over a kept connection", "", []string{ok, "HTTP/1.1 2" + closes, ok}, []string{`200 "ok"`, "error", `200 "ok"`}, "1 1 2", false},
		{"closed while idle", "", []string{ok + closes, ok}, []string{`200 "ok"`, `200 "ok"`}, "1 2", true},
		{"408 while idle", "", []string{ok + "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n" + closes, ok}, []string{`200 "ok"`, `200 "ok"`}, "1 2", true},
		{"an answer that nobody asked for", "", []string{ok + "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", ok}, []string{`200 "ok"`, `200 "ok"`}, "1 2", true},
		{"a body for HEAD", "HEAD", []string{ok, "HTTP/1.1 200 OK\r\n\r\n"}, []string{`200 ""`, `200 ""`}, "1 2", true},
	}
	secure, roots := certificate(t)
	for _, tt := range tests {
		for way, out := range ways {
			if tt.onlyH1 && way != "h1" {
				continue
			}
			for scheme, config := range map[string]*tls.Config{"http": nil, "https": secure} {
				t.Run(tt.name+" by "+way+" over "+scheme, func(t *testing.T) {
					t.Parallel()
					o, w := newOrigin(t, overTLS(config), say(tt.answers...)), out(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
					t.Cleanup(w.CloseIdleConnections)
					for i, want := range tt.want {
						if got := get(t, t.Context(), w, tt.method, o.url+"/"); got != want {
							t.Errorf("request %d: %.80s, want %.80s", i+1, got, want)
						}
						o.settle()
					}
					if got := strings.Join(o.connections(), " "); got != tt.over {
						t.Errorf("the requests used the connections %s, want %s", got, tt.over)
					}
				})
			}
		}
	}
}

// certificate returns a test server's certificate and its authority.
func certificate(t *testing.T) (*tls.Config, *x509.CertPool) {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return &tls.Config{Certificates: s.TLS.Certificates, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}, roots
}

// newH1 returns the transport under test; change modifies its settings.
func newH1(t *testing.T, change func(*http.Transport)) *Transport {
	t.Helper()
	c := settings(&tls.Config{MinVersion: tls.VersionTLS12})
	if change != nil {
		change(c)
	}
	tr := New(c, 64)
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// TestSteps checks the order of the hooks, and that a request is sent unchanged.
func TestSteps(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, nil, say(ok, closes, "HTTP/1.1 103 Early Hints\r\n\r\n"+ok))
	tr := newH1(t, nil)
	var steps []string
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GetConn:              func(string) { steps = append(steps, "get") },
		GotConn:              func(i httptrace.GotConnInfo) { steps = append(steps, fmt.Sprintf("got reused=%t", i.Reused)) },
		WroteRequest:         func(httptrace.WroteRequestInfo) { steps = append(steps, "wrote") },
		GotFirstResponseByte: func() { steps = append(steps, "first") },
		Got1xxResponse:       func(code int, _ textproto.MIMEHeader) error { steps = append(steps, fmt.Sprint(code)); return nil },
	})
	for range 2 {
		if got := get(t, ctx, tr, "GET", o.url+"/a?b"); got != `200 "ok"` {
			t.Fatal(got)
		}
	}
	want := "get, got reused=false, wrote, first, get, got reused=true, wrote, get, got reused=false, wrote, first, 103"
	if got := strings.Join(steps, ", "); got != want {
		t.Errorf("steps\n%s, want\n%s", got, want)
	}
	o.settle()
	if got, want := o.heads[0], "1: GET /a?b HTTP/1.1\r\nHost: "+strings.TrimPrefix(o.url, "http://")+"\r\n\r\n"; got != want {
		t.Errorf("the origin got %q, want %q", got, want)
	}
}

// TestUnquiet checks that nothing is sent over kept connections that the origin has closed or
// written to. The request uses the next quiet one.
func TestUnquiet(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tr := newH1(t, nil)
	var far [3]net.Conn
	for i := range far {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		tr.pool.put(&conn{Conn: c, tcp: c, key: key{"http", l.Addr().String()}})
		if far[i], err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		defer far[i].Close()
	}
	far[2].Close()
	_, _ = io.WriteString(far[1], "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
	var answering sync.WaitGroup
	answering.Go(func() {
		if _, err := http.ReadRequest(bufio.NewReader(far[0])); err == nil {
			_, _ = io.WriteString(far[0], ok)
		}
	})
	writes := 0
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { writes++ }})
	if got := get(t, ctx, tr, "GET", "http://"+l.Addr().String()); got != `200 "ok"` {
		t.Error(got)
	}
	answering.Wait()
	if n, err := far[1].Read(make([]byte, 1)); n > 0 || err == nil || writes != 1 {
		t.Errorf("the request was written %d times; %d bytes came over a connection with an early answer (%v)", writes, n, err)
	}
}

// TestNothingIsSentAfterTheEnd checks that a request is not sent if a hook ends its context.
func TestNothingIsSentAfterTheEnd(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, nil, say(ok))
	tr := newH1(t, nil)
	late := errors.New("too late")
	for range 2 { // over a new connection and over a kept one
		ctx, cancel := context.WithCancelCause(t.Context())
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { cancel(late) }})
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, o.url, nil)
		if _, err := tr.RoundTrip(r); !errors.Is(err, late) {
			t.Errorf("RoundTrip returned the error %v, want %v", err, late)
		}
		if len(o.connections()) > 1 {
			t.Error("a request was sent")
		}
		get(t, t.Context(), tr, "GET", o.url)
	}
}

// TestCancel ends the context of a request that waits for a header or for the rest of a body.
func TestCancel(t *testing.T) {
	t.Parallel()
	why := errors.New("the client left")
	asked := make(chan struct{}, 2)
	o := newOrigin(t, nil, func(c net.Conn, request int) bool {
		if request == 2 {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
		}
		asked <- struct{}{}
		_, _ = c.Read(make([]byte, 1)) // until the client closes it
		return false
	})
	tr := newH1(t, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, o.url, nil)
	go func() { <-asked; cancel(why) }()
	if _, err := tr.RoundTrip(r); !errors.Is(err, why) {
		t.Errorf("during the header: error %v, want %v", err, why)
	}
	ctx, cancel = context.WithCancelCause(t.Context())
	r, _ = http.NewRequestWithContext(ctx, http.MethodGet, o.url, nil)
	resp, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	go func() { <-asked; cancel(why) }()
	if text, err := io.ReadAll(resp.Body); !errors.Is(err, why) || string(text) != "half" {
		t.Errorf("during the body: read %q, error %v", text, err)
	}
	if _, err := resp.Body.Read(make([]byte, 1)); !errors.Is(err, why) {
		t.Errorf("a second read: %v", err)
	}
}

// TestHeaderTimeout checks that a request to an origin that is silent for too long is not repeated,
// not even after a kept connection, because the origin may be working on it.
func TestHeaderTimeout(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, nil, func(c net.Conn, request int) bool {
		if request == 1 {
			io.WriteString(c, ok)
			return true
		}
		_, _ = c.Read(make([]byte, 1))
		return false
	})
	tr := newH1(t, func(c *http.Transport) { c.ResponseHeaderTimeout = 50 * time.Millisecond })
	get(t, t.Context(), tr, "GET", o.url)
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, o.url, nil)
	if _, err := tr.RoundTrip(r); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("RoundTrip returned the error %v, want a timeout", err)
	}
	if got := o.connections(); !slices.Equal(got, []string{"1", "1"}) {
		t.Errorf("the requests used the connections %v, want 1 and 1", got)
	}
}

// TestFresh checks that each request uses a new connection, is sent once, and leaves its connection
// for later requests.
func TestFresh(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, nil, say(ok))
	tr := newH1(t, nil)
	fresh := tr.Fresh(tr.config)
	for _, w := range []*Transport{fresh, fresh, tr, tr} {
		get(t, t.Context(), w, "GET", o.url)
	}
	if got := o.connections(); !slices.Equal(got, []string{"1", "2", "1", "1"}) {
		t.Errorf("the requests used the connections %v", got)
	}
}

// TestOtherProtocol checks that the handshake shows that an origin does not speak HTTP/1.1.
func TestOtherProtocol(t *testing.T) {
	t.Parallel()
	config, roots := certificate(t)
	config.NextProtos = []string{"other"} // with only h2, crypto/tls would accept a client of HTTP/1.1
	o := newOrigin(t, overTLS(config), say(ok))
	tr := newH1(t, func(c *http.Transport) { c.TLSClientConfig.RootCAs = roots })
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, o.url, nil)
	if _, err := tr.RoundTrip(r); !errors.Is(err, ErrProtocol) {
		t.Errorf("RoundTrip returned the error %v, want ErrProtocol", err)
	}
}

// gathering delays writes until the connection is read.
type gathering struct {
	net.Conn
	bytes []byte
}

func (c *gathering) Write(p []byte) (int, error) { c.bytes = append(c.bytes, p...); return len(p), nil }

func (c *gathering) Read(p []byte) (int, error) {
	_, _ = c.Conn.Write(c.bytes)
	c.bytes = nil
	return c.Conn.Read(p)
}

// TestTLSReadAhead checks a second TLS record that arrives with the first. No buffer of a socket or
// a bufio.Reader shows it.
func TestTLSReadAhead(t *testing.T) {
	t.Parallel()
	config, roots := certificate(t)
	gather := func(c net.Conn) net.Conn { return tls.Server(&gathering{Conn: c}, config) }
	o := newOrigin(t, gather, func(c net.Conn, _ int) bool {
		io.WriteString(c, ok)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
		return true
	})
	tr := newH1(t, func(c *http.Transport) { c.TLSClientConfig.RootCAs = roots })
	for range 3 {
		if got := get(t, t.Context(), tr, "GET", o.url); got != `200 "ok"` {
			t.Error(got)
		}
	}
}

// TestUnreadBody checks that a connection with an unread rest of a response serves no other
// request.
func TestUnreadBody(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, nil, say(ok))
	tr := newH1(t, nil)
	for range 2 {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, o.url, nil)
		resp, err := tr.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = resp.Body.Read(make([]byte, 1))
		resp.Body.Close()
	}
	if got := o.connections(); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("the requests used the connections %v, want 1 and 2", got)
	}
}

// closer records that it was closed.
type closer struct {
	net.Conn
	closed atomic.Bool
}

func (c *closer) Close() error { c.closed.Store(true); return nil }

// TestPool checks the pool's bounds of memory and time.
func TestPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPool(24, time.Minute)
		var conns []*closer
		for i := range 5 {
			c := new(closer)
			conns = append(conns, c)
			p.put(&conn{Conn: c, key: key{"http", fmt.Sprint(i % 2)}})
			time.Sleep(10 * time.Second)
		}
		check := func(when string, want int) {
			t.Helper()
			synctest.Wait()
			closed := 0
			for _, c := range conns {
				if c.closed.Load() {
					closed++
				}
			}
			if closed != want {
				t.Errorf("%s: %d connections closed, want %d", when, closed, want)
			}
		}
		check("too many", 2)
		p.close(time.Now().Add(-9 * time.Second)) // the last connection came 10 s ago
		check("idle", 5)
		last := new(closer)
		conns = append(conns, last)
		p.put(&conn{Conn: last, key: key{"http", "x"}})
		time.Sleep(59 * time.Second)
		check("idle for less than the time", 5)
		time.Sleep(30 * time.Second)
		check("idle for too long", 6)
		time.Sleep(time.Minute)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.used != 0 || len(p.conns) != 0 || p.timer != nil {
			t.Errorf("the empty pool has %d KiB, %d origins, timer %v", p.used, len(p.conns), p.timer)
		}
	})
}

// FuzzResponse checks that both transports understand any bytes of an origin in the same way.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		ok, "HTTP/1.1 200 OK\r\n\r\nuntil the end", "HTTP/1.0 404 x\r\nContent-Length: 1\r\n\r\n12",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n1\r\nx\r\n0\r\nA: b\r\n\r\n",
		"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhalf", "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\nx", "\x15\x03\x01\x00\x02\x02\x28",
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, text []byte, head bool) {
		dial := func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				defer far.Close()
				if _, err := http.ReadRequest(bufio.NewReader(far)); err == nil {
					_, _ = far.Write(text)
				}
			}()
			return near, nil
		}
		method := map[bool]string{false: "GET", true: "HEAD"}[head]
		ours := newH1(t, func(c *http.Transport) { c.DialContext = dial })
		mended := func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return Mend(conn), err
		}
		std := &http.Transport{DialContext: mended, DisableCompression: true, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeader}
		got, want := get(t, t.Context(), ours, method, "http://site.test/"), get(t, t.Context(), std, method, "http://site.test/")
		if got != want {
			t.Errorf("%.200q: got %.100s, net/http has %.100s", text, got, want)
		}
	})
}
