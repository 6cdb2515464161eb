package enforce

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotstxt"
	"github.com/crawlgate/crawlgate/signals/preferences"
)

// Signals says where the gateway looks for a site's statements about the use of its content. The
// zero value reads nothing.
type Signals struct {
	// RobotsTxt reads the preference lines of robots.txt.
	RobotsTxt bool `json:"-"`
	// Headers reads the fields of answers.
	Headers bool `json:"-"`
	// HTML says whether the tags in the head of a page are read: `off`, `log` (when the page has
	// passed) or `hold` (before the crawler gets the answer). Default: `off`.
	HTML HTMLMode `json:"html,omitempty"`
	// TDMFile fetches `/.well-known/tdmrep.json` of a site for agents with the purpose `tdm` or
	// `train-ai`. Default: false.
	TDMFile bool `json:"tdm_file,omitempty"`
}

// TDMFiles finds the TDM file of an origin. It may wait for a fetch, but no longer than ctx allows.
// It reports false if no file was read: unread says why, and is empty if the origin has no file.
type TDMFiles interface {
	TDMFile(ctx context.Context, o origin.Origin) (rules preferences.TDMRules, ok bool, unread string)
}

// signalSources are the names of the sources that can be read.
var signalSources = [...]string{"robots_txt", "headers", "html", "tdm_file"}

// signalNames are the names of each set of sources, made once: every line of a log has one.
var signalNames = func() (names [1 << len(signalSources)]string) {
	for set := range names {
		var read []string
		for i, source := range signalSources {
			if set&(1<<i) != 0 {
				read = append(read, source)
			}
		}
		names[set] = strings.Join(read, "+")
	}
	return names
}()

// String names the sources that are read, joined by "+"; empty for none.
func (s Signals) String() string {
	set := 0
	for i, read := range [len(signalSources)]bool{s.RobotsTxt, s.Headers, s.HTML.Reads(), s.TDMFile} {
		if read {
			set |= 1 << i
		}
	}
	return signalNames[set]
}

// HTMLMax is how many bytes of a page are read, before and after decoding.
const HTMLMax = 64 << 10

// HTMLMode says whether and when the tags of pages are read. An undeclared value, such as the zero
// value, counts as HTMLOff.
type HTMLMode string

const (
	// HTMLOff reads none.
	HTMLOff HTMLMode = "off"
	// HTMLLog reads them once the page has passed: they are logged, and refuse nothing.
	HTMLLog HTMLMode = "log"
	// HTMLHold reads them before the crawler gets the answer.
	HTMLHold HTMLMode = "hold"
)

// Reads reports whether tags are read at all.
func (m HTMLMode) Reads() bool { return m == HTMLLog || m == HTMLHold }

// Check reports a mode that is not declared. The empty one stands for a default.
func (m HTMLMode) Check() error { return OneOf("html", m, HTMLOff, HTMLLog, HTMLHold) }

// PreferenceMode says what happens to a request whose agent has a purpose that the site does not
// want. An undeclared value, such as the zero value, counts as PreferencesDeny.
type PreferenceMode string

const (
	// PreferencesDeny refuses it.
	PreferencesDeny PreferenceMode = "deny"
	// PreferencesLog lets it pass, and names the conflict in the log.
	PreferencesLog PreferenceMode = "log"
)

// Check reports a mode that is not declared. The empty one stands for a default.
func (m PreferenceMode) Check() error {
	return OneOf("preferences", m, PreferencesLog, PreferencesDeny)
}

// Bounds of what an agent is configured with.
const (
	maxPurposes = 16
	maxObeyed   = 16
)

// checkUse checks the agent's purposes, and the names that it obeys in addition to its own.
func (a *Agent) checkUse() error {
	if len(a.Purposes) > maxPurposes || len(a.AlsoObey) > maxObeyed {
		return fmt.Errorf("more than %d purposes, or more than %d tokens to obey as well", maxPurposes, maxObeyed)
	}
	a.Purposes = slices.Clone(a.Purposes)
	for i, p := range a.Purposes {
		if p = preferences.Purpose(p); !preferences.IsPurpose(p) {
			return fmt.Errorf("purpose %q: want a word such as train-ai, in lower case, of up to 64 bytes", escape.Cut(p, maxName))
		}
		if slices.Contains(a.Purposes[:i], p) {
			return fmt.Errorf("purpose %q is given twice", p)
		}
		a.Purposes[i] = p
	}
	for _, token := range a.AlsoObey {
		if !robotstxt.IsProductName(token) || len(token) > maxToken {
			return fmt.Errorf("also_obey %q is not a product token", escape.Cut(token, maxName))
		}
	}
	return nil
}

// DeniesByPages names the first agent whose requests a tag in a page could refuse, or "".
func (id *Identifier) DeniesByPages() string {
	byTag := []string{preferences.Search, preferences.TrainAI, preferences.Archive, preferences.TDM}
	for _, a := range id.agents {
		if a.Preferences != PreferencesLog && slices.ContainsFunc(a.Purposes, func(p string) bool { return slices.Contains(byTag, p) }) {
			return a.Name
		}
	}
	return ""
}

// Bound are the groups of a robots.txt that bind an agent. The zero Bound allows nothing.
type Bound struct {
	rules *robotstxt.Ruleset
	text  []byte // the text of the rules, to show with a refusal
	// Own is the agent's group. Its Crawl-delay and its name count.
	Own robotstxt.Group
	// Also are the groups that name a token which the agent obeys as well. A token that no group names
	// adds nothing: it is not a crawler, so the group * does not apply to it.
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

// Match is [MatchPath] for all groups. If one of them refuses, that is the result.
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

// Unrestricted reports whether all groups allow the agent everything.
func (b Bound) Unrestricted() bool {
	restricts := func(g robotstxt.Group) bool { return !g.Unrestricted() }
	return b.Own.Unrestricted() && !slices.ContainsFunc(b.Also, restricts)
}

// Preferences is what the groups say about a path and, if paths are strict, about the forms that
// servers resolve it to. The strictest statement wins.
func (b Bound) Preferences(path string, paths Paths) preferences.Set {
	if !b.rules.HasPreferences() {
		return preferences.Set{}
	}
	var s preferences.Set
	for _, form := range formsOf(path, paths) {
		s = preferences.Join(s, preferences.Robots(b.rules, b.groups(), form))
	}
	return s
}

func (b Bound) groups() []robotstxt.Group { return append([]robotstxt.Group{b.Own}, b.Also...) }

// SaysNo reports whether a line that binds the agent says no to one of the purposes, on any path.
// It also reports true if there are more lines than the gateway reads.
func (b Bound) SaysNo(purposes []string) bool {
	all, cut := preferences.Scopes(b.rules, b.groups())
	return cut || slices.ContainsFunc(all, func(s preferences.Scoped) bool {
		return s.Value == preferences.No && slices.Contains(purposes, s.Purpose)
	})
}

// formsOf returns a path as sent and, if paths are strict, the forms that servers resolve it to.
func formsOf(path string, paths Paths) []string {
	forms := []string{path}
	if resolved, ok := origin.Resolve(path); ok && paths != PathsAsSent {
		forms = append(forms, resolved...)
	}
	return forms
}

// prefer records the preferences of the robots.txt, and decides by them. Under "unknown deny" a
// preference that nobody stated counts as refused here. A field of the answer could grant it, but
// the request would have to be sent first.
func (e *Enforcer) prefer(ctx context.Context, d *Decision, b Bound, path string) {
	if e.Reads.RobotsTxt && b.rules != nil {
		d.Preferences = b.Preferences(path, e.policy().paths)
		d.SignalsCut = d.Preferences.Cut()
	}
	if d.Exception != "" || d.Mode == ModeOff || !d.Allowed {
		return
	}
	if d.judge(false); d.Conflict != "" {
		return
	}
	file, ok, unread := e.tdmFile(ctx, d)
	switch {
	case ok && d.PathVisible:
		d.readTDMFile(file.Apply(formsOf(path, e.policy().paths)...))
	case ok:
		d.readTDMFile(file.Reserving()) // no path is visible
	case unread != "":
		d.SignalFields, _ = appendField(d.SignalFields, tdmFileField+" unread", unread)
		d.SignalsCut = true
	}
	d.judge(false)
	if !d.denyUnknown || d.Conflict != "" {
		return
	}
	for _, purpose := range d.Purposes {
		if d.Preferences.Value(purpose) == preferences.Unknown {
			d.conflict(preferences.Statement{Purpose: purpose}, false)
			return
		}
	}
}

// tdmFile returns the TDM file of the site, if the file could affect a purpose of the agent. No log
// line of a blind tunnel is about a path, so for a tunnel the file is read only if it can refuse
// it.
func (e *Enforcer) tdmFile(ctx context.Context, d *Decision) (rules preferences.TDMRules, ok bool, unread string) {
	if e.Files == nil || !e.Reads.TDMFile || !d.PathVisible && d.preferMode == PreferencesLog {
		return rules, false, ""
	}
	if !slices.Contains(d.Purposes, preferences.TDM) && !slices.Contains(d.Purposes, preferences.TrainAI) {
		return rules, false, ""
	}
	return e.Files.TDMFile(ctx, d.Origin)
}

// readTDMFile adds what the applicable rules of a TDM file say.
func (d *Decision) readTDMFile(applied preferences.TDMRules) {
	d.reads.TDMFile = true
	d.Preferences = preferences.Join(d.Preferences, applied.Set())
	for _, text := range applied.Texts() {
		var cut bool
		if d.SignalFields, cut = appendField(d.SignalFields, tdmFileField, text); cut {
			d.SignalsCut = true
			return
		}
	}
}

// mayConflict reports whether some path of a site could be refused because of the site's
// preferences. It is for tunnels, whose paths are not visible.
func (e *Enforcer) mayConflict(d *Decision, b Bound) bool {
	return d.preferMode != PreferencesLog && len(d.Purposes) > 0 &&
		(d.denyUnknown || e.Reads.RobotsTxt && b.SaysNo(d.Purposes))
}

// judge compares the known preferences of the site with the agent's purposes. It refuses nothing
// once the crawler has the answer.
func (d *Decision) judge(sent bool) {
	if d.Exception != "" || d.Mode == ModeOff || d.Conflict != "" {
		return
	}
	for _, purpose := range d.Purposes {
		if s := d.Preferences.Deciding(purpose); s.Value == preferences.No {
			d.conflict(s, sent)
			return
		}
	}
}

// conflict records the statement that conflicts with a purpose of the agent.
func (d *Decision) conflict(s preferences.Statement, sent bool) {
	d.Conflict = s.String()
	if d.preferMode != PreferencesLog && !sent {
		d.quoted.line = s.Line
		d.deny(ReasonPreferenceDenied, d.Conflict)
	}
}

// statements are the deciding statements for the log.
func statements(s preferences.Set) []string {
	decided := s.Decided()
	list := slices.Grow([]string(nil), len(decided)) // nil for none
	for _, st := range decided {
		list = append(list, st.String())
	}
	return list
}
