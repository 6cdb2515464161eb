package robotstxt

import (
	"strings"
	"sync"
)

// workspace holds the forms of a target that are not the target itself. Only targets of unusual
// spelling need one; it grows to the longest of them.
type workspace [forms][]byte

var workspaces = sync.Pool{New: func() any { return new(workspace) }}

// Match answers for a target: path and query of the request, as they will be sent. A fragment is
// ignored, a missing leading slash supplied. It does not allocate.
//
// To fetch /robots.txt is always allowed (RFC 9309 section 2.2.2). For a request that does anything
// else to it, ask [Group.MatchRules].
func (g Group) Match(target string) Match { return g.match(target, true) }

// MatchRules is Match by the rules alone: they hold for /robots.txt as for any other target.
func (g Group) MatchRules(target string) Match { return g.match(target, false) }

// match answers for a target. With implied, /robots.txt is allowed whatever the rules say.
func (g Group) match(target string, implied bool) Match {
	if g.rs == nil {
		return Match{}
	}
	m := Match{Allowed: true, Group: g.Name(), Specific: g.specific}
	if g.name == none {
		return m
	}
	var i int32
	if isCanonical(target) {
		i = g.decide(target, implied)
	} else {
		i = g.rewriteAndDecide(target, implied)
	}
	if i != none {
		r := &g.rs.rules[i]
		m.Allowed, m.Rule, m.Line = r.rank.allow(), g.rs.written(r), r.rank.line()
	}
	return m
}

func (g Group) rewriteAndDecide(target string, implied bool) int32 {
	w := workspaces.Get().(*workspace)
	defer workspaces.Put(w)
	w[0] = appendTarget(w[0][:0], target)
	return g.decide(view(w[0]), implied)
}

// decide returns the rule that decides on a canonical target, or none.
func (g Group) decide(t string, implied bool) int32 {
	if implied && t == "/robots.txt" {
		return none
	}
	s := subject{forms: [forms]string{t, t, t, t}}
	if g.rs.loose && strings.ContainsAny(t, "%*") {
		return g.loosenAndSearch(&s)
	}
	return g.search(&s)
}

// loosenAndSearch spells the target in the forms in which some rules get their second chance,
// before the search.
func (g Group) loosenAndSearch(s *subject) int32 {
	w := workspaces.Get().(*workspace)
	defer workspaces.Put(w)
	for f := form(1); f < forms; f++ {
		w[f] = appendForm(w[f][:0], s.forms[0], f, false)
		s.forms[f] = view(w[f])
	}
	return g.search(s)
}

// search returns the highest rule of the group that matches, or none.
func (g Group) search(s *subject) int32 {
	decider, best := int32(none), rank(0)
	for _, b := range g.blocks() {
		if i := g.rs.bestPrefix(b, s.forms[0]); i != none && g.rs.rules[i].rank > best {
			best, decider = g.rs.rules[i].rank, i
		}
		if i := g.rs.bestPattern(b, s, best); i != none {
			best, decider = g.rs.rules[i].rank, i
		}
	}
	return decider
}

// bestPrefix returns the highest rule of a block among those whose key the target begins with, or
// none. A longer key need not be the higher rule: /a***** has more bytes than /a/b, and all of them
// count. All such keys are on the way up from the last key that is not behind the target, as what
// lies between a beginning of the target and the target begins so too.
func (rs *Ruleset) bestPrefix(b uint32, t string) int32 {
	first, i := rs.blocks[b].first, rs.blocks[b].last
	for low := first; low < i; {
		if mid := (low + i) / 2; rs.rules[mid].keyIn(rs.text) <= t {
			low = mid + 1
		} else {
			i = mid
		}
	}
	found, best := int32(none), rank(0)
	for i--; i >= first; i = rs.rules[i].up {
		r := &rs.rules[i]
		key := r.keyIn(rs.text)
		if r.rank > best && strings.HasPrefix(t, key) && (r.rank.isPrefix() || r.rank&rankPattern == 0 && key == t) {
			found, best = i, r.rank
		}
	}
	return found
}

// pattern is a path that the table cannot hold: with a * inside, or in a looser form. Its text is
// the canonical path without a closing $ or run of *; a * in it is a wildcard.
type pattern struct {
	needs uint64 // the pairs of bytes that it needs in a target; see pairBit
	at    uint32 // in Ruleset.text
	rule  uint32 // in Ruleset.rules
	n     uint16 // bytes of the text
	least uint16 // the length of the shortest target that can match
	form  form   // of the targets that it is matched against
}

// subject is a target in the course of a decision.
type subject struct {
	forms [forms]string
	pairs uint64 // pairs of bytes in the target; 0 when not yet known
}

// pairBit spreads the pairs of adjacent bytes over the bits of a word.
func pairBit(a, b byte) uint64 { return 1 << ((uint32(a)<<8 | uint32(b)) * 0x9E3779B1 >> 26) }

func pairsOf(t string) uint64 {
	pairs := uint64(0)
	for i := 1; i < len(t); i++ {
		pairs |= pairBit(t[i-1], t[i])
	}
	return pairs
}

// pairsNeeded returns the pairs of bytes that every match of a pattern holds. Pairs that a form may
// spell otherwise are left out, so that the pairs of the canonical target serve for all forms.
func pairsNeeded(text []byte, f form) uint64 {
	needs := uint64(0)
	for i := 1; i < len(text); i++ {
		if a, b := text[i-1], text[i]; a != '*' && b != '*' && (f == 0 || isFixed(a) && isFixed(b)) {
			needs |= pairBit(a, b)
		}
	}
	return needs
}

// isFixed reports whether no form spells the byte differently.
func isFixed(c byte) bool {
	return byteClass[c]&(classQuery|classReserved) == 0 && c != '$' && c != literalStar
}

// bestPattern returns the highest rule of a block above best that has a matching pattern, or none.
func (rs *Ruleset) bestPattern(b uint32, s *subject, best rank) int32 {
	patterns := rs.patterns[rs.blocks[b].patterns:rs.blocks[b].patternsEnd]
	if len(patterns) == 0 {
		return none
	}
	if s.pairs == 0 {
		s.pairs = pairsOf(s.forms[0])
	}
	for i := range patterns {
		p := &patterns[i]
		if p.needs&^s.pairs != 0 || int(p.least) > len(s.forms[0]) {
			continue
		}
		r := &rs.rules[p.rule]
		if r.rank <= best {
			break
		}
		if matches(rs.text[p.at:p.at+uint32(p.n)], s.forms[p.form], r.rank&rankEnd != 0) {
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
