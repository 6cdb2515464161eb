// Package crawlgate is a Caddy module: a forward proxy in front of all crawlers of a company that enforces robots.txt
// (RFC 9309), keeps one clock a host, and writes one line about each request that an auditor can check.
//
// The package itself is glue: it turns Caddy's configuration and requests into the terms of the packages below it, and
// their answers into responses, log fields and metrics. What robots.txt means is decided in robotstxt, fetch,
// robotscache and enforce; how bytes leave, in egress.
package crawlgate

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddypki"
	"go.uber.org/zap"

	_ "github.com/crawlgate/crawlgate/adminapi" // its module registers itself
	_ "github.com/crawlgate/crawlgate/cli"      // its commands register themselves
	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/redact"
)

func init() {
	caddy.RegisterModule(new(Handler))
}

// Handler is the gateway of one site: a forward proxy that lets pass what the target's robots.txt allows the crawler
// that asks. It takes requests in absolute form and CONNECT. A request in origin form is for the gateway itself and
// gets a page that says what it is.
//
// A refused request is answered by the handler itself: 400, 403, 407, 421, 429, 502 or 504, with Proxy-Status (RFC 9209)
// and a body that explains the refusal. Where the server has error routes (handle_errors), it is handed to them as an
// error with that status instead.
//
// The access log gets an object "robots" with the decision and its evidence; docs/access-log.md lists its fields.
type Handler struct {
	// Mode is "enforce" (default), "report" (a request that would be refused passes, and is logged so) or "off".
	Mode string `json:"mode,omitempty"`
	// Clients lists the ranges whose clients may use the gateway, or "any" alone. The address is the one that Caddy takes
	// for the client's (trusted_proxies). A client over a unix socket counts as 127.0.0.1. Default: loopback, the private
	// ranges of RFC 1918 and RFC 4193, and link-local ones.
	Clients []string `json:"clients,omitempty"`
	// HostModes are the modes for some hosts, which go before that of an agent and the one above.
	HostModes []HostModeConfig `json:"host_modes,omitempty"`
	// Agents are the company's crawlers. With none, every request is taken for the product token of its User-Agent.
	Agents []AgentConfig `json:"agents,omitempty"`
	// Unidentified is "deny" (default where there are agents) or "allow": what becomes of a request that matches no
	// agent.
	Unidentified string `json:"unidentified,omitempty"`
	// Connect says what becomes of CONNECT; the first rule that matches is taken.
	Connect []ConnectRule `json:"connect,omitempty"`
	// Exceptions let requests pass that robots.txt refuses.
	Exceptions []ExceptionConfig `json:"exceptions,omitempty"`
	// Paths is "strict" (default: a path is judged as it is sent and as servers resolve it, and is refused if one of the two
	// is disallowed) or "as_sent" (as it is sent alone, as RFC 9309 has it).
	Paths string `json:"paths,omitempty"`
	// Deny lists hosts to which nothing goes, in every mode.
	Deny []string `json:"deny,omitempty"`
	// MaxWait bounds how long a request of this site is held for politeness. Default: the engine's wait.
	MaxWait *caddy.Duration `json:"max_wait,omitempty"`
	// EgressOff hands allowed requests to the next handler instead of sending them out.
	EgressOff bool `json:"egress_off,omitempty"`
	// DecisionHeader puts the decision into a header of allowed answers too.
	DecisionHeader bool `json:"decision_header,omitempty"`

	known     []AgentConfig // further agents that exceptions may name, while a part of a Caddyfile is checked
	site      *engine.SitePolicy
	logger    *zap.Logger
	forwarder *egress.Forwarder
	authority *caddypki.CA   // nil if nothing is intercepted
	minter    *egress.Minter // the same
	tunnels   *tunnelServer  // nil outside of a server
	passwords *passwords
}

// defaultConnect is what becomes of CONNECT where no rule says so.
const defaultConnect = enforce.ConnectIntercept

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.robots", New: func() caddy.Module { return new(Handler) }}
}

// Provision checks the configuration and connects the handler with the engine.
func (h *Handler) Provision(ctx caddy.Context) error {
	h.logger = ctx.Logger()
	p, err := h.policy()
	if err != nil {
		return err
	}
	for _, w := range p.warnings {
		h.logger.Warn("configuration of the gateway", zap.String("warning", w))
	}
	e, err := engine.Of(ctx)
	if err != nil {
		return err
	}
	h.passwords = p.passwords
	if err := h.passwords.share(); err != nil {
		return err
	}
	server, served := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if served {
		if err := checkSite(server); err != nil {
			return err
		}
	}
	h.site = &engine.SitePolicy{
		Engine: e, Life: ctx, Server: server, Clients: p.clients, Identifier: p.identifier, Operator: p.operator,
		Enforcer: enforce.New(enforce.Config{Rules: tracedLookup{e}, Policy: p.operator, Kills: e.KillSwitch()}),
	}
	if err := e.AddSite(ctx, h.site); err != nil {
		return err
	}
	h.forwarder = &egress.Forwarder{
		Transport: e.Transport(), Name: gatewayName, HeaderPrefix: "Crawlgate-",
		MinRate: e.Config.Limits.MinRate, BodyTimeout: e.Config.Limits.BodyTimeout,
	}
	if !served {
		return nil
	}
	return h.provisionServer(ctx, server)
}

// provisionServer prepares the server that takes the requests of the site.
func (h *Handler) provisionServer(ctx caddy.Context, server *caddyhttp.Server) error {
	if n := h.site.Engine.Config.Limits.HeaderSize; n > 0 {
		server.MaxHeaderBytes = n
	}
	h.warnUnbounded()
	if err := withoutHTTP3(server, h.logger); err != nil {
		return err
	}
	server.RegisterConnContext(redactFirst(h.site.Engine.Config.Redact))
	return h.provisionTunnels(ctx)
}

// warnUnbounded warns, once for each server, where nothing counts its connections.
func (h *Handler) warnUnbounded() {
	if h.site.Engine.Wrapped(h.site.Server) {
		h.logger.Warn("the server of this gateway lacks the listener wrapper robots: the limits of connections do not hold there",
			zap.Strings("listen", h.site.Server.Listen))
	}
}

// provisionTunnels prepares for what comes through CONNECT.
func (h *Handler) provisionTunnels(ctx caddy.Context) error {
	var err error
	if h.mayIntercept() {
		if h.authority, err = loadAuthority(ctx, h.logger); err != nil {
			return err
		}
		if h.minter, err = egress.NewMinter(egress.MinterConfig{Issuer: issuer{h.authority}}); err != nil {
			return err
		}
	}
	h.site.Server.RegisterConnContext(egress.WithConn)
	h.site.Server.RegisterConnState(egress.Unfollow)
	stopWith(h.site.Server, ctx)
	h.tunnels, err = acquireTunnelServer(limitsOf(h.site.Server))
	return err
}

// retryNotReady is what a client is told that finds a gateway without its store: Caddy has ended such a configuration by then.
const retryNotReady = 5 * time.Second

// ServeHTTP takes one request through the gateway.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	x := &exchange{h: h, w: w, r: r, ctx: r.Context(), began: time.Now()}
	defer x.account()
	defer func() { x.entry.Leave() }()
	x.placeholders()
	userinfo := redact.PutBack(r)
	switch source := clientOf(r); {
	case !h.site.Admits(source):
		return x.refuseRequest(enforce.ReasonClientNotAllowed, source.String()+" is in no range of clients")
	case userinfo:
		return x.refuseRequest(enforce.ReasonBadTarget, "the target holds user information")
	}
	err, astray := x.astray()
	connect := r.Method == http.MethodConnect
	switch {
	case astray:
		return err
	case !connect && !r.URL.IsAbs():
		x.own = true
		return h.serveSelf(w, r)
	}
	if err := h.site.Engine.Open(); err != nil {
		x.decision.UserAgent = r.UserAgent()
		return x.refuse(x.decision.Refuse(enforce.ReasonNotReady, err.Error(), retryNotReady))
	}
	if what := ambiguity(r); what != "" {
		return x.refuseRequest(enforce.ReasonBadRequest, what)
	}
	if n, most := len(r.RequestURI), h.site.Engine.Config.Limits.URLSize; n > most {
		return x.refuseRequest(enforce.ReasonURLSize, fmt.Sprintf("it has %d bytes, and the limit is %d", n, most))
	}
	if connect {
		return h.serveConnect(x)
	}
	return h.serveProxied(x, next)
}

// Cleanup lets go of what the handler holds. Requests of this configuration may still run.
func (h *Handler) Cleanup() error {
	var errs []error
	if h.passwords != nil {
		errs = append(errs, h.passwords.release())
	}
	if h.tunnels != nil {
		errs = append(errs, h.tunnels.release())
	}
	return errors.Join(errs...)
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
