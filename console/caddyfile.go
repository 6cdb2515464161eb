package console

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/crawlgate/crawlgate/internal/block"
)

func init() {
	httpcaddyfile.RegisterHandlerDirective("robots_console", parse)
	// Authentication comes before the page, and what answers by itself after it.
	httpcaddyfile.RegisterDirectiveOrder("robots_console", httpcaddyfile.Before, "respond")
}

func parse(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	h.Next() // the directive's name
	handler := new(Handler)
	return handler, handler.UnmarshalCaddyfile(h.Dispenser)
}

// UnmarshalCaddyfile reads the operator's page.
//
//	robots_console {
//		orders off|on
//		hosts <name>...
//	}
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return block.Segment(d, h, func() *Handler { return new(Handler) }, (*Handler).read, (*Handler).names)
}

func (h *Handler) read(r *block.Reader) error {
	if r.NextArg() {
		return r.Errf("robots_console takes no argument, found %q", r.Val())
	}
	return block.Grammar{
		"orders": block.Switch(&h.Orders, "on", "off"),
		"hosts":  block.List(&h.Hosts),
	}.Read(r, "robots_console")
}
