package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/internal/redact"
)

// redacting is the handler in front of Caddy's.
type redacting struct {
	http.Handler
	fields redact.Fields
}

// ServeHTTP implements http.Handler.
func (h *redacting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.fields.Withhold(r, r.Method == http.MethodConnect || r.URL.IsAbs())
	h.Handler.ServeHTTP(w, r)
}

// redactFirst is for the ConnContext of Caddy's server of net/http, which Caddy makes late and does
// not show: it puts the redaction in front of the server's handler, with the first connection and
// so before any request of any is served.
func redactFirst(fields redact.Fields) func(context.Context, net.Conn) context.Context {
	var once sync.Once
	return func(ctx context.Context, _ net.Conn) context.Context {
		once.Do(func() {
			s, ok := ctx.Value(http.ServerContextKey).(*http.Server)
			if !ok {
				return
			}
			if _, done := s.Handler.(*redacting); !done { // by another gateway at the same port
				s.Handler = &redacting{s.Handler, fields}
			}
		})
		return ctx
	}
}

// withoutHTTP3 takes HTTP/3 from the protocols of a server: Caddy serves it past the handler of
// net/http's server, which the redaction stands in front of.
func withoutHTTP3(server *caddyhttp.Server, logger *zap.Logger) error {
	found := false
	lists := make([]*[]string, 0, 1+len(server.ListenProtocols))
	lists = append(lists, &server.Protocols)
	for i := range server.ListenProtocols {
		lists = append(lists, &server.ListenProtocols[i])
	}
	for _, list := range lists {
		kept := slices.DeleteFunc(slices.Clone(*list), func(p string) bool { return p == "h3" })
		switch len(kept) {
		case len(*list):
			continue
		case 0:
			return errors.New("protocols: a gateway speaks h1 and h2, not h3")
		}
		*list, found = kept, true
	}
	if found && len(server.TLSConnPolicies) > 0 {
		logger.Info("a gateway speaks HTTP/1.1 and HTTP/2; HTTP/3 is not served", zap.Strings("listen", server.Listen))
	}
	return nil
}
