package robotstxt

import "strings"

// pattern is a path that the table cannot hold: with a * inside, with a key over 255 octets, or in a looser form.
// Its text is the canonical path without a closing $ or run of *; a * in it is a wildcard.
type pattern struct {
	needs  uint64 // the pairs of octets that it needs in a target; see pairBit
	at     uint32 // in Ruleset.text
	rule   uint32 // in Ruleset.rules
	n      uint16 // octets of the text
	length uint16 // of the rule, for the order
	octets uint16 // the least octets of a target that can match
	form   form   // of the targets that it is matched against
	end    bool   // the target must end where it ends
}

// subject is a target in the course of a decision.
type subject struct {
	forms [forms]string
	pairs uint64 // pairs of octets in the target; 0 when not yet known
}

// pairBit spreads the pairs of adjacent octets over the bits of a word.
func pairBit(a, b byte) uint64 { return 1 << ((uint32(a)<<8 | uint32(b)) * 0x9E3779B1 >> 26) }

func pairsOf(t string) uint64 {
	pairs := uint64(0)
	for i := 1; i < len(t); i++ {
		pairs |= pairBit(t[i-1], t[i])
	}
	return pairs
}

// pairsNeeded returns the pairs of octets that every match of a pattern holds. What a form may spell otherwise is left
// out, so that the pairs of the canonical target serve for all forms.
func pairsNeeded(text string, f form) uint64 {
	needs := uint64(0)
	for i := 1; i < len(text); i++ {
		if a, b := text[i-1], text[i]; a != '*' && b != '*' && (f == 0 || isFixed(a) && isFixed(b)) {
			needs |= pairBit(a, b)
		}
	}
	return needs
}

// isFixed reports whether no form spells the octet differently.
func isFixed(c byte) bool {
	return octetClass[c]&(octetQuery|octetReserved) == 0 && c != '$' && c != literalStar
}

// bestPattern returns the highest rule of a block above best that has a matching pattern, or none.
func (rs *Ruleset) bestPattern(b uint32, s *subject, grams *gramIndexes, best rank) int32 {
	patterns := rs.patterns[rs.blocks[b].first:rs.blocks[b].last]
	if len(patterns) == 0 {
		return none
	}
	if s.pairs == 0 {
		s.pairs = pairsOf(s.forms[0])
	}
	lowest := uint16(best >> rankLength)
	for i := range patterns {
		p := &patterns[i]
		if p.length < lowest {
			break
		}
		if p.needs&^s.pairs != 0 || int(p.octets) > len(s.forms[0]) ||
			p.length == lowest && rs.rules[p.rule].rank <= best {
			continue
		}
		if grams[p.form] == nil && len(patterns)-i >= gramWork/len(s.forms[0]) {
			grams[p.form] = newGramIndex(s.forms[p.form])
		}
		if matches(rs.text[p.at:p.at+uint32(p.n)], s.forms[p.form], p.end, grams[p.form]) {
			return int32(p.rule)
		}
	}
	return none
}

// matches reports whether a pattern matches a beginning of t or, with end, all of t. The octets before the first * and,
// with end, those behind the last have one place each; what lies between is taken where it first occurs, for any later
// place leaves less of t to the rest. So it takes one pass, which an index of t, if there is one, shortens.
func matches(pattern, t string, end bool, grams *gramIndex) bool {
	star := segmentLen(pattern)
	if star == len(pattern) {
		return strings.HasPrefix(t, pattern) && (!end || len(t) == len(pattern))
	}
	if !strings.HasPrefix(t, pattern[:star]) {
		return false
	}
	pos, middle := star, pattern[star+1:]
	if end {
		last := strings.LastIndexByte(pattern, '*')
		tail := pattern[last+1:]
		if !strings.HasSuffix(t[pos:], tail) {
			return false
		}
		t, middle = t[:len(t)-len(tail)], pattern[star:last]
		middle = strings.TrimPrefix(middle, "*")
	}
	return findAll(t, middle, pos, grams)
}

// findAll reports whether the segments of a pattern occur in t behind pos one after the other.
func findAll(t, pattern string, pos int, grams *gramIndex) bool {
	for pattern != "" {
		n := segmentLen(pattern)
		switch {
		case n == 0:
		case n == 1 && pos < len(t) && t[pos] == pattern[0]:
			pos++
		case grams == nil:
			if pos = find(t, pattern[:n], pos); pos < 0 {
				return false
			}
			pos += n
		case n == 1:
			if pos = grams.next(pattern[0], pos); pos < 0 || pos >= len(t) {
				return false
			}
			pos++
		default:
			if pos = grams.find(t, pattern[:n], pos); pos < 0 {
				return false
			}
			pos += n
		}
		if n == len(pattern) {
			break
		}
		pattern = pattern[n+1:]
	}
	return true
}

// segmentLen returns the number of octets before the next * of a pattern.
func segmentLen(pattern string) int {
	for i := range len(pattern) {
		if pattern[i] == '*' {
			return i
		}
	}
	return len(pattern)
}

// find returns the first place of a segment in t at or behind pos, or a negative number.
func find(t, segment string, pos int) int {
	if strings.HasPrefix(t[pos:], segment) {
		return pos
	}
	i := strings.Index(t[pos:], segment)
	if i < 0 {
		return -1
	}
	return pos + i
}
