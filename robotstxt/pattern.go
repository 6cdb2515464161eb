package robotstxt

// Pattern is a path as a rule has it, with * and a closing $, for other lists of paths than the
// groups of a robots.txt. It matches as a rule does (RFC 9309 section 2.2.2). It is safe for
// concurrent use. The zero Pattern matches nothing.
type Pattern struct {
	text string
	rule rule
}

// ParsePattern reads a pattern. It reports false where a rule of this path could never match: one
// that begins with neither / nor *, or of more than 16 KiB.
func ParsePattern(path string) (Pattern, bool) {
	if path == "" || path[0] != '/' && path[0] != '*' || len(path) > maxLine {
		return Pattern{}, false
	}
	var p parser
	r := p.compileRule(draftOf([]byte(path), 0, newRank(0, false, 0)))
	return Pattern{text: string(p.text), rule: r}, true
}

// Match reports whether the pattern matches a target, which is as in [Group.Match].
func (p Pattern) Match(target string) bool {
	if p.text == "" {
		return false
	}
	if !isCanonical(target) {
		target = string(appendTarget(nil, target))
	}
	return p.rule.matches(p.text, &targets{target})
}
