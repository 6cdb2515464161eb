package botpage

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/crawlgate/crawlgate/egress/guard"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/block"
	"github.com/crawlgate/crawlgate/webbotauth"
)

func init() {
	caddy.RegisterModule(new(Handler))
	httpcaddyfile.RegisterHandlerDirective("robots_bot", parse)
	httpcaddyfile.RegisterDirectiveOrder("robots_bot", httpcaddyfile.Before, "respond")
}

// bodyTime is how long a client may take to send the body of a request, which may be read after the
// answer.
const bodyTime = 10 * time.Second

// Handler serves the public site of one crawler. It is safe for concurrent use.
type Handler struct {
	// Agent is the name of a crawler that has an agent block in some site of the configuration.
	// Required.
	Agent string `json:"agent"`
	// Ranges are the addresses and ranges that the crawler's requests come from. Default: none are
	// published.
	Ranges []string `json:"ranges,omitempty"`
	// OptOut lets the owner of a host, with a proof, stop the crawler there. Default: false.
	OptOut bool `json:"opt_out,omitempty"`

	logger  *zap.Logger
	loaded  time.Time
	ranges  []netip.Prefix
	cross   *http.CrossOriginProtection
	clients *limits       // by address
	asked   *rate.Limiter // questions, in total
	hosts   *limits       // checks of proofs, by registered domain
	checks  *rate.Limiter // checks of proofs, in total
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.robots_bot", New: func() caddy.Module { return new(Handler) }}
}

// Provision checks the configuration. It cannot know yet whether the agent exists. If no site has
// it, the start of the engine fails.
func (h *Handler) Provision(ctx caddy.Context) (err error) {
	if h.ranges, err = h.check(); err != nil {
		return err
	}
	e, err := engine.Of(ctx)
	if err != nil {
		return err
	}
	e.NeedsAgent(h.Agent)
	h.logger, h.loaded, h.cross = ctx.Logger(), time.Now(), http.NewCrossOriginProtection()
	h.clients, h.asked = newLimits(2*time.Second, 10), rate.NewLimiter(5, 20)
	h.hosts, h.checks = newLimits(20*time.Second, 3), rate.NewLimiter(5, 20)
	return nil
}

func (h *Handler) check() ([]netip.Prefix, error) { return guard.ParsePrefixes("ranges", h.Ranges) }

// ServeHTTP serves the site. It never calls the next handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	for name, value := range map[string]string{
		"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
	} {
		w.Header().Set(name, value)
	}
	readUntil(w, time.Now().Add(bodyTime))
	e := engine.Current()
	if e == nil || e.Open() != nil {
		return h.fail(w, http.StatusServiceUnavailable, "The crawler's gateway does not run.")
	}
	site, id, known := e.Agent(h.Agent)
	if !known {
		return h.fail(w, http.StatusServiceUnavailable, "The gateway's configuration has no crawler of this name now.")
	}
	return h.route(w, r, view{e, site, id})
}

// readUntil bounds the time for the body of a request; zero means no bound.
func readUntil(w http.ResponseWriter, at time.Time) {
	_ = http.NewResponseController(w).SetReadDeadline(at) // only a writer that is not a server's cannot do it
}

// view is the state for one request: the current configuration, and its agent.
type view struct {
	*engine.Engine
	site  *engine.SitePolicy
	agent enforce.Identity
}

func (h *Handler) route(w http.ResponseWriter, r *http.Request, v view) error {
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch path := r.URL.Path; {
	case path == "/opt-out" && h.OptOut && r.Method == http.MethodPost:
		return h.takeOptOut(w, r, v)
	case path == "/opt-out" && h.OptOut:
		w.Header().Set("Allow", http.MethodPost)
		return h.fail(w, http.StatusMethodNotAllowed, "The form is at the end of the page.")
	case !read:
		w.Header().Set("Allow", "GET, HEAD")
		return h.fail(w, http.StatusMethodNotAllowed, "Only GET is allowed here.")
	case path == "/":
		return h.showPage(w, r, v)
	case path == cardPath:
		return h.serveCard(w, r, v)
	case path == rangesPath && len(h.ranges) > 0:
		return h.serveRanges(w)
	case path == webbotauth.WellKnown:
		return h.serveDirectory(w, r, v)
	}
	return h.fail(w, http.StatusNotFound, "There is nothing at this path.")
}

func parse(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	h.Next() // the directive's name
	handler := new(Handler)
	return handler, handler.UnmarshalCaddyfile(h.Dispenser)
}

// UnmarshalCaddyfile reads the directive.
//
//	robots_bot <agent> {
//		ranges <cidr>...
//		opt_out
//	}
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return block.Segment(d, h, func() *Handler { return new(Handler) }, (*Handler).read, (*Handler).check)
}

func (h *Handler) read(r *block.Reader) error {
	args := r.RemainingArgs()
	if len(args) != 1 || args[0] == "" {
		return r.Errf("robots_bot takes the name of an agent, found %q", args)
	}
	h.Agent = args[0]
	return block.Grammar{"ranges": block.List(&h.Ranges), "opt_out": block.Flag(&h.OptOut)}.Read(r, "robots_bot")
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
