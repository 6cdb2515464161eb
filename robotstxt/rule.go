package robotstxt

// span is a piece of Ruleset.text.
type span struct {
	at uint32
	n  uint32
}

func (s span) in(text string) string { return text[s.at : s.at+s.n] }

// rule is one Allow or Disallow line that can match.
type rule struct {
	rank rank
	at   uint32 // in Ruleset.text: the path as written and, if it is rewritten, its canonical key
	text uint16 // octets of the path as written
	key  uint16 // octets of the key: the canonical path without a closing $ or run of *
}

// block is a set of rules that apply together, mostly what stands under one list of names.
type block struct {
	first, last uint32 // its patterns
	lengths     uint64 // bit n is set when it has a key of n octets; the last bit stands for all longer ones
	longest     uint16 // octets of its longest key
	disallows   uint32 // the number of its disallow rules
}

// longLength is the bit of block.lengths for all keys that are longer.
const longLength = 63

// rank orders rules and holds what is to know of one in a word. From the top: 16 bits of length, one for allow, 20 of
// the line number inverted, 18 of the block, then the flags. So the greatest rank is that of the rule that decides: the
// longest; among equals allow (RFC 9309 section 2.2.2); of these the first in the file, as Google reports it.
type rank uint64

const (
	rankLength    = 48
	rankAllow     = 1 << 47
	rankLine      = 27
	rankBlock     = 9
	rankEnd       = 1 << 0 // the path ends in $: the target must end there too
	rankPattern   = 1 << 1 // the rule is in patterns, not in the table
	rankRewritten = 1 << 2 // the key is not the beginning of the path as written

	rankBlocked = 64 - rankLine // bits above the block

	maxNumber = 1<<20 - 1 // above any line number
	maxBlock  = 1<<18 - 1 // above any block
)

func newRank(length int, allow bool, line int) rank {
	r := rank(length)<<rankLength | rank(maxNumber-line)<<rankLine
	if allow {
		r |= rankAllow
	}
	return r
}

func (r rank) allow() bool   { return r&rankAllow != 0 }
func (r rank) line() int     { return maxNumber - int(r>>rankLine&maxNumber) }
func (r rank) block() uint32 { return uint32(r >> rankBlock & maxBlock) }

func (r rank) inBlock(b uint32) rank { return r&^(maxBlock<<rankBlock) | rank(b)<<rankBlock }

// byBlock orders by block, then from the highest rank down.
func (r rank) byBlock() uint64 {
	return uint64(r>>rankBlock&maxBlock)<<rankBlocked | uint64(^r>>rankLine)&(1<<rankBlocked-1)
}

// identity is what must be the same in two rules, besides the key, for them to match the same targets.
func (r rank) identity() rank { return r & (maxBlock<<rankBlock | rankEnd | rankPattern) }

// written returns the path of a rule as it stands in the file.
func (rs *Ruleset) written(r *rule) string { return rs.text[r.at : r.at+uint32(r.text)] }

func (r *rule) keyAt() uint32 {
	if r.rank&rankRewritten != 0 {
		return r.at + uint32(r.text)
	}
	return r.at
}

func (r *rule) keyIn(text string) string { return text[r.keyAt() : r.keyAt()+uint32(r.key)] }

// note keeps account of a rule of the block.
func (b *block) note(r *rule) {
	if !r.rank.allow() {
		b.disallows++
	}
	if r.rank&rankPattern != 0 {
		return
	}
	b.longest = max(b.longest, r.key)
	if r.rank&rankEnd == 0 {
		b.lengths |= 1 << min(r.key, longLength)
	}
}

// forget is the opposite of note, for a rule in whose place comes another with the same key.
func (b *block) forget(r *rule) {
	if !r.rank.allow() {
		b.disallows--
	}
}
