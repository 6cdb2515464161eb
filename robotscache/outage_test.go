//nolint:thelper // the functions that run over the hot tiers are tests, not helpers
package robotscache_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/boltstore"
)

const day = 24 * time.Hour

// reopen closes the cache, if any, and opens the next over the same file, with an empty hot tier of
// the given kind.
func reopen(t *testing.T, old *robotscache.Cache, path string, cfg robotscache.Config, hot robotscache.HotTier) *robotscache.Cache {
	t.Helper()
	if old != nil {
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
	}
	st, err := boltstore.Open(boltstore.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Store = st
	if _, ok := hot.(*robotscache.MapTier); ok {
		hot = new(robotscache.MapTier)
	}
	return newCache(t, cfg, hot)
}

// RFC 9309 section 2.3.1.4: an outage of 33 days and its end, in each mode, with a restart every
// day and a request every hour. One origin had rules before the outage, and the other was never
// reachable.
func TestRFC9309_2_3_1_4_OutageOf33Days(t *testing.T) {
	t.Parallel()
	for _, mode := range []fetch.UnreachableMode{fetch.ModeSpec, fetch.ModeStale, fetch.ModeGoogle, fetch.ModeStrict} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			overTiers(t, func(t *testing.T, hot robotscache.HotTier) { testOutage(t, mode, hot) })
		})
	}
}

func testOutage(t *testing.T, mode fetch.UnreachableMode, hot robotscache.HotTier) {
	path := filepath.Join(t.TempDir(), "db")
	s := &site{took: time.Second}
	cfg := robotscache.Config{Fetcher: s, Policy: fetch.Policy{Mode: mode}}
	c := reopen(t, nil, path, cfg, hot)
	defer func() { _ = c.Close() }()
	known, never := example(1), example(2)
	lookup(t, c, known)
	good := time.Now()

	s.always(failure())
	time.Sleep(10 * time.Hour)
	for hour := range 33 * 24 {
		if hour%24 == 23 {
			c = reopen(t, c, path, cfg, hot)
		}
		for _, o := range []origin.Origin{known, never} {
			e, _ := lookup(t, c, o)
			now := time.Now()
			want := fetch.AccessRules
			if o == never || now.Sub(good) >= day {
				want = inOutage(mode, now.Sub(firstFailure(s, o)), o == known)
			}
			if got := e.View(now).Access; got != want {
				t.Fatalf("%v after hour %d: %v, want %v; record %+v", o, hour, got, want, e.Record())
			}
		}
		time.Sleep(time.Hour)
	}
	for _, o := range []origin.Origin{known, never} {
		if n := len(s.of(o)); n < 33*12 || n > 33*26 {
			t.Errorf("%d attempts for %v in 33 days, want 12 to 26 a day", n, o)
		}
	}

	s.always(rulesOutcome(someRules))
	time.Sleep(3 * time.Hour)
	for _, o := range []origin.Origin{known, never} {
		e, _ := lookup(t, c, o)
		wantAccess(t, e, fetch.AccessRules)
	}
}

// firstFailure returns when the outage was first noticed at o: at the first fetch after the one
// that succeeded, or the first of all.
func firstFailure(s *site, o origin.Origin) time.Time {
	fetches := s.of(o)
	if o == example(1) {
		fetches = fetches[1:]
	}
	return fetches[0].at.Add(s.took)
}

// inOutage returns the row of docs/status-table.md for an origin whose answer has expired.
func inOutage(mode fetch.UnreachableMode, age time.Duration, hasCopy bool) fetch.Access {
	switch {
	case mode == fetch.ModeStrict:
		return fetch.AccessDeny
	case age >= 30*day && hasCopy:
		return fetch.AccessLastGood
	case age >= 30*day:
		return fetch.AccessAllow
	case hasCopy && (mode == fetch.ModeStale || mode == fetch.ModeGoogle && age >= 12*time.Hour):
		return fetch.AccessLastGood
	default:
		return fetch.AccessDeny
	}
}

// shadow is a fetcher that keeps the records that should result from its outcomes, according to the
// pure transition only.
type shadow struct {
	policy fetch.Policy
	took   time.Duration

	mu      sync.Mutex
	next    map[origin.Origin]fetch.Outcome
	records map[origin.Origin]fetch.Record
	fetches int
}

func (s *shadow) Fetch(ctx context.Context, k fetch.Key, _ fetch.Gate) fetch.Outcome {
	o := k.Origin
	select {
	case <-time.After(s.took):
	case <-ctx.Done():
		return fetch.Outcome{Cause: fetch.CauseCanceled}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetches++
	r, ok := s.records[o]
	if !ok {
		r.Origin = o
	}
	out := s.next[o]
	s.records[o] = s.policy.Next(r, out, time.Now())
	return out
}

func (s *shadow) access(o origin.Origin) fetch.Access {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.policy.Access(s.records[o], time.Now())
}

func (s *shadow) set(o origin.Origin, out fetch.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next[o] = out
}

// Whatever origins answer, and however the cache is used, restarted and deprived of its store: each
// answer permits what the pure transition over the same outcomes permits.
func TestLookup_AgreesWithTheTransition(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		for seed := range uint64(4) { // one for each mode
			testAgreement(t, seed, hot)
		}
	})
}

func testAgreement(t *testing.T, seed uint64, hot robotscache.HotTier) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	p := fetch.Policy{Mode: fetch.UnreachableMode(seed % 4)}
	s := &shadow{
		policy:  p,
		took:    time.Duration(rnd.IntN(10)) * time.Second,
		next:    make(map[origin.Origin]fetch.Outcome),
		records: make(map[origin.Origin]fetch.Record),
	}
	path := filepath.Join(t.TempDir(), "db")
	cfg := robotscache.Config{Fetcher: s, Policy: p}
	c := reopen(t, nil, path, cfg, hot)
	defer func() { _ = c.Close() }()
	const n = 8
	for step := range 1500 {
		o := example(rnd.IntN(n))
		switch rnd.IntN(12) {
		case 0, 1:
			s.set(o, randomOutcome(rnd))
		case 2:
			time.Sleep(time.Duration(rnd.Int64N(int64(20 * time.Hour))))
		case 3:
			if step%5 == 0 {
				c = reopen(t, c, path, cfg, hot)
			}
		default:
			before := s.access(o)
			e, _, err := c.Lookup(t.Context(), o, robotscache.Asker{})
			if err != nil {
				t.Fatal(err)
			}
			got, after := e.View(time.Now()).Access, s.access(o)
			if got != before && got != after {
				t.Fatalf("seed %d, step %d, %v: got %v, want %v or %v; record %+v",
					seed, step, o, got, before, after, e.Record())
			}
		}
		time.Sleep(time.Duration(rnd.Int64N(int64(2 * time.Minute))))
		synctest.Wait()
	}
	if s.fetches < 100 {
		t.Errorf("seed %d: %d fetches, want at least 100", seed, s.fetches)
	}
}

func randomOutcome(rnd *rand.Rand) fetch.Outcome {
	switch rnd.IntN(6) {
	case 0:
		return fetch.Outcome{Kind: fetch.KindAbsent, Cause: fetch.CauseStatus, Status: 404}
	case 1, 2:
		return rulesOutcome(fmt.Sprintf("User-agent: *\nDisallow: /%d\n", rnd.IntN(5)))
	case 3:
		out := rulesOutcome(someRules)
		out.HasMaxAge, out.MaxAge = true, time.Duration(rnd.IntN(48))*time.Hour
		return out
	case 4:
		return fetch.Outcome{Cause: fetch.CauseStatus, Status: 503, RetryAfter: time.Duration(rnd.IntN(7200)) * time.Second}
	default:
		return fetch.Outcome{Cause: fetch.CauseTimeout}
	}
}
