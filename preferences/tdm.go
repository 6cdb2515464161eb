package preferences

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/crawlgate/crawlgate/robotstxt"
)

// reservation is what one place says by TDMRep: whether rights are reserved, or, with isPolicy, the
// address of a policy. A later place supersedes an earlier one: the file, the field, the meta
// element (TDMRep, final report of 2024-05-10, "Processing priority").
type reservation struct {
	from     Source // TDMFile, TDMField or TDMMeta
	isPolicy bool
	value    Value  // of tdm: No where rights are reserved
	policy   string // a URL
	raw      string
}

// compare orders by what supersedes; of one place, the strictest comes first.
func (r *reservation) compare(o *reservation) int {
	return cmp.Or(cmp.Compare(o.from, r.from), compareBool(r.isPolicy, o.isPolicy),
		cmp.Compare(r.value.order(), o.value.order()), cmp.Compare(r.policy, o.policy), cmp.Compare(r.raw, o.raw))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// reserve adds what a place says of tdm-reservation and tdm-policy. Values other than 0 and 1 are
// as none.
func (s *Set) reserve(from Source, value, policy string) {
	switch value {
	case "0":
		s.tdm = append(s.tdm, reservation{from: from, value: Yes, raw: value})
	case "1":
		s.tdm = append(s.tdm, reservation{from: from, value: No, raw: value})
	}
	if policy != "" && len(policy) <= maxURL {
		s.tdm = append(s.tdm, reservation{from: from, isPolicy: true, policy: policy})
	}
}

// reserved returns the statements of TDMRep, after its own order is done: tdm, and train-ai where
// rights are reserved.
func (s Set) reserved() []Statement {
	for _, r := range s.tdm {
		if r.isPolicy {
			continue
		}
		tdm := Statement{Purpose: TDM, Value: r.value, From: r.from, Raw: r.raw}
		if r.value != No {
			return []Statement{tdm}
		}
		train := tdm
		train.Purpose = TrainAI
		return []Statement{train, tdm}
	}
	return nil
}

// Policy returns the address of the TDM policy; "" where there is none or rights are not reserved.
func (s Set) Policy() string {
	if s.Value(TDM) != No {
		return ""
	}
	for _, r := range s.tdm {
		if r.isPolicy {
			return r.policy
		}
	}
	return ""
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
// of rules. A rule that is no object, or whose location is none that could match, is ignored.
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
		if json.Unmarshal(e, &rule.tdmEntry) != nil {
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
	if i := slices.IndexFunc(t.rules, func(r tdmRule) bool { return string(r.Reservation) == "1" }); i >= 0 {
		first.rules = t.rules[i : i+1]
	}
	return first
}

// Set returns what all the rules say together, whatever their locations.
func (t TDMRules) Set() (s Set) {
	for i := range t.rules {
		policy := ""
		if json.Unmarshal(t.rules[i].Policy, &policy) != nil {
			policy = ""
		}
		s.reserve(TDMFile, string(t.rules[i].Reservation), policy)
	}
	return s.settled()
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
