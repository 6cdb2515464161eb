// Package egress is how bytes leave the gateway and how tunnels through it are kept.
//
// It holds, from the inside out: the address guard (which addresses may be dialed at all), the
// dialer (resolve once, check, dial the checked address), the transport (connections to origins,
// directly or through upstream proxies), the forwarder (one proxied request out and its response
// back), the tunnel (CONNECT) and the interceptor (TLS ended inside a tunnel, so that the requests
// within can be seen).
//
// The package is a leaf: it knows nothing of robots.txt, of Caddy or of logging. What happened is
// returned as values ([Result], [Dialed], [Error]) and the caller decides what to log and what to
// answer.
package egress
