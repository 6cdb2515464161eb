package origin

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// reading is a set of transformations that some servers apply to a path before they serve it.
type reading uint8

const (
	// mergeSlashes merges several slashes into one (nginx, Apache, Go).
	mergeSlashes reading = 1 << iota
	// decodeSlashes treats %2f as a slash (nginx, IIS).
	decodeSlashes
	// backslashes treats the backslash and %5c as slashes (IIS, URL parsers of browsers).
	backslashes
	// cutParameters cuts the parameters of a segment, from a semicolon on, before it decodes
	// anything (Tomcat, Jetty).
	cutParameters
	// cutDecoded cuts them after decoding, and also from %3b on (a proxy that decodes in front of one
	// of these).
	cutDecoded
)

// Resolve returns the paths, other than path itself, that servers may resolve a path[?query] to.
// Nearly all paths have none. Rules are about the bytes of the request (RFC 9309 section 2.2.2),
// but most origins serve /private/s for /x/../private/s or //private/s: such paths evade a rule
// unless these forms are matched against it too.
//
// Servers resolve differently: Tomcat resolves //private;%2f../s to /private/s, and a server that
// decodes first resolves it to /s. So there is a form for every combination of these readings.
// Equal forms are listed once.
//
//   - A run of slashes is one, or is not.
//   - %2f is a slash, or is not. So are the backslash and %5c.
//   - The parameters of a segment, from a semicolon on, are cut, before or after decoding, or are
//     not.
//   - Dot segments, also with %2e for a dot, are removed as in RFC 3986 section 5.2.4: none climbs
//     above the root, and one at the end leaves its slash, so that /a/b/.. is /a/.
//   - Escapes of a dot or a slash in overlong UTF-8, such as %c0%ae or %e0%80%af, count as these
//     bytes. RFC 3629 section 10 warns of decoders that accept them; honest URLs do not have them.
//
// A proxy may resolve a path before its server does, so the forms of forms are included. Escapes
// are decoded once: %252e%252e is no dot segment. Their hex digits may have either case. All other
// bytes and escapes stay as they are, a final slash is kept, and the query, from the first ?, is
// ignored. Every form begins with a slash, even if the path is empty. The first form is the one of
// a server that applies all readings.
//
// A URL of HTTP, FTP or WebSocket that is written into a path with its slashes escaped, as in
// /share/https%3A%2F%2Fexample.com%2Fsearch, is data up to the next slash: its %2f are not slashes.
// A server that decoded them would look in a folder named https:, where nobody keeps the paths of a
// rule. They are slashes if the path has a dot segment or a semicolon in any spelling, which could
// remove that folder.
//
// ok is false for a path with more than 64 forms, or with more than 8 forms that have over 64 KiB
// in total. Such a path is only useful to evade rules or to cause work.
func Resolve(path string) (forms []string, ok bool) {
	most := min(max(maxFormBytes/max(len(path), 1), longForms), maxForms)
	path = maskURLs(path)
	forms = appendForms(nil, path, path)
	for i := 0; i < len(forms) && len(forms) <= most; i++ {
		forms = appendForms(forms, forms[i], path)
	}
	if len(forms) > most {
		return nil, false
	}
	for i := range forms {
		forms[i] = strings.ReplaceAll(forms[i], "%\x00", "%")
	}
	return forms, true
}

// encodedURL matches a URL in a path, up to the next slash. The bytes before it must neither extend
// its scheme nor form a %2f. It does not use (?i), because S would then match U+017F too.
var encodedURL = regexp.MustCompile(`(?:^|[^A-Za-z0-9+.-]|%[013-9A-Fa-f][0-9A-Fa-f])` +
	`(?:[Hh][Tt][Tt][Pp]|[Ff][Tt][Pp]|[Ww][Ss])[Ss]?(?::|%3[Aa])%2[Ff]%2[Ff][^/?]*`)

// maskURLs returns a path with a NUL, which never occurs in a path, in each %2f that is data.
func maskURLs(path string) string {
	if !strings.Contains(path, "%") || relevant(path)&(cutParameters|cutDecoded) != 0 {
		return path
	}
	rest, _, _ := strings.Cut(path, "?")
	for more := true; more; {
		var segment string
		segment, rest, more = (decodeSlashes | backslashes).cutSegment(rest)
		if dots, others := countDots(segment); !others && (dots == 1 || dots == 2) {
			return path
		}
	}
	return encodedURL.ReplaceAllStringFunc(path, strings.NewReplacer("%2f", "%\x002f", "%2F", "%\x002F").Replace)
}

// Bounds on the work that one path can cause: each form is matched against each rule.
const (
	maxForms     = 64
	maxFormBytes = 64 << 10
	longForms    = 8 // regardless of their length
)

// appendForms appends the forms of a path that are new and differ from the requested path.
func appendForms(forms []string, path, asked string) []string {
	if isPlain(path) {
		return forms
	}
	all := relevant(path)
	for r := all; ; r = (r - 1) & all { // every subset, the whole set first
		if form := r.resolve(path); form != asked && !slices.Contains(forms, form) {
			forms = append(forms, form)
		}
		if r == 0 {
			return forms
		}
	}
}

// relevant returns the readings that can change a path.
func relevant(path string) reading {
	r := mergeSlashes
	for i := 0; i < len(path) && path[i] != '?'; i++ {
		switch c, _ := first(path[i:]); {
		case c == '/' && path[i] == '%':
			r |= decodeSlashes
		case c == '\\':
			r |= backslashes
		case c == ';' && path[i] == '%':
			r |= cutDecoded
		case c == ';':
			r |= cutParameters | cutDecoded
		}
	}
	return r
}

// resolve returns the form of a path by one set of readings.
func (r reading) resolve(path string) string {
	rest, query := path, ""
	if i := strings.IndexByte(path, '?'); i >= 0 {
		rest, query = path[:i], path[i:]
	}
	if r&cutParameters != 0 {
		rest = withoutParameters(rest)
	}
	b := append(make([]byte, 0, len(path)+1), '/') // ends with a slash whenever a segment is to follow
	segment, rest, more := r.cutSegment(rest)      // the part before the first slash
	if more && segment == "" {
		segment, rest, more = r.cutSegment(rest)
	}
	for ; ; segment, rest, more = r.cutSegment(rest) {
		if r&cutDecoded != 0 {
			segment = withoutParameter(segment)
		}
		dots, others := countDots(segment)
		switch {
		case segment == "" && (r&mergeSlashes != 0 || !more), !others && dots == 1:
		case !others && dots == 2:
			b = b[:max(bytes.LastIndexByte(b[:len(b)-1], '/'), 0)+1]
		default:
			b = append(b, segment...)
			if more {
				b = append(b, '/')
			}
		}
		if !more {
			return string(append(b, query...))
		}
	}
}

// withoutParameters cuts the parameters of each segment of a path that is not decoded.
func withoutParameters(path string) string {
	var b strings.Builder
	for segment := range strings.SplitAfterSeq(path, "/") {
		name, parameters, found := strings.Cut(segment, ";")
		b.WriteString(name)
		if found && strings.HasSuffix(parameters, "/") {
			b.WriteByte('/')
		}
	}
	return b.String()
}

// withoutParameter cuts the parameters of one segment, also after %3b.
func withoutParameter(segment string) string {
	for i := range len(segment) {
		if c, _ := first(segment[i:]); c == ';' {
			return segment[:i]
		}
	}
	return segment
}

// isPlain reports whether a path has nothing that a server could resolve, which is true for nearly
// all paths. For some such paths, for example /.well-known, it still returns false.
func isPlain(path string) bool {
	path, _, _ = strings.Cut(path, "?")
	return strings.HasPrefix(path, "/") && !strings.ContainsAny(path, `%\;`) && !strings.Contains(path, "//") && !strings.Contains(path, "/.")
}

// cutSegment cuts a path after its first segment, and reports whether there was a slash.
func (r reading) cutSegment(path string) (segment, rest string, found bool) {
	for i := 0; i < len(path); i++ {
		c, n := first(path[i:])
		if c == '/' && (n == 1 || r&decodeSlashes != 0) || c == '\\' && r&backslashes != 0 {
			return path[:i], path[i+n:], true
		}
		i += n - 1
	}
	return path, "", false
}

// countDots returns how many dots a segment has, and whether it has anything else.
func countDots(segment string) (dots int, others bool) {
	for i := 0; i < len(segment); i++ {
		c, n := first(segment[i:])
		if c != '.' {
			return dots, true
		}
		dots++
		i += n - 1
	}
	return dots, false
}

// first returns the first byte of s, which is not empty, and its length in bytes of s. An escape of
// a dot, a slash, a backslash or a semicolon counts as that byte.
func first(s string) (c byte, n int) {
	if s[0] != '%' {
		return s[0], 1
	}
	first, ok := unescape(s)
	if !ok {
		return '%', 1
	}
	r, more := rune(first), 0
	switch first { // no ASCII is spelled with any other first byte, not even in overlong UTF-8
	case 0xC0, 0xC1:
		r, more = r&0x1F, 1
	case 0xE0:
		r, more = 0, 2
	case 0xF0:
		r, more = 0, 3
	}
	for n = 3; more > 0; more-- {
		next, ok := unescape(s[n:])
		if !ok || next&0xC0 != 0x80 {
			return '%', 1
		}
		r = r<<6 | rune(next&0x3F)
		n += 3
	}
	switch r {
	case '.', '/', '\\', ';':
		return byte(r), n
	}
	return '%', 1
}
