package preferences

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/dunglas/httpsfv"
)

// Value is what a site says about a purpose. The zero Value is Unknown.
type Value uint8

// The values. Of several, No wins over Yes and Yes over Unknown (draft-ietf-aipref-vocab-07 section
// 5.1).
const (
	Unknown Value = iota
	No
	Yes
)

// String returns "unknown", "n" or "y".
func (v Value) String() string { return [...]string{"unknown", "n", "y"}[min(v, Yes)] }

// order ranks values: the lowest wins.
func (v Value) order() int { return [...]int{2, 0, 1}[min(v, Yes)] }

// Source is the place of a statement. The zero Source stands for no place.
type Source uint8

// The sources, a closed set.
const (
	RobotsContentUsage Source = iota + 1
	RobotsContentSignal
	RobotsLicense
	ContentUsage
	ContentSignal
	Link
	TDMFile
	TDMField
	TDMMeta
	XRobotsTag
	Meta
)

// sources are the names of the sources, for logs, and what a crawler reads of them.
var sources = [...]struct{ name, from string }{
	RobotsContentUsage:  {"robots_content_usage", "robots"},
	RobotsContentSignal: {"robots_content_signal", "robots"},
	RobotsLicense:       {"robots_license", "robots"},
	ContentUsage:        {"content_usage", "content-usage"},
	ContentSignal:       {"content_signal", "content-signal"},
	Link:                {"link", "link"},
	TDMFile:             {"tdm_file", "tdmrep"},
	TDMField:            {"tdm_field", "tdm-reservation"},
	TDMMeta:             {"tdm_meta", "meta"},
	XRobotsTag:          {"x_robots_tag", "x-robots-tag"},
	Meta:                {"meta", "meta"},
}

// String returns the name of the source, such as "robots_content_usage"; "" for none.
func (s Source) String() string {
	if int(s) >= len(sources) {
		return ""
	}
	return sources[s].name
}

// From returns the source as crawlers read it, such as "robots"; "" for none.
func (s Source) From() string {
	if int(s) >= len(sources) {
		return ""
	}
	return sources[s].from
}

// Statement is one statement of a site: about one purpose, or with the word [Use] or [License].
type Statement struct {
	Purpose string // at most 64 bytes
	Value   Value
	Text    string // of Use and License, which have no Value: a level, and an address of terms of use
	From    Source
	Line    int // in the robots.txt, from 1; 0 elsewhere
}

// String returns the statement as a member of the crawler's field: "train-ai=n;from=robots;line=4".
func (s Statement) String() string {
	var buffer [128]byte
	return string(s.append(buffer[:0]))
}

// append appends what String returns.
func (s *Statement) append(b []byte) []byte {
	return s.appendItem(append(append(b, s.Purpose...), '='))
}

// appendItem appends the statement's value as an item of RFC 9651, with its parameters.
func (s *Statement) appendItem(b []byte) []byte {
	switch s.Purpose {
	case License:
		text, err := httpsfv.Marshal(httpsfv.NewItem(s.Text))
		if err != nil {
			text, _ = httpsfv.Marshal(httpsfv.NewItem(httpsfv.DisplayString(strings.ToValidUTF8(s.Text, "\ufffd"))))
		}
		b = append(b, text...)
	case Use:
		b = append(b, s.Text...)
	default:
		b = append(b, s.Value.String()...)
	}
	if from := s.From.From(); from != "" {
		b = append(append(b, ";from="...), from...)
	}
	if s.Line > 0 {
		b = strconv.AppendInt(append(b, ";line="...), int64(s.Line), 10)
	}
	return b
}

// compare orders statements by purpose and, of one, from the strongest down.
func (s *Statement) compare(o *Statement) int {
	if s.Purpose != o.Purpose {
		return cmp.Or(cmp.Compare(rankOf(s.Purpose), rankOf(o.Purpose)), cmp.Compare(s.Purpose, o.Purpose))
	}
	return cmp.Or(cmp.Compare(s.Value.order(), o.Value.order()), cmp.Compare(levelOf(s.Text), levelOf(o.Text)),
		cmp.Compare(s.From, o.From), cmp.Compare(s.Line, o.Line), cmp.Compare(s.Text, o.Text))
}

// levels are how far content may be used at most, by Content-Signal's "use", from the strictest.
// They are shown, and never acted upon.
var levels = []string{"immediate", "reference", "full"}

// levelOf returns the place of a level, -1 for any other text.
func levelOf(text string) int { return slices.Index(levels, text) }

// The bounds of a Set: labels outside of all vocabularies, and licences. Beyond a bound, the last
// in the order of the Set are dropped, in whatever order Sets are joined.
const (
	maxLabels   = 32
	maxLicences = 4
	maxURL      = 512
)

// Set is what a site says about one target: of each purpose, what decides. It does not change once
// made and is safe for concurrent use. The zero Set says nothing.
type Set struct {
	statements []Statement // in the order of Statement.compare, without that of TDMRep
	tdm        Statement   // what TDMRep says; its Purpose is empty for nothing
	cut        bool
}

// Cut reports that a bound kept something from being read, so that the site may say more.
func (s Set) Cut() bool { return s.cut }

// Value returns what holds for a purpose: n where any statement says so, else y where any does,
// else unknown (draft-ietf-aipref-vocab-07 section 5.1).
func (s Set) Value(purpose string) Value { return s.Deciding(purpose).Value }

// Deciding returns the statement that decides on a purpose; the zero Statement where none was made.
// Of several that say the same it is the first in the order of the sources and lines.
func (s Set) Deciding(purpose string) (found Statement) {
	for _, list := range [...][]Statement{s.statements, s.reserved()} {
		for i := range list {
			if d := &list[i]; d.Purpose == purpose && (found.Purpose == "" || d.compare(&found) < 0) {
				found = *d
			}
		}
	}
	return found
}

// Decided returns the deciding statement of each purpose that has one, by purpose: search,
// ai-input, train-ai, archive, tdm, the words use and license, then the others in the order of
// their names. It returns all licences.
func (s Set) Decided() []Statement {
	all := slices.Clone(s.statements)
	if s.tdm.Purpose != "" {
		all = Set{statements: append(all, s.reserved()...)}.normalized().statements
	}
	return slices.DeleteFunc(all, func(d Statement) bool { return d.Value == Unknown && d.Text == "" })
}

// Empty reports that the site says nothing at all, as far as it was read.
func (s Set) Empty() bool { return len(s.statements) == 0 && s.tdm.Purpose == "" }

// Join returns what all sets say together. The order of the sets, and whether one comes twice, does
// not matter.
func Join(sets ...Set) Set {
	var all Set
	for _, s := range sets {
		cut := all.cut || s.cut
		switch {
		case s.Empty():
		case all.Empty():
			all = s
		default:
			all = Set{statements: slices.Concat(all.statements, s.statements), tdm: superseding(all.tdm, s.tdm)}.normalized()
		}
		all.cut = all.cut || cut
	}
	return all
}

// normalized returns the strongest statement of each purpose, in order and within the bounds. It
// takes ownership of the slice.
func (s Set) normalized() Set {
	slices.SortFunc(s.statements, func(a, b Statement) int { return a.compare(&b) })
	kept, labels, licences := s.statements[:0], 0, 0
	for _, d := range s.statements {
		if len(kept) > 0 && d.repeats(&kept[len(kept)-1]) {
			continue
		}
		if d.Purpose == License {
			licences++
		} else if rankOf(d.Purpose) == len(vocabulary) {
			labels++
		}
		if labels > maxLabels || licences > maxLicences && d.Purpose == License {
			s.cut = true
			continue
		}
		kept = append(kept, d)
	}
	s.statements = kept
	return s
}

// repeats reports whether a statement adds nothing to a stronger one.
func (s *Statement) repeats(o *Statement) bool {
	return s.Purpose == o.Purpose && (s.Purpose != License || *s == *o)
}

// say adds a statement of a purpose, which may be none.
func (s *Set) say(label, purpose string, d Statement) {
	if s.cut = s.cut || len(label) > maxPurpose; purpose == "" {
		return
	}
	d.Purpose = purpose
	if s.statements = append(s.statements, d); len(s.statements) > 4*maxLabels {
		*s = s.normalized()
	}
}
