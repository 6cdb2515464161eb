package robotstxt

import (
	"bytes"
	"cmp"
	"slices"
)

// scratch is the working memory of compile.
type scratch struct {
	text    []byte // of the Ruleset, as far as it is written
	keys    []nameKey
	final   []uint32 // by block of the file: the block of the Ruleset
	drawn   []pattern
	members []uint64 // name, block
}

// nameKey is one of the names that a user-agent line is found by.
type nameKey struct {
	text  span // in data
	line  int32
	which int32 // of the line's two
}

// compile makes the Ruleset of what scan has found.
func (p *parser) compile() *Ruleset {
	rs := new(Ruleset)
	p.compileNames(rs)
	p.compileBlocks(rs)
	p.compileMembers(rs)
	p.compileDelays(rs)
	p.compileRules(rs)
	p.compilePatterns(rs)
	p.compilePreferences(rs)
	p.compileSitemaps(rs)
	rs.text = string(p.text)
	return rs
}

// put appends bytes to the text of the Ruleset.
func (p *parser) put(b []byte) span {
	s := span{at: uint32(len(p.text)), n: uint32(len(b))}
	p.text = append(p.text, b...)
	return s
}

// compileNames gives every user-agent line the names it is found by, and sorts these. A line is
// found by its beginning of letters, - and _, as Google does it, and by its first word where that
// has other bytes too (for configured tokens that are not of RFC 9309's kind).
func (p *parser) compileNames(rs *Ruleset) {
	for i := range p.names {
		value := p.names[i].value
		text := p.bytesOf(value)
		if isWildcard(text) {
			p.keys = append(p.keys, nameKey{span{value.at, 1}, int32(i), 0})
			continue
		}
		letters, word := len(trimLetters(text)), len(trimToken(text))
		if letters > 0 && letters <= maxToken {
			p.keys = append(p.keys, nameKey{span{value.at, uint32(letters)}, int32(i), 0})
		}
		if word > letters && word <= maxToken && string(text[:word]) != "*" {
			p.keys = append(p.keys, nameKey{span{value.at, uint32(word)}, int32(i), 1})
		}
	}
	slices.SortFunc(p.keys, func(a, b nameKey) int {
		return cmp.Or(compareFold(p.bytesOf(a.text), p.bytesOf(b.text)), cmp.Compare(a.line, b.line))
	})
	differ := 0
	isNew := func(i int) bool {
		return i == 0 || compareFold(p.bytesOf(p.keys[i].text), p.bytesOf(p.keys[i-1].text)) != 0
	}
	for i, k := range p.keys {
		if isNew(i) {
			differ++
		}
		p.names[k.line].keys[k.which] = int32(differ - 1)
	}
	rs.names = make([]name, 0, differ)
	for i, k := range p.keys {
		if !isNew(i) {
			continue
		}
		text := p.bytesOf(k.text)
		if rs.names = append(rs.names, name{text: p.put(text), asks: noDelay}); string(text) == "*" {
			rs.wildcard = int32(len(rs.names))
		}
	}
}

// compileBlocks numbers the blocks. Lists that hold one and the same name are one block, so that a
// file which repeats "User-agent: *" before every rule costs a decision no more than another. A
// block that no token selects is left out.
func (p *parser) compileBlocks(rs *Ruleset) {
	p.final = make([]uint32, p.blocks+1)
	solos := make([]uint32, len(rs.names)) // by name: one more than the block that is this name's alone
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
			solo := &solos[max(p.names[first].keys[0], p.names[first].keys[1])]
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
	for _, l := range p.names {
		for _, k := range l.keys {
			if k != none {
				p.members = append(p.members, uint64(k)<<32|uint64(p.final[l.block]))
			}
		}
	}
	slices.Sort(p.members)
	p.members = slices.Compact(p.members)
	rs.members = make([]uint32, len(p.members))
	for i, m := range p.members {
		n := &rs.names[m>>32]
		if n.count == 0 {
			n.first = uint32(i)
		}
		n.count++
		rs.members[i] = uint32(m)
	}
}

// compileDelays gives every name what the lines behind it in its list ask for. A name that is
// listed behind such a line is not asked.
func (p *parser) compileDelays(rs *Ruleset) {
	asks := noDelay
	for i, l := range slices.Backward(p.names) {
		if i+1 == len(p.names) || p.names[i+1].block != l.block {
			asks = noDelay
		}
		asks = asks.widen(l.asks)
		for _, k := range l.keys {
			if k != none {
				rs.names[k].asks = rs.names[k].asks.widen(asks)
			}
		}
	}
}

// compileRules sorts the rules by block and key, and lists those that need patterns. Of rules that
// match the same targets only the highest can ever decide, so only it is kept.
func (p *parser) compileRules(rs *Ruleset) {
	p.sortDrafts()
	rs.rules = make([]rule, len(p.drafts))
	for i := range p.drafts {
		d, r := &p.drafts[i], &rs.rules[i]
		*r = rule{rank: d.rank, text: uint16(d.path.n), key: d.key}
		key := p.keyOf(d)
		r.at = p.put(p.bytesOf(d.path)).at
		if r.rank&rankRewritten != 0 {
			p.put(key)
		}
		b := &rs.blocks[r.rank.block()]
		if b.last == 0 {
			b.first = int32(i)
		}
		b.last = int32(i + 1)
		if !r.rank.allow() {
			b.disallows++
		}
		r.up = int32(i - 1)
		for r.up >= b.first &&
			(!rs.rules[r.up].rank.isPrefix() || !bytes.HasPrefix(key, p.keyOf(&p.drafts[r.up]))) {
			r.up = rs.rules[r.up].up
		}
		p.addPatterns(uint32(i), d, key)
	}
}

// sortDrafts brings the drafts into the order of Ruleset.rules, without those that never decide.
func (p *parser) sortDrafts() {
	p.drafts = slices.DeleteFunc(p.drafts, func(d draft) bool { return p.final[d.rank.block()] == noBlock })
	for i := range p.drafts {
		d := &p.drafts[i]
		d.rank = d.rank.inBlock(p.final[d.rank.block()])
	}
	slices.SortFunc(p.drafts, func(a, b draft) int {
		if c := p.compareTargets(&a, &b); c != 0 {
			return c
		}
		return cmp.Compare(b.rank, a.rank)
	})
	p.drafts = slices.CompactFunc(p.drafts, func(a, b draft) bool { return p.compareTargets(&a, &b) == 0 })
}

// compareTargets orders drafts by block and key. Those that match the same targets are equal.
func (p *parser) compareTargets(a, b *draft) int {
	if c := cmp.Compare(a.rank.block(), b.rank.block()); c != 0 {
		return c
	}
	if c := bytes.Compare(p.keyOf(a), p.keyOf(b)); c != 0 {
		return c
	}
	return cmp.Compare(a.rank&rankEnd, b.rank&rankEnd)
}

// addPatterns draws what of a rule cannot be found by its key.
func (p *parser) addPatterns(rule uint32, d *draft, key []byte) {
	if d.rank&rankPattern != 0 {
		at := uint32(len(p.text) - len(key))
		if d.rank&rankRewritten == 0 {
			at = uint32(len(p.text)) - d.path.n
		}
		p.addPattern(pattern{rule: rule, at: at, n: uint16(len(key))})
	}
	if d.form != 0 {
		loose := p.put(appendForm(nil, key, d.form, true))
		p.addPattern(pattern{rule: rule, at: loose.at, n: uint16(loose.n), form: d.form})
	}
}

func (p *parser) addPattern(pat pattern) {
	text := p.text[pat.at : pat.at+uint32(pat.n)]
	pat.least = pat.n - uint16(bytes.Count(text, []byte{'*'}))
	p.drawn = append(p.drawn, pat)
}

// compilePatterns sorts the patterns by block and, in a block, from the highest rank down.
func (p *parser) compilePatterns(rs *Ruleset) {
	if len(p.drawn) == 0 {
		return
	}
	slices.SortFunc(p.drawn, func(a, b pattern) int {
		x, y := rs.rules[a.rule].rank, rs.rules[b.rule].rank
		if c := cmp.Compare(x.block(), y.block()); c != 0 {
			return c
		}
		return cmp.Compare(y, x)
	})
	rs.patterns = slices.Clone(p.drawn)
	for i, pat := range rs.patterns {
		rs.loose = rs.loose || pat.form != 0
		b := &rs.blocks[rs.rules[pat.rule].rank.block()]
		if b.patternsEnd == 0 {
			b.patterns = uint32(i)
		}
		b.patternsEnd = uint32(i + 1)
	}
}

func (p *parser) compileSitemaps(rs *Ruleset) {
	if len(p.sitemaps) == 0 {
		return
	}
	rs.sitemaps = make([]span, len(p.sitemaps))
	for i, url := range p.sitemaps {
		rs.sitemaps[i] = p.put(p.bytesOf(url))
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
		path, value := splitPreference(p.bytesOf(l.value))
		rs.prefs = append(rs.prefs, preference{
			block: b, line: l.line, key: p.put(p.bytesOf(l.key)), path: p.put(path), value: p.put(value),
		})
	}
}

// splitPreference divides the value of a preference line into the path it may begin with and the
// rest.
func splitPreference(value []byte) (path, rest []byte) {
	if len(value) == 0 || value[0] != '/' {
		return nil, value
	}
	if i := bytes.IndexAny(value, " \t"); i >= 0 {
		return value[:i], trimLeft(value[i:])
	}
	return value, nil
}
