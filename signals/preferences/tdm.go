package preferences

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/crawlgate/crawlgate/internal/repeated"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// superseding returns which of two statements of TDMRep counts; the zero Statement never does. A
// later place supersedes an earlier one (the file, the field, the meta element; TDMRep, final
// report of 2024-05-10, "Processing priority"). In one place the strictest counts.
func superseding(a, b Statement) Statement {
	if b.Purpose == "" || a.Purpose != "" && cmp.Or(cmp.Compare(b.From, a.From), cmp.Compare(a.Value.order(), b.Value.order())) <= 0 {
		return a
	}
	return b
}

// reserve adds what a place says of tdm-reservation. Values other than 0 and 1 are as none.
func (s *Set) reserve(from Source, value string) {
	if i := slices.Index([]string{"1", "0"}, value); i >= 0 {
		s.tdm = superseding(s.tdm, Statement{Purpose: TDM, Value: [...]Value{No, Yes}[i], From: from})
	}
}

// reserved returns the statements of TDMRep, after its own order is done: tdm, and train-ai where
// rights are reserved.
func (s Set) reserved() []Statement {
	if s.tdm.Value != No {
		return []Statement{s.tdm}
	}
	train := s.tdm
	train.Purpose = TrainAI
	return []Statement{train, s.tdm}
}

// The bounds of a TDM file.
const (
	MaxTDMFile    = 64 << 10 // bytes
	maxTDMEntries = 1000
)

// TDMRules are the rules of a site's /.well-known/tdmrep.json, safe for concurrent use. Those of
// the zero value say nothing.
type TDMRules struct{ rules []tdmRule }

type tdmRule struct {
	pattern robotstxt.Pattern
	tdmEntry
}

// tdmEntry is a rule as the file has it.
type tdmEntry struct {
	Location    string          `json:"location"`
	Reservation json.RawMessage `json:"tdm-reservation,omitempty"`
	Policy      json.RawMessage `json:"tdm-policy,omitempty"`
}

// The errors of [ParseTDMFile] for files that are beyond its bounds.
var (
	ErrTDMTooLarge = errors.New("tdm file: more than 64 KiB")
	ErrTDMTooMany  = errors.New("tdm file: more than 1,000 rules")
)

// ParseTDMFile reads a /.well-known/tdmrep.json (TDMRep, "TDM File on the Origin Server"): an array
// of rules. A rule that is no object, or whose location can never match, is ignored. One that has a
// field twice reserves the whole site.
func ParseTDMFile(data []byte) (TDMRules, error) {
	if len(data) > MaxTDMFile {
		return TDMRules{}, ErrTDMTooLarge
	}
	var entries []json.RawMessage
	if err := json.Unmarshal(bytes.TrimPrefix(data, []byte("\xEF\xBB\xBF")), &entries); err != nil {
		return TDMRules{}, fmt.Errorf("reading a tdm file: %w", err)
	}
	if len(entries) > maxTDMEntries {
		return TDMRules{}, ErrTDMTooMany
	}
	var t TDMRules
	for _, e := range entries {
		var rule tdmRule
		if repeated.Field(e) != nil { // readers differ on which value counts: here the strictest
			rule.tdmEntry = tdmEntry{Location: "/", Reservation: json.RawMessage("1")}
		} else if json.Unmarshal(e, &rule.tdmEntry) != nil {
			continue
		}
		var ok bool
		if rule.pattern, ok = robotstxt.ParsePattern(rule.Location); ok {
			t.rules = append(t.rules, rule)
		}
	}
	return t, nil
}

// Apply returns the rules that speak of some targets: of each, the first one that matches.
func (t TDMRules) Apply(targets ...string) (applied TDMRules) {
	targets = slices.Clone(targets)
	for i := range t.rules {
		open := len(targets)
		targets = slices.DeleteFunc(targets, t.rules[i].pattern.Match)
		if len(targets) < open {
			applied.rules = append(applied.rules, t.rules[i])
		}
	}
	return applied
}

// Reserving returns the first rule that reserves rights, if there is one.
func (t TDMRules) Reserving() (first TDMRules) {
	if i := slices.IndexFunc(t.rules, func(r tdmRule) bool { return r.reservation() == "1" }); i >= 0 {
		first.rules = t.rules[i : i+1]
	}
	return first
}

// Set returns what all the rules say together, whatever their locations.
func (t TDMRules) Set() (s Set) {
	for i := range t.rules {
		s.reserve(TDMFile, t.rules[i].reservation())
	}
	return s
}

// reservation is the number that the rule has, however it is written (RFC 8259 section 6); empty
// for all else.
func (e *tdmEntry) reservation() string {
	n, err := strconv.ParseFloat(string(e.Reservation), 64)
	if err != nil {
		return ""
	}
	return strconv.FormatFloat(n, 'g', -1, 64)
}

// Texts returns each rule as an object of JSON. An array of them is a file of these rules.
func (t TDMRules) Texts() (texts []string) {
	for i := range t.rules {
		var text strings.Builder
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		if encoder.Encode(t.rules[i].tdmEntry) == nil { // it was read from JSON
			texts = append(texts, strings.TrimSuffix(text.String(), "\n"))
		}
	}
	return texts
}
