package robotstxt

import (
	"strings"
	"sync"
)

// workspace holds the forms of a target that are not the target itself. Only targets of unusual spelling need one; it
// grows to the longest of them.
type workspace [forms][]byte

var workspaces = sync.Pool{New: func() any { return new(workspace) }}

// Match answers for a target: path and query of the request, as they will be sent. A fragment is ignored, a missing
// leading slash supplied. It does not allocate.
//
// To fetch /robots.txt is always allowed (RFC 9309 section 2.2.2). For a request that does anything else to it, ask
// [Group.MatchRules].
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

// loosenAndSearch spells the target in the forms in which some rules get their second chance, before the search.
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
		if i := g.rs.longestKey(b, s.forms[0]); i != none && g.rs.rules[i].rank > best {
			best, decider = g.rs.rules[i].rank, i
		}
		if i := g.rs.bestPattern(b, s, best); i != none {
			best, decider = g.rs.rules[i].rank, i
		}
	}
	return decider
}

// longestKey returns the highest rule of a block among those whose key the target begins with, or none. A longer key
// need not be the higher rule: /a***** has more octets than /a/b, and all of them count.
func (rs *Ruleset) longestKey(b uint32, t string) int32 {
	bl := &rs.blocks[b]
	id := rank(b) << rankBlock
	hash := startHash(id)
	found, best := int32(none), rank(0)
	n := min(len(t), int(bl.longest))
	for i := 0; ; i++ {
		if bl.lengths>>min(i, longLength)&1 != 0 {
			if j := rs.findRule(hash, id, t[:i]); j != none && rs.rules[j].rank > best {
				best, found = rs.rules[j].rank, j
			}
		}
		if i == n {
			break
		}
		hash += uint64(t[i]) * weights[i]
	}
	if n == len(t) {
		id |= rankEnd
		if j := rs.findRule(hash+startWeight*uint64(rankEnd), id, t); j != none && rs.rules[j].rank > best {
			found = j
		}
	}
	return found
}
