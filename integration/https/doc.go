// Package https holds the tests of the binary that concern tunnels and TLS: CONNECT, certificates, intercepted and blind tunnels, HTTP/2,
// and the gateway's own port for TLS. It has only tests.
package https
