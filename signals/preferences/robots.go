package preferences

import (
	"cmp"
	"slices"
	"strings"

	"github.com/crawlgate/crawlgate/robotstxt"
)

// AppendGroups appends the groups that bind an agent: its own, and the groups of the other tokens
// that it obeys. A token that no group names adds nothing: it is not a crawler, so the * group does
// not apply to it. Each group appears once.
func AppendGroups(dst []robotstxt.Group, rs *robotstxt.Ruleset, a robotstxt.Agent, alsoObey []string) []robotstxt.Group {
	dst = append(dst, rs.Select(a))
	for i := range alsoObey {
		g := rs.Select(robotstxt.Agent{Tokens: alsoObey[i : i+1], IgnoreWildcard: true})
		if g.Name() != "" && !slices.Contains(dst, g) {
			dst = append(dst, g)
		}
	}
	return dst
}

// Robots returns the preferences of a robots.txt about a target, path and query as in
// [robotstxt.Group.Match], for the crawlers of the groups: the strictest of all groups. It does not
// check whether they may fetch the target; a disallowed target has no preferences
// (draft-ietf-aipref-attach-05 section 3.1).
//
// It does not allocate if no preference line applies.
func Robots(rs *robotstxt.Ruleset, groups []robotstxt.Group, target string) Set {
	var buffer [4]robotstxt.Preference
	found, cut := buffer[:0], false
	for _, g := range groups {
		var more bool
		found, more = g.AppendPreferences(found, target)
		cut = cut || more
	}
	if len(found) == 0 {
		return Set{}
	}
	s := Set{statements: make([]Statement, 0, min(4*len(found), 16)), cut: cut}
	for i := range found {
		s.line(&found[i])
	}
	return s.normalized()
}

// line adds what a preference line says.
func (s *Set) line(p *robotstxt.Preference) {
	switch p.Kind {
	case robotstxt.ContentUsage:
		s.usage([]string{p.Value}, RobotsContentUsage, p.Line)
	case robotstxt.ContentSignal:
		s.signal(p.Value, RobotsContentSignal, p.Line)
	case robotstxt.License:
		if isAbsolute(p.Value) {
			s.licence(p.Value, RobotsLicense, p.Line)
		}
	}
}

// Scoped is a statement of a robots.txt with the path that its line is limited to, or "".
type Scoped struct {
	Path string
	Statement
}

// maxScopes bounds the lines that [Scopes] reads, and the statements that it returns.
const maxScopes = 1000

// Scopes returns what the lines of a robots.txt say to the crawlers of the groups, for any target,
// in the order of the file. cut reports that there are more than a thousand lines.
func Scopes(rs *robotstxt.Ruleset, groups []robotstxt.Group) (all []Scoped, cut bool) {
	isForOthers := func(p robotstxt.Preference) bool {
		return p.Kind != robotstxt.License && (!p.Loose || p.Kind != robotstxt.ContentSignal)
	}
	lines := slices.DeleteFunc(rs.Preferences(), isForOthers) // those of no group are for all
	for _, g := range groups {
		lines = append(lines, g.Preferences()...)
	}
	slices.SortFunc(lines, func(a, b robotstxt.Preference) int { return cmp.Compare(a.Line, b.Line) })
	for i, p := range slices.Compact(lines) {
		if i == maxScopes || len(all) > maxScopes {
			return all[:min(len(all), maxScopes)], true
		}
		var s Set
		s.line(&p)
		for _, statement := range s.normalized().statements {
			all = append(all, Scoped{p.Path, statement})
		}
	}
	return all, false
}

// licence adds the address of terms of use.
func (s *Set) licence(address string, from Source, line int) {
	if len(address) > maxURL {
		s.cut = true
	} else if address != "" {
		s.say(License, License, Statement{Text: address, From: from, Line: line})
	}
}

// isAbsolute reports whether a License line names a URL with a scheme and a host, as RSL 1.0
// requires.
func isAbsolute(address string) bool {
	scheme, rest, ok := strings.Cut(address, "://")
	return ok && (strings.EqualFold(scheme, "https") || strings.EqualFold(scheme, "http")) &&
		rest != "" && !strings.ContainsAny(rest[:1], "/?#") && !strings.ContainsAny(rest, blanks)
}
