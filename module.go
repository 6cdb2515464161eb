// Package crawlgate is a Caddy module: a forward proxy in front of all crawlers of a company that
// enforces robots.txt (RFC 9309), keeps one clock a host, and writes one line about each request
// that an auditor can check.
//
// The package itself turns Caddy's configuration into the terms of the packages below it. A site's
// requests go through proxy; engine has what sites share. The packages robotstxt, fetch,
// robotscache and enforce decide what robots.txt means, and egress sends what may leave.
package crawlgate

import (
	"encoding/json"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	_ "github.com/crawlgate/crawlgate/adminapi" // its module registers itself
	_ "github.com/crawlgate/crawlgate/cli"      // its commands register themselves
	_ "github.com/crawlgate/crawlgate/console"  // its handler registers itself
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/version"
	"github.com/crawlgate/crawlgate/proxy"
)

func init() {
	caddy.RegisterModule(new(Handler))
	// The command version tells of both, in a binary of xcaddy too; who links another name in keeps
	// it.
	if caddy.CustomVersion == "" {
		caddy.CustomVersion = "Crawlgate " + version.Read() + ", Caddy"
	}
}

// Handler is the gateway of one site: a forward proxy that lets pass what the target's robots.txt
// allows the crawler that asks. It takes requests in absolute form and CONNECT. A request in origin
// form is for the gateway itself and gets a page that says what it is.
//
// A refused request is answered by the handler itself: 400, 403, 407, 421, 429, 502 or 504, with
// Proxy-Status (RFC 9209) and a body that explains the refusal. Where the server has error routes
// (handle_errors), it is handed to them as an error with that status instead.
//
// The access log gets an object "robots" with the decision and its evidence; docs/access-log.md
// lists its fields.
type Handler struct {
	// Mode is "enforce" (default), "report" (a request that would be refused passes, and is logged so)
	// or "off".
	Mode string `json:"mode,omitempty"`
	// Clients lists the ranges whose clients may use the gateway, or "any" alone. The address is the
	// one that Caddy takes for the client's (trusted_proxies). A client over a unix socket counts as
	// 127.0.0.1. Default: loopback, the private ranges of RFC 1918 and RFC 4193, and link-local ones.
	Clients []string `json:"clients,omitempty"`
	// HostModes are the modes for some hosts. They go before the mode of an agent and Mode.
	HostModes []HostModeConfig `json:"host_modes,omitempty"`
	// Agents are the company's crawlers. With none, every request is taken for the product token of
	// its User-Agent.
	Agents []AgentConfig `json:"agents,omitempty"`
	// Unidentified is "deny" (default where there are agents) or "allow": what becomes of a request
	// that matches no agent.
	Unidentified string `json:"unidentified,omitempty"`
	// Connect says what becomes of CONNECT; the first rule that matches is taken.
	Connect []ConnectRule `json:"connect,omitempty"`
	// Exceptions let requests pass that robots.txt refuses.
	Exceptions []ExceptionConfig `json:"exceptions,omitempty"`
	// Paths is "strict" (default: a path is judged as it is sent and as servers resolve it, and is
	// refused if one of the two is disallowed) or "as_sent" (as it is sent alone, as RFC 9309 has it).
	Paths string `json:"paths,omitempty"`
	// Preferences is what becomes of a request for a purpose of its agent that the site does not want:
	// "deny", "log" (default: it passes, and the log names the conflict) or "annotate" (it passes).
	Preferences string `json:"preferences,omitempty"`
	// Unknown is what a preference that the site does not state means under "deny": "allow" (default)
	// or "deny".
	Unknown string `json:"unknown,omitempty"`
	// Deny lists hosts to which nothing goes, in every mode.
	Deny []string `json:"deny,omitempty"`
	// MaxWait bounds how long a request of this site is held for politeness, unless its agent has a
	// max_wait of its own. Default: the engine's wait.
	MaxWait *caddy.Duration `json:"max_wait,omitempty"`
	// EgressOff hands allowed requests to the next handler instead of sending them out.
	EgressOff bool `json:"egress_off,omitempty"`

	known []AgentConfig // further agents that exceptions may name, while a part of a Caddyfile is checked
	site  *proxy.Site
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.robots", New: func() caddy.Module { return new(Handler) }}
}

// Provision checks the configuration and makes the site.
func (h *Handler) Provision(ctx caddy.Context) error {
	config, err := h.policy()
	if err != nil {
		return err
	}
	if config.Source, err = json.Marshal(h); err != nil {
		return err
	}
	config.Logger = ctx.Logger()
	if config.Engine, err = engine.Of(ctx); err != nil {
		return err
	}
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		config.Server = server
	}
	h.site, err = proxy.New(ctx, config)
	return err
}

// ServeHTTP takes one request through the gateway.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return h.site.ServeHTTP(w, r, next)
}

// Cleanup releases what the site holds. Its requests may still run.
func (h *Handler) Cleanup() error {
	if h.site != nil {
		h.site.Close()
	}
	return nil
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
