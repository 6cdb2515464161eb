package enforce

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// ellipsis marks what was cut.
const ellipsis = "..."

// cut returns at most limit octets of s, an ellipsis included, without cutting a UTF-8
// sequence in two. The limit must not be below the ellipsis.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := limit - len(ellipsis)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + ellipsis
}

// printable returns at most limit octets of s that are safe to show: what is not
// printable (control octets, invalid UTF-8, marks that change the direction of text or
// show nothing) is escaped as \xNN.
func printable(s string, limit int) string {
	return escape(s, limit, func(r rune) bool { return r != utf8.RuneError && unicode.IsPrint(r) })
}

// ascii is printable for places that hold ASCII only, such as header fields.
func ascii(s string, limit int) string {
	return escape(s, limit, func(r rune) bool { return ' ' <= r && r < 0x7f })
}

// plain reports whether s is printable ASCII, which passes everywhere: the usual case.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// escape keeps the runes that pass and writes the octets of all others as \xNN. It cuts
// between runes. A clean, short s is returned as it is.
func escape(s string, limit int, pass func(rune) bool) string {
	const hex = "0123456789abcdef"
	if len(s) <= limit && plain(s) {
		return s
	}
	if len(s) <= limit && strings.IndexFunc(s, func(r rune) bool { return !pass(r) }) < 0 {
		return s
	}
	b := make([]byte, 0, min(len(s), limit))
	fits := 0 // how much of b leaves room for an ellipsis
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if pass(r) {
			b = append(b, s[i:i+size]...)
		} else {
			for _, c := range []byte(s[i : i+size]) {
				b = append(b, '\\', 'x', hex[c>>4], hex[c&15])
			}
		}
		if len(b) > limit {
			return string(append(b[:fits], ellipsis...))
		}
		if len(b) <= limit-len(ellipsis) {
			fits = len(b)
		}
		i += size
	}
	return string(b)
}
