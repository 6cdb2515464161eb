//go:build slow

package https

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
)

const (
	// rateTime is the time within which a transfer below min_rate must end: a window of a minute,
	// and the time to notice.
	rateTime = 80 * time.Second
	// dripPause is shorter than every limit for idle connections.
	dripPause = 18 * time.Second
)

// pieces is a body that comes in pieces, with a pause before each.
type pieces struct {
	ctx   context.Context
	size  int
	count int
	pause time.Duration
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.count--; p.count < 0 {
		return 0, io.EOF
	}
	rig.Pause(p.ctx, p.pause)
	return copy(b, strings.Repeat("x", p.size)), p.ctx.Err()
}

// drip returns an endless body of one byte at a time.
func drip(ctx context.Context) io.Reader { return &pieces{ctx, 1, 1000, dripPause} }

func send(ctx context.Context, c *http.Client, rawURL string, body io.Reader) (rig.Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, rawURL, body)
	if err != nil {
		return rig.Answer{}, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return rig.Answer{}, err
	}
	return rig.ReadAnswer(resp)
}

// slowHandler answers at the pace that the path names.
func slowHandler(w http.ResponseWriter, r *http.Request) {
	every := func(kind, text string, pause time.Duration, count int) {
		w.Header().Set("Content-Type", kind)
		for range count {
			if _, err := io.WriteString(w, text); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(pause):
			case <-r.Context().Done():
				return
			}
		}
	}
	switch r.URL.Path {
	case "/robots.txt":
		http.NotFound(w, r)
	case "/drip":
		every("text/plain", "x", 5*time.Second, 1000)
	case "/events":
		every("text/event-stream", "data: something\n\n", 8*time.Second, 9)
	case "/large":
		for range 64 {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	default:
		n, err := io.Copy(io.Discard, r.Body)
		if err == nil {
			_, _ = fmt.Fprintf(w, "%d bytes", n)
		}
	}
}

func startSlowSite(t *testing.T) *httptest.Server {
	t.Helper()
	site := httptest.NewServer(http.HandlerFunc(slowHandler))
	t.Cleanup(site.Close)
	return site
}

// patientClient returns a client that waits longer than a slow transfer may take.
func patientClient(g *rig.Gateway, userAgent string) *http.Client {
	c := g.Client(userAgent)
	c.Timeout = 3 * rateTime
	return c
}

// TestSlowTransfers runs everything that lasts for a window of min_rate at the same time. It
// occupies one of the few places of parallel tests, and hardly any CPU.
func TestSlowTransfers(t *testing.T) {
	t.Parallel()
	for _, begin := range []func(*testing.T) (end func()){
		slowTransfers, slowUploadsInTunnels, slowUploadsOfAgents("agent Slow\nagent Other"), slowUploadsOfAgents(""),
	} {
		defer begin(t)()
	}
}

// slowTransfers lets each party of an exchange send or read less than min_rate, which must end in
// bounded time. Transfers above the rate, and a stream of events, must go on for longer.
func slowTransfers(t *testing.T) (end func()) {
	t.Helper()
	site := startSlowSite(t)
	g := rig.New(t, rig.Config{Engine: "pace {\nrate off\nconcurrency 100\n}"})
	var group sync.WaitGroup
	begin := func(name string, most time.Duration, do func() error) {
		group.Go(func() {
			began := time.Now()
			err := do()
			took := time.Since(began)
			t.Logf("%s: %v, %v", name, took.Round(time.Second), err)
			if err != nil || took > most {
				t.Errorf("%s: after %v, want at most %v: %v", name, took, most, err)
			}
		})
	}
	client, last := patientClient(g, "Tester/1.0"), g.Dial()
	begin("a drip of an upload", rateTime, func() error {
		a, err := send(t.Context(), client, site.URL+"/upload/drip", drip(t.Context()))
		return wantAnswer(a, err, http.StatusRequestTimeout, "")
	})
	begin("a drip of an upload over a connection that is not used again", rateTime, func() error {
		return dripAndReadOn(last, site.URL+"/upload/last")
	})
	begin("a drip of an answer", rateTime, func() error {
		if a, err := rig.TryGet(t.Context(), client, site.URL+"/drip"); err == nil || a.Status != http.StatusOK {
			return fmt.Errorf("status %d, %q, want an answer that breaks off", a.Status, a.Body)
		}
		return nil
	})
	begin("a drip of reading", 2*rateTime, func() error {
		readSlowly(g, site.URL+"/large")
		return nil
	})
	begin("an upload in spurts", rig.Patience+rateTime, func() error {
		a, err := send(t.Context(), client, site.URL+"/upload/spurts", &pieces{t.Context(), 3000, 4, dripPause})
		return wantAnswer(a, err, http.StatusOK, "12000 bytes")
	})
	begin("events", rig.Patience+rateTime, func() error {
		a, err := rig.TryGet(t.Context(), client, site.URL+"/events")
		return wantAnswer(a, err, http.StatusOK, strings.Repeat("data: something\n\n", 9))
	})
	return func() {
		group.Wait()
		g.Stop()
		checkSlowReasons(t, g, site.URL)
	}
}

func checkSlowReasons(t *testing.T, g *rig.Gateway, siteURL string) {
	t.Helper()
	want := map[string]enforce.Reason{
		"/upload/drip": "client_timeout", "/upload/last": "client_timeout", "/drip": "stalled", "/large": "client_timeout",
		"/upload/spurts": enforce.ReasonAbsent, "/events": enforce.ReasonAbsent,
	}
	for _, l := range g.ReadLogs() {
		path := strings.TrimPrefix(l.Request.URI, siteURL)
		if l.Robots.Reason != want[path] {
			t.Errorf("%s: reason %s (%s), want %s", path, l.Robots.Reason, l.Robots.Detail, want[path])
		}
		delete(want, path)
	}
	if len(want) > 0 {
		t.Errorf("no lines for %v", want)
	}
}

func wantAnswer(a rig.Answer, err error, status int, body string) error {
	if err != nil || a.Status != status || body != "" && a.Body != body {
		return fmt.Errorf("status %d, %q, error %w, want %d, %q", a.Status, a.Body, err, status, body)
	}
	return nil
}

// readSlowly requests a large body and reads a byte of it now and then, until the gateway breaks it
// off.
func readSlowly(g *rig.Gateway, rawURL string) {
	dialer := &net.Dialer{}
	conn, err := dialer.DialContext(g.T.Context(), "tcp", g.Addr)
	if err != nil {
		g.T.Error(err)
		return
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	_, _ = io.WriteString(conn, "GET "+rawURL+" HTTP/1.1\r\nHost: "+rig.HostOf(rawURL)+"\r\nUser-Agent: Tester/1.0\r\n\r\n")
	broken := func() bool {
		for _, l := range g.ReadLogs() {
			if l.Request.URI == rawURL {
				return true
			}
		}
		return false
	}
	const often = 4 * time.Second // the test notices the end at most this late
	var one [1]byte
	for range 2 * rateTime / often {
		if _, err := conn.Read(one[:]); err != nil || broken() {
			return
		}
		rig.Pause(g.T.Context(), often)
	}
	g.T.Error("the gateway did not break off the answer")
}

// dripAndReadOn sends a byte of a body, and checks that the connection ends after the refusal.
func dripAndReadOn(conn *rig.Wire, rawURL string) error {
	_ = conn.SetDeadline(time.Now().Add(3 * rateTime))
	_, _ = io.WriteString(conn, "POST "+rawURL+" HTTP/1.1\r\nHost: "+rig.HostOf(rawURL)+"\r\nUser-Agent: Tester/1.0\r\nContent-Length: 100\r\n\r\nx")
	resp, err := http.ReadResponse(bufio.NewReader(conn.Conn), &http.Request{Method: http.MethodPost})
	if err != nil {
		return err
	}
	if a, err := rig.ReadAnswer(resp); err != nil || a.Status != http.StatusRequestTimeout || !resp.Close {
		return fmt.Errorf("status %d, error %w, close %v", a.Status, err, resp.Close)
	}
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	if n, err := conn.Conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %d bytes after the refusal, error %w, want EOF", n, err)
	}
	return nil
}

// slowUploadsInTunnels uploads slowly inside tunnels, over both versions of HTTP on both sides.
func slowUploadsInTunnels(t *testing.T) (end func()) {
	t.Helper()
	var group sync.WaitGroup
	for _, c := range combinations(t, http.HandlerFunc(slowHandler)) {
		c.client.Timeout = 3 * rateTime
		group.Go(func() {
			began := time.Now()
			a, err := send(t.Context(), c.client, c.site.At("/upload"), drip(t.Context()))
			if err := wantAnswer(a, err, http.StatusRequestTimeout, ""); err != nil || time.Since(began) > rateTime {
				t.Errorf("%s: after %v, error %v", c.name, time.Since(began), err)
			}
		})
	}
	return group.Wait
}

// slowUploadsOfAgents lets one agent upload slowly to a host, on one connection more than the host
// has places. Another agent's request is still answered, and the places are free again within
// bounded time.
func slowUploadsOfAgents(agents string) func(t *testing.T) (end func()) {
	return func(t *testing.T) (end func()) {
		t.Helper()
		site := startSlowSite(t)
		g := rig.New(t, rig.Config{Engine: "pace {\nrate off\nwait 10s\n}", Site: agents})
		slow := patientClient(g, "Slow/1.0")
		rig.Get(t, slow, site.URL+"/first")
		var group sync.WaitGroup
		began := time.Now()
		for range 9 {
			group.Go(func() {
				_, _ = send(t.Context(), slow, site.URL+"/upload", drip(t.Context())) // Go's client may report an early answer as an error
				if took := time.Since(began); took > rateTime {
					t.Errorf("a slow upload ended after %v, want at most %v", took, rateTime)
				}
			})
		}
		rig.Eventually(t, "uploads to wait for a place", func() bool { return !strings.Contains(g.Admin("/robots/clocks").Body, `"waiting":0`) })
		asked := time.Now()
		a, err := g.Fetch("Other/1.0", site.URL+"/other")
		if took := time.Since(asked); err != nil || a.Status != http.StatusOK || took > 10*time.Second {
			t.Errorf("the other agent: status %d, error %v, after %v", a.Status, err, took)
		}
		return func() {
			group.Wait()
			if a, err := rig.TryGet(t.Context(), slow, site.URL+"/last"); err != nil || a.Status != http.StatusOK {
				t.Errorf("afterwards: status %d, error %v", a.Status, err)
			}
			g.Stop()
			reasons := make(map[enforce.Reason]int)
			for _, l := range g.ReadLogs() {
				reasons[l.Robots.Reason]++
			}
			if reasons["client_timeout"] != 7 || reasons[enforce.ReasonConcurrency] != 2 {
				t.Errorf("the log has %v, want 7 times client_timeout and 2 times concurrency", reasons)
			}
		}
	}
}
