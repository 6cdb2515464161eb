package engine

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/crawlgate/crawlgate/egress/guard"
	"github.com/crawlgate/crawlgate/internal/sockets"
)

// listens are the addresses of a configuration's HTTP servers, those with a gateway and the others.
type listens struct{ gateways, sites []netip.AddrPort }

// listensOf asks the http app. All of its servers are provisioned when an app starts.
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
		if slices.ContainsFunc(e.sites.all(), func(s *SitePolicy) bool { return s.Server == server }) {
			l.gateways = append(l.gateways, listenAddrs(server)...)
		} else {
			l.sites = append(l.sites, listenAddrs(server)...)
		}
	}
	return l, nil
}

// listenAddrs are the TCP addresses of a server. A name other than localhost gives none: what it
// stands for is known when the server listens.
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
	if listen.Host == "localhost" {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	}
	host, err := netip.ParseAddr(listen.Host)
	switch {
	case (listen.Host == "" || err == nil && host.IsUnspecified()) && listen.Network == "tcp4":
		return []netip.Addr{netip.IPv4Unspecified()}
	case listen.Host == "" || err == nil && host.IsUnspecified():
		return []netip.Addr{netip.IPv6Unspecified()} // Go takes it for both families, also where it is 0.0.0.0
	case err == nil:
		return []netip.Addr{host.WithZone("").Unmap()}
	}
	return nil
}

// listenerAt tells the address guard what of this process a connection would reach.
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
// this process listens already. The second kind includes the admin endpoint, which Caddy opens
// before it provisions any app. Caddy sets SO_REUSEPORT, so without this check two processes of one
// user would silently share the connections. It passes where the system does not list sockets.
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
