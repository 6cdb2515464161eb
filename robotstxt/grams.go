package robotstxt

import (
	"math"
	"slices"
	"sync"
)

const (
	// gramWork is the product of patterns and target octets from which on an index of the target pays.
	gramWork = 1 << 18

	gramBits = 14
	octets   = 1 << 8
)

// gramIndex lists the places of the runs of a target, so that thousands of patterns on a long target need not search it
// for each of their segments.
type gramIndex struct {
	target string
	short  runs // of one to three octets
	// long lists those of 7 and 15, once one is asked for. Any three octets are rare in an ordinary target, but not in one
	// of two letters.
	long runs
}

// runs lists the places of runs. An octet has an entry of its own. Longer runs that share an entry are taken together: a
// place is one where a segment could be, not where it is.
type runs struct {
	begins [octets + 1<<gramBits + 1]uint32 // by entry: where its places begin; those of the one before end there
	places []uint16                         // in ascending order for each entry
	all    []run                            // while the list is made
}

// run is a run of octets in a target.
type run struct{ gram, place uint16 }

// gramIndexes are those of the forms of one target, made when they are needed.
type gramIndexes [forms]*gramIndex

// release gives the indexes back.
func (xs *gramIndexes) release() {
	for _, x := range xs {
		if x != nil {
			x.target, x.long.places = "", x.long.places[:0]
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
	x.target = t
	x.short.list(t, 1, 2, 3)
	return x
}

// list makes the list of the runs of some lengths, in ascending order, in a target.
func (r *runs) list(t string, lengths ...int) {
	clear(r.begins[:])
	r.all = r.all[:0]
	for i := range len(t) {
		for _, n := range lengths {
			if i+n > len(t) {
				break
			}
			g := gram(t[i : i+n])
			r.begins[g]++
			r.all = append(r.all, run{uint16(g), uint16(i)})
		}
	}
	end := uint32(0)
	for g, n := range r.begins {
		end += n
		r.begins[g] = end
	}
	r.places = slices.Grow(r.places[:0], len(r.all))[:len(r.all)]
	for _, one := range slices.Backward(r.all) {
		r.begins[one.gram]--
		r.places[r.begins[one.gram]] = one.place
	}
}

// of returns the places of an entry.
func (r *runs) of(g uint32) []uint16 { return r.places[r.begins[g]:r.begins[g+1]] }

// gram returns the entry of a run; its length counts too.
func gram(run string) uint32 {
	var h uint32
	switch len(run) {
	case 1:
		return uint32(run[0])
	case 2:
		h = uint32(run[0])<<8 | uint32(run[1]) | 1<<16
	case 3:
		h = uint32(run[0])<<16 | uint32(run[1])<<8 | uint32(run[2]) | 1<<24
	case 7:
		h = four(run)*0x85EBCA6B ^ four(run[3:])
	case 15:
		h = (four(run)*0x85EBCA6B^four(run[4:]))*0xC2B2AE35 ^ four(run[8:])*0x27D4EB2F ^ four(run[11:])
	}
	return octets + h*0x9E3779B1>>(32-gramBits)
}

// four reads four octets as a number.
func four(s string) uint32 {
	_ = s[3]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

// runsFor returns the list for a segment and the length of the longest runs in both.
func (x *gramIndex) runsFor(segment string) (list *runs, n int) {
	if n = len(segment); n < 7 {
		return &x.short, min(n, 3)
	}
	if len(x.long.places) == 0 {
		x.long.list(x.target, 7, 15)
	}
	if n < 15 {
		return &x.long, 7
	}
	return &x.long, 15
}

// next returns the first place of an octet at or behind pos, or a negative number.
func (x *gramIndex) next(c byte, pos int) int {
	places := x.short.of(uint32(c))
	if n := len(places); n == 0 || int(places[n-1]) < pos {
		return -1
	}
	return int(behind(places, pos)[0])
}

// rarest returns the places of the run that a segment begins or ends with, whichever has fewer, and where in the
// segment it is. There are none when the segment cannot begin at or behind pos.
func (x *gramIndex) rarest(segment string, pos int) (places []uint16, at int) {
	list, n := x.runsFor(segment)
	places = list.of(gram(segment[:n]))
	if n == len(segment) || len(places) == 0 || int(places[len(places)-1]) < pos {
		return places, 0
	}
	at = len(segment) - n
	if p := list.of(gram(segment[at:])); len(p) < len(places) {
		return p, at
	}
	return places, 0
}

// behind drops the places before pos.
func behind(places []uint16, pos int) []uint16 {
	if len(places) > 16 {
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
	var places []uint16
	at := 0
	if len(segment) <= 3 {
		places = x.short.of(gram(segment))
	} else {
		places, at = x.rarest(segment, pos)
	}
	if n := len(places); n == 0 || int(places[n-1]) < pos+at {
		return -1
	}
	for _, place := range behind(places, pos+at) {
		switch pos = int(place) - at; {
		case pos+len(segment) > len(t):
			return -1
		case t[pos] == segment[0] && t[pos:pos+len(segment)] == segment:
			return pos
		}
	}
	return -1
}
