package egress

import "net/netip"

// Kind classifies a failure on the way out. It is the failure's name in logs, metrics and
// decisions. The zero value stands for [KindInternal].
type Kind string

// The kinds of failure.
const (
	KindInternal       Kind = "internal"           // a fault of the gateway: a writer that cannot be hijacked
	KindExhausted      Kind = "exhausted"          // the gateway has no file descriptors, ports or memory left
	KindClientGone     Kind = "client_gone"        // the client left, or its body stopped coming
	KindClientTimeout  Kind = "client_timeout"     // the client's body came too slowly
	KindClientBody     Kind = "client_body"        // the client's body was malformed
	KindClientTooLarge Kind = "client_too_large"   // the client's body exceeded a limit set on it
	KindLoop           Kind = "loop"               // by its Via, the request has been here before
	KindForbidden      Kind = "forbidden_address"  // the guard refused the address
	KindForbiddenPort  Kind = "forbidden_port"     // the guard refused the port
	KindForbiddenOwn   Kind = "own_listener"       // the address is a listener of the gateway
	KindDNS            Kind = "dns"                // the name has no address, or the resolver failed
	KindDNSTimeout     Kind = "dns_timeout"        // the resolver did not answer in time
	KindRefused        Kind = "connection_refused" // the origin refused the connection
	KindConnectTimeout Kind = "connection_timeout" // connecting, TLS included, took too long
	KindUnroutable     Kind = "unroutable"         // no route to the address
	KindUnavailable    Kind = "unavailable"        // connecting failed in another way
	KindTLSCertificate Kind = "tls_certificate"    // the origin's certificate was not accepted
	KindTLSAlert       Kind = "tls_alert"          // the origin ended the handshake with an alert
	KindTLS            Kind = "tls"                // the handshake failed in another way
	KindTimeout        Kind = "timeout"            // no response header in time
	KindStalled        Kind = "stalled"            // the origin stopped in the middle of the body
	KindReset          Kind = "reset"              // the connection ended before the response header
	KindIncomplete     Kind = "incomplete"         // the response ended in the middle of its body
	KindCoding         Kind = "transfer_coding"    // the response's chunked coding is broken
	KindHeaderSize     Kind = "header_size"        // the response's header is too large
	KindListingSize    Kind = "listing_size"       // the FTP server's listing is too long
	KindProtocol       Kind = "protocol"           // the response is not HTTP, or breaks its rules
	KindUpgrade        Kind = "upgrade"            // the origin answered an upgrade with another protocol
	KindUpstream       Kind = "upstream_proxy"     // the upstream proxy refused or failed
	KindWithheld       Kind = "withheld"           // the caller keeps the answer from the client
)

// Error is a classified failure.
type Error struct {
	Kind Kind
	// Addr is the address involved, if one is known.
	Addr netip.AddrPort
	// Err is the cause. Its text may quote the origin or the resolver; it contains no credentials.
	Err error
}

func (e *Error) Error() string { return string(e.Kind) + ": " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// NeverReached reports whether the failure came before anything was sent towards the site, so that
// the site cannot have noticed the request. Sites notice attempts to connect, and one that is down
// must not be asked without end. The answer holds only for requests that got no connection at all:
// the error does not know about connections of earlier attempts.
func (e *Error) NeverReached() bool {
	switch e.Kind {
	case KindLoop, KindForbidden, KindForbiddenPort, KindForbiddenOwn, KindDNS, KindDNSTimeout, KindExhausted:
		return true
	default:
		return false
	}
}
