package origin

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Origin is the scope of one robots.txt (RFC 9309 section 2.3): one scheme on one host at one port.
//
// Origins are comparable: those made by [Parse], [FromURL] and [FromAuthority] are equal exactly if
// they name the same scope, and exactly if their strings are equal. The zero value is not an
// origin.
type Origin struct {
	// Scheme is "http", "https" or "ftp".
	Scheme string
	// Host is a lower-case ASCII (punycode) name without a trailing dot, an IPv4 address in dotted
	// decimal, or an IPv6 address in the form of RFC 5952 without brackets.
	Host string
	// Port is the effective port: the scheme's default if none was given, never 0.
	Port uint16
}

// IsZero reports whether o is the zero value, which is not an origin.
func (o Origin) IsZero() bool { return o == Origin{} }

// String returns the ASCII serialisation of o, such as "https://example.com" or
// "http://[::1]:8080", without the default port of the scheme. Origins are stored under this key;
// [Parse] is its inverse. For the zero value it is empty.
func (o Origin) String() string {
	if o.IsZero() {
		return ""
	}
	return o.Scheme + "://" + o.Authority()
}

// MarshalText implements encoding.TextMarshaler: the text is what String returns.
func (o Origin) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. It accepts only the spelling of MarshalText.
func (o *Origin) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	if parsed.String() != string(text) {
		return fmt.Errorf("the origin %s in another spelling: %q", parsed, text)
	}
	*o = parsed
	return nil
}

// Authority returns host[:port] as in [Origin.String]: an IPv6 address has its brackets, the
// scheme's default port is left out. This is the value of the Host field of a request to o.
func (o Origin) Authority() string {
	if o.Port == defaultPort(o.Scheme) {
		return o.bracketedHost()
	}
	return o.HostPort()
}

// HostPort returns host:port for dialing. It always includes the port.
func (o Origin) HostPort() string {
	return o.bracketedHost() + ":" + strconv.Itoa(int(o.Port))
}

// Addr returns the address of an origin whose host is an IP literal, and whether it is one. The
// rules of such an origin apply to requests that name the address, not to names that resolve to it
// (Google's specification).
func (o Origin) Addr() (netip.Addr, bool) {
	if !isIPv6(o.Host) && !endsInNumber(o.Host) {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(o.Host)
	return addr, err == nil
}

// RobotsURL returns the only URL at which the rules of o are found (RFC 9309 section 2.3).
func (o Origin) RobotsURL() string {
	return o.String() + "/robots.txt"
}

func (o Origin) bracketedHost() string {
	if isIPv6(o.Host) {
		return "[" + o.Host + "]"
	}
	return o.Host
}

// isIPv6 reports whether a canonical host is an IPv6 address: no other host has a colon.
func isIPv6(host string) bool { return strings.IndexByte(host, ':') >= 0 }

// defaultPort returns the default port of a scheme, or 0 for a scheme without origins. RFC 9309
// section 2.3 leaves the set of schemes open; Google's specification names these three.
func defaultPort(scheme string) uint16 {
	switch scheme {
	case "http":
		return 80
	case "https":
		return 443
	case "ftp":
		return 21
	default:
		return 0
	}
}

// Parse returns the origin of an absolute URL. It is also the inverse of [Origin.String]. It reads
// only scheme and authority: path, query and fragment are not part of an origin, and are only
// checked for control bytes.
//
// Parse is stricter than [FromURL] in one point: it refuses percent-encoding in the host, which
// url.Parse has already decoded for FromURL.
func Parse(rawURL string) (Origin, error) {
	if hasControl(rawURL) {
		return Origin{}, refuse("url", "", "has a control byte")
	}
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok || strings.ContainsAny(scheme, ":/?#@") {
		return Origin{}, refuse("url", "", "is not absolute: it does not start with scheme://")
	}
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	return FromAuthority(scheme, rest)
}

// ParseSite returns the origin of a URL that names a whole site: its path is empty, / or
// /robots.txt, and it has no query and no fragment. The error names the fault.
func ParseSite(rawURL string) (Origin, error) {
	o, err := Parse(rawURL)
	if err != nil {
		return o, err
	}
	if u, err := url.Parse(rawURL); err != nil || u.RawQuery != "" || u.Fragment != "" ||
		u.Path != "" && u.Path != "/" && u.Path != "/robots.txt" {
		return o, fmt.Errorf("origin %.200q: want scheme, host and port alone, as in %s", rawURL, o)
	}
	return o, nil
}

// FromURL returns the origin of an absolute URL.
func FromURL(u *url.URL) (Origin, error) {
	switch {
	case u == nil:
		return Origin{}, refuse("url", "", "is missing")
	case u.Scheme == "":
		return Origin{}, refuse("url", "", "is not absolute: it has no scheme")
	case u.Opaque != "":
		return Origin{}, refuse("url", "", "has no // after its scheme")
	case u.User != nil:
		return Origin{}, refuseUserinfo(u.Host)
	}
	return FromAuthority(u.Scheme, u.Host)
}

// FromAuthority returns the origin of an authority such as "example.com", "example.com:8080" or
// "[2001:db8::1]:443", as in CONNECT requests and configurations. A missing or empty port (RFC 3986
// section 6.2.3) means the scheme's default port. Callers that need an explicit port, as in a
// CONNECT target, must check for it.
func FromAuthority(scheme, authority string) (Origin, error) {
	scheme = strings.ToLower(scheme)
	port := defaultPort(scheme)
	if port == 0 {
		return Origin{}, refuse("scheme", scheme, "is not one of http, https, ftp")
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

// refuseUserinfo names only the host, because the part before the @ is a credential.
func refuseUserinfo(host string) error {
	return refuse("userinfo", "...@"+host, "is not allowed")
}

// splitAuthority cuts host[:port] in two; an IPv6 literal keeps its brackets.
func splitAuthority(authority string) (host, port string, err error) {
	if strings.HasPrefix(authority, "[") {
		end := strings.IndexByte(authority, ']')
		if end < 0 {
			return "", "", refuse("address", authority, "has no closing bracket")
		}
		host, port = authority[:end+1], authority[end+1:]
		if port != "" && port[0] != ':' {
			return "", "", refuse("address", authority, "has something other than a port after its bracket")
		}
		return host, strings.TrimPrefix(port, ":"), nil
	}
	host, port, _ = strings.Cut(authority, ":")
	if strings.IndexByte(port, ':') >= 0 {
		if _, err := netip.ParseAddr(authority); err == nil {
			return "", "", refuse("address", authority, "is IPv6 without brackets")
		}
		return "", "", refuse("port", port, "is not a decimal number")
	}
	return host, port, nil
}

// parsePort accepts only the canonical spelling of a port: decimal, without sign and leading zeros.
func parsePort(s string) (uint16, error) {
	port, err := strconv.ParseUint(s, 10, 16)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return 0, refuse("port", s, "is not a decimal number")
	case s[0] == '0':
		return 0, refuse("port", s, "is zero or has a leading zero")
	case err != nil:
		return 0, refuse("port", s, "is above 65535")
	}
	return uint16(port), nil
}

// hasControl reports whether s has an ASCII control byte.
func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// Limits of RFC 1035 section 2.3.4 on a name, in bytes of its ASCII form.
const (
	maxName  = 253
	maxLabel = 63
)

// maxHost bounds the input of the IDNA tables, in bytes of UTF-8: the longest name if each of its
// letters has four bytes.
const maxHost = 4 * maxName

// lookup maps a name as browsers do (WHATWG URL, "domain to ASCII" with beStrict false; UTS 46
// non-transitional): case and width are folded, joiners and bidirectional labels are checked.
// Hyphens and ASCII bytes are not checked here, because names such as "r3---sn-x.example" and
// "a_b.example" are in real use. checkName checks the bytes.
var lookup = idna.New(
	idna.MapForLookup(),
	idna.Transitional(false),
	idna.BidiRule(),
	idna.CheckJoiners(true),
	idna.CheckHyphens(false),
	idna.StrictDomainName(false),
	idna.VerifyDNSLength(false),
)

// canonicalHost returns the canonical spelling of a host: a name in lower-case punycode without the
// final dot, an IPv4 address, or an IPv6 address without its brackets.
func canonicalHost(host string) (string, error) {
	switch {
	case host == "":
		return "", refuse("host", "", "is empty")
	case host[0] == '[':
		return canonicalIPv6(strings.TrimSuffix(host[1:], "]"))
	case len(host) > maxHost:
		return "", refuse("host", host, "is longer than 253 bytes")
	}
	ascii := !strings.ContainsFunc(host, func(r rune) bool { return r >= utf8.RuneSelf })
	name := host
	if ascii {
		name = strings.ToLower(host)
	}
	if !ascii || strings.Contains(name, "xn--") {
		mapped, err := punycode(name)
		if err != nil {
			return "", err
		}
		name = mapped
	}
	name = strings.TrimSuffix(name, ".") // the dot of the root, which is optional
	if err := checkName(name); err != nil {
		return "", err
	}
	// Only now: full-width digits and dots have become ASCII.
	if endsInNumber(name) {
		return name, checkIPv4(name, ascii)
	}
	return name, nil
}

func punycode(name string) (string, error) {
	if !utf8.ValidString(name) {
		return "", refuse("host", name, "is not UTF-8")
	}
	mapped, err := lookup.ToASCII(name)
	if err != nil {
		return "", refuse("host", name, "is not a valid internationalised name")
	}
	if mapped == name {
		return name, nil
	}
	// The tables should reach a fixed point, but keys must not depend on that.
	if again, err := lookup.ToASCII(mapped); err != nil || again != mapped {
		return "", refuse("host", name, "has no stable ASCII form")
	}
	return mapped, nil
}

// checkName refuses a name that is not letters, digits, hyphens and underscores in labels of DNS
// length.
func checkName(name string) error {
	if name == "" {
		return refuse("host", "", "is empty")
	}
	if len(name) > maxName {
		return refuse("host", name, "is longer than 253 bytes")
	}
	label := 0
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
			label++
		case c == '.' && label == 0:
			return refuse("host", name, "has an empty label")
		case c == '.':
			label = 0
		case c == '%':
			return refuse("host", name, "has percent-encoding")
		default:
			return refuse("host", name, "has a byte that no host name has")
		}
		if label > maxLabel {
			return refuse("host", name, "has a label longer than 63 bytes")
		}
	}
	if label == 0 {
		return refuse("host", name, "has an empty label")
	}
	return nil
}

// endsInNumber reports whether the last label of name is decimal digits or starts with 0x. No
// top-level domain does. Everything that inet_aton(3) parses as an address (127.1, 0x7f.1,
// 2130706433, 017700000001) does, so such a name is an address or invalid (WHATWG URL, "ends in a
// number checker").
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	return strings.HasPrefix(last, "0x") || last != "" && strings.Trim(last, "0123456789") == ""
}

// checkIPv4 refuses every spelling of an IPv4 address but four decimal numbers without leading
// zeros, written in ASCII.
func checkIPv4(name string, ascii bool) error {
	if !ascii {
		return refuse("address", name, "was not written in ASCII digits")
	}
	if _, err := netip.ParseAddr(name); err != nil {
		return refuse("address", name, "is not four decimal numbers without leading zeros")
	}
	return nil
}

// canonicalIPv6 checks the text between the brackets of an IPv6 literal. Hex digits may have either
// case, as in all hosts (RFC 3986 section 3.2.2). Otherwise it accepts only the form of RFC 5952.
func canonicalIPv6(s string) (string, error) {
	if strings.IndexByte(s, '%') >= 0 {
		return "", refuse("address", s, "has a zone")
	}
	addr, err := netip.ParseAddr(s)
	if err != nil || !addr.Is6() {
		return "", refuse("address", s, "is not IPv6")
	}
	if addr.Is4In6() {
		return "", refuse("address", s, "is the IPv4 address "+addr.Unmap().String())
	}
	canonical := addr.String()
	if canonical != strings.ToLower(s) {
		return "", refuse("address", s, "is not canonical (RFC 5952): write "+canonical)
	}
	return canonical, nil
}
