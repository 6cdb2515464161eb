package fetch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/crawlgate/crawlgate/internal/redact"
)

// forbiddenError is implemented by the errors of an address guard, anywhere in their chain.
// Forbidden returns the cause.
type forbiddenError interface {
	error
	Forbidden() string
}

// forbiddenBy returns the refusal of the address guard that err wraps, or nil. An unknown cause
// counts as CauseForbiddenAddress.
func forbiddenBy(err error) *failure {
	guard, ok := errors.AsType[forbiddenError](err)
	if !ok {
		return nil
	}
	cause := Cause(guard.Forbidden())
	if !cause.forbidden() {
		cause = CauseForbiddenAddress
	}
	return failf(cause, "%s", guard)
}

// upstreamBy returns the failure of an upstream proxy that err wraps, or nil. The errors of the
// transport name its cause, and describe it without the name of the proxy.
func upstreamBy(err error) *failure {
	if up, ok := errors.AsType[interface {
		error
		Upstream() (cause, text string)
	}](err); ok {
		if cause, text := up.Upstream(); cause != "" {
			return failf(Cause(cause), "upstream proxy %s", text)
		}
	}
	return nil
}

// failure says why an exchange got no answer.
type failure struct {
	cause  Cause
	detail string
}

// outcome returns the unreachable Outcome for the failure.
func (f *failure) outcome(status int) Outcome {
	return Outcome{Kind: KindUnreachable, Cause: f.cause, Detail: f.detail, Status: status}
}

func failf(cause Cause, format string, args ...any) *failure {
	return &failure{cause: cause, detail: detailf(format, args...)}
}

// failed classifies an error that ended an exchange under ctx before there was a response header.
// It checks our own side first: a refusal by the guard, a limit, a caller that left.
func failed(ctx context.Context, err error) *failure {
	if f := ownDoing(ctx, err, "no response header within the limit"); f != nil {
		return f
	}
	if shortage := shortageOf(err); shortage != nil {
		return failf(CauseLocal, "%s", shortage)
	}
	if f := upstreamBy(err); f != nil {
		return f
	}
	dns, isDNS := errors.AsType[*net.DNSError](err)
	switch {
	case isDNS && dns.IsNotFound:
		return failf(CauseDNS, "no such host")
	case isDNS:
		// Only its reason: the error also names our resolver.
		return failf(CauseDNS, "%s", dns.Err)
	case isTLS(err):
		return failf(CauseTLS, "%s", tlsReason(err))
	case isTimeout(err):
		return failf(CauseTimeout, "%s", reason(err))
	case isConnect(err) && !errors.Is(err, syscall.ECONNRESET):
		return failf(CauseConnect, "%s", reason(err))
	case isReset(err):
		return failf(CauseReset, "connection closed before the header ended")
	default:
		return failf(CauseProtocol, "%s", reason(err))
	}
}

// brokenBody classifies an error that ended a body.
func brokenBody(ctx context.Context, err error) *failure {
	if f := ownDoing(ctx, err, "body not complete within the limit"); f != nil {
		return f
	}
	if isTimeout(err) {
		return failf(CauseTimeout, "%s", reason(err))
	}
	return failf(CauseTruncated, "body broke off: %s", reason(err))
}

// ownDoing returns the failure if our side caused it, otherwise nil. late names what had not
// arrived when the time of the retrieval was up.
func ownDoing(ctx context.Context, err error, late string) *failure {
	if f := forbiddenBy(err); f != nil {
		return f
	}
	switch {
	case ctx.Err() == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return failf(CauseTimeout, "%s", late)
	default:
		return failf(CauseCanceled, "given up by the caller")
	}
}

// shortages are the system's errors when this machine lacks a resource.
var shortages = []error{
	syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL, syscall.ENETUNREACH, syscall.ENETDOWN,
}

// shortageOf returns the fault of this machine that err wraps, or nil. The resolver keeps only the
// text of such an error.
func shortageOf(err error) error {
	dns, isDNS := errors.AsType[*net.DNSError](err)
	for _, shortage := range shortages {
		if errors.Is(err, shortage) || isDNS && strings.Contains(dns.Err, shortage.Error()) {
			return shortage
		}
	}
	return nil
}

// isTLS reports a failed handshake or certificate. crypto/tls has no common error type: alerts and
// most handshake errors are plain errors whose text begins with its name, and net/http replaces the
// one for a plain-text answer.
func isTLS(err error) bool {
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err) // wraps the errors of x509
	_, record := errors.AsType[tls.RecordHeaderError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	op, isOp := errors.AsType[*net.OpError](err)
	text := err.Error()
	return certificate || record || alert || isOp && (op.Op == "remote error" || op.Op == "local error") ||
		strings.HasPrefix(text, "tls: ") || strings.HasPrefix(text, "x509: ") ||
		strings.Contains(text, "server gave HTTP response to HTTPS client")
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// isConnect reports a failure to connect, to the origin or to an upstream proxy.
func isConnect(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && (op.Op == "dial" || op.Op == "proxyconnect" || op.Op == "socks connect")
}

// isReset reports a connection that ended. The HTTP/2 errors of net/http have no exported type but
// a common prefix.
func isReset(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.ECONNABORTED) || errors.Is(err, syscall.EPIPE) {
		return true
	}
	text := err.Error()
	return strings.HasPrefix(text, "http2: ") || strings.HasPrefix(text, "stream error: ") ||
		strings.Contains(text, "server closed idle connection")
}

// tlsReason is reason for a failed handshake. It states the most common faults of certificates in a
// few words, without the time of our clock.
func tlsReason(err error) string {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired && invalid.Cert != nil {
		if from := invalid.Cert.NotBefore; time.Now().Before(from) {
			return "certificate is not valid before " + from.UTC().Format(time.DateOnly)
		}
		return "certificate has expired on " + invalid.Cert.NotAfter.UTC().Format(time.DateOnly)
	}
	if wrong, ok := errors.AsType[x509.HostnameError](err); ok {
		return "certificate is not valid for " + wrong.Host
	}
	text := reason(err)
	for _, prefix := range []string{"tls: failed to verify certificate: ", "x509: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}

// reason returns the innermost text that is worth showing: for a network error, the text of the
// system or TLS. The rest of such an error may contain an address or a name of our side of the
// connection.
func reason(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		switch {
		case op.Timeout():
			return op.Op + ": i/o timeout"
		case op.Err != nil && strings.HasPrefix(op.Err.Error(), "tls: "):
			return op.Op + ": " + op.Err.Error()
		}
		return op.Op + ": failed"
	}
	text := err.Error()
	for _, prefix := range []string{"net/http: ", "HTTP/1.x transport connection broken: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return redact.URLs(text)
}
