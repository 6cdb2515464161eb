package enforce

import (
	"net/netip"
	"slices"
)

// defaultClients are the ranges whose clients may use a gateway of which the operator says nothing: this machine and the
// company's own private networks. The range that carriers share (100.64.0.0/10, RFC 6598) is not among them: other
// customers of the carrier have addresses in it, and so have load balancers of clouds, behind which the whole internet is.
var defaultClients = []netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"),    // loopback, RFC 1122 section 3.2.1.3
	netip.MustParsePrefix("::1/128"),        // loopback, RFC 4291 section 2.5.3
	netip.MustParsePrefix("10.0.0.0/8"),     // private, RFC 1918
	netip.MustParsePrefix("172.16.0.0/12"),  // private, RFC 1918
	netip.MustParsePrefix("192.168.0.0/16"), // private, RFC 1918
	netip.MustParsePrefix("fc00::/7"),       // unique local, RFC 4193
	netip.MustParsePrefix("169.254.0.0/16"), // link-local, RFC 3927
	netip.MustParsePrefix("fe80::/10"),      // link-local, RFC 4291 section 2.5.6
}

// ClientAllowed reports whether a client at source may use a gateway for the clients of some ranges. No range at all
// stands for loopback (127.0.0.0/8, ::1), the private ranges (RFC 1918, RFC 4193) and the link-local ones. An address that
// is not known is in no range.
func ClientAllowed(clients []netip.Prefix, source netip.Addr) bool {
	if len(clients) == 0 {
		clients = defaultClients
	}
	source = source.Unmap().WithZone("")
	return slices.ContainsFunc(clients, func(p netip.Prefix) bool { return p.Contains(source) })
}
