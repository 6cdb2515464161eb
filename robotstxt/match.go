package robotstxt

import (
	"slices"
	"strings"
)

// targets are the forms of one target, the canonical one first; the others are made when they are
// needed.
type targets [forms]string

// Match answers for a target: path and query of the request, as they will be sent. A fragment is
// ignored, a missing leading slash supplied. It allocates only for a target of unusual spelling.
//
// Fetching /robots.txt is always allowed (RFC 9309 section 2.2.2). For any other request to it, use
// [Group.MatchRules].
func (g Group) Match(target string) Match { return g.match(target, true) }

// MatchRules is Match by the rules alone: they apply to /robots.txt like to any other target.
func (g Group) MatchRules(target string) Match { return g.match(target, false) }

// match answers for a target. With implied set, /robots.txt is allowed regardless of the rules.
func (g Group) match(target string, implied bool) Match {
	if g.rs == nil {
		return Match{}
	}
	m := Match{Allowed: true, Group: g.Name()}
	if g.name == nil {
		return m
	}
	target = Canonical(target)
	if implied && target == "/robots.txt" {
		return m
	}
	if r := g.decider(target); r != nil {
		m.Allowed, m.Rule, m.Line = r.rank.allow(), r.written(g.rs.text), r.rank.line()
	}
	return m
}

// decider returns the rule that decides about a canonical target, or nil. It tries the rules in
// order, from the highest rank down; in a large block, it starts at the first that matches.
func (g Group) decider(target string) *rule {
	t := targets{target}
	var found *rule
	for _, i := range g.blocks() {
		b := g.rs.blocks[i]
		n := b.first
		if b.byHead {
			n = g.rs.firstByHead(b, &t)
		}
		for ; n < b.last; n++ {
			r := &g.rs.rules[n]
			if found != nil && r.rank < found.rank {
				break
			}
			if r.matches(g.rs.text, &t) {
				found = r
				break
			}
		}
	}
	return found
}

// firstByHead returns the place of the first rule of a block that matches, or the block's end.
func (rs *Ruleset) firstByHead(b block, t *targets) uint32 {
	best := b.last
	// The heads from lo to hi begin with as many bytes of the target as depth says.
	for lo, hi, depth := b.first, b.last, 0; lo < hi; depth++ {
		from := func(c int) uint32 { // where heads begin that go on with c, or with more
			i, _ := slices.BinarySearchFunc(rs.byHead[lo:hi], c, func(n uint32, c int) int { return rs.headByte(n, depth) - c })
			return lo + uint32(i)
		}
		for _, n := range rs.byHead[lo:from(headEnd+1)] { // those that end here
			if n >= best {
				break
			}
			if rs.rules[n].matches(rs.text, t) {
				best = n
			}
		}
		if depth == len(t[0]) {
			break
		}
		c := int(t[0][depth])
		lo, hi = from(c), from(c+1)
	}
	return best
}

// matches reports whether a rule matches a target, in its canonical form or in a looser one.
func (r *rule) matches(text string, t *targets) bool {
	end := r.rank&rankEnd != 0
	return matches(r.keyIn(text), t[0], end) || r.form != 0 && matches(r.looseIn(text), t.in(r.form), end)
}

// in returns the target in a looser form.
func (t *targets) in(f form) string {
	if t[f] == "" {
		t[f] = t[0]
		if strings.ContainsAny(t[0], "%*") {
			t[f] = string(appendForm(nil, t[0], f, false))
		}
	}
	return t[f]
}

// matches reports whether a pattern matches a beginning of t or, with end, all of t. The bytes
// before the first * and, with end, those after the last * can match in only one place. Every
// segment between them matches at its first occurrence, because any later place would leave less of
// t for the rest. So one pass over t is enough.
func matches(pattern, t string, end bool) bool {
	head, rest, wild := strings.Cut(pattern, "*")
	if !strings.HasPrefix(t, head) {
		return false
	}
	t = t[len(head):]
	if !wild {
		return !end || t == ""
	}
	if end {
		tail := rest[strings.LastIndexByte(rest, '*')+1:]
		if !strings.HasSuffix(t, tail) {
			return false
		}
	}
	for rest != "" {
		var segment string
		segment, rest, _ = strings.Cut(rest, "*")
		i := strings.Index(t, segment)
		if i < 0 {
			return false
		}
		t = t[i+len(segment):]
	}
	return true
}

// Pattern is a path with * and a closing $, like that in a rule, for lists of paths outside
// robots.txt. It matches like a rule (RFC 9309 section 2.2.2). It is safe for concurrent use. The
// zero Pattern matches nothing.
type Pattern struct {
	text string
	rule rule
}

// ParsePattern reads a pattern. It reports false if a rule with this path could never match,
// because the path begins with neither / nor *, or has more than 16 KiB.
func ParsePattern(path string) (Pattern, bool) {
	if path == "" || path[0] != '/' && path[0] != '*' || len(path) > maxLine {
		return Pattern{}, false
	}
	var p parser
	r := p.compileRule(draftOf([]byte(path), 0, newRank(0, false, 0)))
	return Pattern{text: string(p.text), rule: r}, true
}

// Match reports whether the pattern matches a target, which is as in [Group.Match].
func (p Pattern) Match(target string) bool {
	if p.text == "" {
		return false
	}
	return p.rule.matches(p.text, &targets{Canonical(target)})
}

const upperHex = "0123456789ABCDEF"

// Canonical returns the form in which a target is compared. Targets that RFC 3986 section 6.2.2
// calls equivalent have the same form.
func Canonical(target string) string {
	if isCanonical(target) {
		return target
	}
	return string(appendTarget(nil, target))
}

// isCanonical reports whether a target is its own canonical form, which nearly all are.
func isCanonical(t string) bool {
	if t == "" || t[0] != '/' {
		return false
	}
	for i := range len(t) {
		class := byteClass[t[i]]
		if class&(classPercent|classIllegal|classFragment) == 0 {
			continue
		}
		c, ok := escapeAt(t, i)
		if !ok || isUnreserved(c) || t[i+1] >= 'a' || t[i+2] >= 'a' {
			return false
		}
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
// escapes in capitals, escapes of unreserved bytes resolved once, bytes that a URI must not contain
// escaped. A % without an escape stays. The result is its own canonical form.
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

// form names the escapes that are resolved in addition to the canonical form, where RFC 9309 lets a
// rule match a target that spells a byte differently.
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

// looseForm returns the looser form in which a canonical rule is matched again, or 0.
func looseForm[T ~string | ~[]byte](s T) form {
	var f form
	query := false
	for i := range len(s) {
		c, escaped := s[i], false
		if e, ok := escapeAt(s, i); ok {
			c, escaped = e, true
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

// lower folds only ASCII letters: robots.txt has no other case (RFC 9309 section 2.2).
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
