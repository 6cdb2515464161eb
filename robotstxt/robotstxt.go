// Package robotstxt reads robots.txt files and answers what they allow.
//
// RFC 9309 is followed first; where it is silent, Google's documented interpretation; where the documents are silent
// too, the measured behaviour of Google's parser. Parsing never fails: what can be used is used.
package robotstxt

import (
	"time"

	"github.com/crawlgate/crawlgate/robotstxt/internal/naive"
)

// Ruleset is a parsed robots.txt. It is immutable and safe for concurrent use. A nil Ruleset allows nothing.
type Ruleset struct {
	file *naive.File
	size int
}

// Agent says by which product tokens a crawler looks for its group.
type Agent struct {
	// Tokens are the crawler's product tokens, most specific first: the first that has a group decides alone.
	Tokens []string
	// IgnoreWildcard leaves the * group out: without a group of its own nothing binds the crawler.
	IgnoreWildcard bool
}

// Group is the part of a Ruleset that speaks to one crawler. The zero Group allows nothing.
type Group struct {
	rs    *Ruleset
	agent Agent
}

// Match is the answer to one question, with its evidence.
type Match struct {
	Allowed  bool   // the verdict
	Rule     string // path of the deciding rule as written in the file; "" when no rule decided
	Line     int    // its line number, from 1; 0 when no rule decided
	Group    string // name of the group that was asked: as written, "*", or "" when there is none
	Specific bool   // the group is the crawler's own, not *
}

// Preference is a line that states a wish about the use of content and has no bearing on the verdict.
type Preference struct {
	Line  int    // its line number, from 1
	Key   string // as written: Content-Signal, Content-Usage, License
	Path  string // path that the value begins with, or ""
	Value string // the rest, as written
}

// Parse reads the first 500 KiB of a robots.txt. It never fails and keeps no reference to data.
func Parse(data []byte) *Ruleset { return &Ruleset{file: naive.Parse(data), size: len(data)} }

// Select returns the group for an agent.
func (rs *Ruleset) Select(a Agent) Group { return Group{rs: rs, agent: a} }

// Match is Select and Group.Match for a crawler with the given product tokens, most specific first.
func (rs *Ruleset) Match(tokens []string, target string) Match {
	return rs.Select(Agent{Tokens: tokens}).Match(target)
}

// Sitemaps returns the absolute URLs of the Sitemap lines in the order of the file.
func (rs *Ruleset) Sitemaps() []string { return rs.file.Sitemaps() }

// Size returns the number of bytes that the Ruleset retains.
func (rs *Ruleset) Size() int { return rs.size }

// Match answers for a target: the path and query of the request, as they will be sent.
func (g Group) Match(target string) Match {
	if g.rs == nil {
		return Match{}
	}
	r := g.rs.file.Check(g.agent.Tokens, g.agent.IgnoreWildcard, target)
	return Match{Allowed: r.Allowed, Rule: r.Rule, Line: r.Line, Group: g.Name(), Specific: r.Specific}
}

// CrawlDelay returns the pause that the group asks for between two requests.
func (g Group) CrawlDelay() (time.Duration, bool) {
	if g.rs == nil {
		return 0, false
	}
	return g.rs.file.Delay(g.agent.Tokens, g.agent.IgnoreWildcard)
}

// Unrestricted reports that no disallow rule of the group could ever match.
func (g Group) Unrestricted() bool { return false }

// Name returns the name of the group.
func (g Group) Name() string {
	if g.rs == nil || !g.rs.file.Check(g.agent.Tokens, g.agent.IgnoreWildcard, "/").Found {
		return ""
	}
	if g.Specific() {
		return g.agent.Tokens[0]
	}
	return "*"
}

// Specific reports whether the group is the crawler's own.
func (g Group) Specific() bool {
	return g.rs != nil && g.rs.file.Check(g.agent.Tokens, g.agent.IgnoreWildcard, "/").Specific
}

// Preferences returns the group's preference lines in the order of the file.
func (g Group) Preferences() []Preference { return nil }
