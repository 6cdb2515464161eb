package crawlgate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/egress"
)

const (
	// stopLimit bounds the wait for what is inside tunnels when the process ends and no grace period is configured.
	stopLimit = 10 * time.Second
	// lineLimit bounds the wait for the access-log lines of what was cut off then.
	lineLimit = time.Second
)

// errStopping is why a tunnel ends with the process.
var errStopping = errors.New("the gateway stops")

// innerLimits are what a server grants its clients, applied to what they send inside tunnels.
type innerLimits struct {
	readHeader, idle time.Duration
	maxHeader        int
}

func limitsOf(server *caddyhttp.Server) innerLimits {
	return innerLimits{
		readHeader: cmp.Or(time.Duration(server.ReadHeaderTimeout), time.Minute),
		idle:       cmp.Or(time.Duration(server.IdleTimeout), 5*time.Minute),
		maxHeader:  cmp.Or(server.MaxHeaderBytes, 16<<10),
	}
}

// tunnelServer serves the requests inside tunnels, of all sites with the same limits. No reload touches it: clients would
// not understand the end of a connection that they have just opened. It lives as long as a configuration or a tunnel
// holds it.
type tunnelServer struct {
	*egress.Interceptor
	limits   innerLimits
	open     atomic.Int64 // tunnels and requests inside, until their lines are in the access log
	draining context.Context
	drain    context.CancelCauseFunc // the process stops: what has not begun does not begin
	cut      context.Context
	cutOff   context.CancelCauseFunc // it cannot wait any longer
}

// pool holds what requests keep over a reload.
var pool = caddy.NewUsagePool()

// acquireTunnelServer gives the server for the limits. The caller must release it.
func acquireTunnelServer(limits innerLimits) (*tunnelServer, error) {
	value, _, err := pool.LoadOrNew(limits, func() (caddy.Destructor, error) { return newTunnelServer(limits), nil })
	if err != nil {
		return nil, err
	}
	s, ok := value.(*tunnelServer)
	if !ok {
		return nil, fmt.Errorf("usage pool holds a %T under %v", value, limits)
	}
	return s, nil
}

func newTunnelServer(limits innerLimits) *tunnelServer {
	s := &tunnelServer{limits: limits}
	s.draining, s.drain = context.WithCancelCause(context.Background())
	s.cut, s.cutOff = context.WithCancelCause(context.Background())
	s.Interceptor = egress.NewInterceptor(egress.InterceptorConfig{
		Handler:           s,
		ReadHeaderTimeout: limits.readHeader,
		IdleTimeout:       limits.idle,
		MaxHeaderBytes:    limits.maxHeader,
		ErrorLog:          log.New(innerLog{caddy.Log}, "", 0),
	})
	return s
}

// innerLog passes on what net/http says of the inside of tunnels: at level debug, as Caddy does for its servers, but for
// panics. The logger is asked for each time, as the server outlives configurations.
type innerLog struct{ logger func() *zap.Logger }

func (l innerLog) Write(p []byte) (int, error) {
	level := zap.DebugLevel
	if bytes.Contains(p, []byte("panic serving")) {
		level = zap.ErrorLevel
	}
	l.logger().Named("http.handlers.robots").Log(level, "net/http said something of the inside of a tunnel", zap.ByteString("text", bytes.TrimSpace(p)))
	return len(p), nil
}

func (s *tunnelServer) release() error {
	_, err := pool.Delete(s.limits)
	return err
}

// Destruct ends a server that has no tunnels left. What they began may need a moment to notice.
func (s *tunnelServer) Destruct() error {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		_ = s.Shutdown(ctx) // an error says that it had to cut something off
	}()
	return nil
}

// enterTunnelServer gives the server for the tunnel of a CONNECT, which may outlive the configuration that has acquired it.
// The handler calls leave when it is through. The tunnel counts until the access log has its line as well, which
// is when net/http cancels the request's context. (HTTP/2 also does so when the client leaves, a moment sooner.)
func enterTunnelServer(limits innerLimits, r *http.Request) (s *tunnelServer, leave func(), err error) {
	if s, err = acquireTunnelServer(limits); err != nil {
		return nil, nil, err
	}
	s.open.Add(1)
	return s, func() {
		context.AfterFunc(r.Context(), func() {
			s.open.Add(-1)
			_ = s.release() // its Destruct has no error to give
		})
	}, nil
}

// ServeHTTP makes a request inside a tunnel what it would be outside: absolute, from the client's address. It is handed to
// a Caddy server as if it had come there, so that its routes, its access log and its metrics apply. One that is for
// another authority than its tunnel goes the same way, to be refused and logged like any other.
func (s *tunnelServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.open.Add(1)
	defer s.open.Add(-1)
	t := tunnelOf(r)
	site := t.site()
	if site == nil {
		w.Header().Set("Connection", "close")
		http.Error(w, "The configuration in force has no gateway at the port of this tunnel.", http.StatusServiceUnavailable)
		return
	}
	if time.Since(t.began) > site.Engine.Config.Limits.TunnelAge {
		w.Header().Set("Connection", "close") // to HTTP/2, net/http says GOAWAY
	}
	site.Engine.Config.Redact.Withhold(r, true)
	if err := egress.ConnectFrom(r.Context()).Resolve(r); err != nil {
		r = r.WithContext(context.WithValue(r.Context(), astrayKey{}, err))
	}
	site.Server.ServeHTTP(w, r)
}

// stop ends what is inside: what is idle at once, running requests and blind tunnels in their own time, and whatever is left
// when ctx ends. It returns when all of it is in the access log, or could not get there in time.
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

// tunnelStop ends all tunnels of the process, once, whoever begins it.
type tunnelStop struct {
	once sync.Once
	done chan struct{}
}

var endOfTunnels = tunnelStop{done: make(chan struct{})}

// begin lets them go on for as long as limit. It does not wait for them; done is closed when they have ended.
func (e *tunnelStop) begin(limit time.Duration) {
	e.once.Do(func() {
		go func() {
			defer close(e.done)
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			var servers sync.WaitGroup
			pool.Range(func(_, value any) bool {
				if s, ok := value.(*tunnelServer); ok {
					servers.Go(func() { s.stop(ctx) })
				}
				return true
			})
			servers.Wait()
		}()
	})
}

// stopWith ends the tunnels with the process. It begins as soon as the server does: Caddy waits for tunnels over HTTP/2 as
// for any other request, without end where no grace period is configured. Of those over HTTP/1.1 it knows nothing.
func stopWith(server *caddyhttp.Server, config caddy.Context) {
	begin := func() bool {
		if caddy.Exiting() {
			endOfTunnels.begin(cmp.Or(gracePeriod(config), stopLimit))
			return true
		}
		return false
	}
	server.RegisterOnShutdown(func() { begin() })
	server.RegisterOnStop(func(context.Context) error {
		if begin() {
			<-endOfTunnels.done
		}
		return nil
	})
}

// gracePeriod is how long the http app of a configuration waits for requests when it stops; 0 is without end.
func gracePeriod(config caddy.Context) time.Duration {
	app, err := config.AppIfConfigured("http")
	if err != nil {
		return 0
	}
	if h, ok := app.(*caddyhttp.App); ok {
		return time.Duration(h.GracePeriod)
	}
	return 0
}
