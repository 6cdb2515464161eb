package proxy

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/crawlgate/crawlgate/egress"
)

// TestTunnelServerLivesWithItsUsers checks that a tunnel keeps its server over a reload, and that
// nothing remains after the last user.
func TestTunnelServerLivesWithItsUsers(t *testing.T) {
	before := goleak.IgnoreCurrent()
	alive := func(s *tunnelServer) bool {
		_, alive := tunnelServers.Load(s)
		return alive
	}
	s := newTunnelServer(new(caddyhttp.Server))
	ctx, written := context.WithCancel(t.Context())
	leave := s.enter(httptest.NewRequestWithContext(ctx, "CONNECT", "/", nil))
	s.retire() // like a reload
	leave()
	if s.open.Load() != 1 || !alive(s) {
		t.Error("the tunnel stopped counting before it was logged")
	}
	written()
	_ = goleak.Find(before) // waits for goroutines that are about to end
	if s.open.Load() != 0 || alive(s) {
		t.Error("the server outlives its last user")
	}
	idle := newTunnelServer(new(caddyhttp.Server))
	idle.retire()
	if alive(idle) {
		t.Error("a server without tunnels outlives its site")
	}
	goleak.VerifyNone(t, before)
}

// TestTunnelServerStop checks that a stop gives open tunnels time, cuts off the others, and then
// gives those a moment for their log lines.
func TestTunnelServerStop(t *testing.T) {
	t.Parallel()
	s := newTunnelServer(new(caddyhttp.Server))
	s.open.Add(2)
	go func() {
		<-s.draining.Done()
		s.open.Add(-1) // a tunnel that ends by itself
		<-s.cut.Done()
		s.open.Add(-1) // a tunnel that was cut off
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	s.stop(ctx)
	if s.open.Load() > 0 {
		t.Error("the stop did not wait for the tunnels that it cut off")
	}
	if ctx.Err() == nil {
		t.Error("a tunnel was cut off too early")
	}
}

// TestTunnelEnd checks that the log has the reason why the gateway ended a tunnel, even if the
// client has left since then.
func TestTunnelEnd(t *testing.T) {
	t.Parallel()
	failed := errors.New("reset by peer")
	for _, tt := range []struct {
		err    error
		left   bool
		detail string
	}{
		{nil, false, ""},
		{nil, true, ""},
		{failed, false, "the tunnel ended early: reset by peer"},
		{failed, true, ""},
		{context.Canceled, true, ""},
		{errNotReopened, false, "the tunnel ended early: the configuration loaded since would not open it"},
		{errNotReopened, true, "the tunnel ended early: the configuration loaded since would not open it"},
		{errTooOld, true, "it is older than tunnel_age"},
		{&egress.Error{Err: errStopping}, true, "the gateway stops"},
	} {
		ctx, leave := context.WithCancel(t.Context())
		c := &connect{exchange: &exchange{r: httptest.NewRequestWithContext(ctx, "CONNECT", "/", nil), ctx: ctx}}
		if tt.left {
			leave()
		}
		c.end(tt.err)
		if got := c.decision.Detail; !strings.Contains(got, tt.detail) || tt.detail == "" && got != "" {
			t.Errorf("error %v, client left %v: detail %q, want %q", tt.err, tt.left, got, tt.detail)
		}
		leave()
	}
}

// TestInnerLog checks that the log shows a defect inside tunnels, in both versions of HTTP, and
// errors of clients only at level debug.
func TestInnerLog(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.DebugLevel)
	written := make(chan struct{}, 10)
	logger := zap.New(core, zap.Hooks(func(zapcore.Entry) error {
		written <- struct{}{}
		return nil
	}))
	to := log.New(innerLog{func() *zap.Logger { return logger }}, "", 0)
	for _, h2 := range []bool{false, true} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a defect") }))
		s.EnableHTTP2, s.Config.ErrorLog = h2, to
		s.StartTLS()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := s.Client().Do(req); err == nil {
			_ = resp.Body.Close()
			t.Errorf("the panicking handler answered with status %s", resp.Status)
		}
		select { // over HTTP/2, the line comes after the client sees the end of the stream
		case <-written:
		case <-time.After(20 * time.Second):
			t.Fatal("no log line")
		}
		s.Close()
		got := logs.TakeAll()
		if len(got) != 1 || got[0].Level != zap.ErrorLevel || !strings.Contains(fmt.Sprint(got[0].ContextMap()), "a defect") {
			t.Errorf("HTTP/2 %v: the log has %+v, want the defect", h2, got)
		}
	}
	to.Print("http2: server: error reading preface from client")
	if got := logs.TakeAll(); len(got) != 1 || got[0].Level != zap.DebugLevel {
		t.Errorf("the log has %+v, want one line at level debug", got)
	}
}
