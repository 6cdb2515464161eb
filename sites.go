package crawlgate

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/origin"
)

// sites are the gateways of one configuration. It is safe for concurrent use.
type sites struct {
	mu       sync.Mutex
	handlers []*Handler
}

func (s *sites) add(h *Handler) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers = append(s.handlers, h)
	return len(s.handlers) == 1
}

// all returns them in the order in which they were provisioned.
func (s *sites) all() []*Handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.handlers)
}

// deny reports whether the deny list of every gateway names the origin, and the pattern of the last
// one.
func (s *sites) deny(o origin.Origin) (pattern enforce.HostPattern, denied bool) {
	for _, h := range s.all() {
		if pattern, denied = h.operator.Denied(o); !denied {
			return pattern, false
		}
	}
	return pattern, denied
}

// tellWhenReady has a line logged each time a configuration is in force and its servers listen: what
// clients set as their proxy, and where the gateways listen.
func (a *App) tellWhenReady(ctx caddy.Context) error {
	events, err := appOf[*caddyevents.App]("events", ctx.App)
	if err != nil {
		return err
	}
	return whenStarted(events, func() {
		if proxies, listen := a.sites.addresses(); len(listen) > 0 {
			a.logger.Info("ready", zap.Strings("proxy", proxies), zap.Strings("listen", listen))
		}
	})
}

// addresses returns the URLs that clients on this machine set as their proxy, and the addresses at
// which the gateways listen, of which a unix socket has no such URL.
func (s *sites) addresses() (proxies, listen []string) {
	var seen []*caddyhttp.Server
	for _, h := range s.all() {
		if h.server == nil || slices.Contains(seen, h.server) {
			continue
		}
		seen = append(seen, h.server)
		scheme := "http"
		if len(h.server.TLSConnPolicies) > 0 {
			scheme = "https"
		}
		for _, l := range h.server.Listeners() {
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
