package simulate

import (
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
)

// TestByPolicy holds what a robots.txt that was not to be had permits by the options of fetch, where the line came at noon,
// took two minutes, and knows no more than its reason (docs/status-table.md, DESIGN section 3).
func TestByPolicy(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	stored := newStored()
	good := fetch.Sum(sha256.Sum256([]byte(text)))
	version := func(state fetch.State, status int, from, to time.Duration) robotscache.Version {
		v := robotscache.Version{State: state, Status: status, FirstSeen: noon.Add(-from), LastSeen: noon.Add(-to)}
		if state == fetch.StateRules {
			v.SHA256 = good
		}
		return v
	}
	down := func(from time.Duration) robotscache.Version {
		return version(fetch.StateUnreachable, 503, from, -time.Hour)
	}
	text := func(to time.Duration) robotscache.Version { return version(fetch.StateRules, 200, 90*day, to) }
	back := func(from time.Duration) robotscache.Version { return version(fetch.StateRules, 200, from, -time.Hour) }
	gone := func(to time.Duration) robotscache.Version { return version(fetch.StateAbsent, 404, 90*day, to) }
	closed := func(to time.Duration) robotscache.Version { return version(fetch.StateAbsent, 403, 90*day, to) }
	const (
		denied  = "deny unreachable"
		expired = "allow unreachable_expired"
		byCopy  = "deny disallowed" // "/private" of the last good copy
		absent  = "allow absent"
		shut    = "deny robots_forbidden"
		spared  = "allow unidentified" // under mode report: what the state permitted does not show
	)
	for _, tt := range []struct {
		name     string
		was      string
		versions []robotscache.Version // the newest first
		policy   fetch.Policy
		want     string
	}{
		{"nothing is known of the run", denied, nil, fetch.Policy{Mode: fetch.ModeStale}, denied},
		{"nothing, and what it permitted is hidden", spared, nil, fetch.Policy{}, "state"},
		{"strict needs no history", expired, nil, fetch.Policy{Mode: fetch.ModeStrict}, denied},
		{"strict, and there was a copy", byCopy, nil, fetch.Policy{Mode: fetch.ModeStrict}, denied},
		{"stale takes the copy at once", denied, []robotscache.Version{down(time.Hour), text(2 * time.Hour)}, fetch.Policy{Mode: fetch.ModeStale}, byCopy},
		{"stale without a copy", denied, []robotscache.Version{down(time.Hour), gone(2 * time.Hour)}, fetch.Policy{Mode: fetch.ModeStale}, denied},
		{"spec does not take it", byCopy, []robotscache.Version{down(time.Hour), text(2 * time.Hour)}, fetch.Policy{}, denied},
		{"spec takes it in the end", denied, []robotscache.Version{down(40 * day), text(41 * day)}, fetch.Policy{}, byCopy},
		{"spec in the end, without a copy", denied, []robotscache.Version{down(40 * day)}, fetch.Policy{}, expired},
		{"google takes it after twelve hours", denied, []robotscache.Version{down(13 * time.Hour), text(14 * time.Hour)}, fetch.Policy{Mode: fetch.ModeGoogle}, byCopy},
		{"google refuses before", byCopy, []robotscache.Version{down(10 * time.Hour), text(11 * time.Hour)}, fetch.Policy{Mode: fetch.ModeGoogle}, denied},
		{"the run may have begun before or after", denied, []robotscache.Version{down(time.Hour), text(3 * time.Hour)}, fetch.Policy{UnreachableFor: 2 * time.Hour}, denied},
		{"so that what is hidden is not known", spared, []robotscache.Version{down(time.Hour), text(3 * time.Hour)}, fetch.Policy{UnreachableFor: 2 * time.Hour}, "state"},
		{"hidden, and known by the history", spared, []robotscache.Version{down(time.Hour), text(2 * time.Hour)}, fetch.Policy{}, denied},
		{"a run that the store has no record of", denied, []robotscache.Version{text(time.Hour)}, fetch.Policy{Mode: fetch.ModeStale}, byCopy},
		{"it was the answer again later", denied, []robotscache.Version{text(-time.Hour)}, fetch.Policy{}, denied},
		{"the file came back meanwhile", denied, []robotscache.Version{text(-time.Minute), down(time.Hour)}, fetch.Policy{}, denied},
		{"the file has just come back", denied, []robotscache.Version{back(125 * time.Second), down(time.Hour)}, fetch.Policy{Mode: fetch.ModeStale}, denied},
		{"it came back before that", denied, []robotscache.Version{back(3 * time.Minute), down(time.Hour)}, fetch.Policy{Mode: fetch.ModeStale}, byCopy},
		{"401 and 403 permit", shut, []robotscache.Version{closed(time.Minute)}, fetch.Policy{}, absent},
		{"401 and 403 refuse", absent, []robotscache.Version{closed(time.Hour)}, fetch.Policy{ForbiddenDisallow: true}, shut},
		{"they did already", shut, nil, fetch.Policy{ForbiddenDisallow: true}, shut},
		{"404 permits", absent, []robotscache.Version{gone(time.Minute)}, fetch.Policy{ForbiddenDisallow: true}, absent},
		{"403 came later", absent, []robotscache.Version{closed(-time.Hour)}, fetch.Policy{ForbiddenDisallow: true}, absent},
		{"no status is known", absent, nil, fetch.Policy{ForbiddenDisallow: true}, absent},
	} {
		r := disallowed()
		r.Duration = `"duration":120,`
		decision, reason, _ := strings.Cut(tt.was, " ")
		r.Robots.Decision, r.Robots.Reason, r.Robots.State = decision, enforce.Reason(reason), "unreachable"
		switch tt.was {
		case absent, shut:
			r.Robots.State = "absent"
		case spared:
			r.Robots.Mode, r.Robots.WouldDeny = "report", true
		}
		if tt.was != byCopy {
			r.Robots.SHA256, r.Robots.Group, r.Robots.Rule, r.Robots.Line = "", "", "", 0
		}
		stored.history = tt.versions
		cfg := Config{Policy: policy(t, nil, enforce.PolicyConfig{}), Texts: stored}
		cfg.Policy.Reading.Policy = tt.policy
		want := tt.want + " AcmeBot"
		switch tt.want {
		case tt.was:
			want = "as before"
		case byCopy:
			want += " /private"
		case "state":
			want = tt.want
		}
		if got, _ := run(t, cfg, r); got != want {
			t.Errorf("%s: %s, want %s", tt.name, got, want)
		}
	}
}
