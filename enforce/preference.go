package enforce

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/crawlgate/crawlgate/directives"
	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/preferences"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// Signals says where the gateway reads what a site says of the use of its content. The zero value
// reads nothing.
type Signals struct {
	// RobotsTxt reads the preference lines of robots.txt.
	RobotsTxt bool
	// Headers reads the fields of answers.
	Headers bool
}

// String names the sources that are read, joined by "+"; empty for none.
func (s Signals) String() string {
	switch {
	case s.RobotsTxt && s.Headers:
		return "robots_txt+headers"
	case s.RobotsTxt:
		return "robots_txt"
	case s.Headers:
		return "headers"
	default:
		return ""
	}
}

// PreferenceMode says what becomes of a request whose agent has a purpose that the site does not
// want. The zero value refuses it.
type PreferenceMode uint8

const (
	// PreferencesDeny refuses it.
	PreferencesDeny PreferenceMode = iota
	// PreferencesLog lets it pass, and names the conflict in the log.
	PreferencesLog
	// PreferencesAnnotate lets it pass. Crawler and log get what the site says, and nothing is judged.
	PreferencesAnnotate
)

// ParsePreferenceMode reads "annotate", "log" or "deny"; the empty text stands for the default,
// log.
func ParsePreferenceMode(s string) (PreferenceMode, error) {
	switch s {
	case "", "log":
		return PreferencesLog, nil
	case "deny":
		return PreferencesDeny, nil
	case "annotate":
		return PreferencesAnnotate, nil
	}
	return PreferencesDeny, fmt.Errorf("preferences %q: want annotate, log, deny", s)
}

// Bounds of what an agent is configured with.
const (
	maxPurposes = 16
	maxObeyed   = 16
)

// checkUse checks what the agent's content is for, and the names that it obeys beside its own.
func (a *agent) checkUse() error {
	if len(a.Purposes) > maxPurposes || len(a.AlsoObey) > maxObeyed {
		return fmt.Errorf("more than %d purposes, or more than %d tokens to obey as well", maxPurposes, maxObeyed)
	}
	for i, p := range a.Purposes {
		if !preferences.IsPurpose(p) {
			return fmt.Errorf("purpose %q: want a word such as train-ai, in lower case, of up to 64 bytes", escape.Cut(p, maxName))
		}
		if slices.Contains(a.Purposes[:i], p) {
			return fmt.Errorf("purpose %q is given twice", p)
		}
	}
	for _, token := range a.AlsoObey {
		if !robotstxt.IsProductName(token) || len(token) > maxToken {
			return fmt.Errorf("also_obey %q is no product token", escape.Cut(token, maxName))
		}
	}
	return nil
}

// Bound are the groups of a robots.txt that bind an agent. The zero Bound allows nothing.
type Bound struct {
	rules *robotstxt.Ruleset
	// Own is the agent's group. Its Crawl-delay and its name count.
	Own robotstxt.Group
	// Also are the groups that name a token which the agent obeys as well. A token that no group names
	// adds nothing: it is no crawler that the group * would be for.
	Also []robotstxt.Group
}

// Bind finds the groups of an agent that obeys further tokens as well.
func Bind(rules *robotstxt.Ruleset, a robotstxt.Agent, alsoObey []string) Bound {
	if len(alsoObey) == 0 {
		return Bound{rules: rules, Own: rules.Select(a)}
	}
	groups := preferences.AppendGroups(nil, rules, a, alsoObey)
	return Bound{rules: rules, Own: groups[0], Also: groups[1:]}
}

// Match is [MatchPath] for all groups: the refusal of one is the answer.
func (b Bound) Match(method, path string, paths Paths) (m robotstxt.Match, form PathForm, judged string) {
	m, form, judged = MatchPath(b.Own, method, path, paths)
	for _, g := range b.Also {
		if !m.Allowed {
			break
		}
		if other, f, j := MatchPath(g, method, path, paths); !other.Allowed {
			m, form, judged = other, f, j
		}
	}
	return m, form, judged
}

// Unrestricted reports that no group refuses the agent anything.
func (b Bound) Unrestricted() bool {
	restricts := func(g robotstxt.Group) bool { return !g.Unrestricted() }
	return b.Own.Unrestricted() && !slices.ContainsFunc(b.Also, restricts)
}

// Preferences is what the groups say of a path and, where paths are strict, of the forms that
// servers resolve it to: the strictest of all.
func (b Bound) Preferences(path string, paths Paths) preferences.Set {
	if !b.rules.HasPreferences() {
		return preferences.Set{}
	}
	groups := append([]robotstxt.Group{b.Own}, b.Also...)
	s := preferences.Robots(b.rules, groups, path)
	if forms, ok := origin.Resolve(path); ok && paths == PathsStrict {
		for _, form := range forms {
			s = preferences.Join(s, preferences.Robots(b.rules, groups, form))
		}
	}
	return s
}

// wanted is what an agent needs of a site, and what a site says.
type wanted struct {
	mode        PreferenceMode
	denyUnknown bool
	reads       Signals
}

// prefer notes what the robots.txt says, and judges it. A preference that nobody stated counts as
// refused here where the operator has it so, though a field of the answer could grant it: the
// request would have to be sent first.
func (e *Enforcer) prefer(d *Decision, b Bound, path string) {
	if e.Reads.RobotsTxt && b.rules != nil {
		d.Preferences = b.Preferences(path, e.policy().paths)
	}
	if d.Exception != "" || d.Mode == ModeOff || !d.Allowed {
		return
	}
	d.judge()
	if !d.use.denyUnknown || d.Conflict != "" {
		return
	}
	for _, purpose := range d.Purposes {
		if d.Preferences.Value(purpose) == preferences.Unknown {
			d.conflict(preferences.Statement{Purpose: purpose})
			return
		}
	}
}

// mayConflict reports whether some path of a site could be refused for the site's preferences: in a
// tunnel none is seen.
func (e *Enforcer) mayConflict(d *Decision, b Bound) bool {
	return d.use.mode == PreferencesDeny && len(d.Purposes) > 0 &&
		(d.use.denyUnknown || e.Reads.RobotsTxt && b.rules.HasPreferences())
}

// judge holds what is known of the site's preferences against the agent's purposes.
func (d *Decision) judge() {
	for _, purpose := range d.Purposes {
		if s := d.Preferences.Deciding(purpose); s.Value == preferences.No {
			d.conflict(s)
			return
		}
	}
}

// conflict notes the statement that stands against a purpose of the agent.
func (d *Decision) conflict(s preferences.Statement) {
	if d.use.mode == PreferencesAnnotate {
		return
	}
	d.Conflict = s.String()
	if d.use.mode == PreferencesDeny {
		d.deny(ReasonPreferenceDenied, d.Conflict)
	}
}

// signalFields are the fields of an answer that are read, in the order in which they are logged.
var signalFields = []string{"X-Robots-Tag", "Content-Usage", "Content-Signal", "Tdm-Reservation", "Tdm-Policy", "Link"}

// maxSignalFields bounds the bytes of fields that a log line has.
const maxSignalFields = 1 << 10

// ReadAnswer adds what the fields of the answer say, and returns the field that shows the crawler
// all that the site says; empty where it says nothing. The decision may refuse then: the answer
// must not reach the crawler.
func (d *Decision) ReadAnswer(header http.Header) (dictionary string) {
	if d.use.reads.Headers {
		d.SignalFields, d.SignalsCut = fieldsOf(header)
	}
	if len(d.SignalFields) > 0 {
		d.Signals, d.Preferences = AnswerSignals(header, d.Tokens, d.AlsoObey, d.Preferences)
		if d.Exception == "" && d.Mode != ModeOff && d.Conflict == "" {
			d.judge()
		}
	}
	if d.Preferences.Empty() && d.Signals.Empty() {
		return ""
	}
	return preferences.Dictionary(d.Preferences, directivesOf(d.Signals))
}

// AnswerSignals is what the fields of an answer say to an agent, and together with what its
// robots.txt says.
func AnswerSignals(
	header http.Header, tokens, alsoObey []string, robots preferences.Set,
) (directives.Set, preferences.Set) {
	said := directives.Header(header["X-Robots-Tag"], slices.Concat(tokens, alsoObey))
	marks := preferences.Marks{
		NoIndex: said.Has(directives.NoIndex), NoArchive: said.Has(directives.NoArchive), NoAI: said.Has(directives.NoAI),
	}
	return said, preferences.Join(robots, preferences.Fields(header, marks))
}

// fieldsOf returns the fields that are read, as "Name: value", up to a number of bytes.
func fieldsOf(header http.Header) (fields []string, cut bool) {
	room := maxSignalFields
	for _, name := range signalFields {
		for _, value := range header[name] {
			if name == "Link" && !strings.Contains(value, "license") {
				continue
			}
			field := name + ": " + value
			if room -= len(field); room < 0 {
				return fields, true
			}
			fields = append(fields, field)
		}
	}
	return fields, false
}

// directivesOf are the directives of a page for the crawler's field.
func directivesOf(s directives.Set) (all []preferences.Directive) {
	for _, name := range s.Names() {
		name, value, found := strings.Cut(name, "=")
		d := preferences.Directive{Name: name}
		switch {
		case name == "unavailable_after" && !s.UnavailableAfter.IsZero():
			d.Value = s.UnavailableAfter
		case found:
			d.Value = value
		}
		all = append(all, d)
	}
	return all
}

// statements are the deciding statements for the log.
func statements(s preferences.Set) []string {
	if s.Empty() {
		return nil
	}
	decided := s.Decided()
	list := make([]string, len(decided))
	for i, st := range decided {
		list[i] = st.String()
	}
	return list
}

// Reread computes the signals and preferences of a log line again: from the rules of its text, nil
// where there was none, and from the fields that it has. It reports false where the line does not
// have all that they came from.
func Reread(r *Record, rules *robotstxt.Ruleset, a robotstxt.Agent, path string) (signals, wishes []string, ok bool) {
	var said preferences.Set
	if strings.Contains(r.SignalsRead, "robots_txt") && rules != nil {
		paths := PathsStrict
		if r.Form == PathAsSent {
			paths = PathsAsSent
		}
		said = Bind(rules, a, r.AlsoObey).Preferences(path, paths)
	}
	header := make(http.Header)
	for _, field := range r.SignalFields {
		name, value, found := strings.Cut(field, ": ")
		if !found || strings.Contains(value, `\`) { // it may have been escaped
			return nil, nil, false
		}
		header[name] = append(header[name], value)
	}
	var d directives.Set
	if len(header) > 0 {
		d, said = AnswerSignals(header, r.Tokens, r.AlsoObey, said)
	}
	return shownAll(d.Names()), shownAll(statements(said)), !r.SignalsCut
}
