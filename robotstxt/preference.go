package robotstxt

import (
	"bytes"
	"cmp"
	"slices"
	"sort"
)

// PreferenceKind tells preference lines apart by their key.
type PreferenceKind uint8

// The kinds of preference lines.
const (
	ContentUsage  PreferenceKind = iota + 1 // draft-ietf-aipref-attach-05 section 3
	ContentSignal                           // contentsignals.org
	License                                 // RSL 1.0
)

// Preference is a line that states a wish about the use of content and has no bearing on any
// verdict. What its value means is for others to say.
type Preference struct {
	Line  int // its line number, from 1
	Kind  PreferenceKind
	Path  string // the path that a Content-Usage or Content-Signal value begins with, or ""
	Value string // the rest of the value, as written

	// Loose says that the line precedes the first user-agent line.
	Loose bool
}

// maxApplying bounds how many lines of each kind apply to one target.
const maxApplying = 32

// Preferences returns all preference lines of the file in its order, also those of no group.
func (rs *Ruleset) Preferences() []Preference {
	if rs == nil || len(rs.prefs)+len(rs.licenses) == 0 {
		return nil
	}
	found := make([]Preference, 0, len(rs.prefs)+len(rs.licenses))
	for _, list := range [...][]preference{rs.prefs, rs.licenses} {
		for i := range list {
			found = append(found, list[i].in(rs.text))
		}
	}
	slices.SortFunc(found, func(a, b Preference) int { return cmp.Compare(a.Line, b.Line) })
	return found
}

// HasPreferences reports whether there is any preference line in the file.
func (rs *Ruleset) HasPreferences() bool {
	return rs != nil && len(rs.prefs)+len(rs.licenses) > 0
}

// Preferences returns the group's Content-Usage and Content-Signal lines in the order of the file.
func (g Group) Preferences() []Preference {
	var found []Preference
	for _, b := range g.blocks() {
		first, last := g.rs.preferencesOf(b)
		for i := first; i < last; i++ {
			found = append(found, g.rs.prefs[i].in(g.rs.text))
		}
	}
	slices.SortFunc(found, func(a, b Preference) int { return cmp.Compare(a.Line, b.Line) })
	return found
}

// AppendPreferences appends the preference lines that apply to a target, at most 32 of each kind;
// cut says that there are more. It does not allocate if none applies to a target of usual spelling.
//
// Of Content-Usage lines, which belong to a group, those apply whose path is the longest that
// matches, as for Allow and Disallow; a line without a path matches all targets with a length of 0.
// Where several are of that length, all apply (draft-ietf-aipref-attach-05 section 3.1). Of
// Content-Signal lines, all apply that match: contentsignals.org knows no paths, so none of them
// takes precedence. Those that stand before the first user-agent line are for all crawlers, and so
// are all License lines, which belong to no group (RSL 1.0).
//
// It does not check whether the target may be fetched: a disallowed target has no preferences.
func (g Group) AppendPreferences(dst []Preference, target string) (all []Preference, cut bool) {
	if !g.rs.HasPreferences() {
		return dst, false
	}
	if !isCanonical(target) {
		target = string(appendTarget(nil, target))
	}
	for i := range g.rs.licenses[:min(len(g.rs.licenses), maxApplying)] {
		dst = append(dst, g.rs.licenses[i].in(g.rs.text))
	}
	dst, usage := g.appendUsage(dst, target)
	dst, signals := g.appendSignals(dst, target)
	return dst, usage < 0 || signals < 0 || len(g.rs.licenses) > maxApplying
}

// appendUsage appends the Content-Usage lines that apply to a canonical target, and returns the
// room left: below 0 there are more.
func (g Group) appendUsage(dst []Preference, target string) ([]Preference, int) {
	usage := g.rs.usage
	if usage == nil {
		return dst, 0
	}
	decider := Group{rs: usage, name: g.name}.decider(target)
	if decider == nil {
		return dst, 0
	}
	t, length, room := targets{target}, decider.rank>>rankLength, maxApplying
	for _, b := range g.blocks() {
		rules := usage.rulesOf(b)
		from := sort.Search(len(rules), func(i int) bool { return rules[i].rank>>rankLength <= length })
		for i := from; i < len(rules) && rules[i].rank>>rankLength == length && room >= 0; i++ {
			if !rules[i].matches(usage.text, &t) {
				continue
			}
			if room--; room >= 0 {
				dst = append(dst, g.rs.preferenceAt(b, rules[i].rank.line()))
			}
		}
	}
	return dst, room
}

// appendSignals appends the Content-Signal lines that apply to a canonical target, and returns the
// room left, as appendUsage does.
func (g Group) appendSignals(dst []Preference, target string) ([]Preference, int) {
	if g.rs.signals == nil {
		return dst, 0
	}
	t, room := targets{target}, maxApplying
	dst, room = g.rs.appendSignals(dst, 0, &t, room)
	for _, b := range g.blocks() {
		dst, room = g.rs.appendSignals(dst, b, &t, room)
	}
	return dst, room
}

// appendSignals appends the Content-Signal lines of a block that match, and returns the room left.
func (rs *Ruleset) appendSignals(dst []Preference, b uint32, t *targets, room int) ([]Preference, int) {
	rules := rs.signals.rulesOf(b)
	for i := 0; i < len(rules) && room >= 0; i++ {
		if !rules[i].matches(rs.text, t) {
			continue
		}
		if room--; room >= 0 {
			dst = append(dst, rs.preferenceAt(b, rules[i].rank.line()))
		}
	}
	return dst, room
}

// rulesOf returns the rules of a block, from the highest rank down.
func (rs *Ruleset) rulesOf(b uint32) []rule { return rs.rules[rs.blocks[b].first:rs.blocks[b].last] }

// preferenceAt returns the preference of a block and line. There must be one.
func (rs *Ruleset) preferenceAt(b uint32, line int) Preference {
	i := sort.Search(len(rs.prefs), func(i int) bool { return !rs.prefs[i].before(b, uint32(line)) })
	return rs.prefs[i].in(rs.text)
}

// preferencesOf returns the range of the preferences of a block in prefs.
func (rs *Ruleset) preferencesOf(b uint32) (first, last int) {
	first = sort.Search(len(rs.prefs), func(i int) bool { return !rs.prefs[i].before(b, 0) })
	last = sort.Search(len(rs.prefs), func(i int) bool { return !rs.prefs[i].before(b+1, 0) })
	return first, last
}

// preference is a preference line, with where its parts are in Ruleset.text.
type preference struct {
	kind        PreferenceKind
	loose       bool
	block, line uint32
	path, value span
}

func (p *preference) in(text string) Preference {
	return Preference{
		Line: int(p.line), Kind: p.kind, Path: p.path.in(text), Value: p.value.in(text), Loose: p.loose,
	}
}

// before reports whether p comes before a block and line.
func (p *preference) before(b, line uint32) bool { return p.block < b || p.block == b && p.line < line }

// prefLine is a preference line on its way from the file to the Ruleset.
type prefLine struct {
	kind        PreferenceKind
	path, value []byte
	list, line  uint32 // list 0 is before the first user-agent line
}

// addPreference takes a preference line. A Content-Usage line before the first user-agent line is
// outside of all groups and matches nothing, as a rule there (draft-ietf-aipref-attach-05 section
// 3).
func (p *parser) addPreference(kind PreferenceKind, value []byte, line int) {
	l := prefLine{kind: kind, value: value, list: p.lists, line: uint32(line)}
	if kind != License {
		l.path, l.value = splitPreference(value)
	}
	p.prefs = append(p.prefs, l)
	d := draft{rank: newRank(0, false, line), list: p.lists}
	if len(l.path) > 0 {
		d = draftOf(l.path, p.lists, d.rank)
	}
	switch {
	case kind == ContentSignal:
		p.signals = append(p.signals, d)
	case kind == ContentUsage && p.lists > 0:
		p.usage = append(p.usage, d)
	}
}

// splitPreference divides the value of a preference line into the path it may begin with and the
// rest (draft-ietf-aipref-attach-05 section 3.2).
func splitPreference(value []byte) (path, rest []byte) {
	if len(value) == 0 || value[0] != '/' {
		return nil, value
	}
	if i := bytes.IndexAny(value, " \t"); i >= 0 {
		return value[:i], trimLeft(value[i:])
	}
	return value, nil
}

// compilePreferences keeps the preference lines, and as rules those that have paths.
func (p *parser) compilePreferences(rs *Ruleset, blocks []uint32) {
	for _, l := range p.prefs {
		kept := preference{
			kind: l.kind, loose: l.list == 0, block: blocks[l.list], line: l.line,
			path: p.put(l.path), value: p.put(l.value),
		}
		if l.kind == License {
			rs.licenses = append(rs.licenses, kept)
		} else {
			rs.prefs = append(rs.prefs, kept)
		}
	}
	slices.SortFunc(rs.prefs, func(a, b preference) int {
		return cmp.Or(cmp.Compare(a.block, b.block), cmp.Compare(a.line, b.line))
	})
	rs.usage, rs.signals = p.nest(rs, p.usage, blocks), p.nest(rs, p.signals, blocks)
}

// nest makes the Ruleset of preference lines as rules. Unlike Allow and Disallow, lines of the same
// path all count.
func (p *parser) nest(rs *Ruleset, drafts []draft, blocks []uint32) *Ruleset {
	if len(drafts) == 0 {
		return nil
	}
	nested := &Ruleset{blocks: make([]block, len(rs.blocks)), members: rs.members}
	for i := range drafts {
		drafts[i].block = blocks[drafts[i].list]
	}
	p.keepRules(nested, drafts)
	return nested
}
