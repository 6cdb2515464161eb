package engine

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"iter"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/egress/guard"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/sockets"
	"github.com/crawlgate/crawlgate/origin"
)

// SitePolicy is the policy of one site, and the server that receives its requests.
type SitePolicy struct {
	Source     []byte // its configuration as loaded, for the digest
	Engine     *Engine
	Life       context.Context   // ends when another configuration replaces this one
	Server     *caddyhttp.Server // nil outside a server
	Clients    []netip.Prefix    // none: the default of [enforce.ClientAllowed]
	Identifier *enforce.Identifier
	Enforcer   *enforce.Enforcer
	Operator   *enforce.Policy
	// Authority returns the current certificates that sign for intercepted hosts, by "root" and
	// "intermediate". It is nil if nothing is intercepted.
	Authority func() map[string]*x509.Certificate
}

// Listens reports whether the site listens on an address, or has it as its name.
func (s *SitePolicy) Listens(address string) bool {
	return s.Server != nil && (slices.Contains(s.Server.Listen, address) || s.Server.Name() == address)
}

// Name is the address that the site listens on or, if Caddy has none, the server's name.
func (s *SitePolicy) Name() string {
	if s.Server == nil {
		return ""
	}
	if len(s.Server.Listen) > 0 {
		return s.Server.Listen[0]
	}
	return s.Server.Name()
}

// Successors are the sites of the current configuration at the ports of s.
func (s *SitePolicy) Successors() []*SitePolicy {
	e := Current()
	if e == nil {
		return nil
	}
	return slices.DeleteFunc(e.Sites(), func(next *SitePolicy) bool {
		return next.Life.Err() != nil || !slices.ContainsFunc(s.Server.Listen, next.Listens)
	})
}

// AddSite adds a site while its handler is provisioned with ctx. It fails if another process
// listens at an address of the site, if the keys of an agent cannot be read, or if an agent has a
// different budget at another site.
func (e *Engine) AddSite(ctx caddy.Context, s *SitePolicy) error {
	if err := e.followKeys(ctx, s); err != nil {
		return err
	}
	served := func(s *SitePolicy) bool { return s.Server != nil }
	e.sitesMu.Lock()
	first := served(s) && !slices.ContainsFunc(e.sites, served)
	e.sites = append(e.sites, s)
	e.sitesMu.Unlock()
	if err := e.checkBudgets(s); err != nil {
		return err
	}
	if first {
		if err := e.tellWhenReady(ctx); err != nil {
			return err
		}
	}
	if s.Server == nil || !e.toStart() {
		return nil
	}
	return checkNotInUse(listenAddrs(s.Server))
}

// Sites returns the sites in the order in which they were provisioned.
func (e *Engine) Sites() []*SitePolicy {
	e.sitesMu.Lock()
	defer e.sitesMu.Unlock()
	return slices.Clone(e.sites)
}

// Agents yields the agents of all sites, in the order of their blocks. An agent with blocks at
// several sites appears once for each. They must not be changed.
func (e *Engine) Agents() iter.Seq[*enforce.Agent] {
	return func(yield func(*enforce.Agent) bool) {
		for _, s := range e.Sites() {
			for _, a := range s.Identifier.Agents() {
				if !yield(a) {
					return
				}
			}
		}
	}
}

// Agent returns the identity of an agent that has a block, and the first site where the block signs
// or, if none does, the first site that has one.
func (e *Engine) Agent(name string) (s *SitePolicy, id enforce.Identity, ok bool) {
	for _, site := range e.Sites() {
		here, known := site.Identifier.Named(name)
		if known && here.Config != nil && (!ok || here.Config.Signs() && !id.Config.Signs()) {
			s, id, ok = site, here, true
		}
	}
	return s, id, ok
}

// NeedsAgent makes the start fail if no site has a block for an agent. It is for the time of
// provisioning.
func (e *Engine) NeedsAgent(name string) { e.needed = append(e.needed, name) }

func (e *Engine) checkNeeded() error {
	for _, name := range e.needed {
		if _, _, ok := e.Agent(name); !ok {
			return fmt.Errorf("robots_bot %s: no site has a block agent %[1]s", name)
		}
	}
	return nil
}

// denied reports whether the deny list of every site names the origin, and returns the pattern of
// the last one.
func (e *Engine) denied(o origin.Origin) (pattern enforce.HostPattern, denied bool) {
	for _, site := range e.Sites() {
		if pattern, denied = site.Operator.Denied(o); !denied {
			return pattern, false
		}
	}
	return pattern, denied
}

// Wrapped notes that the connections of a server are counted, or that the operator was warned that
// they are not. It reports whether that was news. Call it during provisioning.
func (e *Engine) Wrapped(server *caddyhttp.Server) (news bool) {
	if slices.Contains(e.wrapped, server) {
		return false
	}
	e.wrapped = append(e.wrapped, server)
	return true
}

// tellWhenReady logs a line each time a configuration is current and its servers listen. The line
// has the proxy URLs for clients, and the addresses where the sites listen.
func (e *Engine) tellWhenReady(ctx caddy.Context) error {
	events, err := App[*caddyevents.App]("events", ctx.App)
	if err != nil {
		return err
	}
	return whenStarted(events, func() {
		if proxies, listen := e.addresses(); len(listen) > 0 {
			e.logger.Info("ready", zap.Strings("proxy", proxies), zap.Strings("listen", listen))
		}
	})
}

// addresses returns the URLs that clients on this machine set as their proxy, and the addresses at
// which the sites listen. A unix socket has no such URL.
func (e *Engine) addresses() (proxies, listen []string) {
	var seen []*caddyhttp.Server
	for _, site := range e.Sites() {
		if site.Server == nil || slices.Contains(seen, site.Server) {
			continue
		}
		seen = append(seen, site.Server)
		scheme := "http"
		if len(site.Server.TLSConnPolicies) > 0 {
			scheme = "https"
		}
		for _, l := range site.Server.Listeners() {
			listen = append(listen, l.Addr().String())
			if addr, ok := l.Addr().(*net.TCPAddr); ok {
				proxies = append(proxies, scheme+"://"+reachable(addr.AddrPort()))
			}
		}
	}
	return proxies, listen
}

// reachable returns an address by which a client on this machine reaches a listener.
func reachable(listen netip.AddrPort) string {
	if host := listen.Addr().Unmap(); !host.IsUnspecified() {
		return netip.AddrPortFrom(host, listen.Port()).String()
	}
	return fmt.Sprintf("localhost:%d", listen.Port())
}

// WithoutHTTP3 removes HTTP/3 from the protocols of a server, because Caddy serves it without the
// handler of net/http's server, which does the redaction.
func WithoutHTTP3(server *caddyhttp.Server, logger *zap.Logger) error {
	found := false
	lists := append([][]string{server.Protocols}, server.ListenProtocols...)
	for i, list := range lists {
		lists[i] = slices.DeleteFunc(slices.Clone(list), func(p string) bool { return p == "h3" })
		found = found || len(lists[i]) < len(list)
		if len(lists[i]) == 0 && len(list) > 0 {
			return errors.New("protocols: a gateway speaks h1 and h2, not h3")
		}
	}
	server.Protocols = lists[0]
	copy(server.ListenProtocols, lists[1:])
	if found && len(server.TLSConnPolicies) > 0 {
		logger.Info("a gateway speaks HTTP/1.1 and HTTP/2; HTTP/3 is not served", zap.Strings("listen", server.Listen))
	}
	return nil
}

// listens has the addresses of a configuration's HTTP servers, with and without a gateway.
type listens struct{ gateways, sites []netip.AddrPort }

// listensOf reads them from the http app. All of its servers are provisioned when an app starts.
func listensOf(e *Engine) (*listens, error) {
	l := new(listens)
	http, err := App[*caddyhttp.App]("http", e.ctx.AppIfConfigured)
	if errors.Is(err, caddy.ErrNotConfigured) {
		return l, nil
	}
	if err != nil {
		return nil, err
	}
	for _, server := range http.Servers {
		if slices.ContainsFunc(e.Sites(), func(s *SitePolicy) bool { return s.Server == server }) {
			l.gateways = append(l.gateways, listenAddrs(server)...)
		} else {
			l.sites = append(l.sites, listenAddrs(server)...)
		}
	}
	return l, nil
}

// listenAddrs returns the TCP addresses of a server. A name other than localhost has none yet: its
// addresses are known only when the server listens.
func listenAddrs(server *caddyhttp.Server) []netip.AddrPort {
	var addrs []netip.AddrPort
	for _, text := range server.Listen {
		listen, err := caddy.ParseNetworkAddress(text)
		if err != nil || !strings.HasPrefix(listen.Network, "tcp") {
			continue
		}
		for offset := range listen.PortRangeSize() {
			if port := listen.StartPort + offset; port > 0 && port <= math.MaxUint16 {
				for _, host := range listenHosts(listen) {
					addrs = append(addrs, netip.AddrPortFrom(host, uint16(port)))
				}
			}
		}
	}
	return addrs
}

func listenHosts(listen caddy.NetworkAddress) []netip.Addr {
	host, err := netip.ParseAddr(listen.Host)
	switch {
	case listen.Host == "localhost":
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	case listen.Host != "" && err != nil:
		return nil
	case listen.Host != "" && !host.IsUnspecified():
		return []netip.Addr{host.WithZone("").Unmap()}
	case listen.Network == "tcp4":
		return []netip.Addr{netip.IPv4Unspecified()}
	}
	return []netip.Addr{netip.IPv6Unspecified()} // Go uses it for both families, even if it is 0.0.0.0
}

// listenerAt tells the address guard which listener of this process a connection would reach.
func listenerAt(ap netip.AddrPort, public bool) guard.Listener {
	at, err := sockets.Process.At(ap, public)
	if errors.Is(err, errors.ErrUnsupported) {
		return guard.ListenerUnknown
	}
	if err != nil {
		return guard.ListenerOther
	}
	if len(at) == 0 {
		return guard.NoListener
	}
	known := new(listens)
	if e := Current(); e != nil && e.listens.Load() != nil {
		known = e.listens.Load()
	}
	var closed []netip.AddrPort
	pages.Range(func(server, _ any) bool {
		closed = append(closed, listenAddrs(server.(*caddyhttp.Server))...)
		return true
	})
	found := guard.ListenerSite
	for _, l := range at {
		is := func(other netip.AddrPort) bool {
			return l == other || l.Port() == other.Port() && l.Addr().IsUnspecified() && other.Addr().IsUnspecified()
		}
		if slices.ContainsFunc(known.gateways, is) {
			return guard.ListenerGateway
		}
		if !slices.ContainsFunc(known.sites, is) || slices.ContainsFunc(closed, is) {
			found = guard.ListenerOther
		}
	}
	return found
}

// checkNotInUse fails if another process listens at one of the addresses, or at an address where
// this process already listens. The second kind includes the admin endpoint, which Caddy opens
// before it provisions any app. Caddy sets SO_REUSEPORT, so without this check two processes of one
// user would silently share the connections. The check passes if the system does not list sockets.
func checkNotInUse(addrs []netip.AddrPort) error {
	own, ownErr := sockets.Own()
	foreign, err := sockets.Foreign(own)
	if ownErr != nil || err != nil {
		return nil //nolint:nilerr // see above
	}
	for _, s := range own {
		addrs = append(addrs, s.Addr)
	}
	for _, addr := range addrs {
		for _, other := range foreign {
			if sockets.Overlap(addr, other) {
				return fmt.Errorf("address %s: another process listens at %s already; stop it, or choose another address", addr, other)
			}
		}
	}
	return nil
}
