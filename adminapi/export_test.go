package adminapi

import "github.com/caddyserver/caddy/v2"

// Methods are the routes, for the tests that need a gateway.
var Methods = routes

// HandlerOf answers for a path.
func HandlerOf(path string) caddy.AdminHandlerFunc { return handler(routes[path]) }
