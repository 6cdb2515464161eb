package robotstxt

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
)

// compile makes a Ruleset from the results of scan.
func (p *parser) compile() *Ruleset {
	rs := new(Ruleset)
	p.spreadDelays()
	keys := p.nameKeys()
	blocks := p.compileBlocks(rs, keys)
	p.compileNames(rs, keys, blocks)
	p.compileRules(rs, blocks)
	p.compilePreferences(rs, blocks)
	rs.text, rs.sitemaps = string(p.text), p.sitemaps
	rs.indexHeads(large)
	return rs
}

// put appends bytes to the text of the Ruleset.
func (p *parser) put(b []byte) span {
	s := span{at: uint32(len(p.text)), n: uint32(len(b))}
	p.text = append(p.text, b...)
	return s
}

// spreadDelays gives every name the delays of the lines after it in its list. A name does not get
// the delay of a line before it.
func (p *parser) spreadDelays() {
	for i := len(p.names) - 2; i >= 0; i-- {
		if p.names[i].list == p.names[i+1].list {
			p.names[i].asks = p.names[i].asks.widen(p.names[i+1].asks)
		}
	}
}

// nameKey is one of the names that a user-agent line is found by.
type nameKey struct {
	text []byte
	name uint32 // its index in Ruleset.names
	*nameLine
}

// nameKeys returns the names that user-agent lines are found by, in the order of Ruleset.names and,
// for each name, of the file. A line is found by its leading letters, - and _, as in Google's
// parser. If its first word has other bytes too, it is also found by that word, for configured
// tokens that RFC 9309 does not allow.
func (p *parser) nameKeys() []nameKey {
	var keys []nameKey
	for i := range p.names {
		l := &p.names[i]
		if isWildcard(l.value) {
			keys = append(keys, nameKey{text: l.value[:1], nameLine: l})
		}
		letters, word := trimLetters(l.value), trimToken(l.value)
		if len(letters) > 0 && len(letters) <= maxToken {
			keys = append(keys, nameKey{text: letters, nameLine: l})
		}
		if len(word) > len(letters) && len(word) <= maxToken && string(word) != "*" {
			keys = append(keys, nameKey{text: word, nameLine: l})
		}
	}
	slices.SortStableFunc(keys, func(a, b nameKey) int { return compareFold(a.text, b.text) })
	for i := 1; i < len(keys); i++ {
		keys[i].name = keys[i-1].name
		if compareFold(keys[i].text, keys[i-1].text) != 0 {
			keys[i].name++
		}
	}
	return keys
}

// compileBlocks returns the block of each list of names. Lists of the same names share a block, so
// that a file that repeats "User-agent: *" before every rule does not make more blocks than another
// file.
func (p *parser) compileBlocks(rs *Ruleset, keys []nameKey) []uint32 {
	sets := make([][]byte, p.lists+1) // the names of each list, in order
	for _, k := range keys {
		sets[k.list] = binary.BigEndian.AppendUint32(sets[k.list], k.name)
	}
	blocks := make([]uint32, len(sets))
	known := make(map[string]uint32, len(sets))
	for list, set := range sets[1:] {
		b, ok := known[string(set)]
		if !ok {
			b = uint32(len(known) + 1)
			known[string(set)] = b
		}
		blocks[list+1] = b
	}
	rs.blocks = make([]block, len(known)+1)
	return blocks
}

// compileNames lists the names with their blocks. The numbers of blocks ascend in the order of the
// file, except for repeated ones.
func (p *parser) compileNames(rs *Ruleset, keys []nameKey, blocks []uint32) {
	for _, k := range keys {
		if int(k.name) == len(rs.names) {
			rs.names = append(rs.names, name{text: p.put(k.text), first: uint32(len(rs.members)), asks: noDelay})
		}
		n, b := &rs.names[k.name], blocks[k.list]
		n.asks = n.asks.widen(k.asks)
		if n.count == 0 || b > rs.members[len(rs.members)-1] {
			rs.members = append(rs.members, b)
			n.count++
		}
	}
}

// sortRules sorts the rules by block and target, and those that match the same targets from the
// highest rank down.
func (p *parser) sortRules(blocks []uint32) {
	for i := range p.drafts {
		p.drafts[i].block = blocks[p.drafts[i].list]
	}
	slices.SortFunc(p.drafts, func(a, b draft) int { return cmp.Or(a.compareTargets(b), cmp.Compare(b.rank, a.rank)) })
}

// compileRules keeps the rules, by block and from the highest rank down. Of rules that match the
// same targets, only the highest can decide, so it keeps only that one.
func (p *parser) compileRules(rs *Ruleset, blocks []uint32) {
	p.sortRules(blocks)
	drafts := slices.CompactFunc(p.drafts, func(a, b draft) bool { return a.compareTargets(b) == 0 })
	slices.SortFunc(drafts, func(a, b draft) int {
		return cmp.Or(cmp.Compare(a.block, b.block), cmp.Compare(b.rank, a.rank))
	})
	rs.rules = make([]rule, len(drafts))
	for i, d := range drafts {
		rs.rules[i] = p.compileRule(d)
		b := &rs.blocks[d.block]
		if b.last == 0 {
			b.first = uint32(i)
		}
		b.last = uint32(i + 1)
		if !d.rank.allow() {
			b.disallows++
		}
	}
}

// large is the least number of rules in a block for which rules are found by their heads. Smaller
// blocks try their rules in order.
const large = 128

// indexHeads sorts the rules of each block that has as many as least by their heads, the bytes
// before the first *, and those of one head from the highest rank down. A rule with a looser form
// is tried for every target, like a rule without a head.
func (rs *Ruleset) indexHeads(least uint32) {
	for i := range rs.blocks {
		b := &rs.blocks[i]
		if b.last-b.first < least {
			continue
		}
		if b.byHead = true; rs.byHead == nil {
			rs.byHead = make([]uint32, len(rs.rules))
		}
		heads := make([]string, b.last-b.first)
		for n := b.first; n < b.last; n++ {
			rs.byHead[n] = n
			if r := &rs.rules[n]; r.form == 0 {
				heads[n-b.first], _, _ = strings.Cut(r.keyIn(rs.text), "*")
			}
		}
		slices.SortStableFunc(rs.byHead[b.first:b.last], func(x, y uint32) int {
			return strings.Compare(heads[x-b.first], heads[y-b.first])
		})
	}
}

// headEnd stands for the end of a head.
const headEnd = -1

// headByte returns a byte of the head of the n-th rule, headEnd after its end.
func (rs *Ruleset) headByte(n uint32, at int) int {
	r := &rs.rules[n]
	if key := r.keyIn(rs.text); r.form == 0 && at < len(key) && key[at] != '*' {
		return int(key[at])
	}
	return headEnd
}

func (p *parser) compileRule(d draft) rule {
	r := rule{rank: d.rank, at: p.put(d.path).at, path: uint16(len(d.path)), key: uint16(len(d.key)), form: looseForm(d.key)}
	if r.rank&rankRewritten != 0 {
		p.put(d.key)
	}
	if r.form != 0 {
		r.loose = uint16(p.put(appendForm(nil, d.key, r.form, true)).n)
	}
	return r
}

// compareTargets orders drafts by block and key. Those that match the same targets are equal.
func (d draft) compareTargets(other draft) int {
	return cmp.Or(cmp.Compare(d.block, other.block), bytes.Compare(d.key, other.key),
		cmp.Compare(d.rank&rankEnd, other.rank&rankEnd))
}
