package robotstxt

import (
	"fmt"
	"slices"
	"time"
	"unsafe"
)

// Ruleset is a parsed robots.txt: immutable, compact, safe for concurrent use. The empty Ruleset
// allows everything, a nil one nothing.
type Ruleset struct {
	text     string       // names, paths and values, one after the other
	rules    []rule       // per block, from the highest rank to the lowest
	byHead   []uint32     // the rules of large blocks, each in its block's place, by their heads
	blocks   []block      // sets of rules that apply together; the first has no rules
	names    []name       // without regard to case
	members  []uint32     // blocks of each name, in the order of the file
	prefs    []preference // per block, from the highest rank to the lowest
	sitemaps []sitemap
}

// Agent says which product tokens select a crawler's group.
type Agent struct {
	// Tokens are the crawler's product tokens, most specific first: the first that has a group decides
	// alone. RFC 9309 section 2.2.1 has one token; Google's specification has lists for crawlers such
	// as Googlebot-Image. A token ends at its first slash or space. A token of letters, - and _ is
	// compared with the leading bytes of that kind in a user-agent line, and any other token with the
	// line's first word. Case does not matter. Tokens over 255 bytes have no group.
	Tokens []string

	// IgnoreWildcard ignores the * group, as AdsBot-Google does: without its own group, nothing binds
	// the agent.
	IgnoreWildcard bool
}

// Group is the part of a Ruleset for one crawler: a small value, safe for concurrent use and always
// valid. The zero Group allows nothing.
type Group struct {
	rs   *Ruleset
	name *name // nil for no group
}

// Match is the answer to one question, with its evidence.
type Match struct {
	Allowed bool   // the verdict
	Rule    string // path of the deciding rule as written in the file; "" when no rule decided
	Line    int    // its line number, from 1; 0 when no rule decided
	Group   string // name of the group: as first written, "*", or "" without a group
}

// Select returns the group for an agent: its own or, without one, the * group (RFC 9309 section
// 2.2.1). It does not allocate.
func (rs *Ruleset) Select(a Agent) Group {
	if rs == nil {
		return Group{}
	}
	for _, token := range a.Tokens {
		if token = trimToken(token); token == "*" {
			continue
		}
		if n := rs.find(token); n != nil {
			return Group{rs: rs, name: n}
		}
	}
	if a.IgnoreWildcard {
		return Group{rs: rs}
	}
	return Group{rs: rs, name: rs.find("*")}
}

// Match is Select and Group.Match for a crawler with the given product tokens, most specific first.
func (rs *Ruleset) Match(tokens []string, target string) Match {
	return rs.Select(Agent{Tokens: tokens}).Match(target)
}

// Sitemap is a line that names a sitemap.
type Sitemap struct {
	URL  string // as written: an absolute URL of http or https
	Line int    // its line number, from 1
}

// Bounds on the sitemaps of a file. Search engines read no longer URL (sitemaps.org).
const (
	MaxSitemaps   = 1000 // later ones are not read
	MaxSitemapURL = 2048 // bytes; a longer one is not read
)

// Sitemaps returns the Sitemap lines in the order of the file, nil for none. They belong to no
// group (RFC 9309 section 2.2.4, sitemaps.org). The caller owns the slice.
func (rs *Ruleset) Sitemaps() []Sitemap {
	if rs == nil || len(rs.sitemaps) == 0 {
		return nil
	}
	list := make([]Sitemap, len(rs.sitemaps))
	for i, s := range rs.sitemaps {
		list[i] = Sitemap{URL: s.url.in(rs.text), Line: int(s.line)}
	}
	return list
}

// HasPreferences reports whether there is any preference line in the file.
func (rs *Ruleset) HasPreferences() bool {
	return rs != nil && len(rs.prefs) > 0
}

// Size returns the number of bytes that the Ruleset retains.
func (rs *Ruleset) Size() int {
	if rs == nil {
		return 0
	}
	return int(unsafe.Sizeof(*rs)) + len(rs.text) + sizeOf(rs.rules) + sizeOf(rs.byHead) + sizeOf(rs.blocks) +
		sizeOf(rs.names) + sizeOf(rs.members) + sizeOf(rs.prefs) + sizeOf(rs.sitemaps)
}

func sizeOf[T any](s []T) int {
	var t T
	return cap(s) * int(unsafe.Sizeof(t))
}

// Name returns the name of the group as first written in the file; "*" for the wildcard group, ""
// for none.
func (g Group) Name() string {
	if g.name == nil {
		return ""
	}
	return g.name.text.in(g.rs.text)
}

// Unrestricted reports whether no disallow rule of the group could match any target. It is false
// for the zero Group.
func (g Group) Unrestricted() bool {
	if g.rs == nil {
		return false
	}
	for _, b := range g.blocks() {
		if g.rs.blocks[b].disallows > 0 {
			return false
		}
	}
	return true
}

// CrawlDelay returns the delay that the group asks for between two requests: the largest of its
// Crawl-delay lines or, without any, the slowest of its Request-rate lines. A group does not
// inherit from *. Neither line is part of RFC 9309, but section 2.2.4 permits reading them. The
// value comes from the site, so clamp it.
func (g Group) CrawlDelay() (time.Duration, bool) {
	if g.name == nil {
		return 0, false
	}
	return g.name.asks.pause()
}

// VisitTime is a Visit-time line: the part of each day in which a site wants visits. The zero value
// means that there is no line.
type VisitTime struct {
	// From and To are minutes of the day in UTC. To is exclusive. If it is before From, the period
	// includes midnight.
	From, To uint16
	Line     uint32 // its number, from 1
}

// String returns the value in the form of a file, such as 0600-0845.
func (v VisitTime) String() string {
	return fmt.Sprintf("%02d%02d-%02d%02d", v.From/60, v.From%60, v.To/60, v.To%60)
}

// VisitTime returns the group's Visit-time. The first valid line counts: the extended standard of
// 1996, which has the field, allows only one. A group does not inherit from *. The field is not
// part of RFC 9309.
func (g Group) VisitTime() (VisitTime, bool) {
	if g.name == nil {
		return VisitTime{}, false
	}
	v := g.name.asks.visit
	return v, v.Line != 0
}

// blocks returns the blocks of rules that make up the group, in the order of the file.
func (g Group) blocks() []uint32 {
	if g.name == nil {
		return nil
	}
	return g.rs.members[g.name.first : g.name.first+g.name.count]
}

// sitemap is a Sitemap line.
type sitemap struct {
	url  span
	line uint32
}

// span is a piece of Ruleset.text.
type span struct {
	at uint32
	n  uint32
}

func (s span) in(text string) string { return text[s.at : s.at+s.n] }

// rule is one Allow or Disallow line that can match. Ruleset.text has its path as written, then its
// key if that differs, then the loose form if there is one.
type rule struct {
	rank  rank
	at    uint32 // in Ruleset.text
	path  uint16 // bytes of the path as written
	key   uint16 // bytes of the key: the canonical path without a closing $ or run of *
	loose uint16 // bytes of the key in its second chance
	form  form   // of the second chance; 0 for none
}

// block is a set of rules that apply together: the rules under one list of names.
type block struct {
	first, last         uint32 // its rules
	firstPref, lastPref uint32 // its preference lines
	disallows           uint32 // the number of its disallow rules
	byHead              bool   // they are in Ruleset.byHead
}

// rank orders rules and packs the properties of one in a word. From the top: 16 bits of length, one
// for allow, 20 of the line number inverted, then the flags. So the rule with the greatest rank
// decides: the longest one; among equals, an allow (RFC 9309 section 2.2.2); and among these, the
// first in the file, as Google reports it.
type rank uint64

const (
	rankLength    = 48
	rankAllow     = 1 << 47
	rankLine      = 27
	rankEnd       = 1 << 0 // the path ends in $: the target must end there too
	rankRewritten = 1 << 1 // the key is not the beginning of the path as written

	maxNumber = 1<<20 - 1 // above any line number
)

func newRank(length int, allow bool, line int) rank {
	r := rank(length)<<rankLength | rank(maxNumber-line)<<rankLine
	if allow {
		r |= rankAllow
	}
	return r
}

func (r rank) allow() bool { return r&rankAllow != 0 }
func (r rank) line() int   { return maxNumber - int(r>>rankLine&maxNumber) }

// written returns the path of a rule as it stands in the file.
func (r *rule) written(text string) string { return text[r.at : r.at+uint32(r.path)] }

func (r *rule) keyIn(text string) string {
	at := r.at
	if r.rank&rankRewritten != 0 {
		at += uint32(r.path)
	}
	return text[at : at+uint32(r.key)]
}

// looseIn returns the key in its looser form.
func (r *rule) looseIn(text string) string {
	at := r.at + uint32(r.path)
	if r.rank&rankRewritten != 0 {
		at += uint32(r.key)
	}
	return text[at : at+uint32(r.loose)]
}

// name is a product token that has rules, or *.
type name struct {
	text         span   // as first written
	first, count uint32 // its blocks, in Ruleset.members
	asks         delay  // of its Crawl-delay, Request-rate and Visit-time lines
}

// trimToken cuts a product token at its first slash or space: RFC 9309 section 2.2.1 has no
// version.
func trimToken[T ~string | ~[]byte](s T) T {
	for i := range len(s) {
		if s[i] == '/' || isBlank(s[i]) {
			return s[:i]
		}
	}
	return s
}

// trimLetters returns the leading bytes of s that RFC 9309 section 2.2.1 allows in a product token.
func trimLetters[T ~string | ~[]byte](s T) T {
	for i := range len(s) {
		if byteClass[s[i]]&classLetter == 0 {
			return s[:i]
		}
	}
	return s
}

// isWildcard reports whether the value of a user-agent line is *, alone or with a blank and
// anything after it.
func isWildcard(value []byte) bool {
	return len(value) > 0 && value[0] == '*' && (len(value) == 1 || isBlank(value[1]))
}

// compareFold orders by length and then by bytes, without regard to the case of ASCII letters.
func compareFold[S, T ~string | ~[]byte](a S, b T) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	for i := range len(a) {
		if x, y := lower(a[i]), lower(b[i]); x != y {
			return int(x) - int(y)
		}
	}
	return 0
}

// maxToken is the length of the longest token that has a group.
const maxToken = 255

// find returns the name that a product token selects, or nil. A token of letters, hyphens and
// underscores selects the beginning of a line, and any other token a whole first word. The two
// kinds never look alike, so one list has both.
func (rs *Ruleset) find(token string) *name {
	i, ok := slices.BinarySearchFunc(rs.names, token, func(n name, token string) int {
		return compareFold(n.text.in(rs.text), token)
	})
	if !ok {
		return nil
	}
	return &rs.names[i]
}

// delay has the Crawl-delay and the Request-rate of a name, which are negative without such a line,
// and its Visit-time.
type delay struct {
	crawl, rate time.Duration
	visit       VisitTime
}

var noDelay = delay{crawl: -1, rate: -1}

// widen keeps the longer of both delays, and the Visit-time that comes first in the file.
func (d delay) widen(e delay) delay {
	if e.visit.Line != 0 && (d.visit.Line == 0 || e.visit.Line < d.visit.Line) {
		d.visit = e.visit
	}
	return delay{crawl: max(d.crawl, e.crawl), rate: max(d.rate, e.rate), visit: d.visit}
}

func (d delay) pause() (time.Duration, bool) {
	if d.crawl >= 0 {
		return d.crawl, true
	}
	return max(d.rate, 0), d.rate >= 0
}
