// Package https tests tunnels and TLS with the binary: CONNECT, certificates, intercepted and blind
// tunnels, HTTP/2, and the gateway's TLS port. It has only tests.
package https
