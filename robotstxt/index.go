package robotstxt

import (
	"crypto/rand"
	"encoding/binary"
)

// The table over names and rules is open addressing with linear probing, half full at most. A slot is 0 or, from the
// top, 14 bits of the hash, one that tells rules from names, and 17 of the index plus one.
//
// The hash of a string is a start value, plus each octet times the random weight of its place. All beginnings of a
// target are so hashed in one walk over it, and as the weights are drawn at program start, no site can make its rules
// collide.
const (
	maxKey    = 255 // octets that can be hashed
	slotTag   = 18
	slotRule  = 1 << 17
	slotIndex = slotRule - 1
)

var weights, startWeight = func() (w [maxKey + 1]uint64, start uint64) {
	var seed [8 * (maxKey + 2)]byte
	if _, err := rand.Read(seed[:]); err != nil {
		panic(err) // cannot happen: crypto/rand ends the program itself
	}
	for i := range w {
		w[i] = binary.LittleEndian.Uint64(seed[8*i:])
	}
	return w, binary.LittleEndian.Uint64(seed[8*len(w):]) | 1
}()

// startHash is the hash of the empty string among the rules of a block that have the same flags.
func startHash(id rank) uint64 { return uint64(id+1) * startWeight }

// startName is the hash of the empty string among the names.
const startName = 0

func slotOf(hash uint64, slots int) int { return int(hash >> 32 * uint64(slots) >> 32) }

func tagOf(hash uint64) uint32 { return uint32(hash) >> slotTag << slotTag }

// insert puts an item that is not there yet into the table.
func (rs *Ruleset) insert(hash uint64, item uint32) {
	i := slotOf(hash, len(rs.slots))
	for rs.slots[i] != 0 {
		if i++; i == len(rs.slots) {
			i = 0
		}
	}
	rs.slots[i] = tagOf(hash) | item
}

// findRule returns the rule with the given identity and key, or none.
func (rs *Ruleset) findRule(hash uint64, id rank, key string) int32 {
	tag := tagOf(hash) | slotRule
	for i := slotOf(hash, len(rs.slots)); rs.slots[i] != 0; {
		if s := rs.slots[i]; s&^slotIndex == tag {
			r := &rs.rules[s&slotIndex-1]
			if r.rank.identity() == id && r.keyIn(rs.text) == key {
				return int32(s&slotIndex - 1)
			}
		}
		if i++; i == len(rs.slots) {
			i = 0
		}
	}
	return none
}

// findName returns the name that is spelt so in upper or lower case, or none.
func findName[T ~string | ~[]byte](rs *Ruleset, hash uint64, word T) int32 {
	tag := tagOf(hash)
	for i := slotOf(hash, len(rs.slots)); rs.slots[i] != 0; {
		if s := rs.slots[i]; s&^slotIndex == tag && sameFold(rs.names[s&slotIndex-1].text.in(rs.text), word) {
			return int32(s&slotIndex - 1)
		}
		if i++; i == len(rs.slots) {
			i = 0
		}
	}
	return none
}
