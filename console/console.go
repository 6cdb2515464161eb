package console

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/block"
	"github.com/crawlgate/crawlgate/internal/docsite"
)

func init() {
	caddy.RegisterModule(new(Handler))
}

// Handler serves the operator's page. It is safe for concurrent use.
type Handler struct {
	// Orders lets authenticated users give and lift orders. Otherwise the page is read-only. Default:
	// false.
	Orders bool `json:"orders,omitempty"`
	// Hosts are the names by which browsers reach the page, without ports. Requests for others are
	// refused, so that no other site's name leads to the page (DNS rebinding). Default: the names
	// of the site's address, localhost, 127.0.0.1 and ::1.
	Hosts []string `json:"hosts,omitempty"`

	life    context.Context // ends when the server begins to stop
	logger  *zap.Logger
	hosts   []string
	stop    func() // recording
	cross   *http.CrossOriginProtection
	notes   notes
	viewers chan struct{}

	origins adminapi.Catalog

	mu      sync.Mutex
	shown   map[string]template.HTML // sections of the page by their ids
	shownAt time.Time
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.robots_console", New: func() caddy.Module { return new(Handler) }}
}

// maxViewers bounds the pages that get live updates.
const maxViewers = 20

// Provision checks the configuration. It refuses a page that users of other machines can reach
// without authentication, and a page that takes orders without knowing the user.
func (h *Handler) Provision(ctx caddy.Context) error {
	names, err := h.names()
	if err != nil {
		return err
	}
	h.hosts = append(names, "localhost", "127.0.0.1", "::1")
	server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok {
		return errHidden
	}
	guard, err := accessOf(server)
	if err != nil {
		return err
	}
	if outside := beyondLoopback(server); outside != "" && guard == open {
		return fmt.Errorf("the operator's page can be reached at %s without authentication: bind it to 127.0.0.1, "+
			"or put basic_auth, forward_auth or required client certificates before it", outside)
	}
	if h.Orders && guard != known {
		return errors.New("orders on: nobody would be responsible for an order; put basic_auth or required client certificates before the page")
	}
	h.hosts = append(h.hosts, siteNames(server)...)
	h.logger = ctx.Logger()
	// Caddy ends ctx only after the requests in progress, and a page with live updates is one of them.
	life, end := context.WithCancel(ctx)
	server.RegisterOnShutdown(end)
	h.life, h.cross, h.viewers = life, http.NewCrossOriginProtection(), make(chan struct{}, maxViewers)
	h.stop = engine.Record(server)
	checkInTurns(server)
	return engine.WithoutHTTP3(server, h.logger) // it would bypass the turns
}

// names checks the options, and returns the configured names of the page.
func (h *Handler) names() (names []string, err error) {
	for _, host := range h.Hosts {
		if host == "" || strings.ContainsAny(host, "*/ ") {
			return nil, fmt.Errorf("hosts %q: want a name or an address", host)
		}
		names = append(names, hostname(host))
	}
	return names, nil
}

// Cleanup ends the recording, unless another page needs it.
func (h *Handler) Cleanup() error {
	if h.stop != nil {
		h.stop()
	}
	return nil
}

// hostname returns the host of a Host field, in lower case and without port and brackets.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

// policy limits what the page may load: its own style and script, and nothing from other hosts.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP serves the page. It never calls the next handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	header := w.Header()
	for name, value := range map[string]string{
		"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Cache-Control": "no-store", "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
	} {
		header.Set(name, value)
	}
	if !slices.Contains(h.hosts, hostname(r.Host)) {
		return say(w, http.StatusMisdirectedRequest, "This page has another name: see the option hosts of robots_console.")
	}
	if err := h.cross.Check(r); err != nil {
		return h.fail(w, r, http.StatusForbidden, "The request comes from another site.")
	}
	e := engine.Current()
	if e == nil || e.Open() != nil {
		return h.fail(w, r, http.StatusServiceUnavailable, "No gateway runs.")
	}
	return h.route(w, r, e)
}

func (h *Handler) route(w http.ResponseWriter, r *http.Request, e *engine.Engine) error {
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch path := r.URL.Path; {
	case path == "/orders" && r.Method == http.MethodPost:
		return h.takeOrder(w, r, e)
	case path == "/orders":
		w.Header().Set("Allow", http.MethodPost)
		return h.fail(w, r, http.StatusMethodNotAllowed, "Orders are sent with POST.")
	case path == "/" && (read || r.Method == http.MethodPost):
		return h.showPage(w, r, e)
	case !read:
		w.Header().Set("Allow", "GET, HEAD")
		return h.fail(w, r, http.StatusMethodNotAllowed, "Only GET is allowed here.")
	case path == "/stops":
		return h.showStops(w, r, e)
	case finders[path].fill != nil:
		return h.showFinding(w, r, e)
	case path == "/origin":
		return h.showOrigin(w, r, e)
	case path == "/events":
		return h.serveEvents(w, r)
	case docsite.Covers(path):
		docsite.Serve(w, r, true)
		return nil
	case path == "/console.css":
		return send(w, http.StatusOK, "text/css; charset=utf-8", style)
	case path == "/console.js":
		return send(w, http.StatusOK, "text/javascript; charset=utf-8", script)
	}
	return h.fail(w, r, http.StatusNotFound, "There is nothing at this path.")
}

// send answers with a body.
func send(w http.ResponseWriter, status int, contentType string, body []byte) error {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has left needs no answer; the server sends none of it to HEAD
	return nil
}

// userOf returns the authenticated user of a request, or "".
func userOf(r *http.Request) string {
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		if user, ok := repl.GetString("http.auth.user.id"); ok && user != "" {
			return user
		}
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return r.TLS.VerifiedChains[0][0].Subject.CommonName
	}
	return ""
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)

func init() {
	httpcaddyfile.RegisterHandlerDirective("robots_console", parse)
	// Authentication comes before the page, and handlers that answer come after it.
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
