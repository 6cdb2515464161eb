// Package escape makes text from other parties fit to be shown: bounded, and without characters
// that act on a terminal, a log or a header field. It escapes such characters as \xNN, byte by
// byte.
package escape

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Ellipsis marks a cut.
const Ellipsis = "..."

// Cut returns at most limit bytes of s, an ellipsis included, without cutting a UTF-8 sequence in
// two. The limit must not be below the ellipsis.
func Cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := limit - len(Ellipsis)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + Ellipsis
}

// Unprintable returns all of s in a form that is safe for a terminal: the text of a robots.txt must
// not move the cursor, colour the screen, change the direction of the line or look like other text.
// A tab becomes a blank.
func Unprintable(s string) string {
	return Visible(strings.ReplaceAll(s, "\t", " "), 4*len(s)) // an escape has four bytes
}

// Visible is like [Printable], but for the text of a site, which a reader inspects closely. It also
// escapes characters that could be mistaken for ASCII: any sign next to ASCII, such as the hyphen
// U+2011, and next to ASCII letters the letters that look like them. It leaves a word alone that
// consists only of such letters, because it may be meant.
func Visible(s string, limit int) string {
	return escape(s, limit, func(before, r, after rune) bool {
		isLetter := func(r rune) bool { return r <= unicode.MaxASCII && unicode.IsLetter(r) }
		switch {
		case !isPrintable(0, r, 0):
			return false
		case r <= unicode.MaxASCII:
			return true
		case !unicode.In(r, unicode.L, unicode.M):
			return !isGraphic(before) && !isGraphic(after)
		case 'À' <= r && r <= 'ž' && r != 'ı', !unicode.In(r, lookAlike...):
			return true
		}
		return !isLetter(before) && !isLetter(after)
	})
}

// lookAlike are the scripts with letters that look like ASCII.
var lookAlike = []*unicode.RangeTable{
	unicode.Latin, unicode.Greek, unicode.Cyrillic, unicode.Armenian, unicode.Cherokee, unicode.Coptic, unicode.Lisu,
	unicode.Common, unicode.Inherited,
}

// Printable returns at most limit bytes of s that are safe to show. It escapes everything that is
// not printable: control characters, invalid UTF-8, and marks that are invisible or change the
// direction of text.
func Printable(s string, limit int) string { return escape(s, limit, isPrintable) }

// ASCII is like [Printable], but for places that hold only ASCII, such as header fields.
func ASCII(s string, limit int) string {
	return escape(s, limit, func(_, r, _ rune) bool { return r == ' ' || isGraphic(r) })
}

func isPrintable(_, r, _ rune) bool { return r != utf8.RuneError && unicode.IsPrint(r) }

func isGraphic(r rune) bool { return ' ' < r && r < 0x7f }

// escape keeps the runes that pass accepts, given their neighbours, and writes the bytes of all
// others as \xNN. It cuts only between runes. It returns a clean, short s unchanged.
func escape(s string, limit int, pass func(before, r, after rune) bool) string {
	if len(s) <= limit && isPlain(s) {
		return s
	}
	b := make([]byte, 0, min(len(s), limit))
	fits := 0 // how much of b leaves room for an ellipsis
	before := ' '
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		after, _ := utf8.DecodeRuneInString(s[i+size:])
		if pass(before, r, after) {
			b = append(b, s[i:i+size]...)
		} else {
			for _, c := range []byte(s[i : i+size]) {
				b = fmt.Appendf(b, `\x%02x`, c)
			}
			r = 'x' // the x now precedes the next byte
		}
		if len(b) > limit {
			return string(append(b[:fits], Ellipsis...))
		}
		if len(b) <= limit-len(Ellipsis) {
			fits = len(b)
		}
		before = r
		i += size
	}
	return string(b)
}

// isPlain reports whether s is printable ASCII, which is safe everywhere.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
