package adminapi

import (
	"slices"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/robotstxt"
	"github.com/crawlgate/crawlgate/signals/preferences"
)

// PreferencesOf lists the preferences behind a decision: the deciding statement on each purpose
// that a statement is about, and "unknown" for the agent's other purposes. The list is empty if no
// robots.txt was read, or if the URL may not be fetched (draft-ietf-aipref-attach-05 section 3.1).
func PreferencesOf(d *enforce.Decision) (list []Preference) {
	refused := (!d.Allowed || d.WouldDeny) && d.Reason != enforce.ReasonPreferenceDenied
	if refused || d.State == fetch.StateUnknown {
		return nil
	}
	decided := d.Preferences.Decided()
	for i := range decided {
		list = append(list, preferenceOf(&decided[i]))
	}
	for _, purpose := range d.Purposes {
		if slices.ContainsFunc(list, func(p Preference) bool { return p.Purpose == purpose }) {
			continue
		}
		unknown := d.Preferences.Deciding(purpose)
		unknown.Purpose = purpose
		list = append(list, preferenceOf(&unknown))
	}
	return list
}

// scopedOf are the preferences of a robots.txt for an agent, whatever the URL.
func scopedOf(rules *robotstxt.Ruleset, id enforce.Identity) (list []Preference) {
	var alsoObey []string
	if id.Config != nil {
		alsoObey = id.Config.AlsoObey
	}
	groups := preferences.AppendGroups(nil, rules, id.Robots, alsoObey)
	all, _ := preferences.Scopes(rules, groups)
	for _, scoped := range all {
		p := preferenceOf(&scoped.Statement)
		p.Path = escape.Visible(scoped.Path, maxPath)
		list = append(list, p)
	}
	return list
}

func preferenceOf(s *preferences.Statement) Preference {
	value := s.Value.String()
	if s.Text != "" {
		value = escape.Visible(s.Text, maxPath)
	}
	return Preference{Purpose: escape.Visible(s.Purpose, maxPurpose), Value: value, Source: s.From.String(), Line: s.Line}
}

// The bounds of texts as they are shown, in bytes. No purpose is longer.
const (
	maxPurpose = 64
	maxPath    = 512
)
