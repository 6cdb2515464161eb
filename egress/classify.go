package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/net/http2"

	"github.com/crawlgate/crawlgate/egress/ftphttp"
	"github.com/crawlgate/crawlgate/egress/guard"
	"github.com/crawlgate/crawlgate/egress/h1"
)

// Errors that this package itself detects.
var (
	errStalled     = newError(KindStalled, "no bytes for too long")
	errSlowOrigin  = newError(KindStalled, "the origin sends or takes too few bytes in a minute (min_rate)")
	errSlowClient  = newError(KindClientTimeout, "the client sends or takes too few bytes in a minute (min_rate)")
	errBodyTimeout = newError(KindClientTimeout, "the request's body took too long")
	errManyInterim = newError(KindProtocol, "too many interim responses")
	errBadStatus   = newError(KindProtocol, "status code out of range")
	errUnasked101  = newError(KindProtocol, "protocol switch that was not asked for")
	errOrigin407   = newError(KindProtocol, "proxy authentication demanded by an origin")
	errUpgrade     = newError(KindUpgrade, "switch to another protocol than was asked for")
	errWithheld    = newError(KindWithheld, "the answer is kept from the client")
	errLoop        = newError(KindLoop, "request has passed this gateway before")
)

func newError(k Kind, text string) *Error { return &Error{Kind: k, Err: errors.New(text)} }

// stage is the progress of an exchange when it failed.
type stage uint8

const (
	stageConnect stage = iota // no connection yet
	stageHeader               // connected, no response header yet
	stageBody                 // response header received
)

// ClassifyDial classifies the failure of a dial, for callers of [Transport.DialTunnel]. An [*Error]
// keeps its kind.
func ClassifyDial(err error) *Error { return classify(err, stageConnect) }

// classify finds the kind of a transport's error. Its callers have already dealt with failures on
// the client's side.
func classify(err error, at stage) *Error {
	if known, ok := errors.AsType[*Error](err); ok {
		out := *known // the caller may add an address
		return &out
	}
	out := &Error{Err: err}
	if f, ok := errors.AsType[*guard.ForbiddenError](err); ok {
		out.Addr, out.Kind = f.Addr, Kind(f.Forbidden())
		return out
	}
	if d, ok := errors.AsType[*DialError](err); ok {
		out.Addr, out.Kind = d.Dialed.Addr, dialKind(d)
		return out
	}
	if kind, ok := ownKind(err); ok {
		out.Kind = kind
		return out
	}
	switch at {
	case stageConnect:
		out.Kind = connectKind(err)
	case stageHeader:
		out.Kind = headerKind(err)
	case stageBody:
		out.Kind = bodyKind(err)
	}
	return out
}

// exhausted reports that this machine lacks resources for a connection. The resolver keeps only the
// text of such an error.
func exhausted(err error) bool {
	dns, isDNS := errors.AsType[*net.DNSError](err)
	for _, lack := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, lack) || isDNS && strings.Contains(dns.Err, lack.Error()) {
			return true
		}
	}
	return false
}

// ownKind recognizes errors that mean the same at every stage.
func ownKind(err error) (Kind, bool) {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return KindTLSCertificate, true
	}
	switch {
	case exhausted(err):
		return KindExhausted, true
	case errors.Is(err, ftphttp.ErrReplies):
		return KindHeaderSize, true
	case errors.Is(err, ftphttp.ErrListing):
		return KindListingSize, true
	case errors.Is(err, ftphttp.ErrSize):
		return KindProtocol, true
	}
	return "", false
}

func dialKind(d *DialError) Kind {
	switch {
	case exhausted(d.Err):
		return KindExhausted
	case d.Phase == PhaseProxy:
		return KindUpstream
	case d.Phase == PhaseResolve && isTimeout(d.Err):
		return KindDNSTimeout
	case d.Phase == PhaseResolve:
		return KindDNS
	case errors.Is(d.Err, syscall.ECONNREFUSED):
		return KindRefused
	case isTimeout(d.Err):
		return KindConnectTimeout
	case !informative(d.Err):
		return KindUnroutable
	default:
		return KindUnavailable
	}
}

func connectKind(err error) Kind {
	var header tls.RecordHeaderError
	op, isOp := errors.AsType[*net.OpError](err)
	switch {
	case isOp && op.Op == "remote error": // how crypto/tls marks an alert that it received
		return KindTLSAlert
	case isOp && op.Op == "local error", errors.As(err, &header), strings.Contains(err.Error(), "tls: "):
		return KindTLS
	case isTimeout(err):
		return KindConnectTimeout
	case isReset(err):
		return KindReset
	default:
		return KindUnavailable
	}
}

func headerKind(err error) Kind {
	switch text := err.Error(); {
	case isTimeout(err):
		return KindTimeout
	case errors.Is(err, h1.ErrHeaderSize), strings.Contains(text, "response headers exceeded"), strings.Contains(text, "response header list larger"):
		return KindHeaderSize
	case strings.Contains(text, "transfer encoding"):
		return KindCoding
	case isReset(err):
		return KindReset
	default:
		return KindProtocol
	}
}

func bodyKind(err error) Kind {
	switch text := err.Error(); {
	case isTimeout(err):
		return KindStalled
	case errors.Is(err, http.ErrLineTooLong), strings.Contains(text, "chunk"), strings.Contains(text, "empty hex"):
		return KindCoding
	default:
		return KindIncomplete
	}
}

// protocolErrors are the HTTP/2 error codes that blame the protocol rather than end a stream, RFC
// 9113 section 7.
var protocolErrors = []http2.ErrCode{
	http2.ErrCodeProtocol, http2.ErrCodeFlowControl, http2.ErrCodeStreamClosed, http2.ErrCodeFrameSize,
	http2.ErrCodeCompression, http2.ErrCodeConnect,
}

// isReset reports whether a connection, or a stream on it, ended too early.
func isReset(err error) bool {
	// AsType also converts the error of net/http's own HTTP/2 into x/net's.
	if stream, ok := errors.AsType[http2.StreamError](err); ok {
		return !slices.Contains(protocolErrors, stream.Code)
	}
	ends := []string{"server closed idle connection", "GOAWAY", "REFUSED_STREAM", "client connection lost"}
	return isAny(err, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED) ||
		slices.ContainsFunc(ends, func(end string) bool { return strings.Contains(err.Error(), end) })
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

func isTimeout(err error) bool {
	if isAny(err, context.DeadlineExceeded, os.ErrDeadlineExceeded) {
		return true
	}
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// writeKind classifies an error from writing to the client.
func writeKind(err error) Kind {
	if isTimeout(err) {
		return KindClientTimeout
	}
	return KindClientGone
}

// clientKind classifies an error from reading the client's body.
func clientKind(err error) Kind {
	var tooLarge *http.MaxBytesError
	_, reset := errors.AsType[http2.StreamError](err)
	switch {
	case errors.As(err, &tooLarge):
		return KindClientTooLarge
	case reset, errors.Is(err, context.Canceled), isReset(err):
		return KindClientGone
	case isTimeout(err):
		return KindClientTimeout
	case strings.Contains(err.Error(), "client disconnected"): // HTTP/2's error has no type
		return KindClientGone
	default:
		return KindClientBody
	}
}

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
