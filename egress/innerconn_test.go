package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// writes is a connection that notes each write, and can be made to fail.
type writes struct {
	net.Conn // nil: only writes may come, and deadlines for them

	mu     sync.Mutex
	all    []string
	broken error
}

func (w *writes) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return 0, w.broken
	}
	w.all = append(w.all, string(p))
	return len(p), nil
}

func (w *writes) SetWriteDeadline(time.Time) error { return nil }
func (w *writes) SetDeadline(time.Time) error      { return nil }
func (w *writes) Close() error                     { return nil }

func (w *writes) seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}

// TestHold: a write that more is expected behind goes out with the next one, or by itself after holdTime; nothing is lost, and
// nothing overtakes it.
func TestHold(t *testing.T) {
	t.Parallel()
	header, large := "header ", strings.Repeat("x", holdSize)
	tests := []struct {
		name string
		do   func(in *innerConn)
		want []string
	}{
		{"not asked for", func(in *innerConn) { put(t, in, header, "body") }, []string{header, "body"}},
		{"with the next", func(in *innerConn) { in.expectMore(); put(t, in, header, "body", "rest") }, []string{header + "body", "rest"}},
		{"asked for again behind it", func(in *innerConn) {
			in.expectMore()
			put(t, in, header)
			in.expectMore()
			put(t, in, "body", "rest")
		}, []string{header + "body", "rest"}},
		{"alone", func(in *innerConn) {
			in.expectMore()
			put(t, in, header)
			time.Sleep(holdTime)
			synctest.Wait()
			put(t, in, "body")
		}, []string{header, "body"}},
		{"twice alone", func(in *innerConn) {
			for range 2 {
				in.expectMore()
				put(t, in, header)
				time.Sleep(holdTime)
				synctest.Wait()
			}
		}, []string{header, header}},
		{"a large one at once", func(in *innerConn) { in.expectMore(); put(t, in, large, "body") }, []string{large, "body"}},
		{"before a large one", func(in *innerConn) { in.expectMore(); put(t, in, header, large) }, []string{header, large}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &writes{}
				tt.do(&innerConn{Tunnel: newTunnel(w)})
				if got := w.seen(); !slices.Equal(got, tt.want) {
					t.Errorf("written: %.60q, want %.60q", got, tt.want)
				}
			})
		})
	}
}

func put(t *testing.T, c net.Conn, all ...string) {
	t.Helper()
	for _, s := range all {
		if n, err := c.Write([]byte(s)); n != len(s) || err != nil {
			t.Errorf("writing %.20q: %d, %v", s, n, err)
		}
	}
}

// TestHoldFails: who was told that a write had succeeded hears of its failure at the next one.
func TestHoldFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	synctest.Test(t, func(t *testing.T) {
		for _, late := range []bool{false, true} {
			w := &writes{broken: broken}
			in := &innerConn{Tunnel: newTunnel(w)}
			in.expectMore()
			put(t, in, "header")
			if late {
				time.Sleep(holdTime)
				synctest.Wait()
			}
			for range 2 {
				if n, err := in.Write([]byte("body")); n != 0 || !errors.Is(err, broken) {
					t.Errorf("late %v: wrote %d, %v", late, n, err)
				}
			}
		}
	})
}

// TestHoldGoodbye: what is written under a deadline is the last, and not held.
func TestHoldGoodbye(t *testing.T) {
	t.Parallel()
	w := &writes{}
	in := &innerConn{Tunnel: newTunnel(w)}
	in.expectMore()
	if err := in.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Error(err)
	}
	put(t, in, "close_notify")
	if got := w.seen(); !slices.Equal(got, []string{"close_notify"}) {
		t.Errorf("written: %q", got)
	}
}

// TestForwardExpectsMore: Forward says that a body follows where one of a known length does, in HTTP/2, and nowhere else.
func TestForwardExpectsMore(t *testing.T) {
	t.Parallel()
	tests := []struct {
		method, path string
		major        int
		want         bool
	}{
		{"GET", "/", 2, true},
		{"GET", "/", 1, false},
		{"GET", "/stream", 2, false},
		{"GET", "/empty", 2, false},
		{"GET", "/unchanged", 2, false},
		{"HEAD", "/", 2, false},
	}
	for _, proto := range []string{"h1", "h2"} {
		origin := startServer(t, http.HandlerFunc(serveLengths), proto)
		f := &Forwarder{Transport: newTestTransport(t, TransportConfig{RootCAs: certPool(origin)}), Name: "gateway"}
		for _, tt := range tests {
			in := &innerConn{}
			ctx := context.WithValue(t.Context(), connectKey{}, &ConnectContext{inner: in})
			r := httptest.NewRequestWithContext(ctx, tt.method, origin.URL+tt.path, http.NoBody)
			r.ProtoMajor = tt.major
			var res Result
			if err := f.Forward(httptest.NewRecorder(), r, r.URL, &res); err != nil || res.Status == 0 {
				t.Errorf("%s: %s %s: status %d, %v", proto, tt.method, tt.path, res.Status, err)
			}
			if got := in.more.Load(); got != tt.want {
				t.Errorf("%s: %s %s over HTTP/%d: more is expected: %v", proto, tt.method, tt.path, tt.major, got)
			}
		}
	}
}

// serveLengths answers with a body and its length, with one of them, or with none.
func serveLengths(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/stream":
		_ = http.NewResponseController(w).Flush()
	case "/empty":
		return
	case "/unchanged":
		w.Header().Set("Content-Length", "4")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Length", "4")
		return
	}
	io.WriteString(w, "body")
}
