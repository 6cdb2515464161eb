package egress

import (
	"net/http"
	"net/netip"
	"strings"
)

// Kind classifies a failure on the way out. It decides the name in logs and metrics, the
// Proxy-Status token (RFC 9209 section 2.3) and the status of the answer. The zero value is a
// failure of the gateway itself.
type Kind uint8

// The kinds of failure.
const (
	KindInternal       Kind = iota // a fault of the gateway: a writer that cannot be hijacked
	KindExhausted                  // the gateway has no file descriptors, ports or memory left
	KindClientGone                 // the client left, or its body stopped coming
	KindClientTimeout              // the client's body came too slowly
	KindClientBody                 // the client's body was malformed
	KindClientTooLarge             // the client's body exceeded a limit set on it
	KindLoop                       // the request has been here before, by its Via
	KindForbidden                  // the guard refused the address
	KindForbiddenPort              // the guard refused the port
	KindForbiddenOwn               // the address is a listener of the gateway
	KindDNS                        // the name has no address, or the resolver failed
	KindDNSTimeout                 // the resolver did not answer in time
	KindRefused                    // the origin refused the connection
	KindConnectTimeout             // connecting, TLS included, took too long
	KindUnroutable                 // no route to the address
	KindUnavailable                // connecting failed in another way
	KindTLSCertificate             // the origin's certificate was not accepted
	KindTLSAlert                   // the origin ended the handshake with an alert
	KindTLS                        // the handshake failed in another way
	KindTimeout                    // no response header in time
	KindStalled                    // the origin stopped in the middle of the body
	KindReset                      // the connection ended before the response header
	KindIncomplete                 // the response ended in the middle of its body
	KindCoding                     // the response's chunked coding is broken
	KindHeaderSize                 // the response's header is too large
	KindProtocol                   // the response is not HTTP, or breaks its rules
	KindUpgrade                    // the origin answered an upgrade with another protocol
	KindUpstream                   // the upstream proxy refused or failed
	numKinds
)

// statusClientGone is the status that nginx and Caddy log for a client that left before its answer.
// It is never sent.
const statusClientGone = 499

var kinds = [numKinds]struct {
	name   string
	token  string
	status int
}{
	KindInternal:       {"internal", "proxy_internal_error", http.StatusInternalServerError},
	KindExhausted:      {"exhausted", "connection_limit_reached", http.StatusBadGateway},
	KindClientGone:     {"client_gone", "", statusClientGone},
	KindClientTimeout:  {"client_timeout", "http_request_error", http.StatusRequestTimeout},
	KindClientBody:     {"client_body", "http_request_error", http.StatusBadRequest},
	KindClientTooLarge: {"client_too_large", "http_request_error", http.StatusRequestEntityTooLarge},
	KindLoop:           {"loop", "proxy_loop_detected", http.StatusBadGateway},
	KindForbidden:      {"forbidden_address", "destination_ip_prohibited", http.StatusForbidden},
	KindForbiddenPort:  {"forbidden_port", "http_request_denied", http.StatusForbidden},
	KindForbiddenOwn:   {"own_listener", "proxy_loop_detected", http.StatusForbidden},
	KindDNS:            {"dns", "dns_error", http.StatusBadGateway},
	KindDNSTimeout:     {"dns_timeout", "dns_timeout", http.StatusGatewayTimeout},
	KindRefused:        {"connection_refused", "connection_refused", http.StatusBadGateway},
	KindConnectTimeout: {"connection_timeout", "connection_timeout", http.StatusGatewayTimeout},
	KindUnroutable:     {"unroutable", "destination_ip_unroutable", http.StatusBadGateway},
	KindUnavailable:    {"unavailable", "destination_unavailable", http.StatusBadGateway},
	KindTLSCertificate: {"tls_certificate", "tls_certificate_error", http.StatusBadGateway},
	KindTLSAlert:       {"tls_alert", "tls_alert_received", http.StatusBadGateway},
	KindTLS:            {"tls", "tls_protocol_error", http.StatusBadGateway},
	KindTimeout:        {"timeout", "http_response_timeout", http.StatusGatewayTimeout},
	KindStalled:        {"stalled", "connection_read_timeout", http.StatusGatewayTimeout},
	KindReset:          {"reset", "connection_terminated", http.StatusBadGateway},
	KindIncomplete:     {"incomplete", "http_response_incomplete", http.StatusBadGateway},
	KindCoding:         {"transfer_coding", "http_response_transfer_coding", http.StatusBadGateway},
	KindHeaderSize:     {"header_size", "http_response_header_section_size", http.StatusBadGateway},
	KindProtocol:       {"protocol", "http_protocol_error", http.StatusBadGateway},
	KindUpgrade:        {"upgrade", "http_upgrade_failed", http.StatusBadGateway},
	KindUpstream:       {"upstream_proxy", "destination_unavailable", http.StatusBadGateway},
}

func (k Kind) valid() Kind {
	if k >= numKinds {
		return KindInternal
	}
	return k
}

// String returns the stable name of the kind, for logs and metrics.
func (k Kind) String() string { return kinds[k.valid()].name }

// Token returns the error type for Proxy-Status, RFC 9209 section 2.3. It is empty for a client
// that left: there is no answer to put it into.
func (k Kind) Token() string { return kinds[k.valid()].token }

// Status returns the status to answer with: 403 for the gateway's own refusals, 504 for time-outs,
// 502 for the origin's other failures, 408, 400 and 413 for the client's, 499 (to log, never to
// send) for a client that left.
func (k Kind) Status() int { return kinds[k.valid()].status }

// Error is a classified failure.
type Error struct {
	Kind Kind
	// Addr is the address involved, where one is known.
	Addr netip.AddrPort
	// Err is the cause. Its text may quote the origin or the resolver; it contains no credentials.
	Err error
}

func (e *Error) Error() string { return e.Kind.String() + ": " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// NeverReached reports whether the failure came before anything was sent towards the site, so that
// the site cannot have noticed the request. An attempt to connect is noticed: a site that is down
// must not be asked without end. It holds for requests that got no connection at all; the error
// does not know of connections that an earlier attempt of the same request had.
func (e *Error) NeverReached() bool {
	switch e.Kind {
	case KindLoop, KindForbidden, KindForbiddenPort, KindForbiddenOwn, KindDNS, KindDNSTimeout, KindExhausted:
		return true
	default:
		return false
	}
}

// ProxyStatus returns the Proxy-Status member for the failure, as [ProxyStatus] writes it.
func (e *Error) ProxyStatus(name string) string {
	return ProxyStatus(name, e.Kind.Token(), e.Err.Error())
}

// maxDetails bounds the details of a Proxy-Status member.
const maxDetails = 240

// ProxyStatus writes a Proxy-Status list member (RFC 9209 section 2): the proxy's name, which must
// be a token, the error type and details in free text. Empty ones are left out. The text is put
// into the printable ASCII that a structured-field string may hold (RFC 8941 section 3.3.3) and
// cut.
func ProxyStatus(name, token, details string) string {
	var b strings.Builder
	b.WriteString(name)
	if token != "" {
		b.WriteString("; error=")
		b.WriteString(token)
	}
	if details != "" {
		b.WriteString(`; details="`)
		for _, c := range []byte(printable(details, maxDetails)) {
			if c == '"' || c == '\\' {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
		}
		b.WriteByte('"')
	}
	return b.String()
}

// printable reduces a text to printable ASCII of at most limit bytes: each run of white space and
// controls becomes one space, every byte outside ASCII a question mark. It trims spaces at both
// ends.
func printable(s string, limit int) string {
	b := make([]byte, 0, min(len(s), limit))
	for i := 0; i < len(s) && len(b) < limit; i++ {
		c := s[i]
		switch {
		case c >= 0x80:
			b = append(b, '?')
		case c <= ' ' || c == 0x7f:
			if len(b) > 0 && b[len(b)-1] != ' ' {
				b = append(b, ' ')
			}
		default:
			b = append(b, c)
		}
	}
	return strings.TrimRight(string(b), " ")
}
