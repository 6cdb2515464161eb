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
	m := Match{Allowed: true, Group: g.Name()}
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

// decider returns the rule that decides on a canonical target, nil if none does. It asks one after
// the other, from the highest rank down; in a large block, from the first that matches.
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

// firstByHead returns the place of the first rule of a block that matches, the block's end if none
// does.
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
// before the first * and, with end, those after the last can match in one place only. Every segment
// between them is matched where it first occurs, because any later place leaves less of t for the
// rest. So one pass over t is enough.
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
