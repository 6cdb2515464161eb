package proxy

import (
	"bytes"
	"cmp"
	"context"
	"log"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/engine"
)

const (
	// stopLimit bounds the wait for requests inside tunnels when the process ends and no grace period
	// is configured.
	stopLimit = 10 * time.Second
	// lineLimit bounds the wait for the access-log lines of tunnels and requests that were then cut
	// off.
	lineLimit = time.Second
)

// tunnelServer serves the requests inside the tunnels of one site. It lives until the site and all
// of its tunnels have ended.
type tunnelServer struct {
	*egress.Interceptor
	retired  atomic.Bool  // the site has ended
	open     atomic.Int64 // tunnels and requests inside, until their lines are in the access log
	draining context.Context
	drain    context.CancelCauseFunc // the process stops: no new request begins
	cut      context.Context
	cutOff   context.CancelCauseFunc // it cannot wait any longer
}

// tunnelServers holds the active tunnel servers of the process.
var tunnelServers sync.Map // of *tunnelServer

// newTunnelServer gives clients inside tunnels the same limits as the server outside.
func newTunnelServer(server *caddyhttp.Server) *tunnelServer {
	s := new(tunnelServer)
	s.draining, s.drain = context.WithCancelCause(context.Background())
	s.cut, s.cutOff = context.WithCancelCause(context.Background())
	s.Interceptor = egress.NewInterceptor(&http.Server{
		Handler:           s,
		ReadHeaderTimeout: cmp.Or(time.Duration(server.ReadHeaderTimeout), time.Minute),
		IdleTimeout:       cmp.Or(time.Duration(server.IdleTimeout), 5*time.Minute),
		MaxHeaderBytes:    cmp.Or(server.MaxHeaderBytes, 16<<10),
		ErrorLog:          log.New(innerLog{caddy.Log}, "", 0),
		HTTP2:             &http.HTTP2Config{CountError: unreadHTTP2},
	})
	tunnelServers.Store(s, true)
	return s
}

// unreadHTTP2 reports a request that net/http cannot read, such as one with a lone percent sign in
// its path. net/http resets its stream, and calls no handler.
func unreadHTTP2(kind string) {
	if strings.HasPrefix(kind, "stream_PROTOCOL_ERROR_") {
		engine.RequestUnread(zap.String("kind", kind))
	}
}

// innerLog logs errors of the HTTP server inside tunnels: panics at level error and others at level
// debug, as Caddy does for its servers. The logger is asked for each time, as the server outlives
// configurations.
type innerLog struct{ logger func() *zap.Logger }

func (l innerLog) Write(p []byte) (int, error) {
	level := zap.DebugLevel
	if bytes.Contains(p, []byte("panic serving")) {
		level = zap.ErrorLevel
	}
	l.logger().Named("http.handlers.robots").Log(level, "error in HTTP server inside a tunnel", zap.ByteString("text", bytes.TrimSpace(p)))
	return len(p), nil
}

// enter counts the tunnel of a CONNECT. The handler calls leave when it is done. The tunnel counts
// until its line is in the access log, which is when net/http cancels the request's context.
// (HTTP/2 also cancels it when the client leaves, a moment earlier.)
func (s *tunnelServer) enter(r *http.Request) (leave func()) {
	s.open.Add(1)
	return func() { context.AfterFunc(r.Context(), s.left) }
}

func (s *tunnelServer) left() {
	if s.open.Add(-1) == 0 && s.retired.Load() {
		s.close()
	}
}

// retire says that the site has ended.
func (s *tunnelServer) retire() {
	s.retired.Store(true)
	if s.open.Load() == 0 {
		s.close()
	}
}

// close ends a server that has no tunnels left. Requests that they began may need a moment to
// notice.
func (s *tunnelServer) close() {
	tunnelServers.Delete(s)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		_ = s.Shutdown(ctx) // an error says that it had to cut something off
	}()
}

// ServeHTTP gives a request inside a tunnel the absolute URL and the client address that it would
// have outside. It hands the request to a Caddy server, whose routes, access log and metrics apply.
// A request for another authority than the tunnel's goes the same way: it is refused and logged
// like any other.
func (s *tunnelServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.open.Add(1)
	defer s.left()
	t := tunnelOf(r)
	site := t.site()
	if site == nil {
		w.Header().Set("Connection", "close")
		http.Error(w, "The current configuration has no gateway at the port of this tunnel.", http.StatusServiceUnavailable)
		return
	}
	if time.Since(t.began) > time.Duration(site.Engine.Config.Limits.TunnelAge) {
		w.Header().Set("Connection", "close") // to HTTP/2, net/http says GOAWAY
	}
	site.Engine.Config.Redact.Withhold(r, true)
	if err := egress.ConnectFrom(r.Context()).Resolve(r); err != nil {
		r = r.WithContext(context.WithValue(r.Context(), misdirectedKey{}, err))
	}
	fronted{site.Server, site.Engine}.serve(w, r)
}

// stop ends idle connections at once, lets running requests and blind tunnels end by themselves,
// and cuts off whatever is left when ctx ends. It returns when all of them are in the access log,
// or when the time for that is over.
func (s *tunnelServer) stop(ctx context.Context) {
	s.drain(errStopping)
	_ = s.Shutdown(ctx) // an error says that it had to cut something off
	s.wait(ctx)
	s.cutOff(errStopping)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lineLimit)
	defer cancel()
	s.wait(last)
}

// wait waits until nothing is open, at most as long as ctx.
func (s *tunnelServer) wait(ctx context.Context) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for s.open.Load() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// stopping is done when all tunnels of the process have ended.
var stopping struct {
	once sync.Once
	sync.WaitGroup
}

// stopTunnels lets all tunnels of the process continue for up to limit, and then ends them. It does
// not wait for that; stopping is done when they have ended.
func stopTunnels(limit time.Duration) {
	stopping.once.Do(func() {
		tunnelServers.Range(func(s, _ any) bool {
			stopping.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), limit)
				defer cancel()
				s.(*tunnelServer).stop(ctx)
			})
			return true
		})
	})
}

// stopWith ends the tunnels with the process. It starts as soon as the server stops: Caddy waits
// for tunnels over HTTP/2 as for any other request, and without limit if no grace period is
// configured. It does not know about tunnels over HTTP/1.1.
func stopWith(server *caddyhttp.Server, config caddy.Context) {
	begin := func() bool {
		if caddy.Exiting() {
			_, grace := engine.StopTimes(config)
			stopTunnels(grace)
			return true
		}
		return false
	}
	server.RegisterOnShutdown(func() { begin() })
	server.RegisterOnStop(func(context.Context) error {
		if begin() {
			stopping.Wait()
		}
		return nil
	})
}
