package preferences

import (
	"cmp"
	"slices"
	"strconv"
)

// Value is what a site says of a purpose. The zero Value is Unknown.
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

// order is how strong a value is: the lowest wins.
func (v Value) order() int { return [...]int{2, 0, 1}[min(v, Yes)] }

// Source is where a statement stands. The zero Source is none.
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

// Statement is one thing that a site says of one purpose.
type Statement struct {
	Purpose string // at most 64 bytes
	Value   Value
	From    Source
	Line    int    // in the robots.txt, from 1; 0 elsewhere
	Raw     string // the text that says it, at most 256 bytes
}

// String returns the statement as a member of the crawler's field: "train-ai=n;from=robots;line=4".
func (s Statement) String() string {
	var buffer [128]byte
	return string(s.append(buffer[:0]))
}

// append appends what String returns.
func (s *Statement) append(b []byte) []byte {
	b = append(append(append(b, s.Purpose...), '='), s.Value.String()...)
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
	return cmp.Or(cmp.Compare(s.Value.order(), o.Value.order()), cmp.Compare(s.From, o.From),
		cmp.Compare(s.Line, o.Line), cmp.Compare(s.Raw, o.Raw))
}

// Licence is a link to terms of use (RSL 1.0).
type Licence struct {
	URL  string // as written, at most 2,048 bytes
	From Source
	Line int // in the robots.txt, from 1; 0 elsewhere
}

func (l *Licence) compare(o *Licence) int {
	return cmp.Or(cmp.Compare(l.From, o.From), cmp.Compare(l.Line, o.Line), cmp.Compare(l.URL, o.URL))
}

// Level is how far content may be used at most, by Content-Signal's "use". It is recorded and never
// acted upon.
type Level uint8

// The levels, from the strictest; the zero Level is unstated.
const (
	Immediate Level = iota + 1
	Reference
	Full
)

var levels = [...]string{"", "immediate", "reference", "full"}

// String returns "immediate", "reference" or "full"; "" where none is stated.
func (l Level) String() string { return levels[min(l, Full)] }

// Use is a stated Level, with where it stands.
type Use struct {
	Level Level
	From  Source
	Line  int
}

// stricter returns the stricter of two, the zero Use being none.
func (u Use) stricter(o Use) Use {
	if u.Level == 0 || o.Level != 0 && cmp.Or(cmp.Compare(o.Level, u.Level), cmp.Compare(o.From, u.From),
		cmp.Compare(o.Line, u.Line)) < 0 {
		return o
	}
	return u
}

// The bounds of a Set: so many purposes, statements of one purpose, and licences. Of more, those
// that come last in the order of the Set are dropped, so that it does not matter in which order
// Sets are joined, and no n is dropped for a y.
const (
	maxPurposes   = 32
	maxStatements = 8
	maxLicences   = 8
	maxRaw        = 256
	maxURL        = 2048
)

// Set is what a site says about one target. It does not change once made and is safe for concurrent
// use. The zero Set says nothing.
type Set struct {
	statements []Statement // in the order of Statement.compare, without those of TDMRep
	tdm        []reservation
	licences   []Licence
	use        Use
}

// Value returns what holds for a purpose: n where any statement says so, else y where any does,
// else unknown (draft-ietf-aipref-vocab-07 section 5.1).
func (s Set) Value(purpose string) Value { return s.Deciding(purpose).Value }

// Deciding returns the statement that decides on a purpose; the zero Statement where none was made.
// Of several that say the same it is the first in the order of the sources and lines.
func (s Set) Deciding(purpose string) Statement {
	var found Statement
	for i := range s.statements {
		if s.statements[i].Purpose == purpose {
			found = s.statements[i]
			break
		}
	}
	for _, r := range s.reserved() {
		if r.Purpose == purpose && (found.Purpose == "" || r.compare(&found) < 0) {
			found = r
		}
	}
	return found
}

// Statements returns what was said, by purpose: search, ai-input, train-ai, archive, tdm, then the
// others in the order of their names; of one purpose from the strongest down.
func (s Set) Statements() []Statement {
	all := slices.Clone(s.statements)
	if len(s.tdm) > 0 {
		all = append(all, s.reserved()...)
		slices.SortFunc(all, func(a, b Statement) int { return a.compare(&b) })
	}
	return all
}

// Decided returns the deciding statement of each purpose of which something is known.
func (s Set) Decided() []Statement {
	all := s.statements
	if len(s.tdm) > 0 {
		all = s.Statements()
	}
	decided := make([]Statement, 0, len(all))
	for i := range all {
		if all[i].Value != Unknown && (i == 0 || all[i].Purpose != all[i-1].Purpose) {
			decided = append(decided, all[i])
		}
	}
	return decided
}

// Licences returns the links to terms of use, at most 8.
func (s Set) Licences() []Licence { return slices.Clone(s.licences) }

// Use returns the strictest level that was stated.
func (s Set) Use() Use { return s.use }

// Empty reports that the site says nothing at all.
func (s Set) Empty() bool {
	return len(s.statements) == 0 && len(s.tdm) == 0 && len(s.licences) == 0 && s.use.Level == 0
}

// Join returns what all sets say together. The order of the sets, and whether one comes twice, does
// not matter.
func Join(sets ...Set) Set {
	var all Set
	for _, s := range sets {
		switch {
		case s.Empty():
		case all.Empty():
			all = s
		default:
			all = Set{
				statements: slices.Concat(all.statements, s.statements),
				tdm:        slices.Concat(all.tdm, s.tdm),
				licences:   slices.Concat(all.licences, s.licences),
				use:        all.use.stricter(s.use),
			}.settled()
		}
	}
	return all
}

// settled puts what was collected in order and within the bounds. It takes the slices over.
func (s Set) settled() Set {
	slices.SortFunc(s.statements, func(a, b Statement) int { return a.compare(&b) })
	s.statements = bounded(slices.Compact(s.statements))
	slices.SortFunc(s.tdm, func(a, b reservation) int { return a.compare(&b) })
	s.tdm = slices.CompactFunc(s.tdm, func(a, b reservation) bool { return a.from == b.from && a.isPolicy == b.isPolicy })
	slices.SortFunc(s.licences, func(a, b Licence) int { return a.compare(&b) })
	s.licences = slices.Compact(s.licences)
	s.licences = s.licences[:min(len(s.licences), maxLicences)]
	return s
}

// bounded drops what is beyond the bounds of sorted statements.
func bounded(sorted []Statement) []Statement {
	kept, purposes, ofPurpose := sorted[:0], 0, 0
	for i := range sorted {
		if i == 0 || sorted[i].Purpose != sorted[i-1].Purpose {
			purposes, ofPurpose = purposes+1, 0
		}
		if purposes > maxPurposes {
			break
		}
		if ofPurpose++; ofPurpose <= maxStatements {
			kept = append(kept, sorted[i])
		}
	}
	return kept
}

// cut returns the beginning of a text, of at most so many bytes.
func cut(s string, most int) string { return s[:min(len(s), most)] }
