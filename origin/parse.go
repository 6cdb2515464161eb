package origin

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Parse returns the origin of an absolute URL. It is also the inverse of
// [Origin.String]. Only scheme and authority are read: path, query and fragment
// have no say in an origin and are not checked, but for control octets.
// The error is an [*Error].
//
// Parse is stricter than [FromURL] in one point: it refuses percent-encoding in
// the host, which url.Parse has already decoded for FromURL.
func Parse(rawURL string) (Origin, error) {
	if hasControl(rawURL) {
		return Origin{}, refuse(PartURL, "", "has a control octet")
	}
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok || strings.ContainsAny(scheme, ":/?#@") {
		return Origin{}, refuse(PartURL, "", "is not absolute: it does not start with scheme://")
	}
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	return FromAuthority(scheme, rest)
}

// FromURL returns the origin of an absolute URL. The error is an [*Error].
func FromURL(u *url.URL) (Origin, error) {
	switch {
	case u == nil:
		return Origin{}, refuse(PartURL, "", "is missing")
	case u.Scheme == "":
		return Origin{}, refuse(PartURL, "", "is not absolute: it has no scheme")
	case u.Opaque != "":
		return Origin{}, refuse(PartURL, "", "has no // after its scheme")
	case u.User != nil:
		return Origin{}, refuseUserinfo(u.Host)
	}
	return FromAuthority(u.Scheme, u.Host)
}

// FromAuthority returns the origin of an authority such as "example.com",
// "example.com:8080" or "[2001:db8::1]:443", as CONNECT requests and
// configurations have it. Without a port, or with an empty one (RFC 3986 section
// 6.2.3), it is the scheme's default port: who needs a port to be present, as in
// a CONNECT target, must look for it. The error is an [*Error].
func FromAuthority(scheme, authority string) (Origin, error) {
	scheme = strings.ToLower(scheme)
	port := defaultPort(scheme)
	if port == 0 {
		return Origin{}, refuse(PartScheme, scheme, "is not one of http, https, ftp")
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		return Origin{}, refuseUserinfo(authority[at+1:])
	}
	rawHost, rawPort, err := splitAuthority(authority)
	if err != nil {
		return Origin{}, err
	}
	if rawPort != "" {
		if port, err = parsePort(rawPort); err != nil {
			return Origin{}, err
		}
	}
	host, err := canonicalHost(rawHost)
	if err != nil {
		return Origin{}, err
	}
	return Origin{Scheme: scheme, Host: host, Port: port}, nil
}

// refuseUserinfo names the host only: what stands before the @ is a credential.
func refuseUserinfo(host string) error {
	return refuse(PartUserinfo, "...@"+host, "is not allowed")
}

// splitAuthority cuts host[:port] in two; an IPv6 literal keeps its brackets.
func splitAuthority(authority string) (host, port string, err error) {
	if strings.HasPrefix(authority, "[") {
		end := strings.IndexByte(authority, ']')
		if end < 0 {
			return "", "", refuse(PartAddress, authority, "has no closing bracket")
		}
		host, port = authority[:end+1], authority[end+1:]
		if port != "" && port[0] != ':' {
			return "", "", refuse(PartAddress, authority, "has something other than a port after its bracket")
		}
		return host, strings.TrimPrefix(port, ":"), nil
	}
	host, port, _ = strings.Cut(authority, ":")
	if strings.IndexByte(port, ':') >= 0 {
		if _, err := netip.ParseAddr(authority); err == nil {
			return "", "", refuse(PartAddress, authority, "is IPv6 without brackets")
		}
		return "", "", refuse(PartPort, port, "is not a decimal number")
	}
	return host, port, nil
}

// parsePort reads the one spelling a port has: decimal, no sign, no leading zero.
func parsePort(s string) (uint16, error) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, refuse(PartPort, s, "is not a decimal number")
		}
	}
	if s[0] == '0' {
		return 0, refuse(PartPort, s, "is zero or has a leading zero")
	}
	port, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, refuse(PartPort, s, "is above 65535")
	}
	return uint16(port), nil
}

// hasControl reports whether s has an ASCII control octet.
func hasControl(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return true
		}
	}
	return false
}
