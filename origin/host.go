package origin

import (
	"net/netip"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

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
// Hyphens and ASCII bytes are not checked here, since names such as "r3---sn-x.example" and
// "a_b.example" are in real use; checkName has the last word on the bytes.
var lookup = idna.New(
	idna.MapForLookup(),
	idna.Transitional(false),
	idna.BidiRule(),
	idna.CheckJoiners(true),
	idna.CheckHyphens(false),
	idna.StrictDomainName(false),
	idna.VerifyDNSLength(false),
)

// canonicalHost returns the one spelling of a host: a name in lower-case punycode without the dot
// of the root, an IPv4 address, or an IPv6 address without its brackets.
func canonicalHost(host string) (string, error) {
	switch {
	case host == "":
		return "", refuse(PartHost, "", "is empty")
	case host[0] == '[':
		return canonicalIPv6(strings.TrimSuffix(host[1:], "]"))
	case len(host) > maxHost:
		return "", refuse(PartHost, host, "is longer than 253 bytes")
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
	name = strings.TrimSuffix(name, ".") // of the root, which every name has
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
		return "", refuse(PartHost, name, "is not UTF-8")
	}
	mapped, err := lookup.ToASCII(name)
	if err != nil {
		return "", refuse(PartHost, name, "is not a valid internationalised name")
	}
	if mapped == name {
		return name, nil
	}
	// The tables promise a fixed point; a key must not rest on a promise.
	if again, err := lookup.ToASCII(mapped); err != nil || again != mapped {
		return "", refuse(PartHost, name, "has no stable ASCII form")
	}
	return mapped, nil
}

// checkName refuses a name that is not letters, digits, hyphens and underscores in labels of DNS
// length.
func checkName(name string) error {
	if name == "" {
		return refuse(PartHost, "", "is empty")
	}
	if len(name) > maxName {
		return refuse(PartHost, name, "is longer than 253 bytes")
	}
	label := 0
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
			label++
		case c == '.' && label == 0:
			return refuse(PartHost, name, "has an empty label")
		case c == '.':
			label = 0
		case c == '%':
			return refuse(PartHost, name, "has percent-encoding")
		default:
			return refuse(PartHost, name, "has a byte that no host name has")
		}
		if label > maxLabel {
			return refuse(PartHost, name, "has a label longer than 63 bytes")
		}
	}
	if label == 0 {
		return refuse(PartHost, name, "has an empty label")
	}
	return nil
}

// endsInNumber reports whether the last label of name is decimal digits or starts with 0x. No
// top-level domain does. Everything that inet_aton(3) parses as an address (127.1, 0x7f.1,
// 2130706433, 017700000001) does, so such a name is an address or nothing (WHATWG URL, "ends in a
// number checker").
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	return strings.HasPrefix(last, "0x") || last != "" && strings.Trim(last, "0123456789") == ""
}

// checkIPv4 refuses every spelling of an IPv4 address but four decimal numbers without leading
// zeros, written in ASCII.
func checkIPv4(name string, ascii bool) error {
	if !ascii {
		return refuse(PartAddress, name, "was not written in ASCII digits")
	}
	if _, err := netip.ParseAddr(name); err != nil {
		return refuse(PartAddress, name, "is not four decimal numbers without leading zeros")
	}
	return nil
}

// canonicalIPv6 checks the text between the brackets of an IPv6 literal. The case of hex digits is
// free, as in all hosts (RFC 3986 section 3.2.2); else only the form of RFC 5952 is taken.
func canonicalIPv6(s string) (string, error) {
	if strings.IndexByte(s, '%') >= 0 {
		return "", refuse(PartAddress, s, "has a zone")
	}
	addr, err := netip.ParseAddr(s)
	if err != nil || !addr.Is6() {
		return "", refuse(PartAddress, s, "is not IPv6")
	}
	if addr.Is4In6() {
		return "", refuse(PartAddress, s, "is the IPv4 address "+addr.Unmap().String())
	}
	canonical := addr.String()
	if canonical != strings.ToLower(s) {
		return "", refuse(PartAddress, s, "is not canonical (RFC 5952): write "+canonical)
	}
	return canonical, nil
}
