package enforce

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// ellipsis marks a cut.
const ellipsis = "..."

// cut returns at most limit bytes of s, an ellipsis included, without cutting a UTF-8
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

// printable returns at most limit bytes of s that are safe to show: bytes that are not
// printable (control characters, invalid UTF-8, marks that change the direction of text or
// show nothing) are escaped as \xNN.
func printable(s string, limit int) string {
	return escape(s, limit, func(r rune) bool { return r != utf8.RuneError && unicode.IsPrint(r) })
}

// ascii is printable for places that hold ASCII only, such as header fields.
func ascii(s string, limit int) string {
	return escape(s, limit, func(r rune) bool { return ' ' <= r && r < 0x7f })
}

// escape keeps the runes that pass and writes the bytes of all others as \xNN. It cuts
// between runes. A clean, short s is returned as it is.
func escape(s string, limit int, pass func(rune) bool) string {
	if len(s) <= limit && !strings.ContainsFunc(s, func(r rune) bool { return !pass(r) }) {
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
				b = fmt.Appendf(b, `\x%02x`, c)
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

// hasControl reports whether s has an ASCII control character.
func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// isLine reports whether s is a line of text of at most maxText bytes.
func isLine(s string) bool { return len(s) <= maxText && !hasControl(s) }

// containsFold reports whether list has s, ignoring ASCII case.
func containsFold(list []string, s string) bool {
	return slices.ContainsFunc(list, func(e string) bool { return strings.EqualFold(e, s) })
}

// lowerASCII returns s with its ASCII letters in lower case.
func lowerASCII(s string) string {
	for i := range len(s) {
		if s[i] != lower(s[i]) {
			b := []byte(s)
			for ; i < len(b); i++ {
				b[i] = lower(b[i])
			}
			return string(b)
		}
	}
	return s
}

// lookupFold returns m's value for the ASCII lower-case form of key. It allocates nothing.
func lookupFold[V any](m map[string]V, key string) (value V, ok bool) {
	var buf [maxToken]byte
	if len(m) == 0 || len(key) > len(buf) {
		return value, false
	}
	for i := range len(key) {
		buf[i] = lower(key[i])
	}
	value, ok = m[string(buf[:len(key)])]
	return value, ok
}

// lower returns the ASCII lower-case form of c.
func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}

// Lengths that clients show without cutting (clients.md 19, 20), in bytes.
const (
	maxPhrase  = 99
	maxSummary = 120
)

// summary is a line that stands by itself: fixed words around one part that may be cut to make it
// fit. All of it is printable ASCII.
type summary struct{ before, subject, after string }

// fit returns the line in at most limit bytes. If cutting the subject is not enough, the end is cut
// as well.
func (s summary) fit(limit int) string {
	room := max(limit-len(s.before)-len(s.after), 2*len(ellipsis))
	return cut(s.before+cut(s.subject, room)+s.after, limit)
}

// maxWho bounds the bytes of an agent's name in a summary.
const maxWho = 24

// summary fills in the line that the reason has: ${name} stands for a part of d, and <name> for the
// part that may be cut. The time to come back is left out where the line would
// be too long: the field Retry-After has it too.
func (d Decision) summary(url string) summary {
	before, rest, _ := strings.Cut(d.Reason.info().summary, "<")
	subject, after, _ := strings.Cut(rest, ">")
	parts := d.summaryParts(url)
	part := func(name string) string { return parts[name] }
	s := summary{os.Expand(before, part), part(subject), os.Expand(after, part)}
	if len(s.before)+len(s.subject)+len(s.after) > maxPhrase {
		delete(parts, "retry")
		s.before, s.after = os.Expand(before, part), os.Expand(after, part)
	}
	return s
}

func (d Decision) summaryParts(url string) map[string]string {
	parts := map[string]string{
		"title": d.Reason.Title(), "agent": ascii(cmp.Or(d.Agent, "this crawler"), maxWho), "user_agent": "missing",
		"host": d.host(), "url": withoutQuery(url), "line": strconv.Itoa(d.Line),
	}
	if d.Reason == ReasonDisallowed && d.Form == PathResolved {
		parts["url"], parts["resolved"] = withoutQuery(d.Origin.String()+ascii(d.Judged, maxShown)), "resolved path, "
	}
	if d.UserAgent != "" {
		parts["user_agent"] = strconv.Quote(ascii(d.UserAgent, maxSummary))
	}
	if d.Detail != "" {
		parts["detail"] = " (" + ascii(d.Detail, maxWhy) + ")"
	}
	if d.RetryAfter > 0 {
		parts["retry"] = ", retry after " + strconv.FormatInt(wholeSeconds(d.RetryAfter), 10) + " s"
	}
	return parts
}

// host is the authority that was asked for, for people.
func (d Decision) host() string {
	if d.Origin.IsZero() {
		return "the target"
	}
	return ascii(d.Origin.Authority(), maxShown)
}

// maxWhy bounds the bytes of a detail in a sentence.
const maxWhy = 44

// wholeSeconds is a Retry-After value: rounded up, as coming too early is refused again.
func wholeSeconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

// withoutQuery cuts the query off a URL. It may be secret, few rules are about it, and a summary
// ends up in clients' logs.
func withoutQuery(url string) string {
	if before, _, found := strings.Cut(url, "?"); found {
		return before + "?" + ellipsis
	}
	return url
}
