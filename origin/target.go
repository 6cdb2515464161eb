package origin

import (
	"net/url"
	"strings"
)

// Target is what one proxied request asks for, in the exact octets that will be
// sent. Rules are matched against these octets and against nothing else: a
// verdict on any other spelling could be evaded by the difference.
//
// Targets are comparable. The zero value is no target.
type Target struct {
	// Origin is whom the request is for.
	Origin Origin
	// Path is path[?query] as in the request line (RFC 9112 section 3.2.1). It
	// starts with a slash, has no fragment, and is what rules are matched against
	// (RFC 9309 section 2.2.2). That of an ftp origin has no query, and its octets,
	// decoded, are the absolute name of one file or directory.
	Path string
}

// NewTarget returns the target of an absolute URL. It is to be given the URL of
// the incoming request after every rewrite. The error is an [*Error].
//
// Octets that a URI cannot have (RFC 3986 appendix A, with [ and ] let pass as
// net/url and browsers do) are percent-encoded one by one and all others stay as
// they are: no dot segment is resolved, no slash merged, no escape decoded or
// changed in case. Left alone, net/url would answer one such octet by encoding
// the whole decoded path afresh, sending /a%2Fb{ as /a/b%7B.
//
// A raw # ends path and query: net/url takes a request line to have no fragment
// and leaves the one that a careless client sends in the path.
func NewTarget(u *url.URL) (Target, error) {
	o, err := FromURL(u)
	if err != nil {
		return Target{}, err
	}
	path, query, hasQuery := splitRequestURI(u)
	if path == "" {
		path = "/"
	}
	if path[0] != '/' {
		return Target{}, refuse(PartPath, path, "does not start with a slash")
	}
	path = escapeIllegal(path, legalInPath)
	if o.Scheme == schemeFTP {
		if err := checkFTP(path, hasQuery); err != nil {
			return Target{}, err
		}
	}
	if hasQuery {
		path += "?" + escapeIllegal(query, legalInQuery)
	}
	return Target{Origin: o, Path: path}, nil
}

// URL returns the outgoing URL: its RequestURI method returns t.Path, and
// [NewTarget] of it returns t. The caller owns it. For a Target that NewTarget
// did not make it may be the empty URL, which cannot be sent.
func (t Target) URL() *url.URL {
	// Of all that makes a URL this alone takes // at the start of a path for a path.
	u, err := url.ParseRequestURI(t.Path)
	if err != nil || t.Origin.IsZero() {
		return &url.URL{}
	}
	u.Scheme = t.Origin.Scheme
	u.Host = t.Origin.Authority()
	return u
}

// String returns the absolute URL of t.
func (t Target) String() string { return t.Origin.String() + t.Path }

// splitRequestURI returns the path and query that u was made from, in raw octets.
func splitRequestURI(u *url.URL) (path, query string, hasQuery bool) {
	if u.RawPath != "" && decodesTo(u.RawPath, u.Path) {
		path = u.RawPath
	} else {
		// No hint, or a rewrite changed Path and left a stale one: Path counts.
		path = u.EscapedPath()
	}
	if beforeFragment, _, found := strings.Cut(path, "#"); found {
		return beforeFragment, "", false
	}
	query, _, _ = strings.Cut(u.RawQuery, "#")
	return path, query, u.ForceQuery || u.RawQuery != ""
}

// decodesTo reports whether raw is a percent-encoded form of decoded.
func decodesTo(raw, decoded string) bool {
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c == '%' {
			var ok bool
			if c, ok = unescape(raw[i:]); !ok {
				return false
			}
			i += 2
		}
		if decoded == "" || decoded[0] != c {
			return false
		}
		decoded = decoded[1:]
	}
	return decoded == ""
}

// unescape returns the octet of the escape that s begins with, if it does.
func unescape(s string) (octet byte, ok bool) {
	if len(s) < 3 || s[0] != '%' {
		return 0, false
	}
	high, ok1 := unhex(s[1])
	low, ok2 := unhex(s[2])
	return high<<4 | low, ok1 && ok2
}

func unhex(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	default:
		return 0, false
	}
}

// escapeIllegal percent-encodes the octets of s that are not legal in that part.
func escapeIllegal(s string, legal uint8) string {
	illegal := 0
	for i := range len(s) {
		if octets[s[i]]&legal == 0 {
			illegal++
		}
	}
	if illegal == 0 {
		return s
	}
	const upperHex = "0123456789ABCDEF"
	escaped := make([]byte, 0, len(s)+2*illegal)
	for i := range len(s) {
		if c := s[i]; octets[c]&legal != 0 {
			escaped = append(escaped, c)
		} else {
			escaped = append(escaped, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return string(escaped)
}

// Where an octet may stand as it is.
const (
	legalInPath uint8 = 1 << iota
	legalInQuery
)

// octets says of each octet where net/url sends it as it is. A percent sign is
// legal: in a path it starts an escape, or net/url would have refused the URL,
// and in a query it is left to mean what the origin makes of it.
var octets = func() (table [256]uint8) {
	const unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
	const others = "%/!$&'()*+,;=:@[]"
	for _, c := range []byte(unreserved + others) {
		table[c] = legalInPath | legalInQuery
	}
	table['?'] = legalInQuery
	return table
}()
