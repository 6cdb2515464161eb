package crawlgate

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/enforce"
)

// stopLimit bounds the wait for requests inside tunnels when the process ends and no grace period is configured.
const stopLimit = 10 * time.Second

// newInterceptor starts the server of the requests inside tunnels. Each is handed to the same Caddy server that the
// CONNECT came to, so that its routes, its access log and its metrics apply.
func newInterceptor(server *caddyhttp.Server, minter *egress.Minter) *egress.Interceptor {
	i := egress.NewInterceptor(egress.InterceptorConfig{
		Handler:           inside{server},
		Minter:            minter,
		ReadHeaderTimeout: span(server.ReadHeaderTimeout, time.Minute),
		IdleTimeout:       span(server.IdleTimeout, 5*time.Minute),
		MaxHeaderBytes:    or(server.MaxHeaderBytes, 16<<10),
	})
	server.RegisterConnContext(egress.WithConn)
	// On a reload requests inside end in their own time, while the old configuration's server drains.
	server.RegisterOnShutdown(func() { go func() { _ = i.Shutdown(context.Background()) }() })
	// When the process ends, Caddy waits for them as for all others.
	server.RegisterOnStop(func(ctx context.Context) error {
		if !caddy.Exiting() {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, stopLimit)
		defer cancel()
		return i.Shutdown(ctx)
	})
	return i
}

// inside takes the requests inside tunnels.
type inside struct{ server *caddyhttp.Server }

// astrayKey is the key of the error of a request that does not belong into its tunnel.
type astrayKey struct{}

// ServeHTTP makes the request what it would be outside: absolute, from the client's address. One that is for another
// authority goes the same way, to be refused and logged like any other.
func (s inside) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := egress.PassageOf(r.Context()).Resolve(r); err != nil {
		r = r.WithContext(context.WithValue(r.Context(), astrayKey{}, err))
	}
	s.server.ServeHTTP(w, r)
}

// astray refuses a request that does not belong into its tunnel, and reports whether it was one.
func (x *exchange) astray() (error, bool) {
	err, ok := x.r.Context().Value(astrayKey{}).(error)
	if !ok {
		return nil, false
	}
	x.decision.UserAgent = userAgent(x.r)
	if errors.Is(err, egress.ErrMisdirected) {
		return x.refuse(x.decision.Refuse(enforce.ReasonMisdirected, err.Error(), 0)), true
	}
	return x.refuse(x.decision.Refuse(enforce.ReasonBadTarget, err.Error(), 0)), true
}

// senderOf returns what the tunnel of the request told of its sender.
func senderOf(r *http.Request) (enforce.Tunnel, bool) {
	p := egress.PassageOf(r.Context())
	if p == nil {
		return enforce.Tunnel{}, false
	}
	sender, ok := p.Value.(enforce.Tunnel)
	return sender, ok
}
