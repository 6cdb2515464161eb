package origin

import (
	"bytes"
	"strings"
)

// Resolve returns the path that servers resolve a path[?query] to. Rules are about the octets that are sent (RFC 9309
// section 2.2.2), but most origins serve /private/s for /x/../private/s or //private/s: a rule about it can be evaded unless
// both forms are held against it. The form is that of a server that does all of what follows, which no single server does.
// So a path that is made for servers to disagree about can still evade a rule: of //private;%2f../s the form is /s, and
// Tomcat serves /private/s.
//
//   - The backslash, %2f and %5c are slashes (nginx, IIS). A run of slashes is one.
//   - The parameters of a segment, from a raw semicolon on, are cut (Tomcat, Jetty), so ..;x is a dot segment.
//   - Dot segments, also with %2e for a dot, are removed as in RFC 3986 section 5.2.4: none climbs above the root, and one
//     at the end leaves its slash, so that /a/b/.. is /a/.
//   - Escapes of a dot or a slash in overlong UTF-8, such as %c0%ae or %e0%80%af, count as these octets. RFC 3629 section 10
//     tells of decoders that take them; URLs that are meant well do not hold them.
//
// Escapes are decoded once: %252e%252e is no dot segment. Their hex digits may be of either case. All other octets and
// escapes stay as they are, a final slash is kept, and the query, from the first ?, is not looked at. The result begins
// with a slash, also where the path is empty, and is its own resolved form. It is path itself, without an allocation,
// where there is nothing to resolve.
func Resolve(path string) string {
	if isResolved(path) {
		return path
	}
	rest, query := path, ""
	if i := strings.IndexByte(path, '?'); i >= 0 {
		rest, query = path[:i], path[i:]
	}
	b := append(make([]byte, 0, len(path)+1), '/') // ends with a slash whenever a segment is to follow
	for more := true; more; {
		var segment string
		segment, rest, more = cutSegment(rest)
		segment, _, _ = strings.Cut(segment, ";")
		switch dots, others := countDots(segment); {
		case segment == "", !others && dots == 1:
		case !others && dots == 2:
			b = b[:max(bytes.LastIndexByte(b[:len(b)-1], '/'), 0)+1]
		default:
			b = append(b, segment...)
			if more {
				b = append(b, '/')
			}
		}
	}
	return string(append(b, query...))
}

// isResolved reports whether Resolve has nothing to do, as for nearly all paths.
func isResolved(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	dots, others := 0, false // of the segment so far
	for i := 1; i < len(path); i++ {
		c := path[i]
		if c == '%' {
			var n int
			if c, n = dotOrSlash(path[i:]); c == '/' {
				return false
			}
			i += n - 1
		}
		switch c {
		case '/':
			if !others && dots <= 2 {
				return false // empty, or a dot segment
			}
			dots, others = 0, false
		case '\\', ';':
			return false
		case '?':
			return others || dots == 0 || dots > 2
		case '.':
			dots++
		default:
			others = true
		}
	}
	return others || dots == 0 || dots > 2
}

// cutSegment cuts a path behind its first segment, and reports whether there was a slash.
func cutSegment(path string) (segment, rest string, found bool) {
	for i := 0; i < len(path); i++ {
		c, n := path[i], 1
		if c == '%' {
			c, n = dotOrSlash(path[i:])
		}
		if c == '/' || c == '\\' {
			return path[:i], path[i+n:], true
		}
		i += n - 1
	}
	return path, "", false
}

// countDots returns how many dots a segment has, and whether it has anything else.
func countDots(segment string) (dots int, others bool) {
	for i := 0; i < len(segment); i++ {
		c, n := segment[i], 1
		if c == '%' {
			c, n = dotOrSlash(segment[i:])
		}
		if c != '.' {
			return dots, true
		}
		dots++
		i += n - 1
	}
	return dots, false
}

// dotOrSlash returns the dot or the slash that the escapes at the beginning of s stand for, and of how many octets of s
// they are; a percent sign of one octet where it is neither.
func dotOrSlash(s string) (c byte, n int) {
	first, ok := unescape(s)
	if !ok {
		return '%', 1
	}
	r, more := rune(first), 0
	switch first { // no ASCII is spelled with any other first octet, not even in overlong UTF-8
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
	case '.':
		return '.', n
	case '/', '\\':
		return '/', n
	}
	return '%', 1
}
