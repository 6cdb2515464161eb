package console_test

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/crawlgate/crawlgate/console"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/testgateway"
)

func request(ctx context.Context, method, path string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, http.NoBody)
	if err != nil {
		panic(err) // the path is the test's
	}
	return r
}

// frames is a client that records its events and their times.
type frames struct {
	mu     sync.Mutex
	header http.Header
	status int
	got    bytes.Buffer
	times  []time.Time
}

func newFrames() *frames { return &frames{header: http.Header{}} }

func (f *frames) Header() http.Header              { return f.header }
func (f *frames) WriteHeader(status int)           { f.status = status }
func (f *frames) FlushError() error                { return nil }
func (f *frames) SetWriteDeadline(time.Time) error { return nil }
func (f *frames) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.times = append(f.times, time.Now())
	return f.got.Write(p)
}

func (f *frames) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.got.String()
}

// sent returns the times of the writes.
func (f *frames) sent() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.times)
}

// data returns the number of frames with data.
func (f *frames) data() int { return strings.Count(f.text(), "data: ") }

// TestFrames checks that a viewer gets changes at most once a second, and otherwise only a sign
// that the connection is alive.
func TestFrames(t *testing.T) {
	testgateway.New(t, "", "")
	synctest.Test(t, func(t *testing.T) {
		defer engine.Record(new(caddyhttp.Server))()
		ctx, leave := context.WithCancel(t.Context())
		w, done := newFrames(), make(chan error, 1)
		h := console.Following(t.Context())
		go func() { done <- h.ServeHTTP(w, request(ctx, http.MethodGet, "/events"), nil) }()
		synctest.Wait()
		if w.data() != 1 || !strings.Contains(w.text(), `"status"`) {
			t.Fatalf("first event = %.100s", w.text())
		}
		time.Sleep(14*time.Second + time.Millisecond)
		synctest.Wait()
		if n := len(w.sent()); n != 1 {
			t.Errorf("got %d frames without a change, want 1", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !strings.HasSuffix(w.text(), `data: {"updated":"`+time.Now().Add(-time.Second-time.Millisecond).UTC().Format("15:04:05")+"\"}\n\n") || w.data() != 2 {
			t.Errorf("got %.100s, want it to end with the time of the update", w.text())
		}
		before := len(w.sent())
		for range 100 { // 10 s
			engine.RecordRecent(&enforce.LogRecord{Decision: enforce.OutcomeDeny, Reason: enforce.ReasonDisallowed, Agent: "alpha"}, "GET", "alpha", false,
				func() string { return "https://example.com/" })
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		times := w.sent()
		if n := len(times) - before; n < 9 || n > 11 {
			t.Errorf("got %d frames in 10 s, want about 10", n)
		}
		for i := 1; i < len(times); i++ {
			if gap := times[i].Sub(times[i-1]); gap < time.Second {
				t.Errorf("%s between two frames, want at least 1s", gap)
			}
		}
		leave()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestFollowingEnds checks that a viewer does not keep an old configuration alive.
func TestFollowingEnds(t *testing.T) {
	testgateway.New(t, "", "")
	synctest.Test(t, func(t *testing.T) {
		life, end := context.WithCancel(t.Context())
		done := make(chan error, 1)
		h := console.Following(life)
		go func() { done <- h.ServeHTTP(newFrames(), request(t.Context(), http.MethodGet, "/events"), nil) }()
		synctest.Wait()
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestViewers checks the limit of pages that follow, and that one that leaves makes room.
func TestViewers(t *testing.T) {
	r := newRig(t, "", "")
	follow := func(ctx context.Context) *http.Response {
		t.Helper()
		resp, err := r.client.Do(request(ctx, http.MethodGet, "/events"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() }) // the rest is not read
		return resp
	}
	first, leave := context.WithCancel(t.Context())
	defer leave()
	for i := range console.MaxViewers {
		ctx := t.Context()
		if i == 0 {
			ctx = first
		}
		resp := follow(ctx)
		line, err := bufio.NewReader(resp.Body).ReadString('\n')
		if resp.StatusCode != http.StatusOK || err != nil || !strings.HasPrefix(line, "data: {") {
			t.Fatalf("viewer %d: got status %d, %.100s, %v", i+1, resp.StatusCode, line, err)
		}
	}
	if resp, body := r.ask("GET", "/events", nil, nil); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" ||
		!strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("a viewer beyond the limit: got status %d, %v, %s, want 503", resp.StatusCode, resp.Header, body)
	}
	if resp, _ := r.ask("GET", "/", nil, nil); resp.StatusCode != http.StatusOK {
		t.Errorf("the page: got status %d, want 200", resp.StatusCode)
	}
	leave()
	testgateway.Until(t, "a place", func() bool {
		resp := follow(t.Context())
		if resp.StatusCode != http.StatusOK {
			_ = resp.Body.Close() // frees its connection for the next attempt
		}
		return resp.StatusCode == http.StatusOK
	})
}

// TestSpan checks how times are shown.
func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 0: "0 s", 59 * time.Second: "59 s", time.Minute: "1 min", 59*time.Minute + 59*time.Second: "59 min",
		time.Hour: "1 h", 47 * time.Hour: "47 h", 48 * time.Hour: "2 days", 1000 * time.Hour: "41 days",
	} {
		if got := console.Span(d); got != want {
			t.Errorf("%s is shown as %q, want %q", d, got, want)
		}
	}
}
