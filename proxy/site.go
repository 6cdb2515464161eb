// Package proxy takes one request through the gateway: requests in absolute form, CONNECT, requests
// inside tunnels, and requests for the gateway itself. Each path begins at [Site.ServeHTTP], which
// checks the client and determines what the request is for. exchange.go handles a proxied request,
// connect.go a CONNECT, and landing.go the requests that the gateway answers itself. Every exchange
// is logged and counted once, however its request ends (account.go).
package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"golang.org/x/net/http/httpguts"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/egress/guard"
	"github.com/crawlgate/crawlgate/egress/mint"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/docsite"
	"github.com/crawlgate/crawlgate/internal/redact"
	"github.com/crawlgate/crawlgate/internal/stall"
	"github.com/crawlgate/crawlgate/proxy/reach"
)

// Config configures a [Site].
type Config struct {
	// SitePolicy is complete except for Life and Enforcer. Outside a server, CONNECT is refused.
	engine.SitePolicy
	Warnings []string // about the configuration, for the operator
	// EgressOff hands allowed requests to the next handler instead of sending them out.
	EgressOff bool
	Logger    *zap.Logger
}

// Site is the gateway of one site, ready to serve. It is safe for concurrent use.
type Site struct {
	*engine.SitePolicy

	egressOff bool
	forwarder *egress.Forwarder
	authority *authority    // nil if nothing is intercepted
	minter    *mint.Minter  // the same
	tunnels   *tunnelServer // nil outside of a server
}

// maxURL bounds the URL of a request, in bytes: a little less than the header that Caddy accepts.
const maxURL = 16 << 10

// bodyTimeout is how long a client may take to send the body of a request. It is far longer than
// any that a crawler sends takes at [engine.Limits.MinRate].
const bodyTimeout = 10 * time.Minute

// anyClient is the keyword for clients at all addresses.
const anyClient = "any"

// ParseClients reads the ranges of the clients that may use the gateway, or a single "any". An
// empty list means the default of [enforce.ClientAllowed].
func ParseClients(list []string) ([]netip.Prefix, error) {
	switch {
	case len(list) == 1 && list[0] == anyClient:
		list = []string{"0.0.0.0/0", "::/0"}
	case slices.Contains(list, anyClient):
		return nil, fmt.Errorf("clients: %q must be alone, because it covers every range", anyClient)
	}
	return guard.ParsePrefixes("clients", list)
}

// New makes a site while its handler is provisioned with ctx, and hooks it into the server. The
// caller must call [Site.Close] unless New fails.
func New(ctx caddy.Context, c Config) (*Site, error) {
	for _, w := range c.Warnings {
		c.Logger.Warn("configuration of the gateway", zap.String("warning", w))
	}
	c.Life = ctx
	c.Enforcer = &enforce.Enforcer{
		Rules: tracedLookup{c.Engine}, Files: c.Engine,
		Policy: c.Operator, Stops: c.Engine.Stops(), AllowFor: c.Engine.Config.AllowFor, Reads: c.Engine.Config.Signals,
	}
	if agent := c.Identifier.DeniesByPages(); agent != "" && !c.Enforcer.Reads.HTML.Reads() {
		c.Logger.Warn("preferences deny sees no tags of pages, because html is off: set html hold in signals", zap.String("agent", agent))
	}
	s := &Site{
		SitePolicy: &c.SitePolicy,
		egressOff:  c.EgressOff,
		forwarder: &egress.Forwarder{
			Transport: c.Engine.Transport, Name: enforce.Name, HeaderPrefix: "Crawlgate-",
			MinRate: c.Engine.Config.MinRate, BodyTimeout: bodyTimeout,
		},
	}
	if err := s.prepare(ctx, c.Logger); err != nil {
		return nil, err
	}
	if err := c.Engine.AddSite(ctx, s.SitePolicy); err != nil || c.Server == nil {
		return s, err
	}
	return s, s.hook(ctx, c.Logger)
}

// prepare refuses a server that keeps requests from the site, and prepares for interception if the
// policy may need it. Outside a server it does nothing.
func (s *Site) prepare(ctx caddy.Context, logger *zap.Logger) (err error) {
	if s.Server == nil {
		return nil
	}
	if err := reach.CheckServer(s.Server); err != nil || !s.Operator.MayIntercept() {
		return err
	}
	if s.authority, err = loadAuthority(ctx, logger); err != nil {
		return err
	}
	s.Authority = s.authority.Certificates
	s.minter, err = mint.New(s.authority)
	return err
}

// hook prepares the server that receives the requests of the site.
func (s *Site) hook(ctx caddy.Context, logger *zap.Logger) error {
	if s.Engine.Wrapped(s.Server) {
		logger.Warn("the server of this gateway lacks the listener wrapper robots: the limits on connections do not apply there",
			zap.Strings("listen", s.Server.Listen))
	}
	if reach.TrustsClients(s.Server) {
		logger.Warn("a client behind a trusted proxy may choose its own address by X-Forwarded-For: set trusted_proxies_strict",
			zap.Strings("listen", s.Server.Listen))
	}
	if err := engine.WithoutHTTP3(s.Server, logger); err != nil {
		return err
	}
	s.Server.RegisterConnContext(atFirst(s.complete))
	s.Server.RegisterConnContext(egress.WithConn)
	s.Server.RegisterConnState(egress.Unfollow)
	stopWith(s.Server, ctx)
	s.tunnels = newTunnelServer(s.Server)
	return nil
}

// complete sets the fields of the net/http server for which Caddy has no setting.
func (s *Site) complete(server *http.Server) {
	if _, done := server.Handler.(fronted); !done { // by another gateway at the same port
		server.Handler = fronted{server.Handler, s.Engine}
	}
	server.HTTP2 = cmp.Or(server.HTTP2, new(http.HTTP2Config))
	server.HTTP2.CountError = unreadHTTP2
}

// fronted is the handler in front of Caddy's. It removes from a request what must not be logged.
// After Caddy has written the line of the access log, it frees the place of the line and may abort
// the answer. If a handler behind Caddy's aborted the answer by a panic, Caddy would log a duration
// of 0.
type fronted struct {
	http.Handler
	engine *engine.Engine
}

type behindKey struct{}

// behind is the work of fronted after the line is written.
type behind struct {
	w      http.ResponseWriter
	line   stall.Line
	broken bool
}

// Release ends an answer whose line the log does not accept. The client gets the part that was
// sent, and then the end of the connection or, over HTTP/2, of the stream.
func (b *behind) Release() {
	answer := http.NewResponseController(b.w)
	_ = answer.SetWriteDeadline(time.Now().Add(time.Second))
	_ = answer.Flush()
	if conn, _, err := answer.Hijack(); err == nil {
		_ = conn.Close()
	}
}

func (h fronted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, docsite.Root) {
		asOwn(r)
	}
	h.engine.Config.Redact.Withhold(r, r.Method == http.MethodConnect || r.URL.IsAbs())
	h.serve(w, r)
}

// serve handles a request after everything secret has been removed.
func (h fronted) serve(w http.ResponseWriter, r *http.Request) {
	b := &behind{w: w, line: h.engine.Line()}
	b.line.Waiter = b
	defer b.line.End()
	// In place, as net/http looks at the request too.
	*r = *r.WithContext(context.WithValue(r.Context(), behindKey{}, b))
	if h.Handler.ServeHTTP(w, r); b.broken {
		panic(http.ErrAbortHandler)
	}
}

// atFirst returns a function for the ConnContext of a net/http server. Caddy makes that server late
// and does not expose it. The function changes the server at the first connection, and so before
// any request is served.
func atFirst(change func(*http.Server)) func(context.Context, net.Conn) context.Context {
	var once sync.Once
	return func(ctx context.Context, _ net.Conn) context.Context {
		if s, ok := ctx.Value(http.ServerContextKey).(*http.Server); ok {
			once.Do(func() { change(s) })
		}
		return ctx
	}
}

// Close releases what the site holds. Requests and tunnels of the site may still run.
func (s *Site) Close() {
	if s.tunnels != nil {
		s.tunnels.retire()
	}
}

// ServeHTTP takes one request through the gateway.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	x := &exchange{site: s, w: w, r: r, ctx: r.Context(), began: time.Now(), tunnel: tunnelOf(r)}
	if b, ok := x.ctx.Value(behindKey{}).(*behind); ok {
		x.line, x.sent.Broken = &b.line, &b.broken
	}
	x.decision.UserAgent = r.UserAgent() // for a request that is refused before the decision
	defer x.account()
	x.placeholders()
	userinfo := redact.PutBack(r)
	source := engine.SourceOf(r)
	if x.tunnel != nil { // fields of a request inside are from the client itself, not from a proxy in between
		source = x.tunnel.from.Source
	}
	misdirected, _ := x.ctx.Value(misdirectedKey{}).(error)
	switch {
	case !enforce.ClientAllowed(s.Clients, source):
		return x.fail(enforce.ReasonClientNotAllowed, source.String()+" is in no range of clients")
	case userinfo:
		return x.fail(enforce.ReasonBadTarget, "the target holds user information")
	case errors.Is(misdirected, egress.ErrMisdirected):
		return x.fail(enforce.ReasonMisdirected, misdirected.Error())
	case misdirected != nil:
		return x.fail(enforce.ReasonBadTarget, misdirected.Error())
	}
	connect := r.Method == http.MethodConnect
	if x.own = !connect && (!r.URL.IsAbs() || strings.EqualFold(r.URL.Hostname(), enforce.OwnHost)); x.own {
		return x.serveLanding()
	}
	if err := s.Engine.Open(); err != nil {
		return x.fail(enforce.ReasonNotReady, err.Error())
	}
	if err := engine.EvidenceMissing(); err != nil {
		return x.fail(enforce.ReasonEvidenceUnavailable, err.Error())
	}
	if s.Engine.RefusesUnlogged() {
		return x.fail(enforce.ReasonLogUnavailable, "the access log takes no lines")
	}
	if what := ambiguity(r); what != "" {
		return x.fail(enforce.ReasonBadRequest, what)
	}
	if n := len(r.RequestURI); n > maxURL {
		return x.fail(enforce.ReasonURLSize, fmt.Sprintf("it has %d bytes, and the limit is %d", n, maxURL))
	}
	if connect {
		return x.connect()
	}
	return x.proxy(next)
}

// tunnelOf returns the tunnel that a request came through, or nil.
func tunnelOf(r *http.Request) *tunnel {
	p := egress.ConnectFrom(r.Context())
	if p == nil {
		return nil
	}
	t, _ := p.Value.(*tunnel)
	return t
}

// misdirectedKey is the key of the error of a request that does not belong in its tunnel.
type misdirectedKey struct{}

// senderOf returns what a request shows about its sender.
func senderOf(r *http.Request) enforce.Sender {
	e := enforce.Sender{UserAgent: r.UserAgent(), ProxyAuthorization: r.Header.Get("Proxy-Authorization"), Source: engine.SourceOf(r)}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		leaf := r.TLS.VerifiedChains[0][0]
		e.CertificateNames = append(e.CertificateNames, leaf.Subject.CommonName)
		e.CertificateNames = append(e.CertificateNames, leaf.DNSNames...)
		e.CertificateNames = append(e.CertificateNames, leaf.EmailAddresses...)
		for _, u := range leaf.URIs {
			e.CertificateNames = append(e.CertificateNames, u.String())
		}
	}
	return e
}

// ambiguity returns why two servers could understand a request differently, or "" if they could
// not. If a field appears twice, the gateway would check one value and the site could see the
// other. HTTP/2 permits any bytes as a method.
func ambiguity(r *http.Request) string {
	if !httpguts.ValidHeaderFieldName(r.Method) { // a token, as a method is (RFC 9110 section 9.1)
		return "the method is not a token"
	}
	for _, name := range []string{"User-Agent", "Proxy-Authorization"} {
		if len(r.Header[name]) > 1 {
			return "more than one field " + name
		}
	}
	return ""
}
