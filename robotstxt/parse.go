package robotstxt

import (
	"bytes"
	"sync"
)

// Parse reads a robots.txt with default Options.
func Parse(data []byte) *Ruleset { return Options{}.Parse(data) }

// Options changes how a file is read. The zero value is right for a whole file.
type Options struct {
	// Truncated says that data is only the beginning of a file, of which the rest was not read: a last line without
	// terminator is dropped, as half a path is a wider rule than the site wrote. Data over 500 KiB needs no such word.
	Truncated bool

	// IndexHTML lets "Allow: /x/index.html" and the like allow /x/ too, as Google's parser does and RFC 9309 section
	// 2.2.2 does not.
	IndexHTML bool
}

// Parse reads a robots.txt. It never fails: what can be used is used, all else is ignored. Of data, the first 500 KiB
// are read, and a line that this limit cuts is dropped. The Ruleset keeps no reference to data.
func (o Options) Parse(data []byte) *Ruleset {
	s := newScanner(data, o.Truncated)
	p := parsers.Get().(*parser)
	defer parsers.Put(p)
	defer p.reset()
	p.indexHTML = o.IndexHTML
	p.scan(&s)
	return p.compile()
}

// parsers keeps working memory. Its size is bounded by that of a file.
var parsers = sync.Pool{New: func() any { return new(parser) }}

// parser collects what a file says, in the order of the file. Until compile all octets stay where they are in the
// file, and no slice here holds a pointer: that keeps the garbage collector out of it.
type parser struct {
	data     []byte
	names    []nameLine
	drafts   []draft
	prefs    []prefLine
	sitemaps []span // in data
	blocks   int    // lists of names begun; the last is the current one
	closed   bool   // a rule has ended the current list of names

	indexHTML bool // see Options

	canon  []byte // canonical keys that are not in the file
	octets int    // that the Ruleset will hold at most
	scratch
}

// nameLine is a user-agent line.
type nameLine struct {
	value span // in data
	block uint32
	asks  delay    // of the lines that follow while this name is the last one
	keys  [2]int32 // what it is found by, in Ruleset.names: its letters, its first word where that is longer
}

// prefLine is a preference line.
type prefLine struct {
	key, value  span // in data
	block, line uint32
}

func (p *parser) reset() {
	p.data = nil
	p.names, p.drafts, p.prefs, p.sitemaps = p.names[:0], p.drafts[:0], p.prefs[:0], p.sitemaps[:0]
	p.blocks, p.closed, p.canon, p.octets = 0, false, p.canon[:0], 0
}

// spanOf returns where in data octets are that were cut out of it.
func (p *parser) spanOf(octets []byte) span {
	return span{at: uint32(cap(p.data) - cap(octets)), n: uint32(len(octets))}
}

func (p *parser) octetsOf(s span) []byte { return p.data[s.at : s.at+s.n] }

func (p *parser) scan(s *scanner) {
	p.data = s.data
	for line, ok := s.next(); ok; line, ok = s.next() {
		content := s.content(line)
		if !mayMatter(content) {
			continue
		}
		key, value := split(content)
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

// addName begins a list of names or continues it. Only rules end a list (RFC 9309 section 2.2.4: other lines must not
// interfere), even empty ones.
func (p *parser) addName(value []byte) {
	if p.closed || p.blocks == 0 {
		p.blocks, p.closed = p.blocks+1, false
	}
	p.octets += 2 * len(value)
	p.names = append(p.names, nameLine{
		value: p.spanOf(value), block: uint32(p.blocks), asks: noDelay, keys: [2]int32{none, none},
	})
}

// addRule takes a rule. Those before any name are ignored; those that begin with neither / nor * match nothing.
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
		p.octets += len(url)
	}
}

func (p *parser) addPreference(key, value []byte, line int) {
	p.prefs = append(p.prefs, prefLine{
		key: p.spanOf(key), value: p.spanOf(value), block: uint32(p.blocks), line: uint32(line),
	})
	p.octets += len(key) + len(value)
}

// isAbsoluteURL reports whether the value of a Sitemap line has a scheme and something behind it.
func isAbsoluteURL(value []byte) bool {
	scheme, rest, ok := bytes.Cut(value, []byte("://"))
	if !ok || len(scheme) == 0 || len(rest) == 0 || !isLetter(scheme[0]) {
		return false
	}
	for _, c := range scheme {
		if !isLetter(c) && (c < '0' || c > '9') && c != '+' && c != '-' && c != '.' {
			return false
		}
	}
	return true
}
