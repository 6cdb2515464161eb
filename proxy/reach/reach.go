// Package reach rejects a configuration in which some requests would not reach the gateway. Caddy
// would answer these with an empty 200, which looks like an empty page to a crawler. That happens
// if a site address has a host or a path: Caddy matches requests by them, and a proxied request has
// the host and path of its target.
package reach

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// badAddress is the error for a site address with a host or a path.
func badAddress(kind, value string) error {
	return fmt.Errorf("the site address of a gateway must not name a %s (%s): requests through a proxy carry "+
		"the %s of their target and would never match; write the port alone, such as :3128", kind, value, kind)
}

// errBehindMatcher is the error for a gateway in a `handle` or `route` with a matcher, if no other
// one follows.
var errBehindMatcher = errors.New("the gateway is behind a matcher, and nothing answers the other requests: Caddy would, " +
	"with an empty 200; remove the matcher, or add a handle or respond without one after it")

// CheckServer refuses a site address with a host or a path, and a gateway behind a matcher that
// nothing follows. It is called while the server is being provisioned, when the outer route still
// has its handlers as JSON.
func CheckServer(server *caddyhttp.Server) error {
	routes := make([]routeJSON, len(server.Routes))
	for i, route := range server.Routes {
		// A site address becomes a terminal route around a subroute; a matcher that the operator wrote
		// does not.
		if !route.Terminal {
			routes[i].Match = make([]json.RawMessage, len(route.MatcherSets)+len(route.MatcherSetsRaw))
		}
		for _, raw := range route.HandlersRaw {
			var h handlerJSON
			if json.Unmarshal(raw, &h) == nil {
				routes[i].Handle = append(routes[i].Handle, h)
			}
		}
	}
	if (handlerJSON{Routes: routes}).leavesSome(false) {
		return errBehindMatcher
	}
	for i, route := range server.Routes {
		if !route.Terminal || !slices.ContainsFunc(routes[i].Handle, handlerJSON.surroundsGateway) {
			continue
		}
		for _, set := range route.MatcherSets {
			for _, matcher := range set {
				switch m := matcher.(type) {
				case *caddyhttp.MatchHost:
					return badAddress("host", strings.Join(*m, ", "))
				case *caddyhttp.MatchPath:
					return badAddress("path", strings.Join(*m, ", "))
				}
			}
		}
	}
	return nil
}

// TrustsClients reports whether a server takes the address of a client from what the client itself
// may write: without trusted_proxies_strict, Caddy takes the first address of X-Forwarded-For, and
// most proxies append theirs. Caddy has no function that tells of trusted_proxies.
func TrustsClients(server *caddyhttp.Server) bool {
	trusted := reflect.ValueOf(server).Elem().FieldByName("trustedProxies")
	return server.TrustedProxiesStrict == 0 && (server.TrustedProxiesUnix || trusted.IsValid() && !trusted.IsNil())
}

// handlerJSON has the members of a handler's configuration that matter here. Routes are a
// subroute's.
type handlerJSON struct {
	Handler string      `json:"handler"`
	Routes  []routeJSON `json:"routes"`
}

type routeJSON struct {
	Match  []json.RawMessage `json:"match"`
	Handle []handlerJSON     `json:"handle"`
}

// leavesSome reports whether a gateway in it is behind a matcher, and no later route takes the
// other requests. followed says that such a route follows the handler itself.
func (h handlerJSON) leavesSome(followed bool) bool {
	for i, route := range h.Routes {
		if !slices.ContainsFunc(route.Handle, handlerJSON.holdsGateway) {
			continue
		}
		all := func(other routeJSON) bool { return len(other.Match) == 0 }
		rest := followed || slices.ContainsFunc(h.Routes[i+1:], all)
		leaves := func(inner handlerJSON) bool { return inner.leavesSome(rest) }
		if len(route.Match) > 0 && !rest || slices.ContainsFunc(route.Handle, leaves) {
			return true
		}
	}
	return false
}

// surroundsGateway reports whether a handler is a subroute with a gateway in it, at any depth.
func (h handlerJSON) surroundsGateway() bool { return h.Handler != "robots" && h.holdsGateway() }

func (h handlerJSON) holdsGateway() bool {
	if h.Handler == "robots" {
		return true
	}
	for _, route := range h.Routes {
		if slices.ContainsFunc(route.Handle, handlerJSON.holdsGateway) {
			return true
		}
	}
	return false
}

// CheckDirective refuses a directive in a site where it cannot work, or that already has one.
func CheckDirective(h httpcaddyfile.Helper) error {
	addresses := siteAddresses(h)
	for _, token := range addresses {
		address, err := httpcaddyfile.ParseAddress(token.Text)
		if err != nil {
			continue // Caddy will say so
		}
		at := caddyfile.NewDispenser([]caddyfile.Token{token})
		at.Next()
		if address.Host != "" {
			return at.WrapErr(badAddress("host", address.Host))
		}
		if address.Path != "" {
			return at.WrapErr(badAddress("path", address.Path))
		}
	}
	if len(addresses) == 0 {
		return nil
	}
	// Blocks of one site share a state, and nested blocks copy it. All sites share the state of the
	// outermost level.
	mark := fmt.Sprintf("robots in the site at %s:%d", addresses[0].File, addresses[0].Line)
	if line, ok := h.BlockState[mark]; ok {
		return h.Errf(`directive "robots" is given twice in a site: it is also in line %v`, line)
	}
	h.BlockState[mark] = h.Line()
	return nil
}

// siteAddresses returns the addresses of the site block around a directive, with their positions in
// the Caddyfile. Caddy has no API for them. Without them, [CheckServer] still finds most faults,
// but names no line.
func siteAddresses(h httpcaddyfile.Helper) (addresses []caddyfile.Token) {
	block := reflect.ValueOf(h).FieldByName("parentBlock")
	if h.Dispenser == nil || !block.IsValid() || block.Type() != reflect.TypeFor[caddyfile.ServerBlock]() || h.IsNamedRoute() {
		return nil
	}
	keys := block.FieldByName("Keys")
	for i := range keys.Len() {
		key := keys.Index(i)
		addresses = append(addresses, caddyfile.Token{
			File: key.FieldByName("File").String(), Line: int(key.FieldByName("Line").Int()), Text: key.FieldByName("Text").String(),
		})
	}
	return addresses
}
