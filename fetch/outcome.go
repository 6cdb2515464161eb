package fetch

import (
	"fmt"
	"time"

	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/origin"
)

// Kind is the result of one retrieval of a robots.txt (RFC 9309 section 2.3.1). The zero value is
// KindUnreachable: zero values permit nothing.
type Kind uint8

const (
	// KindUnreachable means that the fetcher learned nothing: server error, 429 or 430, network
	// failure, invalid or incomplete answer (RFC 9309 section 2.3.1.4).
	KindUnreachable Kind = iota
	// KindRules means that there is a robots.txt, possibly an empty one (section 2.3.1.1).
	KindRules
	// KindAbsent means that the site says it has none (section 2.3.1.3, and the redirects of
	// section 2.3.1.2 that lead nowhere).
	KindAbsent
)

// String returns "unreachable", "rules" or "absent".
func (k Kind) String() string { return NameOf(k, "unreachable", "rules", "absent") }

// Cause says why a retrieval did not give rules. The set is closed: log fields, metric labels and
// documentation may list it. The empty cause goes with rules.
type Cause string

const (
	// CauseStatus is a status code: 4xx for absent, 429, 430 and 5xx for unreachable.
	CauseStatus Cause = "status"
	// CauseRedirects is a redirect that cannot be followed to an end. Absent: one too many, a loop,
	// no Location, or one with another scheme than http and https. Unreachable: a Location that is
	// no URL, or whose authority is refused.
	CauseRedirects Cause = "redirects"
	// CauseSoft404 is a 5xx that was proven to be the site's "not found" page. Absent.
	CauseSoft404 Cause = "soft_404"
	// CauseDNS is a name that did not resolve.
	CauseDNS Cause = "dns"
	// CauseConnect is a connection that was refused, or a host without a route.
	CauseConnect Cause = "connect"
	// CauseTLS is a failed handshake or certificate.
	CauseTLS Cause = "tls"
	// CauseTimeout is the time limit of the retrieval, or one of its transport's.
	CauseTimeout Cause = "timeout"
	// CauseReset is a connection that ended before the response header did.
	CauseReset Cause = "reset"
	// CauseTruncated is a body that ended early or broke off.
	CauseTruncated Cause = "truncated"
	// CauseEncoding is a content coding that is unknown, or whose data is broken.
	CauseEncoding Cause = "encoding"
	// CauseProtocol is an answer that HTTP does not allow here: malformed, a final 1xx, 206 or 304
	// unasked for, a status outside 100 to 599.
	CauseProtocol Cause = "protocol"
	// CauseForbiddenAddress is a refusal by our own address guard: of the origin itself (see
	// [Outcome.Refused]), or of the target of its redirect.
	CauseForbiddenAddress Cause = "forbidden_address"
	// CauseForbiddenPort is the same for a port.
	CauseForbiddenPort Cause = "forbidden_port"
	// CauseOwnListener is the same for a listener of our own process.
	CauseOwnListener Cause = "own_listener"
	// CauseFTP is a reply of an FTP server: no such file for absent, any other refusal for
	// unreachable.
	CauseFTP Cause = "ftp"
	// CauseLocal is a shortage or fault of the machine that Crawlgate runs on: no file descriptors,
	// memory, ports or network, or no slot to read the answer in time. It says nothing about the
	// origin: [Policy.Next] ignores it, and [Policy.Provisional] returns the record to use until
	// then.
	CauseLocal Cause = "local"
	// CauseUpstream is an upstream proxy of the operator that failed, or that answered by itself. It
	// counts like CauseLocal.
	CauseUpstream Cause = "upstream"
	// CauseCanceled is a retrieval that its caller gave up. It says nothing about the origin:
	// [Policy.Next] ignores it.
	CauseCanceled Cause = "canceled"
)

// Tell returns the part of a failure's detail that a client may see. It returns all of a detail
// that this package wrote, and a general sentence if the detail may quote an error with hosts or
// addresses of the internal network.
func (c Cause) Tell(detail string) string {
	switch c {
	case CauseStatus, CauseRedirects, CauseSoft404, CauseConnect, CauseTLS, CauseTimeout, CauseReset, CauseTruncated,
		CauseEncoding, CauseLocal, CauseUpstream:
		return detail
	case CauseDNS:
		return "the name does not resolve"
	case CauseForbiddenAddress, CauseForbiddenPort, CauseOwnListener:
		return "it leads to a forbidden address or port"
	case CauseProtocol, CauseFTP, CauseCanceled:
	}
	return "the site's answer cannot be used"
}

// forbidden reports whether c is a refusal by our own address guard.
func (c Cause) forbidden() bool {
	return c == CauseForbiddenAddress || c == CauseForbiddenPort || c == CauseOwnListener
}

// Outcome is the result of one retrieval. A failure is an Outcome too: the zero value is
// unreachable. It is a value. Nobody may change its slices after [Fetcher.Fetch] has returned.
type Outcome struct {
	Kind  Kind
	Cause Cause
	// Detail is one line of printable ASCII for humans, at most 200 bytes: no credentials, no
	// addresses of our side of a connection. Do not parse it.
	Detail string
	// Status is the HTTP status of the last hop, 0 if there was none (and for FTP).
	Status int
	// Body is the text of the file after decoding, at most Config.MaxSize bytes of it, without the
	// line that this cuts. Only with KindRules.
	Body []byte
	// Truncated says that the file is longer than Body (RFC 9309 section 2.5).
	Truncated bool
	// Hops are the URLs that redirects led to, in order, each cut to 512 bytes of printable ASCII.
	Hops []string
	// RetryAfter is when the server wants to be asked again, counted from the answer: 0 if it did
	// not say, at most a day.
	RetryAfter time.Duration
	// MaxAge is the freshness lifetime of the last hop's answer, minus its Age. It is valid only if
	// HasMaxAge is true.
	MaxAge    time.Duration
	HasMaxAge bool
	// NoCache says that the last hop forbade reuse (no-cache or no-store).
	NoCache bool
	// Final is the origin whose own robots.txt answered last: set only when hops led to another
	// origin's path /robots.txt without a query. See [Outcome.Shared].
	Final origin.Origin
	// Started is when the retrieval began, and Duration how long it took.
	Started  time.Time
	Duration time.Duration
	// Retried says that it is the outcome of a second try: see [Try].
	Retried bool
}

// Try makes a retrieval, and a second one at once if the connection or the answer broke off and the
// site is not known to be failing. One connection that a server or a load balancer dropped must not
// close a site. There is no second try after a complete answer, a refused connection, a timeout, or
// a failure of DNS or TLS, because it would have the same result.
func Try(failing bool, get func() Outcome) Outcome {
	first := get()
	broken := first.Cause == CauseReset || first.Cause == CauseTruncated || first.Cause == CauseProtocol && first.Status == 0
	if failing || !broken {
		return first
	}
	out := get()
	out.Retried, out.Started, out.Duration = true, first.Started, first.Duration+out.Duration
	if out.Kind != KindUnreachable {
		out.Detail = detailf("at the second try, after: %s", first.Detail)
	}
	return out
}

// Refused reports whether our own guard forbids the origin itself. This says nothing about the
// origin, so [Policy.Next] ignores it. A redirect to a forbidden address is the origin's fault, and
// a failure like any other.
func (out Outcome) Refused() bool { return out.Cause.forbidden() && len(out.Hops) == 0 }

// Ours reports whether the failure is on our side, and so says nothing about the site.
// [Policy.Provisional] returns the record to use until it has passed.
func (out Outcome) Ours() bool { return out.Cause == CauseLocal || out.Cause == CauseUpstream }

// Shared returns the outcome as one of the origin at which the redirects ended, for a record of its
// own, and whether it is one. Only a good answer counts, and only from the path /robots.txt without
// a query: it applies to that origin as if that origin had been asked directly. Another crawler
// shared more and got wrong results (NUTCH-2581).
func (out Outcome) Shared() (origin.Origin, Outcome, bool) {
	byStatus := out.Kind == KindRules || out.Kind == KindAbsent && out.Cause == CauseStatus
	if out.Final.IsZero() || !byStatus {
		return origin.Origin{}, Outcome{}, false
	}
	o := out.Final
	out.Final, out.Hops = origin.Origin{}, nil
	return o, out, true
}

// The bounds of what a server can put into our records and logs, in bytes.
const (
	// MaxDetail is the bound of [Outcome.Detail].
	MaxDetail = 200
	maxHop    = 512
)

// detailf formats an Outcome's Detail.
func detailf(format string, args ...any) string {
	return escape.ASCII(fmt.Sprintf(format, args...), MaxDetail)
}
