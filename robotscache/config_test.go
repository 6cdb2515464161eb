package robotscache_test

import (
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
)

// A reload that changes the policy fetches nothing: the new policy applies to all records at once,
// in every tier.
func TestExt_ConfigureJudgesAgain(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) { //nolint:thelper // it is the test
		s := new(site)
		s.always(fetch.Outcome{Kind: fetch.KindAbsent, Cause: fetch.CauseStatus, Status: 403})
		c := newCache(t, robotscache.Config{Fetcher: s}, hot)
		defer c.Close()
		e, _ := lookup(t, c, example(1))
		wantAccess(t, e, fetch.AccessAllow)

		c.Configure(robotscache.Config{Policy: fetch.Policy{ForbiddenDisallow: true}})
		e, _ = lookup(t, c, example(1))
		wantAccess(t, e, fetch.AccessDeny)

		c.Configure(robotscache.Config{Policy: fetch.Policy{TTL: time.Minute}})
		e, _ = lookup(t, c, example(1))
		wantAccess(t, e, fetch.AccessAllow)
		wantFetches(t, s, example(1), 1)
		time.Sleep(time.Minute) // it was refreshed, since the shorter time to live also applies to earlier records
		lookup(t, c, example(1))
		wantFetches(t, s, example(1), 2)
	})
}

// The option for index.html affects how a text is read, not the text, so it does not cause a fetch
// either.
func TestExt_ConfigureReadsAnew(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) { //nolint:thelper // it is the test
		s := new(site)
		s.always(fetch.Outcome{Kind: fetch.KindRules, Status: 200, Body: []byte("User-agent: *\nDisallow: /\nAllow: /a/index.html\n")})
		c := newCache(t, robotscache.Config{Fetcher: s}, hot)
		defer c.Close()
		for _, on := range []bool{false, true, false} {
			c.Configure(robotscache.Config{IndexHTML: on})
			e, _ := lookup(t, c, example(1))
			if m := e.View(time.Now()).Rules.Match([]string{"Bot"}, "/a/"); m.Allowed != on {
				t.Errorf("index_html %v: Match of /a/ = %+v", on, m)
			}
		}
		wantFetches(t, s, example(1), 1)
	})
}
