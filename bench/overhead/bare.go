package main

import (
	"context"
	"net"
	"net/http"
	"net/netip"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/egress/guard"
	"github.com/crawlgate/crawlgate/origin"
)

func init() {
	caddy.RegisterModule(new(bare))
	httpcaddyfile.RegisterHandlerDirective("bare", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		h.Next()
		return new(bare), nil
	})
	httpcaddyfile.RegisterDirectiveOrder("bare", httpcaddyfile.Before, "reverse_proxy")
}

// bare forwards requests without any decision: it is a gateway without robots.txt, pacing and
// evidence.
type bare struct{ forwarder *egress.Forwarder }

// CaddyModule returns the Caddy module information.
func (*bare) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.bare", New: func() caddy.Module { return new(bare) }}
}

// Provision creates the same transport as the gateway's.
func (b *bare) Provision(caddy.Context) error {
	allowed := &guard.Guard{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	transport, err := egress.NewTransport(egress.TransportConfig{Dialer: &egress.Dialer{Guard: allowed}})
	b.forwarder = &egress.Forwarder{Transport: transport, Name: "bare", HeaderPrefix: "Bare-"}
	return err
}

// ServeHTTP forwards the request.
func (b *bare) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if !r.URL.IsAbs() {
		return next.ServeHTTP(w, r)
	}
	target, err := origin.NewTarget(r.URL)
	if err != nil {
		return caddyhttp.Error(http.StatusBadRequest, err)
	}
	result := egress.Result{Hooks: unnoted{}}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	if failure := b.forwarder.Forward(ctx, cancel, w, r, target.URL(), &result); failure != nil {
		return caddyhttp.Error(http.StatusBadGateway, failure)
	}
	return nil
}

// unnoted is an egress.Steps that ignores all steps.
type unnoted struct{}

func (unnoted) Connecting()                       {}
func (unnoted) Connected(net.Conn, *http.Request) {}
func (unnoted) Sent()                             {}
func (unnoted) Answered(int, http.Header) bool    { return true }
func (unnoted) Began([]byte, bool) bool           { return true }

// Interface guards.
var (
	_ caddy.Provisioner           = (*bare)(nil)
	_ caddyhttp.MiddlewareHandler = (*bare)(nil)
)
