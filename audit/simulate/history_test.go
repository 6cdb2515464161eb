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

// TestByPolicy checks what an absent or unreachable robots.txt permits with the options of fetch
// (docs/status-table.md, RFC 9309 section 2.3.1). The line is from noon, took two minutes, and has
// only its reason.
func TestByPolicy(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	good := fetch.Sum(sha256.Sum256([]byte(text))).Hex()
	// The durations are the times between an answer and noon.
	text := func(ago time.Duration) robotscache.Answer {
		return answered(ago, robotscache.Answer{State: "rules", Status: 200, SHA256: good})
	}
	down := func(ago time.Duration, sha string) robotscache.Answer {
		return answered(ago, robotscache.Answer{State: "unreachable", Cause: "status", Status: 503, SHA256: sha, UnreachableSince: noon.Add(-ago)})
	}
	fails := func(ago, until time.Duration) robotscache.Answer { // the good answer is used until then
		a := text(ago)
		a.Status, a.Cause, a.UnreachableSince, a.FreshUntil = 503, "status", a.At, noon.Add(-until)
		return a
	}
	without := func(ago time.Duration, status int) robotscache.Answer {
		return answered(ago, robotscache.Answer{State: "absent", Cause: "status", Status: status})
	}
	const (
		denied  = "deny unreachable"
		expired = "allow unreachable_expired"
		byCopy  = "deny disallowed" // "/private" of the last good copy
		absent  = "allow absent"
		shut    = "deny robots_forbidden"
		spared  = "allow unidentified" // in mode report, the line does not show what the state permitted
	)
	type answers = []robotscache.Answer
	for _, tt := range []struct {
		name    string
		was     string
		answers answers
		policy  fetch.Policy
		want    string
	}{
		{"nothing is known of the run", denied, nil, fetch.Policy{Mode: fetch.ModeStale}, denied},
		{"no answer, and unknown permissions", spared, nil, fetch.Policy{}, "state"},
		{"strict needs no answer", expired, nil, fetch.Policy{Mode: fetch.ModeStrict}, denied},
		{"strict, and there was a copy", byCopy, nil, fetch.Policy{Mode: fetch.ModeStrict}, denied},
		{"stale takes the copy at once", denied, answers{text(2 * time.Hour), down(time.Hour, good)}, fetch.Policy{Mode: fetch.ModeStale}, byCopy},
		{"stale without a copy", denied, answers{without(2*time.Hour, 404), down(time.Hour, "")}, fetch.Policy{Mode: fetch.ModeStale}, denied},
		{"spec does not take it", byCopy, answers{text(2 * time.Hour), down(time.Hour, good)}, fetch.Policy{}, denied},
		{"spec takes it in the end", denied, answers{text(41 * day), down(40*day, good)}, fetch.Policy{}, byCopy},
		{"spec in the end, without a copy", denied, answers{down(40*day, "")}, fetch.Policy{}, expired},
		{"google takes it after twelve hours", denied, answers{text(14 * time.Hour), down(13*time.Hour, good)}, fetch.Policy{Mode: fetch.ModeGoogle}, byCopy},
		{"google refuses before", byCopy, answers{text(11 * time.Hour), down(10*time.Hour, good)}, fetch.Policy{Mode: fetch.ModeGoogle}, denied},
		{"the log knows when the run began", denied, answers{text(3 * time.Hour), down(time.Hour, good)}, fetch.Policy{UnreachableFor: 2 * time.Hour}, denied},
		{"long enough that the permissions are certain", spared, answers{text(3 * time.Hour), down(time.Hour, good)}, fetch.Policy{UnreachableFor: 2 * time.Hour}, denied},
		{"it had just become long enough", denied, answers{text(3 * time.Hour), down(time.Hour, good)}, fetch.Policy{UnreachableFor: time.Hour}, byCopy},
		{"long enough, and unknown permissions", spared, answers{text(3 * time.Hour), down(time.Hour, good)}, fetch.Policy{UnreachableFor: time.Hour}, byCopy},
		{"not quite long enough", byCopy, answers{text(3 * time.Hour), down(time.Hour, good)}, fetch.Policy{UnreachableFor: time.Hour + time.Millisecond}, denied},
		{"a good answer that ended in a run of failures", denied, answers{text(day), fails(time.Hour, 10*time.Minute)}, fetch.Policy{Mode: fetch.ModeStale}, byCopy},
		{"a run that the log has no line of", denied, answers{text(time.Hour)}, fetch.Policy{Mode: fetch.ModeStale}, denied},
		{"the file came back about then", denied, answers{down(time.Hour, good), text(time.Second / 10)}, fetch.Policy{Mode: fetch.ModeStale}, byCopy},
		{"another run, about then", denied, answers{down(40*day, good), text(time.Second / 5), down(time.Second/10, good)}, fetch.Policy{}, denied},
		{"another run, and it is hidden", spared, answers{down(40*day, good), text(time.Second / 5), down(time.Second/10, good)}, fetch.Policy{}, "state"},
		{"401 and 403 permit", shut, answers{without(time.Minute, 403)}, fetch.Policy{}, absent},
		{"401 and 403 refuse", absent, answers{without(time.Hour, 403)}, fetch.Policy{ForbiddenDisallow: true}, shut},
		{"they did already", shut, nil, fetch.Policy{ForbiddenDisallow: true}, shut},
		{"404 permits", absent, answers{without(time.Hour, 404)}, fetch.Policy{ForbiddenDisallow: true}, absent},
		{"403 came about then", absent, answers{without(time.Hour, 404), without(time.Second/10, 403)}, fetch.Policy{ForbiddenDisallow: true}, absent},
		{"403 has ended", absent, answers{without(time.Hour, 403), without(3*time.Minute, 404)}, fetch.Policy{ForbiddenDisallow: true}, absent},
		{"no status is known", absent, nil, fetch.Policy{ForbiddenDisallow: true}, absent},
	} {
		r := disallowed()
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
		r.Before = tt.answers
		cfg := Config{Policy: policy(t, nil, enforce.PolicyConfig{}), Texts: newStored()}
		cfg.Policy.Interpretation.Policy = tt.policy
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
