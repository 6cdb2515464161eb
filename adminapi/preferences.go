package adminapi

import (
	"slices"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/preferences"
)

// PreferencesOf are the preferences of a decision: what decides on each purpose of which something
// is known, and on those of the agent of which nothing is. There are none where no robots.txt was
// looked at, and none of what may not be fetched (draft-ietf-aipref-attach-05 section 3.1).
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

func preferenceOf(s *preferences.Statement) Preference {
	return Preference{
		Purpose: escape.Printable(s.Purpose, maxPurpose), Value: s.Value.String(), Source: s.From.String(), Line: s.Line,
	}
}

// maxPurpose bounds a purpose as it is shown, in bytes. None is longer.
const maxPurpose = 64
