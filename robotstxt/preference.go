package robotstxt

import (
	"bytes"
	"slices"
)

// noBlock is the block of preference lines that stand before the first user-agent line.
const noBlock = maxBlock

// preference is a Content-Signal, Content-Usage or License line, with where its parts are in Ruleset.text.
type preference struct {
	block, line      uint32
	key, path, value span
}

// splitPreference divides the value of a preference line into the path it may begin with and the rest.
func splitPreference(value []byte) (path, rest []byte) {
	if len(value) == 0 || value[0] != '/' {
		return nil, value
	}
	if i := bytes.IndexAny(value, " \t"); i >= 0 {
		return value[:i], trimLeft(value[i:])
	}
	return value, nil
}

// preferences returns those of the given blocks, which are in ascending order.
func (rs *Ruleset) preferences(blocks []uint32) []Preference {
	var found []Preference
	for _, p := range rs.prefs {
		if _, ok := slices.BinarySearch(blocks, p.block); ok {
			found = append(found, Preference{
				Line: int(p.line), Key: p.key.in(rs.text), Path: p.path.in(rs.text), Value: p.value.in(rs.text),
			})
		}
	}
	return found
}
