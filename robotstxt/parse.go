package robotstxt

import (
	"bytes"
	"iter"
)

// Parse reads a robots.txt with default Options.
func Parse(data []byte) *Ruleset { return Options{}.Parse(data) }

// Options changes how a file is read. The zero value is right for a whole file.
type Options struct {
	// Truncated says that data is only the beginning of a file. A last line without terminator is then
	// dropped, because half a path is a wider rule than the site wrote. Data over 500 KiB is always
	// treated this way.
	Truncated bool

	// IndexHTML lets "Allow: /x/index.html" and the like allow /x/ too, as Google's parser does and
	// RFC 9309 section 2.2.2 does not.
	IndexHTML bool
}

// Parse reads a robots.txt. It never fails: usable lines are used, and everything else is ignored.
// It reads the first 500 KiB of data, and drops a line that this limit cuts. The Ruleset keeps no
// reference to data.
func (o Options) Parse(data []byte) *Ruleset {
	s := newScanner(data, o.Truncated)
	p := &parser{indexHTML: o.IndexHTML}
	p.scan(&s)
	return p.compile()
}

// parser collects what a file says, in the order of the file. Its slices of bytes are pieces of the
// file.
type parser struct {
	names    []nameLine
	drafts   []draft // of Allow and Disallow lines
	prefs    []prefLine
	sitemaps []sitemap
	lists    uint32 // lists of names begun; the last is the current one
	closed   bool   // a rule has ended the current list of names

	indexHTML bool // see Options

	text []byte // of the Ruleset, as far as it is written
}

// nameLine is a user-agent line.
type nameLine struct {
	value []byte
	list  uint32
	asks  delay // of the lines of its list that follow
}

func (p *parser) scan(s *scanner) {
	for line, ok := s.next(); ok; line, ok = s.next() {
		f, _, value := split(contentOf(line))
		switch f {
		case fieldUserAgent:
			p.addName(value)
		case fieldAllow:
			p.addRule(value, true, s.number)
		case fieldDisallow:
			p.addRule(value, false, s.number)
		case fieldSitemap:
			if len(line) <= maxLine { // otherwise the URL may be cut
				p.addSitemap(value, s.number)
			}
		case fieldCrawlDelay:
			if pause, ok := parseCrawlDelay(value); ok {
				p.addDelay(delay{crawl: pause, rate: noDelay.rate})
			}
		case fieldRequestRate:
			if pause, ok := parseRequestRate(value); ok {
				p.addDelay(delay{crawl: noDelay.crawl, rate: pause})
			}
		case fieldVisitTime:
			if v, ok := parseVisitTime(value); ok {
				v.Line = uint32(s.number)
				p.addDelay(delay{crawl: noDelay.crawl, rate: noDelay.rate, visit: v})
			}
		case fieldContentUsage:
			p.addPreference(ContentUsage, value, s.number)
		case fieldContentSignal:
			p.addPreference(ContentSignal, value, s.number)
		case fieldLicense:
			p.addPreference(License, value, s.number)
		case fieldOther:
		}
	}
}

// addName begins a list of names or continues it. Only rules end a list (RFC 9309 section 2.2.4:
// other lines must not interfere), even empty ones.
func (p *parser) addName(value []byte) {
	if p.closed || p.lists == 0 {
		p.lists, p.closed = p.lists+1, false
	}
	p.names = append(p.names, nameLine{value: value, list: p.lists, asks: noDelay})
}

// addRule adds a rule. A rule before any name is ignored. A rule that begins with neither / nor *
// matches nothing.
func (p *parser) addRule(path []byte, allow bool, line int) {
	if p.lists == 0 {
		return
	}
	p.closed = true
	if len(path) == 0 || path[0] != '/' && path[0] != '*' {
		return
	}
	r := newRank(0, allow, line)
	p.drafts = append(p.drafts, draftOf(path, p.lists, r))
	if p.indexHTML && allow {
		p.addDirectory(path, r)
	}
}

// addDelay records a delay for all names of the current list so far.
func (p *parser) addDelay(d delay) {
	if n := len(p.names); n > 0 {
		p.names[n-1].asks = p.names[n-1].asks.widen(d)
	}
}

func (p *parser) addSitemap(url []byte, line int) {
	if len(p.sitemaps) < MaxSitemaps && sitemapFault(url) == "" {
		p.sitemaps = append(p.sitemaps, sitemap{url: p.put(url), line: uint32(line)})
	}
}

// sitemapFault says why the value of a Sitemap line is not read, "" if it is.
func sitemapFault(value []byte) string {
	scheme, rest, ok := bytes.Cut(value, []byte("://"))
	switch {
	case !ok || len(rest) == 0 || !equalFold(scheme, "http") && !equalFold(scheme, "https"):
		return "is not an absolute URL of http or https"
	case len(value) > MaxSitemapURL:
		return "is longer than 2 KiB"
	}
	return ""
}

// draft is a rule before it becomes part of the Ruleset.
type draft struct {
	rank  rank
	path  []byte // as written
	key   []byte // the canonical path without a closing $ or run of *
	list  uint32
	block uint32 // once the lists have their blocks
}

// draftOf parses the path of a rule. It must not be empty.
func draftOf(path []byte, list uint32, r rank) draft {
	key := path
	if key[len(key)-1] == '$' {
		key, r = key[:len(key)-1], r|rankEnd
	}
	for len(key) > 0 && key[len(key)-1] == '*' {
		key, r = key[:len(key)-1], r&^rankEnd // *$ has no effect
	}
	return newDraft(path, key, len(path), list, r)
}

// addDirectory adds the rule /x/$ for a path such as /x/index.html.
func (p *parser) addDirectory(path []byte, r rank) {
	slash := bytes.LastIndexByte(path, '/')
	if slash >= 0 && bytes.HasPrefix(path[slash:], []byte("/index.htm")) {
		p.drafts = append(p.drafts, newDraft(path, path[:slash+1], len("$")+slash+1, p.lists, r|rankEnd))
	}
}

// newDraft returns a rule with a key, which the path begins with, and a length, which counts a
// closing $ and run of * too.
func newDraft(path, key []byte, length int, list uint32, r rank) draft {
	var classes uint16
	for _, c := range key {
		classes |= byteClass[c]
	}
	if classes&(classPercent|classIllegal) != 0 { // nearly all keys are canonical as they stand
		if canonical := appendCanonical(nil, key); !bytes.Equal(canonical, key) {
			length += len(canonical) - len(key)
			key, r = canonical, r|rankRewritten
		}
	}
	return draft{rank: r | rank(length)<<rankLength, path: path, key: key, list: list}
}

const (
	// MaxSize is the number of bytes of a file that are read (RFC 9309 section 2.5: at least 500
	// KiB).
	MaxSize = 500 * 1024

	// maxLine is the number of bytes of a line that are read, as in Google's parser: eight times the
	// longest URL of an old browser, minus one.
	maxLine = 8*2083 - 1
)

// scanner cuts a file into lines at CR, LF and CRLF (RFC 9309 section 2.2) and counts them.
type scanner struct {
	data           []byte
	pos            int  // start of the next line
	number         int  // of the line that next returned last
	hasBOM, hasCut bool // for lint: a byte order mark was skipped, the size limit applied
}

// newScanner prepares the part of data that is read. With open set, data itself is the beginning of
// a longer file.
func newScanner(data []byte, open bool) scanner {
	var s scanner
	if len(data) > MaxSize {
		open, s.hasCut = data[MaxSize] != '\n' && data[MaxSize] != '\r', true
		data = data[:MaxSize]
	}
	if open {
		// Half a path would be a wider rule than the site wrote.
		data = data[:1+bytes.LastIndexAny(data, "\r\n")]
	}
	for _, c := range [...]byte{0xEF, 0xBB, 0xBF} { // a partial mark is skipped too, as Google does
		if len(data) == 0 || data[0] != c {
			break
		}
		data, s.hasBOM = data[1:], true
	}
	s.data = data
	return s
}

// next returns the next line without its terminator. The rest after the last terminator is a line
// too.
func (s *scanner) next() ([]byte, bool) {
	if s.pos > len(s.data) {
		return nil, false
	}
	line, rest := s.data[s.pos:], []byte(nil)
	if i := bytes.IndexAny(line, "\r\n"); i >= 0 {
		line, rest = line[:i], line[i:]
	}
	s.pos += len(line) + 1
	if bytes.HasPrefix(rest, []byte("\r\n")) {
		s.pos++
	}
	s.number++
	return line, true
}

// Lines yields the lines of a robots.txt by their numbers from 1, as [Match.Line] counts them, each
// without its end: CR, LF or CRLF. Of data, the first 500 KiB are read, as by [Parse]. The lines
// are pieces of data and may hold any byte.
func Lines(data []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		s := newScanner(data, false)
		for line, ok := s.next(); ok && yield(s.number, line); line, ok = s.next() {
		}
	}
}

// indexOrEnd returns the first place of a byte, or the length.
func indexOrEnd(b []byte, c byte) int {
	if i := bytes.IndexByte(b, c); i >= 0 {
		return i
	}
	return len(b)
}

// contentOf strips a line of the bytes beyond its limit, after a NUL or a comment sign, and of
// blanks at both ends.
func contentOf(line []byte) []byte {
	line = trimLeft(line[:min(len(line), maxLine)])
	if len(line) == 0 || line[0] == '#' {
		return nil
	}
	line = line[:indexOrEnd(line, 0)]
	return trimRight(line[:indexOrEnd(line, '#')])
}

// split divides the content of a line into key and value, and recognises the key. The key is the
// text before the first colon. If that is not a known field, it is the first of exactly two words,
// which Google accepts without a colon. The key is empty if the line is not a directive.
func split(content []byte) (f field, key, value []byte) {
	before, behind, colon := bytes.Cut(content, []byte{':'})
	if colon {
		key, value = trimRight(before), trimLeft(behind)
		f = fieldOf(key)
	}
	i := bytes.IndexAny(content, " \t")
	if f != fieldOther || i < 0 {
		return f, key, value
	}
	word, rest := trimRight(content[:i]), bytes.TrimLeft(content[i:], " \t")
	if bytes.ContainsAny(rest, " \t") {
		return f, key, value
	}
	if f = fieldOf(word); f != fieldOther || !colon { // such as Disallow /a:b
		key, value = word, trimLeft(rest)
	}
	return f, key, value
}

// blanks are the bytes that count as white space, as in Google's parser.
const blanks = " \t\v\f"

func trimLeft(b []byte) []byte { return bytes.TrimLeft(b, blanks) }

func trimRight(b []byte) []byte { return bytes.TrimRight(b, blanks) }
