package robotstxt

import "strings"

// targets are the forms of one target, the canonical one first.
type targets [forms]string

// Match answers for a target: path and query of the request, as they will be sent. A fragment is
// ignored, a missing leading slash supplied. It allocates only for a target of unusual spelling.
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
	if !isCanonical(target) {
		target = string(appendTarget(nil, target))
	}
	if i := g.decide(target, implied); i != none {
		r := &g.rs.rules[i]
		m.Allowed, m.Rule, m.Line = r.rank.allow(), g.rs.written(r), r.rank.line()
	}
	return m
}

// decide returns the rule that decides on a canonical target, or none.
func (g Group) decide(t string, implied bool) int32 {
	if implied && t == "/robots.txt" {
		return none
	}
	forms := targets{t, t, t, t}
	if g.rs.loose && strings.ContainsAny(t, "%*") {
		for f := range forms[1:] {
			forms[f+1] = string(appendForm(nil, t, form(f+1), false))
		}
	}
	return g.search(&forms)
}

// search returns the highest rule of the group that matches, or none.
func (g Group) search(t *targets) int32 {
	decider, best := int32(none), rank(0)
	for _, b := range g.blocks() {
		if i := g.rs.bestPrefix(b, t[0]); i != none && g.rs.rules[i].rank > best {
			best, decider = g.rs.rules[i].rank, i
		}
		if i := g.rs.bestPattern(b, t, best); i != none {
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
	at    uint32 // in Ruleset.text
	rule  uint32 // in Ruleset.rules
	n     uint16 // bytes of the text
	least uint16 // the length of the shortest target that can match
	form  form   // of the targets that it is matched against
}

// bestPattern returns the highest rule of a block above best that has a matching pattern, or none.
func (rs *Ruleset) bestPattern(b uint32, t *targets, best rank) int32 {
	patterns := rs.patterns[rs.blocks[b].patterns:rs.blocks[b].patternsEnd]
	for i := range patterns {
		p := &patterns[i]
		if int(p.least) > len(t[0]) {
			continue
		}
		r := &rs.rules[p.rule]
		if r.rank <= best {
			break
		}
		if matches(rs.text[p.at:p.at+uint32(p.n)], t[p.form], r.rank&rankEnd != 0) {
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
