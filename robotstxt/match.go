package robotstxt

import (
	"sort"
	"strings"
)

// targets are the forms of one target, the canonical one first; the others are made when they are
// needed.
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
	if g.name == nil {
		return m
	}
	if !isCanonical(target) {
		target = string(appendTarget(nil, target))
	}
	if implied && target == "/robots.txt" {
		return m
	}
	if r := g.decider(target); r != nil {
		m.Allowed, m.Rule, m.Line = r.rank.allow(), r.written(g.rs.text), r.rank.line()
	}
	return m
}

// decider returns the rule that decides on a canonical target, nil if none does.
func (g Group) decider(target string) *rule {
	t := targets{target}
	var found *rule
	for _, i := range g.blocks() {
		if r := g.rs.highest(g.rs.blocks[i], &t); r != nil && (found == nil || r.rank > found.rank) {
			found = r
		}
	}
	return found
}

// highest returns the rule of the highest rank in a block that matches, nil if none does.
func (rs *Ruleset) highest(b block, t *targets) *rule {
	best := b.last
	if rs.byHead == nil {
		for best = b.first; best < b.last && !rs.rules[best].matches(rs.text, t); best++ {
		}
	}
	// Those from lo to hi begin with as many bytes of the target as depth says.
	for lo, hi, depth := b.first, b.last, 0; rs.byHead != nil && lo < hi; depth++ {
		upTo := func(c int) uint32 { // the first behind those whose head goes on with c, or with less
			return lo + uint32(sort.Search(int(hi-lo), func(i int) bool { return rs.headByte(lo+uint32(i), depth) > c }))
		}
		for end := upTo(headEnd); lo < end; lo++ {
			if n := rs.byHead[lo]; n >= best || rs.rules[n].matches(rs.text, t) {
				best, lo = min(best, n), end-1
			}
		}
		if depth == len(t[0]) {
			break
		}
		c := int(t[0][depth])
		lo = upTo(c - 1)
		hi = upTo(c)
	}
	if best == b.last {
		return nil
	}
	return &rs.rules[best]
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
