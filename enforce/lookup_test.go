package enforce

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// aging answers each lookup with the next of its entries, and repeats the last one.
type aging struct {
	entries []*robotscache.Entry
	lookups int
}

func (a *aging) Lookup(context.Context, origin.Origin, robotscache.Asker) (*robotscache.Entry, robotscache.Source, error) {
	a.lookups++
	return a.entries[min(a.lookups, len(a.entries))-1], robotscache.SourceHot, nil
}

// TestEntryThatEndsOnTheWay checks that a ruleset that expires between lookup and decision refuses
// nothing that the site allows. RFC 9309 section 2.4 limits its use, not the crawl. The rules are
// looked up again, exactly once.
func TestEntryThatEndsOnTheWay(t *testing.T) {
	t.Parallel()
	until := func(end time.Duration) *robotscache.Entry {
		r := rules("User-agent: *\nDisallow: /private/\n")
		r.FreshUntil = now.Add(end)
		return robotscache.NewEntry(r, robotscache.Interpretation{Policy: defaults})
	}
	ended, good := until(-time.Millisecond), until(time.Minute)
	for name, tt := range map[string]struct {
		entries []*robotscache.Entry
		lookups int
		reason  Reason
	}{
		"good":             {[]*robotscache.Entry{good}, 1, ReasonNoRule},
		"ended, then good": {[]*robotscache.Entry{ended, good}, 2, ReasonNoRule},
		"ended for good":   {[]*robotscache.Entry{ended}, 2, ReasonUnreachable},
		"none":             {[]*robotscache.Entry{nil}, 2, ReasonUnreachable},
	} {
		a := &aging{entries: tt.entries}
		d := newEnforcer(a, nil, nil).Decide(t.Context(), Request{http.MethodGet, origin.Target{Origin: mustOrigin(t, "https://example.com"), Path: "/page"}, crawler(t, "Bot/1.0")})
		if d.Reason != tt.reason || a.lookups != tt.lookups {
			t.Errorf("%s: %s after %d look-ups, want %s after %d", name, d.Reason, a.lookups, tt.reason, tt.lookups)
		}
	}
}

// TestEntryThatEndsDuringTheDecision checks that a robots.txt is judged as of its lookup, even if
// the machine then halts for long. Otherwise a site without robots.txt would be refused as
// unreachable.
func TestEntryThatEndsDuringTheDecision(t *testing.T) {
	t.Parallel()
	for status, tt := range map[int]struct {
		policy fetch.Policy
		want   Reason
	}{
		http.StatusNotFound:  {fetch.Policy{}, ReasonAbsent},
		http.StatusForbidden: {fetch.Policy{ForbiddenDisallow: true}, ReasonRobotsForbidden},
	} {
		r := fetch.Record{State: fetch.StateAbsent, Cause: fetch.CauseStatus, Status: status, FetchedAt: now.Add(-time.Minute), FreshUntil: now.Add(time.Second)}
		s := siteOf(r, tt.policy)
		e := newEnforcer(s, nil, nil)
		readings := 0 // of the clock, after the lookup
		e.Now = func() time.Time {
			if s.lookups > 0 {
				readings++
			}
			return now.Add(time.Duration(max(readings-1, 0)) * time.Minute)
		}
		d := e.Decide(t.Context(), Request{http.MethodGet, origin.Target{Origin: mustOrigin(t, "https://example.com"), Path: "/page"}, crawler(t, "Bot/1.0")})
		if d.Reason != tt.want || d.State != fetch.StateAbsent || d.Age != time.Minute || s.lookups != 1 {
			t.Errorf("status %d: %s in state %s after %s and %d look-ups, want %s", status, d.Reason, d.State, d.Age, s.lookups, tt.want)
		}
	}
}

// TestDecidedAt checks that a decision has the time for which its rules were evaluated, even if the
// fetch took long. Without rules it has its beginning. Later steps keep that time.
func TestDecidedAt(t *testing.T) {
	t.Parallel()
	for mode, want := range map[Mode]time.Time{ModeEnforce: now.Add(time.Minute), ModeOff: now} {
		s := siteOf(rules("User-agent: *\nDisallow: /private/\n"), defaults)
		e := newEnforcer(s, mustPolicy(t, PolicyConfig{Mode: mode}), nil)
		e.Now = func() time.Time { return now.Add(time.Duration(s.lookups) * time.Minute) } // each lookup takes a minute
		d := e.Decide(t.Context(), Request{http.MethodGet, origin.Target{Origin: mustOrigin(t, "https://example.com"), Path: "/page"}, crawler(t, "Bot/1.0")})
		if !d.Allowed || !d.At.Equal(want) || !d.Refuse(ReasonCanceled, "", 0).At.Equal(want) {
			t.Errorf("mode %v: %s at %v, want %v", mode, d.Reason, d.At, want)
		}
	}
}
