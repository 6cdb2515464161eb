package robotstxt

import (
	"time"
	"unsafe"
)

// Ruleset is a parsed robots.txt: immutable, compact, safe for concurrent use. The empty Ruleset allows everything, a
// nil one nothing.
type Ruleset struct {
	text     string    // names, paths and values, one after the other
	slots    []uint32  // hash table over names and rules; see index.go
	rules    []rule    //
	blocks   []block   // sets of rules that apply together
	patterns []pattern // per block, from the highest rank to the lowest
	names    []name    //
	members  []uint32  // blocks of each name, in the order of the file
	delays   []delay   //
	prefs    []preference
	sitemaps []span
	wildcard int32 // one more than the index in names of *; 0 when it is not there
	loose    bool  // some pattern is not to be matched in the canonical form
}

// none is the index of what does not exist.
const none = -1

// Agent says by which product tokens a crawler looks for its group.
type Agent struct {
	// Tokens are the crawler's product tokens, most specific first: the first that has a group decides alone (RFC 9309
	// section 2.2.1 knows one token; a list serves crawlers such as Googlebot-Image, seed 002). A token ends at its
	// first slash or blank. One that is made of letters, - and _ is compared with that beginning of a user-agent line,
	// any other with the line's first word; upper and lower case are the same. Tokens over 255 octets have no group.
	Tokens []string

	// IgnoreWildcard leaves the * group out, as AdsBot-Google does: without a group of its own nothing binds the agent.
	IgnoreWildcard bool
}

// Group is the part of a Ruleset that speaks to one crawler: a small value, safe for concurrent use, valid as long as
// one likes. The zero Group allows nothing.
type Group struct {
	rs       *Ruleset
	name     int32 // index in rs.names, or none
	specific bool
}

// Match is the answer to one question, with its evidence.
type Match struct {
	Allowed  bool   // the verdict
	Rule     string // path of the deciding rule as written in the file; "" when no rule decided
	Line     int    // its line number, from 1; 0 when no rule decided
	Group    string // name of the group that was asked: as first written, "*", or "" when there is none
	Specific bool   // the group is the crawler's own, not *
}

// Preference is a line that states a wish about the use of content and has no bearing on any verdict.
type Preference struct {
	Line  int    // its line number, from 1
	Key   string // as written: Content-Signal, Content-Usage or License
	Path  string // the path that the value begins with, or ""
	Value string // the rest of the value, as written
}

// Select returns the group for an agent: its own or, without one, that of * (RFC 9309 section 2.2.1). It does not
// allocate.
func (rs *Ruleset) Select(a Agent) Group {
	if rs == nil {
		return Group{}
	}
	for _, token := range a.Tokens {
		if i := rs.findName(trimToken(token)); i != none {
			return Group{rs: rs, name: i, specific: true}
		}
	}
	if a.IgnoreWildcard {
		return Group{rs: rs, name: none}
	}
	return Group{rs: rs, name: rs.wildcard - 1}
}

// Match is Select and Group.Match for a crawler with the given product tokens, most specific first.
func (rs *Ruleset) Match(tokens []string, target string) Match {
	return rs.Select(Agent{Tokens: tokens}).Match(target)
}

// Sitemaps returns the absolute URLs of the Sitemap lines in the order of the file. They belong to no group.
func (rs *Ruleset) Sitemaps() []string {
	if rs == nil || len(rs.sitemaps) == 0 {
		return nil
	}
	urls := make([]string, len(rs.sitemaps))
	for i, s := range rs.sitemaps {
		urls[i] = s.in(rs.text)
	}
	return urls
}

// Size returns the number of bytes that the Ruleset retains.
func (rs *Ruleset) Size() int {
	if rs == nil {
		return 0
	}
	return int(unsafe.Sizeof(*rs)) + len(rs.text) + sizeOf(rs.slots) + sizeOf(rs.rules) + sizeOf(rs.blocks) +
		sizeOf(rs.patterns) + sizeOf(rs.names) + sizeOf(rs.members) + sizeOf(rs.delays) + sizeOf(rs.prefs) +
		sizeOf(rs.sitemaps)
}

func sizeOf[T any](s []T) int {
	var t T
	return cap(s) * int(unsafe.Sizeof(t))
}

// Preferences returns the preference lines before the first user-agent line, in the order of the file.
func (rs *Ruleset) Preferences() []Preference {
	if rs == nil {
		return nil
	}
	return rs.preferences([]uint32{noBlock})
}

// Name returns the name of the group as first written in the file; "*" for the wildcard group, "" for none.
func (g Group) Name() string {
	if g.rs == nil || g.name == none {
		return ""
	}
	return g.rs.names[g.name].text.in(g.rs.text)
}

// Specific reports whether the group is the crawler's own, not that of *.
func (g Group) Specific() bool { return g.specific }

// Unrestricted reports that no disallow rule of the group could match any target. It is false for the zero Group.
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

// CrawlDelay returns the pause that the group asks for between two requests: the largest of its Crawl-delay lines or,
// without any, the slowest of its Request-rate lines. A group does not inherit from *. Neither line is part of RFC
// 9309; section 2.2.4 permits to read them. The value is the site's: clamp it.
func (g Group) CrawlDelay() (time.Duration, bool) {
	if g.rs == nil || g.name == none {
		return 0, false
	}
	i := g.rs.names[g.name].delay
	if i == none {
		return 0, false
	}
	return g.rs.delays[i].pause()
}

// Preferences returns the group's preference lines in the order of the file.
func (g Group) Preferences() []Preference {
	if g.rs == nil {
		return nil
	}
	return g.rs.preferences(g.blocks())
}

// blocks returns the blocks of rules that make up the group, in the order of the file.
func (g Group) blocks() []uint32 {
	if g.name == none {
		return nil
	}
	n := &g.rs.names[g.name]
	return g.rs.members[n.first : n.first+n.count]
}
