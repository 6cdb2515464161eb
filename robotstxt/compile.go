package robotstxt

import (
	"cmp"
	"slices"
	"strings"
)

// scratch is the working memory of compile.
type scratch struct {
	text  []byte   // of the Ruleset, as far as it is written
	slots []uint32 // a table of names only
	hash  []uint64 // by name
	final []uint32 // by block of the file: the block of the Ruleset
	solo  []uint32 // by name: one more than the block that is this name's alone
	last  []uint32 // by name: one more than its last block
	drawn []pattern
	order []patternKey
}

// patternKey sorts a pattern of drawn.
type patternKey struct {
	key uint64 // block, then inverted rank
	i   uint32
}

// compile makes the Ruleset of what scan has found.
func (p *parser) compile() *Ruleset {
	rs := new(Ruleset)
	rs.text = p.newText()
	p.compileNames(rs)
	p.compileSlots(rs)
	p.compileBlocks(rs)
	p.compileMembers(rs)
	p.compileDelays(rs)
	p.compileRules(rs)
	p.compilePatterns(rs)
	p.compilePreferences(rs)
	p.compileSitemaps(rs)
	rs.text = rs.text[:len(p.text)]
	if cap(p.text)-len(p.text) > len(p.text)/8 {
		rs.text = strings.Clone(rs.text)
	}
	p.text = nil
	return rs
}

// newText makes room for all octets that the Ruleset can come to hold. The string returned shows them as they are put:
// each octet is written once, before anything refers to it.
func (p *parser) newText() string {
	p.text = make([]byte, p.octets)
	text := view(p.text)
	p.text = p.text[:0]
	return text
}

// put appends octets to the text of the Ruleset.
func (p *parser) put(octets []byte) span {
	s := span{at: uint32(len(p.text)), n: uint32(len(octets))}
	p.text = append(p.text, octets...)
	return s
}

// shrink gives back room that was not needed after all.
func shrink[T any](s []T) []T {
	if cap(s)-len(s) > len(s)/8 {
		return slices.Clone(s)
	}
	return s
}

// resize returns n zeros in the memory of s where that suffices.
func resize(s []uint32, n int) []uint32 {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// compileNames gives every user-agent line the names it is found by. A line is found by its beginning of letters, -
// and _, as Google does it, and by its first word where that has other octets too (for configured tokens that are not
// of RFC 9309's kind).
func (p *parser) compileNames(rs *Ruleset) {
	rs.names = make([]name, 0, len(p.names))
	p.slots, p.hash = resize(p.slots, 3*len(p.names)), p.hash[:0] // up to two names a line
	rs.slots = p.slots
	for i := range p.names {
		l := &p.names[i]
		value := p.octetsOf(l.value)
		if isWildcard(value) {
			l.keys[0] = p.intern(rs, value[:1], hashName(value[:1]))
			rs.wildcard = l.keys[0] + 1
			continue
		}
		letters, word := spelling(value)
		if letters.n > 0 && letters.n <= maxKey {
			l.keys[0] = p.intern(rs, value[:letters.n], letters.hash)
		}
		if word.n > letters.n && word.n <= maxKey && string(value[:word.n]) != "*" {
			l.keys[1] = p.intern(rs, value[:word.n], word.hash)
		}
	}
	rs.names = shrink(rs.names)
}

// intern returns the index of a name with a hash, which it adds if need be.
func (p *parser) intern(rs *Ruleset, word []byte, hash uint64) int32 {
	if i := findName(rs, hash, word); i != none {
		return i
	}
	rs.names = append(rs.names, name{text: p.put(word), delay: none})
	rs.insert(hash, uint32(len(rs.names)))
	p.hash = append(p.hash, hash)
	return int32(len(rs.names) - 1)
}

// compileSlots makes the table of names and rules, now that it is known how many names there are.
func (p *parser) compileSlots(rs *Ruleset) {
	rs.slots = nil
	if n := len(rs.names) + len(p.drafts); n > 0 {
		rs.slots = make([]uint32, 2*n)
	}
	for i, hash := range p.hash {
		rs.insert(hash, uint32(i+1))
	}
}

// compileBlocks numbers the blocks. Lists that hold one and the same name are one block, so that a file which repeats
// "User-agent: *" before every rule costs a decision no more than another. A block that nobody can ask for is left out.
func (p *parser) compileBlocks(rs *Ruleset) {
	p.final = resize(p.final, p.blocks+1)
	p.solo = resize(p.solo, len(rs.names))
	n := uint32(0)
	for i := 0; i < len(p.names); {
		first := i
		b := p.names[first].block
		named := false
		for ; i < len(p.names) && p.names[i].block == b; i++ {
			named = named || p.names[i].keys[0] != none || p.names[i].keys[1] != none
		}
		if !named {
			p.final[b] = noBlock
			continue
		}
		p.final[b] = n
		if i-first == 1 {
			solo := &p.solo[max(p.names[first].keys[0], p.names[first].keys[1])]
			if *solo != 0 {
				p.final[b] = *solo - 1
				continue
			}
			*solo = n + 1
		}
		n++
	}
	rs.blocks = make([]block, n)
}

// compileMembers lists the blocks of every name, in the order of the file.
func (p *parser) compileMembers(rs *Ruleset) {
	total := uint32(0)
	p.eachMember(rs, func(n *name, _ uint32) { n.count++; total++ })
	rs.members = make([]uint32, total)
	total = 0
	for i := range rs.names {
		n := &rs.names[i]
		n.first, n.count, total = total, 0, total+n.count
	}
	p.eachMember(rs, func(n *name, b uint32) { rs.members[n.first+n.count] = b; n.count++ })
}

// eachMember calls f for every name and each of its blocks once. New blocks have ever greater numbers.
func (p *parser) eachMember(rs *Ruleset, f func(n *name, b uint32)) {
	p.last = resize(p.last, len(rs.names))
	for i := range p.names {
		l := &p.names[i]
		b := p.final[l.block]
		for _, k := range l.keys {
			if k != none && p.last[k] <= b {
				p.last[k] = b + 1
				f(&rs.names[k], b)
			}
		}
	}
}

// compileDelays gives every name what the lines behind it in its list ask for. A name that is listed behind such a
// line is not asked.
func (p *parser) compileDelays(rs *Ruleset) {
	asks := noDelay
	for i := len(p.names) - 1; i >= 0; i-- {
		l := &p.names[i]
		if i+1 == len(p.names) || p.names[i+1].block != l.block {
			asks = noDelay
		}
		if asks = asks.widen(l.asks); asks == noDelay {
			continue
		}
		for _, k := range l.keys {
			if k == none {
				continue
			}
			n := &rs.names[k]
			if n.delay == none {
				n.delay = int32(len(rs.delays))
				rs.delays = append(rs.delays, noDelay)
			}
			rs.delays[n.delay] = rs.delays[n.delay].widen(asks)
		}
	}
	rs.delays = shrink(rs.delays)
}

// compileRules puts the rules into the table and lists those that need patterns. Of rules that match the same targets
// only the highest can ever decide, so only it is kept.
func (p *parser) compileRules(rs *Ruleset) {
	rs.rules = make([]rule, 0, len(p.drafts))
	for i := range p.drafts {
		d := &p.drafts[i]
		b := p.final[d.rank.block()]
		if b == noBlock {
			continue
		}
		key := p.keyOf(d)
		r := rule{rank: d.rank.inBlock(b), text: uint16(d.path.n), key: d.key}
		id := r.rank.identity()
		hash := d.hash + startHash(id)
		j := rs.findRule(hash, id, view(key))
		if j != none && rs.rules[j].rank > r.rank {
			continue
		}
		r.at = p.put(p.octetsOf(d.path)).at
		if r.rank&rankRewritten != 0 {
			p.put(key)
		}
		rs.blocks[b].note(&r)
		if j != none {
			rs.blocks[b].forget(&rs.rules[j])
			rs.rules[j] = r
			continue
		}
		rs.rules = append(rs.rules, r)
		rs.insert(hash, slotRule|uint32(len(rs.rules)))
		p.addPatterns(rs, d, key)
	}
	rs.rules = shrink(rs.rules)
}

// addPatterns draws what the table cannot hold of the last rule.
func (p *parser) addPatterns(rs *Ruleset, d *draft, key []byte) {
	n := uint32(len(rs.rules) - 1)
	if d.rank&rankPattern != 0 {
		p.drawn = append(p.drawn, pattern{rule: n})
	}
	if d.form != 0 {
		loose := p.put(appendForm(nil, key, d.form, true))
		p.drawn = append(p.drawn, pattern{rule: n, at: loose.at, n: uint16(loose.n), form: d.form})
		rs.loose = true
	}
}

// compilePatterns completes the patterns and sorts them by block and, in a block, from the highest rank down.
func (p *parser) compilePatterns(rs *Ruleset) {
	if len(p.drawn) == 0 {
		return
	}
	for i := range p.drawn {
		pat := &p.drawn[i]
		r := &rs.rules[pat.rule]
		if pat.form == 0 {
			pat.at, pat.n = r.keyAt(), r.key
		}
		text := rs.text[pat.at : pat.at+uint32(pat.n)]
		pat.length = uint16(r.rank >> rankLength)
		pat.octets = pat.n - uint16(strings.Count(text, "*"))
		pat.needs = pairsNeeded(text, pat.form)
		pat.end = r.rank&rankEnd != 0
		p.order = append(p.order, patternKey{r.rank.byBlock(), uint32(i)})
	}
	slices.SortFunc(p.order, func(a, b patternKey) int { return cmp.Compare(a.key, b.key) })
	rs.patterns = make([]pattern, len(p.order))
	for i, o := range p.order {
		rs.patterns[i] = p.drawn[o.i]
		b := &rs.blocks[rs.rules[rs.patterns[i].rule].rank.block()]
		if b.last == 0 {
			b.first = uint32(i)
		}
		b.last = uint32(i + 1)
	}
	p.drawn, p.order = p.drawn[:0], p.order[:0]
}

func (p *parser) compileSitemaps(rs *Ruleset) {
	if len(p.sitemaps) == 0 {
		return
	}
	rs.sitemaps = make([]span, len(p.sitemaps))
	for i, url := range p.sitemaps {
		rs.sitemaps[i] = p.put(p.octetsOf(url))
	}
}

func (p *parser) compilePreferences(rs *Ruleset) {
	for _, l := range p.prefs {
		b := uint32(noBlock)
		if l.block != 0 {
			if b = p.final[l.block]; b == noBlock {
				continue
			}
		}
		path, value := splitPreference(p.octetsOf(l.value))
		rs.prefs = append(rs.prefs, preference{
			block: b, line: l.line, key: p.put(p.octetsOf(l.key)), path: p.put(path), value: p.put(value),
		})
	}
}
