// Package escape makes texts of others fit to be shown: bounded, and without characters that act on
// a terminal, a log or a header field. Such characters are escaped as \xNN, byte by byte.
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

// Unprintable returns all of s fit for a terminal: what a robots.txt says must not move the cursor,
// colour the screen, change the direction of the line or look like other text. A tab becomes a
// blank.
func Unprintable(s string) string {
	return Visible(strings.ReplaceAll(s, "\t", " "), 4*len(s)) // an escape has four bytes
}

// Visible is Printable for the text of a site, in which a reader looks for what counts. It escapes
// also what may be taken for ASCII: beside ASCII all signs, such as the hyphen U+2011, and beside
// its letters those that look like them. A whole word of such letters stays: it may be meant.
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

// Printable returns at most limit bytes of s that are safe to show. It escapes what is not
// printable: control characters, invalid UTF-8, marks that change the direction of text or show
// nothing.
func Printable(s string, limit int) string { return escape(s, limit, isPrintable) }

// ASCII is Printable for places that hold ASCII only, such as header fields.
func ASCII(s string, limit int) string {
	return escape(s, limit, func(_, r, _ rune) bool { return r == ' ' || isGraphic(r) })
}

func isPrintable(_, r, _ rune) bool { return r != utf8.RuneError && unicode.IsPrint(r) }

func isGraphic(r rune) bool { return ' ' < r && r < 0x7f }

// escape keeps the runes that pass, between their neighbours, and writes the bytes of all others as
// \xNN. It cuts between runes. A clean, short s is returned as it is.
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

// isPlain reports that s is of printable ASCII, which passes everywhere.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
