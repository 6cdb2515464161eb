package engine

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/origin"
)

// SitePolicy is what one site lets pass, and the server that takes its requests.
type SitePolicy struct {
	Source     []byte // its configuration as it was loaded, for the digest
	Engine     *Engine
	Life       context.Context   // ends when the configuration gives way to another
	Server     *caddyhttp.Server // nil outside of a server
	Clients    []netip.Prefix    // none: the default of [enforce.ClientAllowed]
	Identifier *enforce.Identifier
	Enforcer   *enforce.Enforcer
	Operator   *enforce.Policy
	// Authority gives the certificates that sign for intercepted hosts, as they are now, by "root" and
	// "intermediate"; nil where nothing is intercepted.
	Authority func() map[string]*x509.Certificate
}

// Live reports whether no other configuration has taken the place of the site's own.
func (s *SitePolicy) Live() bool { return s.Life.Err() == nil }

// Listens reports whether the site listens on an address, or has it for its name.
func (s *SitePolicy) Listens(address string) bool {
	return s.Server != nil && (slices.Contains(s.Server.Listen, address) || s.Server.Name() == address)
}

// Name is the address that the site listens on; the server's own name where Caddy gives none.
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
		return !next.Live() || !slices.ContainsFunc(s.Server.Listen, next.Listens)
	})
}

// sites are those of one configuration. It is safe for concurrent use.
type sites struct {
	mu   sync.Mutex
	list []*SitePolicy
}

// add reports whether the site is the first one with a server.
func (s *sites) add(site *SitePolicy) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	served := func(other *SitePolicy) bool { return other.Server != nil }
	first = served(site) && !slices.ContainsFunc(s.list, served)
	s.list = append(s.list, site)
	return first
}

// all returns them in the order in which they were provisioned.
func (s *sites) all() []*SitePolicy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// deny reports whether the deny list of every site names the origin, and the pattern of the last
// one.
func (s *sites) deny(o origin.Origin) (pattern enforce.HostPattern, denied bool) {
	for _, site := range s.all() {
		if pattern, denied = site.Operator.Denied(o); !denied {
			return pattern, false
		}
	}
	return pattern, denied
}

// AddSite adds a site while its handler is provisioned with ctx. It fails where another process
// listens at an address of the site.
func (e *Engine) AddSite(ctx caddy.Context, s *SitePolicy) error {
	if first := e.sites.add(s); first {
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
func (e *Engine) Sites() []*SitePolicy { return e.sites.all() }

// Wrapped notes that the connections of a server are counted, or that the operator was warned that
// they are not. It reports whether that was news. It is for the time of provisioning.
func (e *Engine) Wrapped(server *caddyhttp.Server) (news bool) {
	if slices.Contains(e.wrapped, server) {
		return false
	}
	e.wrapped = append(e.wrapped, server)
	return true
}

// tellWhenReady has a line logged each time a configuration is current and its servers listen: what
// clients set as their proxy, and where the sites listen.
func (e *Engine) tellWhenReady(ctx caddy.Context) error {
	events, err := App[*caddyevents.App]("events", ctx.App)
	if err != nil {
		return err
	}
	return whenStarted(events, func() {
		if proxies, listen := e.sites.addresses(); len(listen) > 0 {
			e.logger.Info("ready", zap.Strings("proxy", proxies), zap.Strings("listen", listen))
		}
	})
}

// addresses returns the URLs that clients on this machine set as their proxy, and the addresses at
// which the sites listen, of which a unix socket has no such URL.
func (s *sites) addresses() (proxies, listen []string) {
	var seen []*caddyhttp.Server
	for _, site := range s.all() {
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

// reachable is an address by which a client on this machine reaches a listener.
func reachable(listen netip.AddrPort) string {
	if host := listen.Addr().Unmap(); !host.IsUnspecified() {
		return netip.AddrPortFrom(host, listen.Port()).String()
	}
	return fmt.Sprintf("localhost:%d", listen.Port())
}

// ConfigDigest names the configuration of the engine and all its sites: gateways and times with one
// digest had the same rules of the operator. It is the first 16 hexadecimal digits of a SHA-256. It
// may be called once all sites are provisioned.
func (e *Engine) ConfigDigest() string { return e.digest() }

func (e *Engine) digestSources() string {
	sites := e.Sites()
	sources := make([]string, 0, len(sites)+1)
	for _, s := range sites {
		sources = append(sources, string(s.Source))
	}
	slices.Sort(sources) // Caddy provisions servers in no order
	h := sha256.New()
	for _, s := range append(sources, string(e.Config.Source)) {
		h.Write([]byte(s))
		h.Write([]byte{0}) // is in no JSON text
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// WithoutHTTP3 takes HTTP/3 from the protocols of a server: Caddy serves it past the handler of
// net/http's server, which the redaction stands in front of.
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

// SourceOf is the address that Caddy takes for the client's, which is another than the connection's
// where trusted_proxies says so. A client over a unix socket is one of this machine.
func SourceOf(r *http.Request) netip.Addr {
	ip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	source, err := netip.ParseAddr(ip)
	if err == nil {
		return source
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && strings.HasPrefix(local.Network(), "unix") {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.Addr{}
}
