package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
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
