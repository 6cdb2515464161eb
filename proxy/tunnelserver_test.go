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
// nothing is left when the last user has gone.
func TestTunnelServerLivesWithItsUsers(t *testing.T) {
	before := goleak.IgnoreCurrent()
	alive := func(s *tunnelServer) bool {
		_, alive := tunnelServers.Load(s)
		return alive
	}
	s := newTunnelServer(new(caddyhttp.Server))
	ctx, written := context.WithCancel(t.Context())
	leave := s.enter(httptest.NewRequestWithContext(ctx, "CONNECT", "/", nil))
	s.retire() // a reload
	leave()
	if s.open.Load() != 1 || !alive(s) {
		t.Error("the tunnel does not count until it is in the log")
	}
	written()
	_ = goleak.Find(before) // which waits for the goroutines that are about to end
	if s.open.Load() != 0 || alive(s) {
		t.Error("the server outlives its last user")
	}
	idle := newTunnelServer(new(caddyhttp.Server))
	idle.retire()
	if alive(idle) {
		t.Error("the server outlives its site, which has no tunnel")
	}
	goleak.VerifyNone(t, before)
}

// TestTunnelServerStop checks that open tunnels get time, are then cut off, and then get a
// moment for its log line.
func TestTunnelServerStop(t *testing.T) {
	t.Parallel()
	s := newTunnelServer(new(caddyhttp.Server))
	s.open.Add(2)
	go func() {
		<-s.draining.Done()
		s.open.Add(-1) // a tunnel that ends by itself
		<-s.cut.Done()
		s.open.Add(-1) // one that does not
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	s.stop(ctx)
	if s.open.Load() > 0 {
		t.Error("it did not wait for the tunnels that it cut off")
	}
	if ctx.Err() == nil {
		t.Error("something was cut off that still had time")
	}
}

// TestTunnelEnd checks that the log tells why the gateway has ended a tunnel, even if the client
// has let go of it by then.
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
			t.Errorf("%v, client has left %v: %q, want %q", tt.err, tt.left, got, tt.detail)
		}
		leave()
	}
}

// TestInnerLog checks that a defect inside tunnels shows in the log, in both versions of HTTP,
// and what clients do at level debug only.
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
			t.Errorf("status %s", resp.Status)
		}
		select { // of HTTP/2, the line comes after the end of the stream, which the client sees
		case <-written:
		case <-time.After(20 * time.Second):
			t.Fatal("no line")
		}
		s.Close()
		got := logs.TakeAll()
		if len(got) != 1 || got[0].Level != zap.ErrorLevel || !strings.Contains(fmt.Sprint(got[0].ContextMap()), "a defect") {
			t.Errorf("HTTP/2 %v: logged %+v", h2, got)
		}
	}
	to.Print("http2: server: error reading preface from client")
	if got := logs.TakeAll(); len(got) != 1 || got[0].Level != zap.DebugLevel {
		t.Errorf("logged %+v", got)
	}
}
