package console

import (
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/caddyauth"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/passwords"
)

// checkInTurns has the passwords of a server's basic_auth checked in turns, with those of crawlers.
// All at once they would take the CPUs from the gateway. The server has its handlers only once it
// is provisioned, so they are looked for before the first request of its first connection.
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

// newTurns gives basic itself where it has a hash in base64, a form that Caddy still reads.
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
		case enforce.PasswordUnchecked: // too many wait
			w.Header().Set("Retry-After", "5")
			return caddyauth.User{}, false, nil
		default:
		}
	}
	return t.HTTPBasicAuth.Authenticate(w, new(http.Request)) // asks for a password
}
