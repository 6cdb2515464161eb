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
func (rs *Ruleset) bestPattern(b uint32, s *subject, best rank) int32 {
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
		if matches(rs.text[p.at:p.at+uint32(p.n)], s.forms[p.form], p.end) {
			return int32(p.rule)
		}
	}
	return none
}

// matches reports whether a pattern matches a beginning of t or, with end, all of t. The bytes
// before the first * and, with end, those behind the last have one place each. Every segment
// between them is taken where it first occurs, as any later place leaves less of t to the rest: so
// one pass over t is enough.
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
		last := strings.LastIndexByte(rest, '*')
		tail := rest[last+1:]
		if !strings.HasSuffix(t, tail) {
			return false
		}
		t, rest = t[:len(t)-len(tail)], rest[:max(last, 0)]
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
