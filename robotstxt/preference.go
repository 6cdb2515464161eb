package robotstxt

import (
	"bytes"
	"cmp"
	"slices"
)

// PreferenceKind is the kind of a preference line, by its key.
type PreferenceKind uint8

// The kinds of preference lines.
const (
	ContentUsage  PreferenceKind = iota + 1 // draft-ietf-aipref-attach-05 section 3
	ContentSignal                           // contentsignals.org
	License                                 // RSL 1.0
)

// Preference is a line that states a preference about the use of content. It does not affect any
// decision of this package, which does not interpret its value.
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

// Preferences returns all preference lines in the order of the file, including lines outside
// groups.
func (rs *Ruleset) Preferences() []Preference {
	if rs == nil {
		return nil
	}
	return inOrder(rs.appendAll(nil, rs.prefs))
}

func (rs *Ruleset) appendAll(list []Preference, more []preference) []Preference {
	for i := range more {
		list = append(list, more[i].in(rs.text))
	}
	return list
}

// inOrder sorts a list by the order of the file, and returns it.
func inOrder(list []Preference) []Preference {
	slices.SortFunc(list, func(a, b Preference) int { return cmp.Compare(a.Line, b.Line) })
	return list
}

// Preferences returns the group's Content-Usage and Content-Signal lines in the order of the file.
func (g Group) Preferences() (found []Preference) {
	for _, b := range g.blocks() {
		found = g.rs.appendAll(found, g.rs.prefsOf(b))
	}
	return inOrder(found)
}

// AppendPreferences appends the preference lines that apply to a target, at most 32 of each kind;
// cut says that there are more. It does not allocate if none applies to a target of usual spelling.
//
// Content-Usage lines belong to a group. As for Allow and Disallow, the lines with the longest
// matching path apply; a line without a path matches all targets with a length of 0. If several
// have that length, all of them apply (draft-ietf-aipref-attach-05 section 3.1). All Content-Signal
// lines that match apply: contentsignals.org has no paths, so none of them takes precedence.
// Content-Signal lines before the first user-agent line are for all crawlers, and so are all
// License lines, which belong to no group (RSL 1.0).
//
// It does not check whether the target may be fetched: a disallowed target has no preferences.
func (g Group) AppendPreferences(dst []Preference, target string) (all []Preference, cut bool) {
	if !g.rs.HasPreferences() {
		return dst, false
	}
	if !isCanonical(target) {
		target = string(appendTarget(nil, target))
	}
	t := targets{target}
	dst, licenses := g.rs.appendMatching(dst, License, 0, &t, maxApplying)
	dst, usage := g.appendUsage(dst, &t)
	dst, signals := g.rs.appendMatching(dst, ContentSignal, 0, &t, maxApplying)
	for _, b := range g.blocks() {
		dst, signals = g.rs.appendMatching(dst, ContentSignal, b, &t, signals)
	}
	return dst, min(licenses, usage, signals) < 0
}

// appendMatching appends the matching lines of a kind and block, and returns the room left. It is
// negative if there are more.
func (rs *Ruleset) appendMatching(dst []Preference, kind PreferenceKind, b uint32, t *targets, room int) ([]Preference, int) {
	list := rs.prefsOf(b)
	for i := 0; i < len(list) && room >= 0; i++ {
		if list[i].kind != kind || !list[i].rule.matches(rs.text, t) {
			continue
		}
		if room--; room >= 0 {
			dst = append(dst, list[i].in(rs.text))
		}
	}
	return dst, room
}

// appendUsage appends the Content-Usage lines that apply, and returns the room left.
func (g Group) appendUsage(dst []Preference, t *targets) ([]Preference, int) {
	before, length, room := len(dst), rank(0), maxApplying
	for _, b := range g.blocks() {
		list := g.rs.prefsOf(b)
		for i := range list {
			n := list[i].rule.rank >> rankLength
			if n < length || n == length && room < 0 {
				break // the following lines do not match either
			}
			if list[i].kind != ContentUsage || !list[i].rule.matches(g.rs.text, t) {
				continue
			}
			if n > length {
				dst, length, room = dst[:before], n, maxApplying
			}
			if room--; room >= 0 {
				dst = append(dst, list[i].in(g.rs.text))
			}
		}
	}
	return dst, room
}

// prefsOf returns the preference lines of a block, from the highest rank down. Those of block 0 are
// outside of all groups.
func (rs *Ruleset) prefsOf(b uint32) []preference {
	return rs.prefs[rs.blocks[b].firstPref:rs.blocks[b].lastPref]
}

// preference is a preference line. Its rule has its path. Without a path, it matches all targets.
type preference struct {
	kind  PreferenceKind
	loose bool
	rule  rule
	value span
}

func (p *preference) in(text string) Preference {
	return Preference{
		Line: p.rule.rank.line(), Kind: p.kind, Path: p.rule.written(text), Value: p.value.in(text), Loose: p.loose,
	}
}

// prefLine is a preference line before it becomes part of the Ruleset. The list 0 of its draft is
// before the first user-agent line.
type prefLine struct {
	draft
	kind  PreferenceKind
	value []byte
	loose bool
}

// addPreference adds a preference line. A Content-Usage line before the first user-agent line is
// outside all groups and matches nothing, like a rule there (draft-ietf-aipref-attach-05 section
// 3).
func (p *parser) addPreference(kind PreferenceKind, value []byte, line int) {
	var path []byte
	l := prefLine{kind: kind, loose: p.lists == 0, draft: draft{rank: newRank(0, false, line)}}
	if kind != License { // a License is for all crawlers, wherever it is
		l.list = p.lists
		path, value = splitPreference(value)
	}
	if len(path) > 0 {
		l.draft = draftOf(path, l.list, l.rank)
	}
	l.value = value
	p.prefs = append(p.prefs, l)
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

// compilePreferences keeps the preference lines, by block and from the highest rank down. Unlike
// Allow and Disallow, lines of the same path all count.
func (p *parser) compilePreferences(rs *Ruleset, blocks []uint32) {
	slices.SortFunc(p.prefs, func(a, b prefLine) int {
		return cmp.Or(cmp.Compare(blocks[a.list], blocks[b.list]), cmp.Compare(b.rank, a.rank))
	})
	for i, l := range p.prefs {
		rs.prefs = append(rs.prefs, preference{kind: l.kind, loose: l.loose, rule: p.compileRule(l.draft), value: p.put(l.value)})
		b := &rs.blocks[blocks[l.list]]
		if b.lastPref == 0 {
			b.firstPref = uint32(i)
		}
		b.lastPref = uint32(i + 1)
	}
}
