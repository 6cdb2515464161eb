package enforce

import (
	"net/http"
	"strings"
)

// Reason says why a request was allowed, refused, or failed. The set is closed and
// its spellings are stable: logs, metrics, problem types and documentation are
// scripted against them. The zero value stands for a decision that nobody made; it
// is not part of the set and is treated as [ReasonInternal].
type Reason string

// Reasons to allow.
const (
	// ReasonAllowedByRule is an allow rule that matched.
	ReasonAllowedByRule Reason = "allowed_by_rule"
	// ReasonNoRule is a ruleset of which no rule matched (RFC 9309 section 2.2.2).
	ReasonNoRule Reason = "no_rule"
	// ReasonRobotsTxt is a request for /robots.txt itself (section 2.2.2).
	ReasonRobotsTxt Reason = "robots_txt_itself"
	// ReasonAbsent is a site without robots.txt (section 2.3.1.3).
	ReasonAbsent Reason = "absent"
	// ReasonUnreachableExpired is a robots.txt that was unreachable for so long that
	// it counts as absent (section 2.3.1.4).
	ReasonUnreachableExpired Reason = "unreachable_expired"
	// ReasonUnrestricted is a tunnel to a site whose rules cannot refuse the agent anything.
	ReasonUnrestricted Reason = "unrestricted"
	// ReasonIntercepted is a tunnel that is looked into: what is inside is decided by itself.
	ReasonIntercepted Reason = "intercepted"
	// ReasonException is an exception that the operator made.
	ReasonException Reason = "exception"
	// ReasonRobotsOff is ModeOff: the rules were not asked for.
	ReasonRobotsOff Reason = "robots_off"
)

// Reasons to refuse.
const (
	// ReasonDisallowed is a disallow rule that matched.
	ReasonDisallowed Reason = "disallowed"
	// ReasonUnreachable is a robots.txt that cannot be had: all is disallowed
	// (RFC 9309 section 2.3.1.4).
	ReasonUnreachable Reason = "unreachable"
	// ReasonRobotsForbidden is a robots.txt that the site refuses to show by 401 or 403,
	// where the operator takes that for "all is disallowed" (forbidden disallow).
	ReasonRobotsForbidden Reason = "robots_forbidden"
	// ReasonPending is a robots.txt whose first fetch has not ended in time.
	ReasonPending Reason = "pending"
	// ReasonTunnelRestricted is a tunnel, in which no path is visible, to a site whose
	// rules refuse the agent some path.
	ReasonTunnelRestricted Reason = "tunnel_restricted"
	// ReasonConnectDenied is a tunnel where the operator allows none.
	ReasonConnectDenied Reason = "connect_denied"
	// ReasonKillSwitch is the kill switch.
	ReasonKillSwitch Reason = "kill_switch"
	// ReasonOperatorDeny is the operator's deny list.
	ReasonOperatorDeny Reason = "operator_deny"
	// ReasonClientNotAllowed is a client whose address may not use the gateway.
	ReasonClientNotAllowed Reason = "client_not_allowed"
	// ReasonUnidentified is a request that matches no agent.
	ReasonUnidentified Reason = "unidentified"
	// ReasonCredentialsMissing is a request that matches no agent and has no proxy
	// credentials, where some agent is named by them.
	ReasonCredentialsMissing Reason = "credentials_missing"
	// ReasonCredentialsWrong is a request with wrong or unreadable proxy credentials.
	ReasonCredentialsWrong Reason = "credentials_wrong"
	// ReasonAgentMismatch is a request that names an agent, by credentials or
	// User-Agent, whose other conditions do not hold.
	ReasonAgentMismatch Reason = "agent_mismatch"
	// ReasonUserAgentConflict is a request of one agent with the User-Agent of another.
	ReasonUserAgentConflict Reason = "user_agent_conflict"
	// ReasonAmbiguousAgent is a request that matches several agents alike.
	ReasonAmbiguousAgent Reason = "ambiguous_agent"
	// ReasonForbiddenAddress is a target at an address that must not be reached.
	ReasonForbiddenAddress Reason = "forbidden_address"
	// ReasonForbiddenPort is a target at a port that must not be reached.
	ReasonForbiddenPort Reason = "forbidden_port"
	// ReasonOwnListener is a target that is a listener of the gateway's own process.
	ReasonOwnListener Reason = "own_listener"
	// ReasonBadTarget is a target that is not canonical or not understood.
	ReasonBadTarget Reason = "bad_target"
	// ReasonMethod is a request that would do more to an ftp resource than read it.
	ReasonMethod Reason = "method"
	// ReasonBadRequest is a request that two readers could understand in two ways: two fields
	// where one may stand, or a method that is no token (RFC 9110 sections 5.3 and 9.1).
	ReasonBadRequest Reason = "bad_request"
	// ReasonURLSize is a URL that is longer than the gateway takes.
	ReasonURLSize Reason = "url_size"
	// ReasonMisdirected is a request in a tunnel for another host than the tunnel's.
	ReasonMisdirected Reason = "misdirected"
	// ReasonRateLimited is a host whose turn comes later than the request may wait.
	ReasonRateLimited Reason = "rate_limited"
	// ReasonConcurrency is a host that has as many open requests as it may.
	ReasonConcurrency Reason = "concurrency"
	// ReasonQueueFull is a host for which too many requests wait.
	ReasonQueueFull Reason = "queue_full"
	// ReasonOverloaded is a gateway in which too many requests wait, or too many clocks run.
	ReasonOverloaded Reason = "overloaded"
	// ReasonBackoff is a host that asked, by 429 or 503, to be left alone for a while.
	ReasonBackoff Reason = "backoff"
	// ReasonCrawlDelay is a Crawl-delay longer than the operator wants to keep
	// (crawl_delay … refuse).
	ReasonCrawlDelay Reason = "crawl_delay"
)

// Reasons of failure. Those of the way out have the spellings of the egress package's kinds.
const (
	// ReasonCanceled is a client that left before the answer.
	ReasonCanceled Reason = "canceled"
	// ReasonClientTimeout is a request body that came too slowly.
	ReasonClientTimeout Reason = "client_timeout"
	// ReasonClientBody is a request body that is malformed.
	ReasonClientBody Reason = "client_body"
	// ReasonClientTooLarge is a request body above a limit set on it.
	ReasonClientTooLarge Reason = "client_too_large"
	// ReasonLoop is a request that has passed the gateway before.
	ReasonLoop Reason = "loop"
	// ReasonDNS is a name that did not resolve.
	ReasonDNS Reason = "dns"
	// ReasonDNSTimeout is a name that was not resolved in time.
	ReasonDNSTimeout Reason = "dns_timeout"
	// ReasonConnectionRefused is an origin that refused the connection.
	ReasonConnectionRefused Reason = "connection_refused"
	// ReasonConnectionTimeout is an origin that did not take the connection in time.
	ReasonConnectionTimeout Reason = "connection_timeout"
	// ReasonUnroutable is an origin to which there is no route.
	ReasonUnroutable Reason = "unroutable"
	// ReasonUnavailable is an origin that could not be connected to for another cause.
	ReasonUnavailable Reason = "unavailable"
	// ReasonTLSCertificate is a certificate that is not valid for the origin.
	ReasonTLSCertificate Reason = "tls_certificate"
	// ReasonTLSAlert is an origin that ended the TLS handshake with an alert.
	ReasonTLSAlert Reason = "tls_alert"
	// ReasonTLS is a TLS handshake that failed for another cause.
	ReasonTLS Reason = "tls"
	// ReasonTimeout is an origin that did not answer in time.
	ReasonTimeout Reason = "timeout"
	// ReasonStalled is an origin that stopped in the middle of its answer.
	ReasonStalled Reason = "stalled"
	// ReasonReset is a connection that ended before the answer.
	ReasonReset Reason = "reset"
	// ReasonIncomplete is an answer that ended early.
	ReasonIncomplete Reason = "incomplete"
	// ReasonTransferCoding is an answer whose chunked coding is broken.
	ReasonTransferCoding Reason = "transfer_coding"
	// ReasonHeaderSize is an answer whose header is too large.
	ReasonHeaderSize Reason = "header_size"
	// ReasonProtocol is an answer that is not HTTP.
	ReasonProtocol Reason = "protocol"
	// ReasonUpgrade is an upgrade that was answered with another protocol.
	ReasonUpgrade Reason = "upgrade"
	// ReasonUpstreamProxy is an upstream proxy that refused or failed.
	ReasonUpstreamProxy Reason = "upstream_proxy"
	// ReasonExhausted is a gateway that has no file descriptors, ports or memory left for
	// another connection.
	ReasonExhausted Reason = "exhausted"
	// ReasonCredentialsBusy is a request whose proxy credentials were not checked: too many
	// others were waiting for that.
	ReasonCredentialsBusy Reason = "credentials_busy"
	// ReasonNotReady is a gateway that could not open its store, its orders or its clocks.
	ReasonNotReady Reason = "not_ready"
	// ReasonAgentLimit is an agent with as many requests or tunnels under way as one may have.
	ReasonAgentLimit Reason = "agent_limit"
	// ReasonInternal is a fault of the gateway. What cannot be judged is refused.
	ReasonInternal Reason = "internal"
)

// class tells what a reason does.
type class uint8

const (
	classDeny class = iota
	classAllow
	classFailure
)

// StatusClientClosedRequest is the status, never sent, that the access log shows for
// a client that left (as Caddy and nginx have it).
const StatusClientClosedRequest = 499

// reasonInfo is all that follows from a reason alone.
type reasonInfo struct {
	reason Reason
	class  class
	// hard refusals hold in every mode.
	hard   bool
	status int
	// proxyError is the error type of RFC 9209 section 2.3.
	proxyError string
	// title is the problem's title (RFC 9457 section 3.1.3).
	title string
	// hint tells the person behind the crawler what to do.
	hint string
}

// To add a reason: its constant, its row here, its sentence in sentence.go if the title
// alone does not do, its golden files (go test -run Golden -update), its page in docs/.
var reasonTable = []reasonInfo{
	{ReasonAllowedByRule, classAllow, false, http.StatusOK, "", "Allowed by a rule", ""},
	{ReasonNoRule, classAllow, false, http.StatusOK, "", "No rule matches", ""},
	{ReasonRobotsTxt, classAllow, false, http.StatusOK, "", "robots.txt itself", ""},
	{ReasonAbsent, classAllow, false, http.StatusOK, "", "The site has no robots.txt", ""},
	{ReasonUnreachableExpired, classAllow, false, http.StatusOK, "", "robots.txt unreachable for so long that it counts as absent", ""},
	{ReasonUnrestricted, classAllow, false, http.StatusOK, "", "The rules refuse this agent nothing", ""},
	{ReasonIntercepted, classAllow, false, http.StatusOK, "", "What is inside the tunnel is decided by itself", ""},
	{ReasonException, classAllow, false, http.StatusOK, "", "Exception made by the operator", ""},
	{ReasonRobotsOff, classAllow, false, http.StatusOK, "", "robots.txt is not enforced here", ""},

	{
		ReasonDisallowed, classDeny, false, http.StatusForbidden, proxyErrDenied,
		"Disallowed by robots.txt",
		"Do not fetch this URL. If the site has permitted it, ask the operator of the gateway for an exception.",
	},
	{
		ReasonUnreachable, classDeny, false, http.StatusForbidden, proxyErrDenied,
		"robots.txt is unreachable",
		"While a site's robots.txt cannot be fetched, everything on the site is disallowed (RFC 9309 section 2.3.1.4). Come back after the time given.",
	},
	{
		ReasonRobotsForbidden, classDeny, false, http.StatusForbidden, proxyErrDenied,
		"The site does not show its robots.txt",
		"The site answers 401 or 403 for its robots.txt, and the operator of the gateway takes that for a refusal of everything (forbidden disallow).",
	},
	{
		ReasonPending, classDeny, false, http.StatusForbidden, proxyErrDenied,
		"robots.txt is still being fetched",
		"The first fetch of the site's robots.txt has not ended. Come back after the time given.",
	},
	{
		ReasonTunnelRestricted, classDeny, false, http.StatusForbidden, proxyErrDenied,
		"The site's rules need a visible path",
		"In a tunnel the gateway sees no path, and robots.txt refuses this agent some. Ask the operator to intercept this host (connect intercept), or send absolute https:// URLs to the proxy.",
	},
	{
		ReasonConnectDenied, classDeny, true, http.StatusForbidden, proxyErrDenied,
		"Tunnels are not allowed",
		"Send absolute URLs to the proxy, or ask the operator of the gateway to allow CONNECT to this host.",
	},
	{
		ReasonKillSwitch, classDeny, true, http.StatusForbidden, proxyErrDenied,
		"Stopped by the kill switch",
		"The operator has stopped these requests. Stop the crawl and ask the operator of the gateway.",
	},
	{
		ReasonOperatorDeny, classDeny, true, http.StatusForbidden, proxyErrDenied,
		"Denied by the operator",
		"The operator of the gateway does not allow requests to this host.",
	},
	{
		ReasonClientNotAllowed, classDeny, true, http.StatusForbidden, proxyErrDenied,
		"This client may not use the gateway",
		"The gateway takes requests from some addresses only. Ask its operator to name yours (clients).",
	},
	{
		ReasonUnidentified, classDeny, false, http.StatusForbidden, proxyErrDenied,
		"Unknown crawler",
		"Send the User-Agent or the proxy credentials of a registered agent, or ask the operator of the gateway to register yours.",
	},
	{
		ReasonCredentialsMissing, classDeny, false, http.StatusProxyAuthRequired, proxyErrDenied,
		"Proxy credentials are missing",
		"Send the user name and password of your agent to the proxy (Proxy-Authorization: Basic).",
	},
	{
		ReasonCredentialsWrong, classDeny, true, http.StatusProxyAuthRequired, proxyErrDenied,
		"Proxy credentials are wrong",
		"Check the user name and password that the client sends to the proxy.",
	},
	{
		ReasonAgentMismatch, classDeny, false, http.StatusForbidden, proxyErrDenied,
		"Not all conditions of the agent hold",
		"The agent's registration names more than what this request shows. Compare it with the detail given, or ask the operator of the gateway.",
	},
	{
		ReasonUserAgentConflict, classDeny, false, http.StatusForbidden, proxyErrDenied,
		"User-Agent of another agent",
		"A crawler must show itself under its own name. Send your own User-Agent, or use the other agent's credentials.",
	},
	{
		ReasonAmbiguousAgent, classDeny, false, http.StatusForbidden, proxyErrDenied,
		"Several agents match",
		"The request matches several registered agents alike. Ask the operator of the gateway to tell them apart.",
	},
	{
		ReasonForbiddenAddress, classDeny, true, http.StatusForbidden, proxyErrIPProhibited,
		"Forbidden address",
		"The host's address is not a public one. If it has to be crawled, ask the operator of the gateway (allow_private).",
	},
	{
		ReasonForbiddenPort, classDeny, true, http.StatusForbidden, proxyErrDenied,
		"Forbidden port",
		"The gateway does not connect to this port. If it has to be crawled, ask the operator of the gateway (ports).",
	},
	{
		ReasonOwnListener, classDeny, true, http.StatusForbidden, "proxy_loop_detected",
		"The target is the gateway's own process",
		"Check the client's URL and proxy settings. A site of the same process that has to be crawled is opened by naming its address alone (allow_private).",
	},
	{
		ReasonBadTarget, classDeny, true, http.StatusBadRequest, proxyErrRequest,
		"The target is not understood",
		"Send an absolute URL with the scheme http, https or ftp, a host in its canonical form and no user information.",
	},
	{
		ReasonMethod, classDeny, true, http.StatusMethodNotAllowed, proxyErrRequest,
		"ftp resources can only be read",
		"Send GET or HEAD.",
	},
	{
		ReasonBadRequest, classDeny, true, http.StatusBadRequest, proxyErrRequest,
		"The request is not understood",
		"Send each of User-Agent and Proxy-Authorization once, and a method that HTTP knows. The connection is closed after this answer.",
	},
	{
		ReasonURLSize, classDeny, true, http.StatusRequestURITooLong, proxyErrRequest,
		"The URL is too long",
		"Send a shorter URL. The operator of the gateway can raise the limit.",
	},
	{
		ReasonMisdirected, classDeny, true, http.StatusMisdirectedRequest, proxyErrRequest,
		"The request is for another host than its tunnel",
		"Open a tunnel for each host, and send requests for no other host in it.",
	},
	{
		ReasonRateLimited, classDeny, true, http.StatusTooManyRequests, proxyErrDenied,
		"Too many requests to this host",
		"Come back after the time given. The request did not use up a turn.",
	},
	{
		ReasonConcurrency, classDeny, true, http.StatusTooManyRequests, proxyErrDenied,
		"Too many open requests to this host",
		"Come back after the time given, with fewer requests at once.",
	},
	{
		ReasonQueueFull, classDeny, true, http.StatusTooManyRequests, proxyErrDenied,
		"Too many requests wait for this host",
		"Come back after the time given, with fewer requests at once.",
	},
	{
		ReasonOverloaded, classDeny, true, http.StatusTooManyRequests, proxyErrDenied,
		"Too many requests wait in the gateway",
		"Come back after the time given, with fewer requests at once; tell the operator of the gateway if it lasts.",
	},
	{
		ReasonBackoff, classDeny, true, http.StatusTooManyRequests, proxyErrDenied,
		"The host asked for a pause",
		"The host has answered 429 or 503. Come back after the time given.",
	},
	{
		ReasonCrawlDelay, classDeny, true, http.StatusForbidden, proxyErrDenied,
		"The Crawl-delay is too long",
		"The site asks for a longer pause between requests than the operator of the gateway wants to keep (crawl_delay).",
	},

	{ReasonCanceled, classFailure, true, StatusClientClosedRequest, "", "The client left", ""},
	{ReasonClientTimeout, classFailure, true, http.StatusRequestTimeout, proxyErrRequest, "The request body came too slowly", hintClient},
	{ReasonClientBody, classFailure, true, http.StatusBadRequest, proxyErrRequest, "The request body is malformed", hintClient},
	{ReasonClientTooLarge, classFailure, true, http.StatusRequestEntityTooLarge, proxyErrRequest, "The request body is too large", hintClient},
	{ReasonLoop, classFailure, true, http.StatusBadGateway, "proxy_loop_detected", "The request runs in a circle", hintLoop},
	{ReasonDNS, classFailure, true, http.StatusBadGateway, "dns_error", "The host name does not resolve", hintOrigin},
	{ReasonDNSTimeout, classFailure, true, http.StatusGatewayTimeout, "dns_timeout", "The host name was not resolved in time", hintOrigin},
	{ReasonConnectionRefused, classFailure, true, http.StatusBadGateway, "connection_refused", "The origin refused the connection", hintOrigin},
	{ReasonConnectionTimeout, classFailure, true, http.StatusGatewayTimeout, "connection_timeout", "The origin did not take the connection in time", hintOrigin},
	{ReasonUnroutable, classFailure, true, http.StatusBadGateway, "destination_ip_unroutable", "There is no route to the origin", hintOrigin},
	{ReasonUnavailable, classFailure, true, http.StatusBadGateway, proxyErrUnavailable, "The origin cannot be connected to", hintOrigin},
	{ReasonTLSCertificate, classFailure, true, http.StatusBadGateway, "tls_certificate_error", "The origin's certificate is not valid", hintOrigin},
	{ReasonTLSAlert, classFailure, true, http.StatusBadGateway, "tls_alert_received", "The origin ended the TLS handshake", hintOrigin},
	{ReasonTLS, classFailure, true, http.StatusBadGateway, "tls_protocol_error", "The TLS handshake with the origin failed", hintOrigin},
	{ReasonTimeout, classFailure, true, http.StatusGatewayTimeout, "http_response_timeout", "The origin did not answer in time", hintOrigin},
	{ReasonStalled, classFailure, true, http.StatusGatewayTimeout, "connection_read_timeout", "The origin stopped in the middle of its answer", hintOrigin},
	{ReasonReset, classFailure, true, http.StatusBadGateway, "connection_terminated", "The connection to the origin ended early", hintOrigin},
	{ReasonIncomplete, classFailure, true, http.StatusBadGateway, "http_response_incomplete", "The origin's answer ended early", hintOrigin},
	{ReasonTransferCoding, classFailure, true, http.StatusBadGateway, "http_response_transfer_coding", "The origin's answer is broken", hintOrigin},
	{ReasonHeaderSize, classFailure, true, http.StatusBadGateway, "http_response_header_section_size", "The header of the origin's answer is too large", hintOrigin},
	{ReasonProtocol, classFailure, true, http.StatusBadGateway, "http_protocol_error", "The origin's answer breaks the protocol", hintOrigin},
	{ReasonUpgrade, classFailure, true, http.StatusBadGateway, "http_upgrade_failed", "The upgrade failed", hintOrigin},
	{ReasonUpstreamProxy, classFailure, true, http.StatusBadGateway, proxyErrUnavailable, "The upstream proxy refused or failed", hintUpstream},
	{ReasonExhausted, classFailure, true, http.StatusBadGateway, "connection_limit_reached", "The gateway has no connections left", hintExhausted},
	{ReasonCredentialsBusy, classFailure, true, http.StatusServiceUnavailable, proxyErrDenied, "Too many proxy credentials are being checked", hintBusy},
	{ReasonNotReady, classFailure, true, http.StatusServiceUnavailable, "proxy_configuration_error", "The gateway is not ready", hintNotReady},
	{ReasonAgentLimit, classFailure, true, http.StatusServiceUnavailable, proxyErrDenied, "Too many requests or tunnels of one agent", hintAgent},
	{ReasonInternal, classFailure, true, http.StatusInternalServerError, "proxy_internal_error", "The gateway failed", hintInternal},
}

// Error types of RFC 9209 section 2.3 that several reasons share.
const (
	proxyErrDenied       = "http_request_denied"
	proxyErrRequest      = "http_request_error"
	proxyErrIPProhibited = "destination_ip_prohibited"
	proxyErrUnavailable  = "destination_unavailable"
)

// Hints that several reasons share, or that are long.
const (
	hintClient    = "The failure is between the client and the gateway. Check what the client sends."
	hintLoop      = "Check the proxy settings of the client, and those of proxies behind the gateway."
	hintOrigin    = "The failure is between the gateway and the origin; robots.txt has no part in it. Retry later."
	hintUpstream  = "The failure is between the gateway and the proxy that it sends through. Tell the operator of the gateway if it lasts."
	hintExhausted = "The machine of the gateway lacks file descriptors, ports or memory. Come back a little later; tell the operator of the gateway if it lasts."
	hintBusy      = "Come back after the time given. If it lasts, some client sends many wrong passwords: tell the operator of the gateway."
	hintNotReady  = "The gateway could not open what it needs to judge requests: its store, its orders or its clocks. Come back after the time given; tell the operator of the gateway if it lasts."
	hintAgent     = "Come back after the time given, with fewer at once. Every use of one agent's name counts, whichever machine it comes from."
	hintInternal  = "The request could not be judged and was refused. The gateway's log says more; tell its operator."
)

// reasonIndex finds the row of a reason.
var reasonIndex = func() map[Reason]*reasonInfo {
	m := make(map[Reason]*reasonInfo, len(reasonTable))
	for i := range reasonTable {
		m[reasonTable[i].reason] = &reasonTable[i]
	}
	return m
}()

// info returns the row of r; whatever is not in the set has that of ReasonInternal.
func (r Reason) info() *reasonInfo {
	if i, ok := reasonIndex[r]; ok {
		return i
	}
	return reasonIndex[ReasonInternal]
}

// Reasons returns the whole set, in the order of its documentation: reasons to
// allow, to refuse, of failure.
func Reasons() []Reason {
	all := make([]Reason, len(reasonTable))
	for i := range reasonTable {
		all[i] = reasonTable[i].reason
	}
	return all
}

// Valid reports whether r is in the set.
func (r Reason) Valid() bool {
	_, ok := reasonIndex[r]
	return ok
}

// Allows reports whether r is a reason to let a request pass.
func (r Reason) Allows() bool { return r.info().class == classAllow }

// Failure reports whether r is not a judgement but a failure.
func (r Reason) Failure() bool { return r.info().class == classFailure }

// Hard reports whether r refuses in every [Mode].
func (r Reason) Hard() bool { return r.info().hard }

// Status returns the HTTP status of a refusal for r (DESIGN §4), 200 for a reason to
// allow and [StatusClientClosedRequest] for a client that left.
func (r Reason) Status() int { return r.info().status }

// ProxyError returns the error type of RFC 9209 section 2.3 for r, empty for a reason
// to allow.
func (r Reason) ProxyError() string { return r.info().proxyError }

// Title returns a short sentence for people, always the same for one reason.
func (r Reason) Title() string { return r.info().title }

// Hint tells the person behind the crawler what to do. Empty if there is nothing.
func (r Reason) Hint() string { return r.info().hint }

// Slug is the last part of the problem type (RFC 9457 section 3.1.1), stable, in
// lower-case letters and hyphens.
func (r Reason) Slug() string {
	return strings.ReplaceAll(string(r.info().reason), "_", "-")
}
