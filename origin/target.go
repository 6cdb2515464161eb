package origin

import (
	"encoding/hex"
	"net/url"
	"strings"
)

// Target is what one proxied request asks for, in the exact bytes that will be sent. Rules are
// matched only against these bytes, because a decision about any other spelling could be evaded.
//
// Targets are comparable. The zero value is not a target.
type Target struct {
	// Origin is the origin of the request.
	Origin Origin
	// Path is path[?query] as in the request line (RFC 9112 section 3.2.1). It starts with a slash,
	// has no fragment, and rules are matched against it (RFC 9309 section 2.2.2). For an ftp origin
	// it has no query, and its decoded bytes are the absolute name of one file or directory.
	Path string
}

// NewTarget returns the target of an absolute URL. Call it with the URL of the incoming request
// after every rewrite.
//
// Bytes that a URI cannot have (RFC 3986 appendix A, with [ and ] let pass as net/url and browsers
// do) are percent-encoded one by one and all others stay as they are: no dot segment is resolved,
// no slash merged, no escape decoded or changed in case. By itself, net/url would respond to one
// such byte by encoding the whole decoded path again, and send /a%2Fb{ as /a/b%7B.
//
// A raw # ends path and query: net/url assumes that a request line has no fragment, and leaves the
// one of a careless client in the path.
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
		return Target{}, refuse("path", path, "does not start with a slash")
	}
	path = escapeIllegal(path, legalInPath)
	if o.Scheme == "ftp" {
		if err := checkFTP(path, hasQuery); err != nil {
			return Target{}, err
		}
	}
	if hasQuery {
		path += "?" + escapeIllegal(query, legalInQuery)
	}
	return Target{Origin: o, Path: path}, nil
}

// ParseTarget is [NewTarget] for the text of a URL. The error may be one of net/url.
func ParseTarget(rawURL string) (Target, error) {
	if rawURL == "" {
		return Target{}, refuse("url", "", "is missing")
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return Target{}, err
	}
	return NewTarget(u)
}

// URL returns the outgoing URL: its RequestURI method returns t.Path, and [NewTarget] of it returns
// t. The caller owns it. For a Target that NewTarget did not make, it may be the empty URL, which
// cannot be sent.
func (t Target) URL() *url.URL {
	// Only this parser of net/url reads // at the start of a path as a path.
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

// splitRequestURI returns the raw path and query that u was made from.
func splitRequestURI(u *url.URL) (path, query string, hasQuery bool) {
	if decoded, err := url.PathUnescape(u.RawPath); u.RawPath != "" && err == nil && decoded == u.Path {
		path = u.RawPath
	} else {
		// Without a hint, or if a rewrite changed Path and left a stale one, Path counts.
		path = u.EscapedPath()
	}
	if beforeFragment, _, found := strings.Cut(path, "#"); found {
		return beforeFragment, "", false
	}
	query, _, _ = strings.Cut(u.RawQuery, "#")
	return path, query, u.ForceQuery || u.RawQuery != ""
}

// unescape returns the byte of an escape at the start of s, if there is one.
func unescape(s string) (c byte, ok bool) {
	if len(s) < 3 || s[0] != '%' {
		return 0, false
	}
	var b [1]byte
	_, err := hex.Decode(b[:], []byte(s[1:3]))
	return b[0], err == nil
}

// escapeIllegal percent-encodes the bytes of s that are not legal in that part.
func escapeIllegal(s string, part uint8) string {
	illegal := 0
	for i := range len(s) {
		if legal[s[i]]&part == 0 {
			illegal++
		}
	}
	if illegal == 0 {
		return s
	}
	const upperHex = "0123456789ABCDEF"
	escaped := make([]byte, 0, len(s)+2*illegal)
	for i := range len(s) {
		if c := s[i]; legal[c]&part != 0 {
			escaped = append(escaped, c)
		} else {
			escaped = append(escaped, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return string(escaped)
}

// The parts of a URL in which a byte needs no escape.
const (
	legalInPath uint8 = 1 << iota
	legalInQuery
)

// legal says for each byte in which parts net/url sends it unchanged. A percent sign is legal: in a
// path it starts an escape, or net/url would have refused the URL, and in a query its
// interpretation is left to the origin.
var legal = func() (table [256]uint8) {
	const unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
	const others = "%/!$&'()*+,;=:@[]"
	for _, c := range []byte(unreserved + others) {
		table[c] = legalInPath | legalInQuery
	}
	table['?'] = legalInQuery
	return table
}()

// maxFTPName bounds the name of a file, in bytes: the limit of Linux, and not more than can be sent
// in one piece.
const maxFTPName = 4000

// checkFTP refuses paths that an FTP server could resolve to another one. The server gets decoded
// bytes and resolves them, so the rules must be matched against the name that it sees. The bytes
// must not end the command that carries the path (CR, LF, NUL), and must not be a Telnet command
// (0xFF, RFC 959 section 3.1).
func checkFTP(path string, hasQuery bool) error {
	name, err := url.PathUnescape(path)
	forms, fewForms := Resolve(path)
	switch {
	case err != nil:
		return refuse("path", path, "has a broken escape")
	case hasQuery:
		return refuse("path", path, "has a query, which ftp URLs do not have")
	case strings.Contains(name, ";"):
		return refuse("path", path, "has a semicolon: ftp URLs with a type are not supported")
	case len(forms) > 0 || !fewForms:
		return refuse("path", path, "has a dot segment, an empty one, or a slash in another spelling")
	case len(name) > maxFTPName:
		return refuse("path", path, "is too long for FTP")
	case hasControl(name), strings.ContainsRune(name, '?'), strings.IndexByte(name, 0xff) >= 0:
		return refuse("path", path, "has a byte that is not sent to FTP servers")
	}
	for segment := range strings.SplitSeq(name, "/") {
		if strings.TrimRight(segment, ". ") != segment { // Windows ignores them
			return refuse("path", path, "has a segment that ends in a dot or a space")
		}
	}
	return nil
}
