package egress

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/dunglas/httpsfv"
	"golang.org/x/net/http/httpguts"
)

// hopByHop are the fields of a single connection (RFC 9110 section 7.6.1), the fields between a
// client and its proxy (section 11.7), and non-standard fields of the same kind.
var hopByHop = set(
	"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Proxy-Authenticate", "Proxy-Authentication-Info", "Proxy-Authorization", "Http2-Settings",
)

// internalFields are request fields that would describe the network behind the gateway to the
// origin: the client's address, the proxies on the way and the trace of the request.
var internalFields = set(
	"Via", "Forwarded", "Client-Ip", "X-Client-Ip", "X-Real-Ip", "X-Cluster-Client-Ip", "X-Original-Forwarded-For",
	"X-Originating-Ip", "X-Remote-Ip", "X-Remote-Addr", "True-Client-Ip", "Cf-Connecting-Ip", "Fastly-Client-Ip",
	"X-Envoy-External-Address", "X-Proxyuser-Ip",
	"Traceparent", "Tracestate", "Baggage", "Correlation-Context", "B3", "Uber-Trace-Id", "X-Cloud-Trace-Context",
	"X-Amzn-Trace-Id", "Sentry-Trace", "Elastic-Apm-Traceparent", "X-Ot-Span-Context", "Grpc-Trace-Bin",
)

// internalPrefixes are the families of such fields.
var internalPrefixes = []string{"X-Forwarded-", "X-B3-", "Uberctx-", "X-Datadog-", "Ot-Tracer-", "Ot-Baggage-"}

// unremovable are fields that the Connection header may not remove: otherwise a client could be
// judged by a name that the origin never sees.
var unremovable = set("User-Agent", "From")

// neverTrailers are fields that must not be trailers, in addition to those that
// [httpguts.ValidTrailerHeader] knows: they control the message, authenticate (RFC 9110 section
// 6.5.1), or name the client.
var neverTrailers = set(
	"Cookie", "Set-Cookie", "Age", "Date", "Expires", "Location", "Retry-After", "Vary", "Warning", "User-Agent", "From",
)

// mayTrail reports whether a field may be in a trailer section.
func mayTrail(name string) bool { return httpguts.ValidTrailerHeader(name) && !neverTrailers[name] }

func set(names ...string) map[string]bool {
	s := make(map[string]bool, len(names))
	for _, n := range names {
		s[n] = true
	}
	return s
}

// connectionOptions returns the fields that a message's Connection header names, in canonical form,
// or nil if it names none.
func connectionOptions(h http.Header) map[string]bool {
	var out map[string]bool
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			name = textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name))
			if name == "" || unremovable[name] {
				continue
			}
			if out == nil {
				out = make(map[string]bool, 2)
			}
			out[name] = true
		}
	}
	return out
}

// Pass says which fields that commit or identify a client may be sent. The zero value allows none.
type Pass struct {
	// Price is for the fields in which a client offers a price, or pays, and for an Authorization with
	// one of the paySchemes.
	Price bool
	// Signature is for a client's own signature (RFC 9421): Signature, Signature-Input and
	// Signature-Agent.
	Signature bool
}

// priceFields and signatureFields are the fields of a [Pass], except Authorization. The prices are
// for pay per crawl and for versions 2 and 1 of x402.
var (
	priceFields     = set("Crawler-Max-Price", "Crawler-Exact-Price", "Payment-Signature", "X-Payment")
	signatureFields = set("Signature", "Signature-Input", "Signature-Agent")
)

// paySchemes are the schemes of an Authorization that shows a paid licence (RSL 1.0) or pays:
// draft-ryan-httpauth-payment-01, and L402 with its earlier name.
var paySchemes = [...]string{"License", "Payment", "L402", "LSAT"}

// field returns the values of a request field that may be sent: all, none, or those that pay
// nothing.
func (p Pass) field(name string, values []string) []string {
	switch {
	case !p.Signature && signatureFields[name], !p.Price && priceFields[name]:
		return nil
	case !p.Price && name == "Authorization" && slices.ContainsFunc(values, pays):
		return slices.DeleteFunc(slices.Clone(values), pays)
	}
	return values
}

// pays reports whether the value of an Authorization field has one of the paySchemes.
func pays(value string) bool {
	value = textproto.TrimString(value)
	if end := strings.IndexAny(value, " \t"); end >= 0 {
		value = value[:end]
	}
	return slices.ContainsFunc(paySchemes[:], func(scheme string) bool { return strings.EqualFold(scheme, value) })
}

// mayLeave reports whether a request field may be sent to the origin.
func mayLeave(name, ownPrefix string) bool {
	begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	return !hopByHop[name] && !internalFields[name] && !begins(ownPrefix) && !slices.ContainsFunc(internalPrefixes, begins)
}

// RequestHeader returns the header to send to the origin. It leaves out hop-by-hop fields and those
// that Connection names, proxy credentials, fields that describe the network inside, fields that
// begin with ownPrefix (canonical form), and fields that pass keeps back; removed counts the lines
// of the latter. The values are shared with in, which stays unchanged. If the client sent no
// User-Agent, none is added later.
func RequestHeader(in http.Header, ownPrefix string, pass Pass) (out http.Header, removed int) {
	dropped := connectionOptions(in)
	out = make(http.Header, len(in)+1)
	for name, values := range in {
		if !mayLeave(name, ownPrefix) || dropped[name] {
			continue
		}
		kept := pass.field(name, values)
		removed += len(values) - len(kept)
		if len(kept) > 0 || len(values) == 0 {
			out[name] = kept
		}
	}
	if httpguts.HeaderValuesContainsToken(in["Te"], "trailers") {
		out["Te"] = []string{"trailers"} // for the next hop, as the gateway passes trailers on
	}
	if _, ok := out["User-Agent"]; !ok {
		out["User-Agent"] = nil
	}
	return out, removed
}

// responseFields copies an origin's fields into dst, where they replace fields of the same name. It
// leaves out hop-by-hop fields, fields that Connection names, fields that speak in the gateway's
// name, and Alt-Svc (RFC 7838): a client that follows the alternative service goes to another host
// or port, where its requests are not judged, and with UDP even bypasses the gateway. The values
// are shared.
func responseFields(dst, src http.Header, name, ownPrefix string) {
	dropped := connectionOptions(src)
	for field, values := range src {
		switch {
		case hopByHop[field], dropped[field], strings.HasPrefix(field, ownPrefix), field == "Alt-Svc":
			continue
		case field == "Proxy-Status" || field == "Cache-Status":
			if values = withoutMembers(values, name); values == nil {
				continue
			}
		}
		dst[field] = values
	}
}

// isWebSocket reports whether a message asks for, or grants, a change to the WebSocket protocol,
// RFC 6455 section 4.
func isWebSocket(h http.Header) bool {
	return httpguts.HeaderValuesContainsToken(h["Connection"], "upgrade") &&
		len(h["Upgrade"]) == 1 && strings.EqualFold(h["Upgrade"][0], "websocket")
}

// withoutMembers removes the members that name the given party from a structured-field list header
// such as Proxy-Status or Cache-Status (RFC 9651 section 3.1), so that an origin cannot speak in
// that party's name. It returns nil when nothing is left. It drops a value that mentions the name
// but is not such a list.
func withoutMembers(values []string, name string) []string {
	var kept []string
	for _, v := range values {
		if !strings.Contains(strings.ToLower(v), strings.ToLower(name)) {
			kept = append(kept, v)
			continue
		}
		list, err := httpsfv.UnmarshalList([]string{v})
		if err != nil {
			continue
		}
		list = slices.DeleteFunc(list, func(m httpsfv.Member) bool { return isNamed(m, name) })
		if text, err := httpsfv.Marshal(list); err == nil && text != "" {
			kept = append(kept, text)
		}
	}
	return kept
}

// isNamed reports whether a member is the name, as a token or a string.
func isNamed(m httpsfv.Member, name string) bool {
	item, ok := m.(httpsfv.Item)
	if !ok {
		return true // an inner list does not name a party
	}
	switch v := item.Value.(type) {
	case httpsfv.Token:
		return strings.EqualFold(string(v), name)
	case string:
		return strings.EqualFold(v, name)
	default:
		return false
	}
}
