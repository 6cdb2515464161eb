package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/caddyauth"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/passwords"
)

// beyondLoopback returns an address of a server that other machines may reach, or "".
func beyondLoopback(server *caddyhttp.Server) string {
	for _, listen := range server.Listen {
		address, err := caddy.ParseNetworkAddress(listen)
		if err != nil {
			return listen
		}
		if address.IsUnixNetwork() || address.Host == "localhost" {
			continue
		}
		if ip, err := netip.ParseAddr(address.Host); err != nil || !ip.Unmap().IsLoopback() {
			return listen
		}
	}
	return ""
}

// access is the access control that every request has passed before it gets to a page.
type access int

const (
	open     access = iota // nothing
	admitted               // a forward_auth, which does not name the user
	known                  // an authentication that names the user
)

// errHidden is the error for a page that is not found in the routes of its server.
var errHidden = errors.New("the operator's page must be in a route of its site, not in a named route or an error route")

// accessOf returns the access control of a server's pages. It is called while the server is
// provisioned, when routes have their handlers as JSON.
func accessOf(server *caddyhttp.Server) (access, error) {
	least, found, err := leastOf(server.Routes, open)
	switch {
	case err != nil:
		return open, fmt.Errorf("reading the routes of the site: %w", err)
	case !found:
		return open, errHidden
	case requiresCertificates(server):
		return known, nil
	}
	return least, nil
}

// requiresCertificates reports whether the server accepts only connections with a verified client
// certificate. The mode must be explicit.
func requiresCertificates(server *caddyhttp.Server) bool {
	for _, policy := range server.TLSConnPolicies {
		if c := policy.ClientAuthentication; c == nil || c.Mode != "require_and_verify" {
			return false
		}
	}
	return len(server.TLSConnPolicies) > 0
}

// handler is the relevant part of a handler's configuration.
type handler struct {
	Handler        string              `json:"handler"`
	Routes         caddyhttp.RouteList `json:"routes"`
	HandleResponse []struct {
		Match struct {
			StatusCode []int `json:"status_code"`
		} `json:"match"`
	} `json:"handle_response"`
}

// access returns the access control that a handler ensures for the handlers after it. forward_auth
// is a reverse proxy that continues if the answer is a 2xx.
func (h handler) access() access {
	if h.Handler == "authentication" {
		return known
	}
	if h.Handler == "reverse_proxy" {
		for _, r := range h.HandleResponse {
			if slices.Equal(r.Match.StatusCode, []int{2}) {
				return admitted
			}
		}
	}
	return open
}

// leastOf returns the least access control that a request passes on its way to a page in the
// routes. A guard behind a matcher guards only its own route. So does a guard in a group, because
// only the first matching route of a group runs.
func leastOf(routes caddyhttp.RouteList, before access) (least access, found bool, err error) {
	least = known
	for _, r := range routes {
		here := before
		for _, raw := range r.HandlersRaw {
			var h handler
			if err := json.Unmarshal(raw, &h); err != nil {
				return open, false, err
			}
			inner, inside, err := leastOf(h.Routes, here)
			if err != nil {
				return open, false, err
			}
			if inside {
				least, found = min(least, inner), true
			}
			if h.Handler == "robots_console" {
				least, found = min(least, here), true
			}
			here = max(here, h.access())
		}
		if len(r.MatcherSets)+len(r.MatcherSetsRaw) == 0 && r.Group == "" {
			before = here
		}
	}
	return least, found, nil
}

func siteNames(server *caddyhttp.Server) (names []string) {
	for _, r := range server.Routes {
		for _, set := range r.MatcherSets {
			for _, matcher := range set {
				if m, ok := matcher.(*caddyhttp.MatchHost); ok {
					for _, name := range *m {
						names = append(names, strings.ToLower(name))
					}
				}
			}
		}
	}
	return names
}

// checkInTurns makes a server's basic_auth check passwords in turns, in one queue with those of
// crawlers. Checked all at once, they would take the CPUs from the gateway. The server has its
// handlers only after it is provisioned, so checkInTurns looks for them before the first request of
// its first connection.
func checkInTurns(server *caddyhttp.Server) {
	var once sync.Once
	server.RegisterConnContext(func(ctx context.Context, _ net.Conn) context.Context {
		once.Do(func() { replaceIn(server.Routes) })
		return ctx
	})
}

func replaceIn(routes caddyhttp.RouteList) {
	for _, r := range routes {
		for _, h := range r.Handlers {
			switch h := h.(type) {
			case *caddyhttp.Subroute:
				replaceIn(h.Routes)
			case *caddyauth.Authentication:
				for name, p := range h.Providers {
					if basic, ok := p.(*caddyauth.HTTPBasicAuth); ok {
						h.Providers[name] = newTurns(basic)
					}
				}
			}
		}
	}
}

// turns is a basic_auth whose passwords wait for their turn.
type turns struct {
	*caddyauth.HTTPBasicAuth
	passwords passwords.Checker
}

// newTurns returns basic itself if it has a hash in base64, a form that Caddy still reads.
func newTurns(basic *caddyauth.HTTPBasicAuth) caddyauth.Authenticator {
	t := &turns{HTTPBasicAuth: basic}
	for user, account := range basic.Accounts {
		if t.passwords.Add(user, account.Password) != nil {
			return basic
		}
	}
	return t
}

// Authenticate implements caddyauth.Authenticator.
func (t *turns) Authenticate(w http.ResponseWriter, r *http.Request) (caddyauth.User, bool, error) {
	if user, password, given := r.BasicAuth(); given {
		switch t.passwords.Verify(r.Context(), engine.SourceOf(r), user, password) {
		case enforce.PasswordRight:
			return caddyauth.User{ID: user}, true, nil
		case enforce.PasswordUnchecked: // too many are waiting
			w.Header().Set("Retry-After", "5")
			return caddyauth.User{}, false, nil
		default:
		}
	}
	return t.HTTPBasicAuth.Authenticate(w, new(http.Request)) // asks for a password
}
