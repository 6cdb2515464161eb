package enforce

import (
	"net/http"
	"strings"
)

// Reason says why a request was allowed, refused, or failed. The set is closed and
// its spellings are stable: logs, metrics, problem types and documentation are
// scripted against them. The zero value, of a decision that was never made, is not part of the
// set and counts as [ReasonInternal].
type Reason string

// Reasons to allow.
const (
	ReasonAllowedByRule Reason = "allowed_by_rule"   // an allow rule matched
	ReasonNoRule        Reason = "no_rule"           // no rule matched (RFC 9309 section 2.2.2)
	ReasonRobotsTxt     Reason = "robots_txt_itself" // /robots.txt itself (section 2.2.2)
	ReasonAbsent        Reason = "absent"            // no robots.txt (section 2.3.1.3)
	// ReasonUnreachableExpired means that robots.txt was unreachable for so long that it counts as
	// absent (section 2.3.1.4).
	ReasonUnreachableExpired Reason = "unreachable_expired"
	ReasonUnrestricted       Reason = "unrestricted" // a site that refuses the agent nothing
	ReasonIntercepted        Reason = "intercepted"  // requests inside are decided one by one
	ReasonException          Reason = "exception"    // an exception that the operator made
	ReasonRobotsOff          Reason = "robots_off"   // ModeOff: no rules were asked for
)

// Reasons to refuse.
const (
	ReasonDisallowed Reason = "disallowed" // a disallow rule matched
	// ReasonUnreachable means that robots.txt cannot be had, which disallows everything (RFC 9309
	// section 2.3.1.4).
	ReasonUnreachable Reason = "unreachable"
	// ReasonRobotsForbidden is a robots.txt that the site refuses to show by 401 or 403, where the
	// operator treats that as a refusal of everything (forbidden disallow).
	ReasonRobotsForbidden Reason = "robots_forbidden"
	ReasonPending         Reason = "pending" // the first fetch has not ended in time
	// ReasonTunnelRestricted is a tunnel, which hides paths, to a site that refuses the agent some.
	ReasonTunnelRestricted Reason = "tunnel_restricted"
	ReasonConnectDenied    Reason = "connect_denied"     // a tunnel where the operator allows none
	ReasonKillSwitch       Reason = "kill_switch"        // an order of the kill switch
	ReasonOperatorDeny     Reason = "operator_deny"      // the operator's deny list
	ReasonClientNotAllowed Reason = "client_not_allowed" // the client's address is not allowed
	ReasonUnidentified     Reason = "unidentified"       // the request matches no agent
	// ReasonCredentialsMissing means that the request matches no agent, and has no proxy credentials.
	ReasonCredentialsMissing Reason = "credentials_missing"
	ReasonCredentialsWrong   Reason = "credentials_wrong" // wrong or unreadable proxy credentials
	// ReasonAgentMismatch means that credentials or User-Agent name an agent whose other
	// conditions do not hold.
	ReasonAgentMismatch     Reason = "agent_mismatch"
	ReasonUserAgentConflict Reason = "user_agent_conflict" // an agent with the User-Agent of another
	ReasonAmbiguousAgent    Reason = "ambiguous_agent"     // several agents match equally well
	ReasonForbiddenAddress  Reason = "forbidden_address"   // an address that must not be reached
	ReasonForbiddenPort     Reason = "forbidden_port"      // a port that must not be reached
	ReasonOwnListener       Reason = "own_listener"        // a listener of the gateway's process
	ReasonBadTarget         Reason = "bad_target"          // a target that is not understood
	ReasonMethod            Reason = "method"              // it would change an ftp resource
	// ReasonBadRequest is a request that two readers could understand in two ways: two fields where
	// one may stand, or a method that is no token (RFC 9110 sections 5.3 and 9.1).
	ReasonBadRequest  Reason = "bad_request"
	ReasonURLSize     Reason = "url_size"     // a URL that is longer than the gateway takes
	ReasonMisdirected Reason = "misdirected"  // for another host than the tunnel's
	ReasonRateLimited Reason = "rate_limited" // the slot comes too late for the request
	ReasonConcurrency Reason = "concurrency"  // too many open requests to the host
	ReasonQueueFull   Reason = "queue_full"   // too many requests wait for the host
	ReasonOverloaded  Reason = "overloaded"   // too many requests wait, or too many clocks run
	ReasonBackoff     Reason = "backoff"      // the host asked for a pause (429, 503)
	ReasonCrawlDelay  Reason = "crawl_delay"  // longer than the operator keeps
)

// Reasons of failure. Those of sending have the spellings of the kinds of package egress.
const (
	ReasonCanceled          Reason = "canceled"           // the client left before the answer
	ReasonClientTimeout     Reason = "client_timeout"     // the request body came too slowly
	ReasonClientBody        Reason = "client_body"        // the request body is malformed
	ReasonClientTooLarge    Reason = "client_too_large"   // the request body is above a limit
	ReasonLoop              Reason = "loop"               // the request has passed the gateway before
	ReasonDNS               Reason = "dns"                // the name did not resolve
	ReasonDNSTimeout        Reason = "dns_timeout"        // the name was not resolved in time
	ReasonConnectionRefused Reason = "connection_refused" // the origin refused the connection
	ReasonConnectionTimeout Reason = "connection_timeout" // no connection in time
	ReasonUnroutable        Reason = "unroutable"         // there is no route to the origin
	ReasonUnavailable       Reason = "unavailable"        // the connection failed for another cause
	ReasonTLSCertificate    Reason = "tls_certificate"    // the certificate is not valid for the origin
	ReasonTLSAlert          Reason = "tls_alert"          // the origin ended the TLS handshake
	ReasonTLS               Reason = "tls"                // the TLS handshake failed otherwise
	ReasonTimeout           Reason = "timeout"            // the origin did not answer in time
	ReasonStalled           Reason = "stalled"            // the origin stopped within its answer
	ReasonReset             Reason = "reset"              // the connection ended before the answer
	ReasonIncomplete        Reason = "incomplete"         // the answer ended early
	ReasonTransferCoding    Reason = "transfer_coding"    // the chunked coding is broken
	ReasonHeaderSize        Reason = "header_size"        // the header of the answer is too large
	ReasonProtocol          Reason = "protocol"           // the answer is not HTTP
	ReasonUpgrade           Reason = "upgrade"            // answered with another protocol
	ReasonUpstreamProxy     Reason = "upstream_proxy"     // the upstream proxy refused or failed
	ReasonExhausted         Reason = "exhausted"          // no descriptors, ports or memory left
	ReasonCredentialsBusy   Reason = "credentials_busy"   // too many passwords wait to be checked
	ReasonNotReady          Reason = "not_ready"          // store, orders or clocks are not open
	ReasonAgentLimit        Reason = "agent_limit"        // too many requests or tunnels of one agent
	ReasonInternal          Reason = "internal"           // a fault of the gateway
)

// StatusClientClosedRequest is the status, never sent, that the access log shows for
// a client that left (as Caddy and nginx have it).
const StatusClientClosedRequest = 499

// effect is what a reason does to a request.
type effect uint8

const (
	denies effect = iota // in every mode
	spares               // denies, unless the mode is ModeReport or ModeOff
	allows
	fails // a failure, not a judgement; it denies in every mode
)

// reasonInfo is all that follows from a reason alone.
type reasonInfo struct {
	reason     Reason
	effect     effect
	status     int
	proxyError string // error type of RFC 9209 section 2.3
	title      string // of the problem (RFC 9457 section 3.1.3)
	summary    string // what was refused and why, in one line: see [Decision.summary]
	hint       string // what the person behind the crawler can do
}

// To add a reason: its constant, its row here, its golden file (go test -run Golden -update), its
// page (go test . -run TestProblemPages -update-docs).
var reasonTable = []reasonInfo{
	{ReasonAllowedByRule, allows, http.StatusOK, "", "Allowed by a rule", "", ""},
	{ReasonNoRule, allows, http.StatusOK, "", "No rule matches", "", ""},
	{ReasonRobotsTxt, allows, http.StatusOK, "", "robots.txt itself", "", ""},
	{ReasonAbsent, allows, http.StatusOK, "", "The site has no robots.txt", "", ""},
	{ReasonUnreachableExpired, allows, http.StatusOK, "", "robots.txt unreachable for so long that it counts as absent", "", ""},
	{ReasonUnrestricted, allows, http.StatusOK, "", "The rules refuse this agent nothing", "", ""},
	{ReasonIntercepted, allows, http.StatusOK, "", "Each request in the tunnel is decided by itself", "", ""},
	{ReasonException, allows, http.StatusOK, "", "Exception made by the operator", "", ""},
	{ReasonRobotsOff, allows, http.StatusOK, "", "robots.txt is not enforced here", "", ""},

	{
		ReasonDisallowed, spares, http.StatusForbidden, proxyErrDenied, "Disallowed by robots.txt",
		"Forbidden by robots.txt: ${agent} may not fetch <url> (${resolved}line ${line})",
		"Do not fetch this URL. If the site has permitted it, ask the operator of the gateway for an exception.",
	},
	{
		ReasonUnreachable, spares, http.StatusForbidden, proxyErrDenied, "robots.txt is unreachable",
		"Forbidden: robots.txt of <host> is unreachable${detail}${retry}",
		"While a site's robots.txt cannot be fetched, everything on the site is disallowed (RFC 9309 section 2.3.1.4). Come back after the time given.",
	},
	{
		ReasonRobotsForbidden, spares, http.StatusForbidden, proxyErrDenied, "The site does not show its robots.txt",
		"Forbidden: <host> does not show its robots.txt${detail}",
		"The site answers 401 or 403 for its robots.txt, and the operator of the gateway treats that as a refusal of everything (forbidden disallow).",
	},
	{
		ReasonPending, spares, http.StatusForbidden, proxyErrDenied, "robots.txt is still being fetched",
		"Forbidden: robots.txt of <host> is still being fetched${retry}",
		"The first fetch of the site's robots.txt has not ended. Come back after the time given.",
	},
	{
		ReasonTunnelRestricted, spares, http.StatusForbidden, proxyErrDenied, "The site's rules need a visible path",
		"Forbidden by robots.txt: no blind tunnel for ${agent} to <host>, which restricts it",
		"In a tunnel the gateway sees no path, and robots.txt refuses this agent some. Ask the operator to intercept this host (connect intercept), or send absolute https:// URLs to the proxy.",
	},
	{
		ReasonConnectDenied, denies, http.StatusForbidden, proxyErrDenied, "Tunnels are not allowed",
		"Forbidden: no tunnels (CONNECT) to <host>",
		"Send absolute URLs to the proxy, or ask the operator of the gateway to allow CONNECT to this host.",
	},
	{
		ReasonKillSwitch, denies, http.StatusForbidden, proxyErrDenied, "Stopped by the kill switch",
		"Forbidden: stopped by the operator's kill switch: ${agent} to <host>",
		"The operator has stopped these requests. Stop the crawl and ask the operator of the gateway.",
	},
	{
		ReasonOperatorDeny, denies, http.StatusForbidden, proxyErrDenied, "Denied by the operator",
		"Forbidden: the operator of the gateway denies requests to <host>",
		"The operator of the gateway does not allow requests to this host.",
	},
	{
		ReasonClientNotAllowed, denies, http.StatusForbidden, proxyErrDenied, "This client may not use the gateway",
		"Forbidden: clients at this address may not use the gateway",
		"The gateway takes requests from some addresses only. Ask its operator to allow yours (clients).",
	},
	{
		ReasonUnidentified, spares, http.StatusForbidden, proxyErrDenied, "Unknown crawler",
		"Forbidden: unknown crawler, User-Agent <user_agent>",
		"Send the User-Agent or the proxy credentials of a registered agent, or ask the operator of the gateway to register yours.",
	},
	{
		ReasonCredentialsMissing, spares, http.StatusProxyAuthRequired, proxyErrDenied, "Proxy credentials are missing",
		"Proxy credentials are missing: send those of your agent to the proxy",
		"Send the user name and password of your agent to the proxy (Proxy-Authorization: Basic).",
	},
	{
		ReasonCredentialsWrong, denies, http.StatusProxyAuthRequired, proxyErrDenied, "Proxy credentials are wrong",
		"Proxy credentials are wrong: check the user name and password sent to the proxy",
		"Check the user name and password that the client sends to the proxy.",
	},
	{
		ReasonAgentMismatch, spares, http.StatusForbidden, proxyErrDenied, "Not all conditions of the agent hold",
		"Forbidden: not all conditions of agent <agent> hold",
		"The agent is registered with conditions that this request does not meet. See the detail, or ask the operator of the gateway.",
	},
	{
		ReasonUserAgentConflict, spares, http.StatusForbidden, proxyErrDenied, "User-Agent of another agent",
		"Forbidden: agent ${agent} with another agent's User-Agent <user_agent>",
		"A crawler must use its own name. Send your own User-Agent, or use the other agent's credentials.",
	},
	{
		ReasonAmbiguousAgent, spares, http.StatusForbidden, proxyErrDenied, "Several agents match", summaryHost,
		"The request matches several registered agents equally well. Ask the operator of the gateway to tell them apart.",
	},
	{
		ReasonForbiddenAddress, denies, http.StatusForbidden, "destination_ip_prohibited", "Forbidden address", summaryURL,
		"The host's address is not a public one. If it has to be crawled, ask the operator of the gateway (allow_private).",
	},
	{
		ReasonForbiddenPort, denies, http.StatusForbidden, proxyErrDenied, "Forbidden port", summaryURL,
		"The gateway does not connect to this port. If it has to be crawled, ask the operator of the gateway (ports).",
	},
	{
		ReasonOwnListener, denies, http.StatusForbidden, "proxy_loop_detected", "The target is the gateway's own process", summaryHost,
		"Check the client's URL and proxy settings. To crawl a site of the same process, the operator names its address alone (allow_private).",
	},
	{
		ReasonBadTarget, denies, http.StatusBadRequest, proxyErrRequest, "The target is not understood", summaryURL,
		"Send an absolute URL with the scheme http, https or ftp, a host in its canonical form and no user information.",
	},
	{
		ReasonMethod, denies, http.StatusMethodNotAllowed, proxyErrRequest, "ftp resources can only be read", summaryURL,
		"Send GET or HEAD.",
	},
	{
		ReasonBadRequest, denies, http.StatusBadRequest, proxyErrRequest, "The request is not understood", summaryURL,
		"Send each of User-Agent and Proxy-Authorization once, and a method that HTTP knows. The connection is closed after this answer.",
	},
	{
		ReasonURLSize, denies, http.StatusRequestURITooLong, proxyErrRequest, "The URL is too long", summaryURL,
		"Send a shorter URL. The operator of the gateway can raise the limit.",
	},
	{
		ReasonMisdirected, denies, http.StatusMisdirectedRequest, proxyErrRequest, "The request is for another host than its tunnel", summaryHost,
		"Open a tunnel for each host, and send requests for no other host in it.",
	},
	{
		ReasonRateLimited, denies, http.StatusTooManyRequests, proxyErrDenied, "Too many requests to this host", summaryPaced,
		"Come back after the time given. The request did not count against the rate.",
	},
	{
		ReasonConcurrency, denies, http.StatusTooManyRequests, proxyErrDenied, "Too many open requests to this host", summaryPaced,
		"Come back after the time given, with fewer requests at once.",
	},
	{
		ReasonQueueFull, denies, http.StatusTooManyRequests, proxyErrDenied, "Too many requests wait for this host", summaryPaced,
		"Come back after the time given, with fewer requests at once.",
	},
	{
		ReasonOverloaded, denies, http.StatusTooManyRequests, proxyErrDenied, "Too many requests wait in the gateway", summaryPaced,
		"Come back after the time given, with fewer requests at once; tell the operator of the gateway if it lasts.",
	},
	{
		ReasonBackoff, denies, http.StatusTooManyRequests, proxyErrDenied, "The host asked for a pause",
		"Too many requests: <host> has asked for a pause${retry}",
		"The host has answered 429 or 503. Come back after the time given.",
	},
	{
		ReasonCrawlDelay, denies, http.StatusForbidden, proxyErrDenied, "The Crawl-delay is too long",
		"Forbidden: <host> asks for too long a pause${detail}",
		"The site asks for a longer pause between requests than the operator of the gateway wants to keep (crawl_delay).",
	},

	{ReasonCanceled, fails, StatusClientClosedRequest, "", "The client left", summaryHost, ""},
	{ReasonClientTimeout, fails, http.StatusRequestTimeout, proxyErrRequest, "The request body came too slowly", summaryHost, hintClient},
	{ReasonClientBody, fails, http.StatusBadRequest, proxyErrRequest, "The request body is malformed", summaryHost, hintClient},
	{ReasonClientTooLarge, fails, http.StatusRequestEntityTooLarge, proxyErrRequest, "The request body is too large", summaryHost, hintClient},
	{ReasonLoop, fails, http.StatusBadGateway, "proxy_loop_detected", "The request loops", summaryHost, hintLoop},
	{ReasonDNS, fails, http.StatusBadGateway, "dns_error", "The host name does not resolve", summaryHost, hintOrigin},
	{ReasonDNSTimeout, fails, http.StatusGatewayTimeout, "dns_timeout", "The host name was not resolved in time", summaryHost, hintOrigin},
	{ReasonConnectionRefused, fails, http.StatusBadGateway, "connection_refused", "The origin refused the connection", summaryHost, hintOrigin},
	{ReasonConnectionTimeout, fails, http.StatusGatewayTimeout, "connection_timeout", "The origin did not take the connection in time", summaryHost, hintOrigin},
	{ReasonUnroutable, fails, http.StatusBadGateway, "destination_ip_unroutable", "There is no route to the origin", summaryHost, hintOrigin},
	{ReasonUnavailable, fails, http.StatusBadGateway, proxyErrUnavailable, "The origin cannot be connected to", summaryHost, hintOrigin},
	{ReasonTLSCertificate, fails, http.StatusBadGateway, "tls_certificate_error", "The origin's certificate is not valid", summaryHost, hintOrigin},
	{ReasonTLSAlert, fails, http.StatusBadGateway, "tls_alert_received", "The origin ended the TLS handshake", summaryHost, hintOrigin},
	{ReasonTLS, fails, http.StatusBadGateway, "tls_protocol_error", "The TLS handshake with the origin failed", summaryHost, hintOrigin},
	{ReasonTimeout, fails, http.StatusGatewayTimeout, "http_response_timeout", "The origin did not answer in time", summaryHost, hintOrigin},
	{ReasonStalled, fails, http.StatusGatewayTimeout, "connection_read_timeout", "The origin stopped in the middle of its answer", summaryHost, hintOrigin},
	{ReasonReset, fails, http.StatusBadGateway, "connection_terminated", "The connection to the origin ended early", summaryHost, hintOrigin},
	{ReasonIncomplete, fails, http.StatusBadGateway, "http_response_incomplete", "The origin's answer ended early", summaryHost, hintOrigin},
	{ReasonTransferCoding, fails, http.StatusBadGateway, "http_response_transfer_coding", "The origin's answer is broken", summaryHost, hintOrigin},
	{ReasonHeaderSize, fails, http.StatusBadGateway, "http_response_header_section_size", "The header of the origin's answer is too large", summaryHost, hintOrigin},
	{ReasonProtocol, fails, http.StatusBadGateway, "http_protocol_error", "The origin's answer breaks the protocol", summaryHost, hintOrigin},
	{ReasonUpgrade, fails, http.StatusBadGateway, "http_upgrade_failed", "The upgrade failed", summaryHost, hintOrigin},
	{ReasonUpstreamProxy, fails, http.StatusBadGateway, proxyErrUnavailable, "The upstream proxy refused or failed", summaryHost, hintUpstream},
	{ReasonExhausted, fails, http.StatusBadGateway, "connection_limit_reached", "The gateway has no connections left", summaryHost, hintExhausted},
	{
		ReasonCredentialsBusy, fails, http.StatusServiceUnavailable, proxyErrDenied, "Too many proxy credentials are being checked",
		"Too many proxy credentials are being checked${retry}",
		"Come back after the time given. If it lasts, some client sends many wrong passwords: tell the operator of the gateway.",
	},
	{
		ReasonNotReady, fails, http.StatusServiceUnavailable, "proxy_configuration_error", "The gateway is not ready",
		"The gateway is not ready: it could not open its store, its orders or its clocks${retry}",
		"The gateway could not open what it needs to judge requests: its store, its orders or its clocks. Come back after the time given; tell the operator of the gateway if it lasts.",
	},
	{ReasonAgentLimit, fails, http.StatusServiceUnavailable, proxyErrDenied, "Too many requests or tunnels of one agent", summaryHost, hintAgent},
	{ReasonInternal, fails, http.StatusInternalServerError, "proxy_internal_error", "The gateway failed", summaryHost, hintInternal},
}

// Summaries that several reasons share.
const (
	summaryHost  = "${title}: <host>${retry}"
	summaryURL   = "${title}: <url>"
	summaryPaced = "Too many requests: the gateway paces those to <host>${retry}"
)

// Error types of RFC 9209 section 2.3 that several reasons share.
const (
	proxyErrDenied      = "http_request_denied"
	proxyErrRequest     = "http_request_error"
	proxyErrUnavailable = "destination_unavailable"
)

// Hints that several reasons share or that are too long for a row.
const (
	hintClient    = "The failure is between the client and the gateway. Check what the client sends."
	hintLoop      = "Check the proxy settings of the client, and those of proxies behind the gateway."
	hintOrigin    = "The failure is between the gateway and the origin; robots.txt is not involved. Retry later."
	hintUpstream  = "The failure is between the gateway and the proxy that it sends through. Tell the operator of the gateway if it lasts."
	hintExhausted = "The machine of the gateway lacks file descriptors, ports or memory. Come back later; tell the operator of the gateway if it lasts."
	hintAgent     = "Come back after the time given, with fewer at once. All requests under the agent's name count, from whatever machine."
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

// info returns the row of r, and the row of ReasonInternal for a reason outside the set.
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
func (r Reason) Allows() bool { return r.info().effect == allows }

// Failure reports whether r is not a judgement but a failure.
func (r Reason) Failure() bool { return r.info().effect == fails }

// Hard reports whether r refuses in every [Mode].
func (r Reason) Hard() bool { return r.info().effect == denies || r.info().effect == fails }

// Status returns the HTTP status of a refusal for r (DESIGN §4), 200 for a reason to
// allow and [StatusClientClosedRequest] for a client that left.
func (r Reason) Status() int { return r.info().status }

// ProxyError returns the error type of RFC 9209 section 2.3 for r, empty for a reason
// to allow.
func (r Reason) ProxyError() string { return r.info().proxyError }

// Title returns a short sentence for people, always the same for one reason.
func (r Reason) Title() string { return r.info().title }

// Hint tells the person behind the crawler what to do. It may be empty.
func (r Reason) Hint() string { return r.info().hint }

// Slug is the last part of the problem type (RFC 9457 section 3.1.1), stable, in
// lower-case letters and hyphens.
func (r Reason) Slug() string {
	return strings.ReplaceAll(string(r.info().reason), "_", "-")
}
