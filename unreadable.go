package crawlgate

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/crawlgate/crawlgate/egress"
)

// A request that cannot be read (malformed, too large, or TLS spoken to a plain port) is answered by net/http with a 4xx
// before any handler runs, so the access log never hears of it. What is left of it is a connection that became active
// more often than requests arrived: that is counted and logged here, with the peer and without its octets.
//
// On a server that has other sites beside the gateway their requests would look like it, so it is not watched.

// requestCountKey is the key of a connection's count of readable requests in the context of its requests.
type requestCountKey struct{}

// noteReadable counts a request that reached the handler.
func noteReadable(r *http.Request) {
	if n, ok := r.Context().Value(requestCountKey{}).(*atomic.Int64); ok {
		n.Add(1)
	}
}

// watchUnreadable hooks into the server's connections.
func watchUnreadable(server *caddyhttp.Server, logger *zap.Logger) {
	if len(server.Routes) > 1 {
		return
	}
	w := &unreadableWatch{logger: logger}
	w.some.First, w.some.Interval = 10, time.Second
	server.RegisterConnContext(func(ctx context.Context, c net.Conn) context.Context {
		state := new(connState)
		w.conns.Store(c, state)
		return context.WithValue(ctx, requestCountKey{}, &state.readable)
	})
	server.RegisterConnState(w.changed)
}

type unreadableWatch struct {
	logger *zap.Logger
	conns  sync.Map       // net.Conn -> *connState, for as long as the connection is open
	some   rate.Sometimes // a scanner must not fill the log
}

type connState struct {
	active   atomic.Int64 // how often a request began
	readable atomic.Int64 // how often one reached the handler
}

func (w *unreadableWatch) changed(c net.Conn, state http.ConnState) {
	value, ok := w.conns.Load(c)
	if !ok {
		return
	}
	s, ok := value.(*connState)
	if !ok {
		return
	}
	switch state {
	case http.StateActive:
		s.active.Add(1)
	case http.StateHijacked:
		w.conns.Delete(c)
	case http.StateClosed:
		w.conns.Delete(c)
		if egress.IsHTTP2(c) {
			return // its frames are counted otherwise
		}
		if s.active.Load() > s.readable.Load() {
			instruments.unreadable.Inc()
			w.some.Do(func() {
				w.logger.Warn("request could not be read; it was answered with a 4xx", zap.Stringer("remote_addr", c.RemoteAddr()))
			})
		}
	case http.StateNew, http.StateIdle:
	}
}
