package egress

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func startRefusing(t *testing.T, proto string, a Refusal) (*gateway, chan int) {
	t.Helper()
	told := make(chan int, 10)
	s := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &wrapHijack{ResponseWriter: w}
		w.Header().Set("Server", "Outer")
		Refuse(rec, r, a)
		told <- rec.status
	}), proto)
	return &gateway{Server: s}, told
}

// TestRefuseHTTP1 checks the exact bytes, because many clients show parts of them.
func TestRefuseHTTP1(t *testing.T) {
	t.Parallel()
	g, told := startRefusing(t, "h1", Refusal{
		Status: http.StatusForbidden,
		Reason: "Forbidden by robots.txt: /x",
		Header: http.Header{"Proxy-Status": {"crawlgate; error=http_request_denied"}, "Cache-Control": {"no-store"}},
		Body:   []byte("why\n"),
	})
	for _, sent := range []string{
		"CONNECT site:443 HTTP/1.1\r\nHost: site:443\r\n\r\n",
		"CONNECT site:443 HTTP/1.0\r\n\r\n",
		"CONNECT site:443 HTTP/1.1\r\nHost: site:443\r\n\r\n\x16\x03\x01 sent ahead",
	} {
		c, br := g.raw(t)
		io.WriteString(c, sent)
		all, err := io.ReadAll(br) // the gateway closes the connection after the whole answer
		if err != nil {
			t.Fatal(err)
		}
		head, body, _ := strings.Cut(string(all), "\r\n\r\n")
		lines := strings.Split(head, "\r\n")
		if lines[0] != "HTTP/1.1 403 Forbidden by robots.txt: /x" || body != "why\n" {
			t.Errorf("the answer is %q", all)
		}
		for _, want := range []string{
			"Proxy-Status: crawlgate; error=http_request_denied", "Content-Length: 4", "Cache-Control: no-store", "Connection: close",
		} {
			if !strings.Contains(head, want) {
				t.Errorf("the answer lacks %q: %q", want, head)
			}
		}
		if status := <-told; status != http.StatusForbidden {
			t.Errorf("the writer got the status %d, want 403", status)
		}
	}
}

// TestRefuseKeepsConnection checks that the connection stays open for a 407, which Apache's client
// and Chromium answer on the same connection, and for a refusal without a reason phrase or with one
// that would end the line.
func TestRefuseKeepsConnection(t *testing.T) {
	t.Parallel()
	for _, a := range []Refusal{
		{Status: http.StatusProxyAuthRequired, Reason: "Who are you?", Header: http.Header{"Proxy-Authenticate": {`Basic realm="crawlgate"`}}, Body: []byte("x")},
		{Status: http.StatusTooManyRequests},
		{Status: http.StatusForbidden, Reason: "a\r\nSet-Cookie: x=1", Body: []byte("x")},
		{Status: http.StatusForbidden, Reason: "a\x00\x7f", Body: []byte("x")},
	} {
		g, _ := startRefusing(t, "h1", a)
		c, br := g.raw(t)
		for range 2 {
			io.WriteString(c, "CONNECT site:443 HTTP/1.1\r\nHost: site:443\r\n\r\n")
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body := readAll(t, resp); resp.StatusCode != a.Status || body != string(a.Body) || resp.Close || resp.Header.Get("Set-Cookie") != "" {
				t.Errorf("the answer is %v, %q", resp, body)
			}
		}
	}
}

func TestRefuseHTTP2(t *testing.T) {
	t.Parallel()
	g, told := startRefusing(t, "h2", Refusal{Status: http.StatusForbidden, Reason: "Forbidden by robots.txt", Body: []byte("why\n")})
	resp, c := connect(t, g.Server, "site:443")
	body, err := io.ReadAll(c)
	if err != nil || resp.StatusCode != http.StatusForbidden || string(body) != "why\n" {
		t.Errorf("the answer is %v, %q, error %v", resp, body, err)
	}
	if status := <-told; status != http.StatusForbidden {
		t.Errorf("the writer got the status %d, want 403", status)
	}
}

// TestPrepareRefusal checks that a client that waits for 100 Continue gets a refusal at once, even
// if a middleware has wrapped the body.
func TestPrepareRefusal(t *testing.T) {
	t.Parallel()
	s := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r2 := r.WithContext(r.Context())
		r2.Body = wrapBody{r.Body}
		*r = *r2
		PrepareRefusal(w, r)
		http.Error(w, "no", http.StatusForbidden)
	}), "h1")
	c, br := rawConn(t, s)
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 100000\r\n\r\n")
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != http.StatusForbidden || !resp.Close {
		t.Fatalf("the answer is %v, error %v, want 403 and the end", resp, err)
	}
	c, br = rawConn(t, s)
	for range 2 { // without the expectation the connection stays open
		fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody")
		resp, err := http.ReadResponse(br, nil)
		if err != nil || resp.StatusCode != http.StatusForbidden || resp.Close {
			t.Fatalf("the answer is %v, error %v, want 403 without the end", resp, err)
		}
		readAll(t, resp)
	}
}

// TestRefuseIsOneWrite checks that a refusal is one write, because some clients read only the first
// segment.
func TestRefuseIsOneWrite(t *testing.T) {
	t.Parallel()
	w := new(writes)
	conn := &notedWrites{writes: w, hijacked: w}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodConnect, "http://site:443", http.NoBody)
	Refuse(conn, r, Refusal{Status: http.StatusForbidden, Reason: "Forbidden", Body: []byte(strings.Repeat("why\n", 2000))})
	if all := w.seen(); len(all) != 1 || !strings.HasPrefix(all[0], "HTTP/1.1 403 Forbidden\r\n") || !strings.HasSuffix(all[0], "\r\n\r\n"+strings.Repeat("why\n", 2000)) {
		t.Errorf("%d writes: %.300q", len(all), all)
	}
}

// notedWrites is a response on a connection that records its writes.
type notedWrites struct {
	*writes
	hijacked net.Conn
}

func (w *notedWrites) Header() http.Header { return make(http.Header) }
func (w *notedWrites) WriteHeader(int)     {}

func (w *notedWrites) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.hijacked, bufio.NewReadWriter(bufio.NewReader(strings.NewReader("")), nil), nil
}

// writes is a connection that records each write.
type writes struct {
	net.Conn // nil, because only writes and deadlines are used

	mu  sync.Mutex
	all []string
}

func (w *writes) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, string(p))
	return len(p), nil
}

func (*writes) SetDeadline(time.Time) error { return nil }
func (*writes) Close() error                { return nil }

func (w *writes) seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}
