package oracle

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// Canonical is the form in which targets are compared (RFC 9309 section 2.2.2): no fragment, a
// leading slash, hex digits of escapes in capitals, escapes of unreserved bytes resolved, bytes
// that no URI may hold escaped.
func Canonical(target string) string {
	target, _, _ = strings.Cut(target, "#")
	if !strings.HasPrefix(target, "/") {
		target = "/" + target
	}
	return strings.Join(escapes(target), "")
}

// escapes cuts s into single bytes and canonical escapes.
func escapes(s string) []string {
	var out []string
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]) {
			escape := strings.ToUpper(s[i : i+3])
			char := unescape(escape)[0]
			i += 2
			if isUnreserved(char) && (!isHex(char) || !afterBrokenPercent(out)) {
				escape = string(rune(char))
			}
			out = append(out, escape)
			continue
		}
		if c <= ' ' || c >= 0x7F || strings.IndexByte("\"<>\\^`{|}", c) >= 0 {
			out = append(out, fmt.Sprintf("%%%02X", c))
			continue
		}
		out = append(out, string(rune(c)))
	}
	return out
}

// afterBrokenPercent: a hex digit written here could make an escape of a percent sign that was
// none.
func afterBrokenPercent(out []string) bool {
	n := len(out)
	return n > 0 && out[n-1] == "%" ||
		n > 1 && out[n-2] == "%" && len(out[n-1]) == 1 && isHex(out[n-1][0])
}

func isHex(c byte) bool { return strings.IndexByte("0123456789abcdefABCDEF", c) >= 0 }

func isUnreserved(c byte) bool {
	return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// element of a path pattern: one byte, any run of bytes (*), or the end ($).
type element struct {
	any, end bool
	char     byte
}

// pattern is the path of a rule, element by element.
type pattern struct {
	plain, loose     []element
	special, inQuery bool // what the second chance, loose, is about
}

// read takes a path apart.
func read(path string) pattern {
	var p pattern
	chars := func(es []element, s string) []element {
		for i := range len(s) {
			es = append(es, element{char: s[i]})
		}
		return es
	}
	path, atEnd := strings.CutSuffix(path, "$")
	seenQuery := false
	for i, part := range strings.Split(path, "*") {
		if i > 0 {
			p.plain, p.loose = append(p.plain, element{any: true}), append(p.loose, element{any: true})
		}
		for _, e := range escapes(part) {
			p.plain = chars(p.plain, e)
			switch d := unescape(e); {
			case d == "$" || e == "%2A":
				p.special = true
				p.loose = chars(p.loose, d)
			case seenQuery && strings.Contains(":/?@[]", d):
				p.inQuery = true
				p.loose = chars(p.loose, d)
			default:
				p.loose = chars(p.loose, e)
			}
			seenQuery = seenQuery || e == "?"
		}
	}
	if atEnd {
		p.plain, p.loose = append(p.plain, element{end: true}), append(p.loose, element{end: true})
	}
	return p
}

// match returns the number of bytes of the rule if it matches t, else 0.
func (p pattern) match(t string) int {
	if run(p.plain, t) || (p.special || p.inQuery) && run(p.loose, loosen(t, p.special, p.inQuery)) {
		return len(p.plain)
	}
	return 0
}

// unescape resolves a canonical escape; a single byte is itself.
func unescape(e string) string {
	if len(e) == 1 {
		return e
	}
	char, err := hex.DecodeString(e[1:])
	if err != nil {
		panic(err) // not an escape
	}
	return string(char)
}

// loosen resolves the escapes of a canonical target that a second chance may ignore.
func loosen(t string, special, inQuery bool) string {
	var b strings.Builder
	seenQuery := false
	for _, e := range escapes(t) {
		switch d := unescape(e); {
		case special && (e == "%24" || e == "%2A"), inQuery && seenQuery && strings.Contains(":/?@[]", d):
			b.WriteString(d)
		default:
			b.WriteString(e)
		}
		seenQuery = seenQuery || e == "?"
	}
	return b.String()
}

// run follows all positions, in ascending order, that the elements so far can have reached.
func run(pattern []element, t string) bool {
	at := []int{0}
	for _, e := range pattern {
		var next []int
		switch {
		case e.end:
			return at[len(at)-1] == len(t)
		case e.any:
			for p := at[0]; p <= len(t); p++ {
				next = append(next, p)
			}
		default:
			for _, p := range at {
				if p < len(t) && t[p] == e.char {
					next = append(next, p+1)
				}
			}
		}
		if at = next; len(at) == 0 {
			return false
		}
	}
	return true
}
