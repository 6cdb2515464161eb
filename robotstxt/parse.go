package robotstxt

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// Parse reads a robots.txt with default Options.
func Parse(data []byte) *Ruleset { return Options{}.Parse(data) }

// Options changes how a file is read. The zero value is right for a whole file.
type Options struct {
	// Truncated says that data is only the beginning of a file, of which the rest was not read: a last
	// line without terminator is dropped, as half a path is a wider rule than the site wrote. Data
	// over 500 KiB needs no such word.
	Truncated bool

	// IndexHTML lets "Allow: /x/index.html" and the like allow /x/ too, as Google's parser does and
	// RFC 9309 section 2.2.2 does not.
	IndexHTML bool
}

// Parse reads a robots.txt. It never fails: what can be used is used, all else is ignored. Of data,
// the first 500 KiB are read, and a line that this limit cuts is dropped. The Ruleset keeps no
// reference to data.
func (o Options) Parse(data []byte) *Ruleset {
	s := newScanner(data, o.Truncated)
	p := &parser{indexHTML: o.IndexHTML}
	p.scan(&s)
	return p.compile()
}

// parser collects what a file says, in the order of the file. Until compile all bytes stay where
// they are in the file, and no slice here holds a pointer: that keeps the garbage collector out of
// it.
type parser struct {
	data     []byte
	names    []nameLine
	drafts   []draft
	prefs    []prefLine
	sitemaps []span // in data
	blocks   int    // lists of names begun; the last is the current one
	closed   bool   // a rule has ended the current list of names

	indexHTML bool // see Options

	canon []byte // canonical keys that are not in the file
	scratch
}

// nameLine is a user-agent line.
type nameLine struct {
	value span // in data
	block uint32
	asks  delay    // of the lines that follow while this name is the last one
	keys  [2]int32 // in Ruleset.names: its letters, and its first word where that is longer
}

// prefLine is a preference line.
type prefLine struct {
	key, value  span // in data
	block, line uint32
}

// spanOf returns where in data bytes are that were cut out of it.
func (p *parser) spanOf(b []byte) span {
	return span{at: uint32(cap(p.data) - cap(b)), n: uint32(len(b))}
}

func (p *parser) bytesOf(s span) []byte { return p.data[s.at : s.at+s.n] }

func (p *parser) scan(s *scanner) {
	p.data = s.data
	for line, ok := s.next(); ok; line, ok = s.next() {
		key, value := split(contentOf(line))
		switch fieldOf(key) {
		case fieldUserAgent:
			p.addName(value)
		case fieldAllow:
			p.addRule(value, true, s.number)
		case fieldDisallow:
			p.addRule(value, false, s.number)
		case fieldSitemap:
			p.addSitemap(value)
		case fieldCrawlDelay:
			if pause, ok := parseCrawlDelay(value); ok {
				p.addDelay(delay{crawl: pause, rate: noDelay.rate})
			}
		case fieldRequestRate:
			if pause, ok := parseRequestRate(value); ok {
				p.addDelay(delay{crawl: noDelay.crawl, rate: pause})
			}
		case fieldPreference:
			p.addPreference(key, value, s.number)
		case fieldOther:
		}
	}
}

// addName begins a list of names or continues it. Only rules end a list (RFC 9309 section 2.2.4:
// other lines must not interfere), even empty ones.
func (p *parser) addName(value []byte) {
	if p.closed || p.blocks == 0 {
		p.blocks, p.closed = p.blocks+1, false
	}
	p.names = append(p.names, nameLine{
		value: p.spanOf(value), block: uint32(p.blocks), asks: noDelay, keys: [2]int32{none, none},
	})
}

// addRule takes a rule. Those before any name are ignored; those that begin with neither / nor *
// match nothing.
func (p *parser) addRule(path []byte, allow bool, line int) {
	if p.blocks == 0 {
		return
	}
	p.closed = true
	if len(path) == 0 || path[0] != '/' && path[0] != '*' {
		return
	}
	r := newRank(0, allow, line) | rank(p.blocks)<<rankBlock
	p.addPath(path, r)
	if p.indexHTML && allow {
		p.addDirectory(path, r)
	}
}

// addDelay takes what all names of the current list so far are asked.
func (p *parser) addDelay(d delay) {
	if n := len(p.names); n > 0 {
		p.names[n-1].asks = p.names[n-1].asks.widen(d)
	}
}

func (p *parser) addSitemap(url []byte) {
	if isAbsoluteURL(url) {
		p.sitemaps = append(p.sitemaps, p.spanOf(url))
	}
}

func (p *parser) addPreference(key, value []byte, line int) {
	p.prefs = append(p.prefs, prefLine{
		key: p.spanOf(key), value: p.spanOf(value), block: uint32(p.blocks), line: uint32(line),
	})
}

// isAbsoluteURL reports whether the value of a Sitemap line has a scheme and something behind it.
func isAbsoluteURL(value []byte) bool {
	scheme, rest, ok := bytes.Cut(value, []byte("://"))
	return ok && len(scheme) > 0 && len(rest) > 0 && isLetter(scheme[0]) &&
		len(bytes.TrimFunc(scheme, isSchemeRune)) == 0
}

func isSchemeRune(r rune) bool {
	return r < utf8.RuneSelf && (isLetter(byte(r)) || r >= '0' && r <= '9' || strings.ContainsRune("+-.", r))
}

// draft is a rule on its way from the file to the Ruleset.
type draft struct {
	rank rank
	path span   // in data, as written
	at   uint32 // of the key: in canon if it is rewritten, else in data
	key  uint16 // its bytes: the canonical path without a closing $ or run of *
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

// addDraft compiles a rule with a key, which the path begins with, and a length, which counts a
// closing $ and run of * too. Nearly all keys are canonical as they stand and have no wildcard
// inside: one walk over the bytes finds that out.
func (p *parser) addDraft(path, key []byte, length int, r rank) {
	d := draft{path: p.spanOf(path)}
	d.at = d.path.at
	classes := classesOf(key)
	if classes&(classPercent|classIllegal) != 0 {
		start := len(p.canon)
		p.canon = appendCanonical(p.canon, key)
		if canonical := p.canon[start:]; string(canonical) == string(key) {
			p.canon = p.canon[:start]
		} else {
			length += len(canonical) - len(key)
			key, r, d.at = canonical, r|rankRewritten, uint32(start)
			classes = classesOf(key)
		}
	}
	if classes&(classPercent|classQuery|classDollar) != 0 {
		d.form = looseForm(key)
	}
	if classes&classStar != 0 {
		r |= rankPattern
	}
	d.rank, d.key = r|rank(length)<<rankLength, uint16(len(key))
	p.drafts = append(p.drafts, d)
}

// keyOf returns the key of a draft.
func (p *parser) keyOf(d *draft) []byte {
	if d.rank&rankRewritten != 0 {
		return p.canon[d.at : d.at+uint32(d.key)]
	}
	return p.data[d.at : d.at+uint32(d.key)]
}

// classesOf returns the union of the classes of some bytes.
func classesOf(b []byte) (classes uint16) {
	for _, c := range b {
		classes |= byteClass[c]
	}
	return classes
}
