package robotstxt

import "unsafe"

const upperHex = "0123456789ABCDEF"

// isCanonical reports whether a target is its own canonical form, which nearly all are.
func isCanonical(t string) bool {
	if t == "" || t[0] != '/' {
		return false
	}
	for i := 0; i < len(t); i++ {
		class := octetClass[t[i]]
		if class&(octetPercent|octetIllegal|octetFragment) == 0 {
			continue
		}
		if class&octetPercent == 0 || i+2 >= len(t) || !isCanonicalEscape(t[i+1], t[i+2]) {
			return false
		}
		i += 2
	}
	return true
}

// isCanonicalEscape: two hex digits in capitals, of an octet that is not unreserved.
func isCanonicalEscape(hi, lo byte) bool {
	return isHex(hi) && isHex(lo) && hi < 'a' && lo < 'a' && !isUnreserved(unhex(hi)<<4|unhex(lo))
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}

// appendCanonical appends the canonical form of a path (RFC 9309 section 2.2.2): hex digits of escapes in capitals,
// escapes of unreserved octets resolved once, octets that a URI may not hold escaped. A % that begins no escape stays.
// The result is its own canonical form.
func appendCanonical[T ~string | ~[]byte](dst []byte, s T) []byte {
	broken := -3 // where in dst the last % is that begins no escape; none yet
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch class := octetClass[c]; {
		case class&octetIllegal != 0:
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		case class&octetPercent == 0:
			dst = append(dst, c)
		case i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]):
			broken = len(dst)
			dst = append(dst, c)
		default:
			octet := unhex(s[i+1])<<4 | unhex(s[i+2])
			i += 2
			if isUnreserved(octet) && (!isHex(octet) || !completes(dst, broken)) {
				dst = append(dst, octet)
			} else {
				dst = append(dst, '%', upperHex[octet>>4], upperHex[octet&15])
			}
		}
	}
	return dst
}

// completes reports whether a hex digit at the end of dst could make an escape of the broken %, which would then be
// resolved in its turn.
func completes(dst []byte, broken int) bool {
	n := len(dst)
	return broken == n-1 || broken == n-2 && isHex(dst[n-1])
}

// appendTarget appends the canonical form of a target: without a fragment, with a leading slash.
func appendTarget(dst []byte, t string) []byte {
	for i := range len(t) {
		if t[i] == '#' {
			t = t[:i]
			break
		}
	}
	if t == "" || t[0] != '/' {
		dst = append(dst, '/')
	}
	return appendCanonical(dst, t)
}

// form names the escapes that are resolved on top of the canonical form, where RFC 9309 has a rule and a target agree
// that spell an octet differently.
type form uint8

const (
	formSpecial form = 1 << iota // %24 and %2A, everywhere (sections 2.2.2 and 2.2.3)
	formQuery                    // %3A %2F %3F %40 %5B %5D, behind the first ? (figure in section 2.2.2)
	forms                        // the number of forms
)

// literalStar stands for a literal * in formSpecial, in rules and targets: no canonical path holds it.
const literalStar = 0x01

// appendForm appends a canonical path in a looser form. In a rule, the * are wildcards and stay.
func appendForm[T ~string | ~[]byte](dst []byte, s T, f form, isRule bool) []byte {
	query := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '*' && !isRule && f&formSpecial != 0:
			c = literalStar
		case c == '?':
			query = true
		case c == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
			octet := unhex(s[i+1])<<4 | unhex(s[i+2])
			switch {
			case octet == '$' && f&formSpecial != 0:
				c, i = octet, i+2
			case octet == '*' && f&formSpecial != 0:
				c, i = literalStar, i+2
			case query && f&formQuery != 0 && octetClass[octet]&(octetQuery|octetReserved) != 0:
				c, i = octet, i+2
			default:
				dst = append(dst, c, s[i+1])
				i += 2
				c = s[i]
			}
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
		octet := s[i]
		if octet == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]) {
			octet = unhex(s[i+1])<<4 | unhex(s[i+2])
			i += 2
			if octet == '*' {
				f |= formSpecial
			}
		}
		if octet == '$' {
			f |= formSpecial
		}
		if octetClass[octet]&(octetQuery|octetReserved) == 0 {
			continue
		}
		if query {
			f |= formQuery
		}
		query = query || s[i] == '?'
	}
	return f
}

// view lets octets be read as a string without a copy. The caller must not write to octets that have been read while
// the string is in use.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) } //nolint:gosec // see comment
