package robotstxt

import (
	"math"
	"sync"
)

const (
	// gramWork is the product of patterns and target octets from which on an index of the target pays.
	gramWork = 1 << 17

	gramLen  = 3 // octets of the longest runs that are indexed
	gramBits = 16
)

// gramIndex tells of every run of up to three octets where it begins in a target first and last, so that thousands of
// patterns on a long target need not search all of it for segments that it does not hold, or not in that order. Runs
// that share an entry are taken together, which can only make the index say less.
type gramIndex struct {
	first, last [1 << gramBits]uint16 // place plus one; 0 for none
}

// gramIndexes are those of the forms of one target, made when they are needed.
type gramIndexes [forms]*gramIndex

// release gives the indexes back.
func (xs *gramIndexes) release() {
	for _, x := range xs {
		if x != nil {
			gramPool.Put(x)
		}
	}
}

var gramPool = sync.Pool{New: func() any { return new(gramIndex) }}

// newGramIndex returns an index of a target, to be released; nil when the target is too long for one.
func newGramIndex(t string) *gramIndex {
	if len(t) >= math.MaxUint16 {
		return nil
	}
	x := gramPool.Get().(*gramIndex)
	clear(x.first[:])
	clear(x.last[:])
	for i := range len(t) {
		for n := 1; n <= gramLen && i+n <= len(t); n++ {
			g := gram(t[i : i+n])
			if x.first[g] == 0 {
				x.first[g] = uint16(i + 1)
			}
			x.last[g] = uint16(i + 1)
		}
	}
	return x
}

// gram hashes a run of up to three octets; its length counts too.
func gram(s string) uint32 {
	h := uint32(len(s))
	for i := range len(s) {
		h = h<<8 | uint32(s[i])
	}
	return h * 0x9E3779B1 >> (32 - gramBits)
}

// from returns the first place at or behind pos where a segment could begin; a negative number when there is none.
func (x *gramIndex) from(segment string, pos int) int {
	n := min(len(segment), gramLen)
	for i := 0; i+n <= len(segment); i++ {
		g := gram(segment[i : i+n])
		if int(x.last[g]) <= pos+i {
			return -1
		}
		pos = max(pos, int(x.first[g])-1-i)
	}
	return pos
}

// holds reports whether the first segments of a pattern could occur behind pos, in whatever order: a quick look before
// the search.
func (x *gramIndex) holds(pattern string, pos int) bool {
	for range 4 {
		n := segmentLen(pattern)
		if n > 0 && x.from(pattern[:n], pos) < 0 {
			return false
		}
		if n == len(pattern) {
			break
		}
		pattern = pattern[n+1:]
	}
	return true
}
