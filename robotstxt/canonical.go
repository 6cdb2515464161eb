package robotstxt

import "strings"

const upperHex = "0123456789ABCDEF"

// isCanonical reports whether a target is its own canonical form, which nearly all are.
func isCanonical(t string) bool {
	if t == "" || t[0] != '/' {
		return false
	}
	for i := 0; i < len(t); i++ {
		class := byteClass[t[i]]
		if class&(classPercent|classIllegal|classFragment) == 0 {
			continue
		}
		c, ok := escapeAt(t, i)
		if !ok || isUnreserved(c) || t[i+1] >= 'a' || t[i+2] >= 'a' {
			return false
		}
		i += 2
	}
	return true
}

// escapeAt returns the byte that the escape at s[i] stands for, if there is one.
func escapeAt[T ~string | ~[]byte](s T, i int) (c byte, ok bool) {
	if i+2 >= len(s) || s[i] != '%' || !isHex(s[i+1]) || !isHex(s[i+2]) {
		return 0, false
	}
	return unhex(s[i+1])<<4 | unhex(s[i+2]), true
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}

// appendCanonical appends the canonical form of a path (RFC 9309 section 2.2.2): hex digits of
// escapes in capitals, escapes of unreserved bytes resolved once, bytes that a URI may not hold
// escaped. A % that begins no escape stays. The result is its own canonical form.
func appendCanonical[T ~string | ~[]byte](dst []byte, s T) []byte {
	broken := -3 // where in dst the last % is that begins no escape; none yet
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch class := byteClass[c]; {
		case class&classIllegal != 0:
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		case class&classPercent == 0:
			dst = append(dst, c)
		default:
			escaped, ok := escapeAt(s, i)
			if !ok {
				broken = len(dst)
				dst = append(dst, c)
				continue
			}
			i += 2
			if isUnreserved(escaped) && (!isHex(escaped) || !completes(dst, broken)) {
				dst = append(dst, escaped)
			} else {
				dst = append(dst, '%', upperHex[escaped>>4], upperHex[escaped&15])
			}
		}
	}
	return dst
}

// completes reports whether a hex digit at the end of dst could complete the broken % to an escape,
// which would then be resolved too.
func completes(dst []byte, broken int) bool {
	n := len(dst)
	return broken == n-1 || broken == n-2 && isHex(dst[n-1])
}

// appendTarget appends the canonical form of a target: without a fragment, with a leading slash.
func appendTarget(dst []byte, t string) []byte {
	if i := strings.IndexByte(t, '#'); i >= 0 {
		t = t[:i]
	}
	if t == "" || t[0] != '/' {
		dst = append(dst, '/')
	}
	return appendCanonical(dst, t)
}

// form names the escapes that are resolved on top of the canonical form, where RFC 9309 has a rule
// and a target agree that spell a byte differently.
type form uint8

const (
	formSpecial form = 1 << iota // %24 and %2A, everywhere (sections 2.2.2 and 2.2.3)
	formQuery                    // %3A %2F %3F %40 %5B %5D after the first ? (figure in 2.2.2)
	forms                        // the number of forms
)

// literalStar stands for a literal * in formSpecial, in rules and targets: no canonical path holds
// it.
const literalStar = 0x01

// appendForm appends a canonical path in a looser form. In a rule, the * are wildcards and stay.
func appendForm[T ~string | ~[]byte](dst []byte, s T, f form, isRule bool) []byte {
	query := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		escaped, ok := escapeAt(s, i)
		switch {
		case c == '*' && !isRule && f&formSpecial != 0:
			c = literalStar
		case c == '?':
			query = true
		case !ok:
		case escaped == '$' && f&formSpecial != 0:
			c, i = escaped, i+2
		case escaped == '*' && f&formSpecial != 0:
			c, i = literalStar, i+2
		case query && f&formQuery != 0 && byteClass[escaped]&(classQuery|classReserved) != 0:
			c, i = escaped, i+2
		default:
			dst = append(dst, c, s[i+1])
			i += 2
			c = s[i]
		}
		dst = append(dst, c)
	}
	return dst
}

// looseForm returns the form in which a canonical rule gets its second chance; 0 when it has none.
func looseForm[T ~string | ~[]byte](s T) form {
	var f form
	query := false
	for i := 0; i < len(s); i++ {
		c, escaped := s[i], false
		if e, ok := escapeAt(s, i); ok {
			c, escaped = e, true
			i += 2
		}
		if c == '$' || c == '*' && escaped {
			f |= formSpecial
		}
		if query && byteClass[c]&(classQuery|classReserved) != 0 {
			f |= formQuery
		}
		query = query || c == '?' && !escaped
	}
	return f
}

// The meanings of a byte in a path. A byte of class 0 stands for itself everywhere.
const (
	classPercent  = 1 << iota // % : begins an escape
	classIllegal              // must be escaped in a URI (RFC 3986 section 2)
	classQuery                // ? : the first one begins the query
	classReserved             // : / @ [ ] : the same raw and escaped in a query, as is ?
	classFragment             // # : ends a target
	classHex                  // hex digit
	classLetter               // may be in a product token (RFC 9309 section 2.2.1)
)

// byteClass classifies all bytes for the walks over rules, targets and lines.
var byteClass = func() [256]uint16 {
	var t [256]uint16
	for c := range t {
		if c <= ' ' || c >= 0x7F {
			t[c] = classIllegal
		}
	}
	set := func(chars string, class uint16) {
		for i := range len(chars) {
			t[chars[i]] |= class
		}
	}
	set("\"<>\\^`{|}", classIllegal)
	set("%", classPercent)
	set("?", classQuery)
	set(":/@[]", classReserved)
	set("#", classFragment)
	set("0123456789abcdefABCDEF", classHex)
	set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_", classLetter)
	return t
}()

func isHex(c byte) bool { return byteClass[c]&classHex != 0 }

func isBlank(c byte) bool { return strings.IndexByte(blanks, c) >= 0 }

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// isUnreserved: RFC 3986 section 2.3.
func isUnreserved(c byte) bool {
	switch c {
	case '-', '.', '_', '~':
		return true
	}
	return isLetter(c) || c >= '0' && c <= '9'
}

// lower folds ASCII letters only: robots.txt knows no other case (RFC 9309 section 2.2).
func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}

// equalFold compares with a lower-case string, ignoring the case of ASCII letters.
func equalFold[T ~string | ~[]byte](s T, lowerCase string) bool {
	if len(s) != len(lowerCase) {
		return false
	}
	for i := range len(lowerCase) {
		if lower(s[i]) != lowerCase[i] {
			return false
		}
	}
	return true
}
