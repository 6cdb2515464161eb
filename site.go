package crawlgate

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// checkSite refuses a gateway that no request could reach: a site address with a host name makes Caddy match requests by
// their host, and a proxied request carries the host of its target. Caddy would answer all of them with an empty 200,
// which a crawler takes for an empty page.
//
// It is called while the server is being provisioned, when the outer route still has its handlers as JSON.
func checkSite(server *caddyhttp.Server) error {
	for _, route := range server.Routes {
		// A site address becomes a terminal route around a subroute; a matcher that the operator wrote does not.
		if !route.Terminal || !holdsGateway(route) {
			continue
		}
		for _, set := range route.MatcherSets {
			for _, matcher := range set {
				if hosts, ok := matcher.(*caddyhttp.MatchHost); ok {
					return fmt.Errorf("the site address of a gateway must not name a host (%s): requests through a proxy carry "+
						"the host of their target and would never match; write the port alone, such as :3128", strings.Join(*hosts, ", "))
				}
			}
		}
	}
	return nil
}

func holdsGateway(route caddyhttp.Route) bool {
	for _, raw := range route.HandlersRaw {
		if bytes.Contains(raw, []byte(`"handler":"subroute"`)) && bytes.Contains(raw, []byte(`"handler":"robots"`)) {
			return true
		}
	}
	return false
}
