// Package reach rejects a configuration in which some requests would not reach the gateway. Caddy
// would answer these with an empty 200, which looks like an empty page to a crawler. That happens
// if a site address has a host or a path: Caddy matches requests by them, and a proxied request has
// the host and path of its target.
package reach
