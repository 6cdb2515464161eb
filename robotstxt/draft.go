package robotstxt

import "bytes"

// draft is a rule on its way from the file to the Ruleset.
type draft struct {
	rank rank
	hash uint64 // of the key, without the start value
	path span   // in data, as written
	at   uint32 // of the key: in canon if it is rewritten, else in data
	key  uint16 // its octets: the canonical path without a closing $ or run of *
	form form   // of its second chance, if it has one
}

// addPath takes the path of a rule apart.
func (p *parser) addPath(path []byte, r rank) {
	key := path
	if key[len(key)-1] == '$' {
		key, r = key[:len(key)-1], r|rankEnd
	}
	for len(key) > 0 && key[len(key)-1] == '*' {
		key, r = key[:len(key)-1], r&^rankEnd // *$ is as good as nothing
	}
	p.addDraft(path, key, len(path), r)
}

// addDirectory adds the rule /x/$ for a path such as /x/index.html.
func (p *parser) addDirectory(path []byte, r rank) {
	slash := bytes.LastIndexByte(path, '/')
	if slash >= 0 && bytes.HasPrefix(path[slash:], []byte("/index.htm")) {
		p.addDraft(path, path[:slash+1], len("$")+slash+1, r|rankEnd)
	}
}

// addDraft compiles a rule with a key, which the path begins with, and a length, which counts a closing $ and run of *
// too. Nearly all keys are canonical as they stand and have no wildcard inside: one walk over the octets finds that out
// and hashes them.
func (p *parser) addDraft(path, key []byte, length int, r rank) {
	d := draft{path: p.spanOf(path)}
	d.at = d.path.at
	hash, classes := hashKey(key)
	if classes&(octetPercent|octetIllegal) != 0 {
		start := len(p.canon)
		p.canon = appendCanonical(p.canon, key)
		if canonical := p.canon[start:]; string(canonical) == string(key) {
			p.canon = p.canon[:start]
		} else {
			length += len(canonical) - len(key)
			key, r, d.at = canonical, r|rankRewritten, uint32(start)
			hash, classes = hashKey(key)
			p.octets += len(key)
		}
	}
	if classes&(octetPercent|octetQuery|octetDollar) != 0 {
		if d.form = looseForm(key); d.form != 0 {
			p.octets += len(key)
		}
	}
	if classes&octetStar != 0 || len(key) > maxKey {
		r |= rankPattern
	}
	p.octets += len(path)
	d.rank, d.hash, d.key = r|rank(length)<<rankLength, hash, uint16(len(key))
	p.drafts = append(p.drafts, d)
}

// keyOf returns the key of a draft.
func (p *parser) keyOf(d *draft) []byte {
	if d.rank&rankRewritten != 0 {
		return p.canon[d.at : d.at+uint32(d.key)]
	}
	return p.data[d.at : d.at+uint32(d.key)]
}

// hashKey returns the hash of a key, less the start value, and the union of its octets' classes.
func hashKey(key []byte) (hash uint64, classes uint16) {
	head := key[:min(len(key), maxKey)]
	for i, c := range head {
		hash += uint64(c) * weights[i]
		classes |= octetClass[c]
	}
	for _, c := range key[len(head):] { // of a pattern, which is hashed only to find it again
		hash = (hash + uint64(c)) * startWeight
		classes |= octetClass[c]
	}
	return hash, classes
}
