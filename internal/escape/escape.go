// Package escape makes texts of others fit to be shown.
package escape

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Unprintable returns s fit for a terminal: what a robots.txt says must not move the cursor, colour
// the screen or turn the direction of the line. What is not printable is escaped as \xNN, byte by
// byte.
func Unprintable(s string) string {
	bad := func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }
	if strings.IndexFunc(s, bad) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case !bad(r):
			b.WriteString(s[:size])
		case r == '\t':
			b.WriteByte(' ')
		default:
			for _, c := range []byte(s[:size]) {
				const hex = "0123456789abcdef"
				b.Write([]byte{'\\', 'x', hex[c>>4], hex[c&15]})
			}
		}
		s = s[size:]
	}
	return b.String()
}
