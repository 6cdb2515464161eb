package robotstxt

import (
	"math"
	"slices"
	"strings"
	"sync"
)

const (
	// gramWork is the product of patterns and target octets from which on an index of the target pays.
	gramWork = 1 << 18

	gramLen  = 3 // octets of the longest runs that are indexed
	gramBits = 14

	// gramTries is how many places of a run are looked at one by one before the rest of the target is searched.
	gramTries = 8
)

// gramIndex lists the places of every run of up to three octets in a target, so that thousands of patterns on a long
// target need not search it for each of their segments. Runs that share an entry are taken together: a place is one
// where a segment could be, not where it is.
type gramIndex struct {
	ends   [1 << gramBits]uint32 // by run: where its places end, which is where those of the next one begin
	places []uint16              // in ascending order for each run
	runs   []run                 // all, while the index is made
}

// run is a run of octets in a target.
type run struct{ gram, place uint16 }

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
	clear(x.ends[:])
	x.runs = x.runs[:0]
	for i := range len(t) {
		for n := 1; n <= gramLen && i+n <= len(t); n++ {
			g := gram(t[i : i+n])
			x.ends[g]++
			x.runs = append(x.runs, run{uint16(g), uint16(i)})
		}
	}
	begin := uint32(0)
	for g, n := range x.ends {
		x.ends[g] = begin
		begin += n
	}
	x.places = slices.Grow(x.places[:0], len(x.runs))[:len(x.runs)]
	for _, r := range x.runs {
		x.places[x.ends[r.gram]] = r.place
		x.ends[r.gram]++
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

// of returns the places of a run.
func (x *gramIndex) of(octets string) []uint16 {
	g := gram(octets)
	if g == 0 {
		return x.places[:x.ends[0]]
	}
	return x.places[x.ends[g-1]:x.ends[g]]
}

// rarest returns the places of that run of a segment which has the fewest, and where in the segment it is. There are
// none when some run does not occur late enough for the segment to begin at or behind pos.
func (x *gramIndex) rarest(segment string, pos int) (places []uint16, at int) {
	if len(segment) <= gramLen {
		if p := x.of(segment); len(p) > 0 && int(p[len(p)-1]) >= pos {
			return p, 0
		}
		return nil, 0
	}
	for i := 0; i+gramLen <= len(segment); i++ {
		p := x.of(segment[i : i+gramLen])
		if len(p) == 0 || int(p[len(p)-1]) < pos+i {
			return nil, 0
		}
		if i == 0 || len(p) < len(places) {
			places, at = p, i
		}
	}
	return places, at
}

// behind drops the places before pos.
func behind(places []uint16, pos int) []uint16 {
	if len(places) > 8 {
		i, _ := slices.BinarySearch(places, uint16(min(pos, math.MaxUint16)))
		return places[i:]
	}
	for len(places) > 0 && int(places[0]) < pos {
		places = places[1:]
	}
	return places
}

// find returns the first place of a segment in t, the target or a beginning of it, at or behind pos; a negative number
// when there is none.
func (x *gramIndex) find(t, segment string, pos int) int {
	places, at := x.rarest(segment, pos)
	places = behind(places, pos+at)
	for i := range gramTries {
		if i == len(places) {
			return -1
		}
		if pos = int(places[i]) - at; pos+len(segment) > len(t) {
			return -1
		}
		if t[pos] == segment[0] && t[pos:pos+len(segment)] == segment {
			return pos
		}
	}
	pos++
	if i := strings.Index(t[pos:], segment); i >= 0 {
		return pos + i
	}
	return -1
}
