// Package egress sends requests to origins and serves CONNECT tunnels.
//
// From the inside out it has: the dialer (resolve once, check with package guard, dial the checked
// address), the transport (connections to origins, directly or through upstream proxies), the
// forwarder (one proxied request out and its response back), the tunnel (CONNECT) and the
// interceptor (TLS ended inside a tunnel, so that its requests can be seen).
//
// Everything that comes from clients and origins is bounded in size and time, and every wait ends
// with the context of its request. The package knows nothing about robots.txt, Caddy or logging. It
// returns results as values ([Result], [Dialed], [Error]), and the caller decides how to log and
// answer them.
package egress
