//nolint:thelper // the functions that run over the hot tiers are tests, not helpers
package robotscache_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// sharedStore is a store that several caches share.
type sharedStore struct {
	flakyStore
	leaseErr error

	leaseMu sync.Mutex
	leases  map[fetch.Key]*time.Time
}

func newSharedStore() *sharedStore {
	return &sharedStore{
		flakyStore: flakyStore{Store: lasting{newMemory()}},
		leases:     make(map[fetch.Key]*time.Time),
	}
}

func (s *sharedStore) Lease(_ context.Context, k fetch.Key, ttl time.Duration) (robotscache.Lease, bool, error) {
	if err := errors.Join(s.leaseErr, s.failing()); err != nil {
		return nil, false, err
	}
	s.leaseMu.Lock()
	defer s.leaseMu.Unlock()
	if until := s.leases[k]; until != nil && time.Now().Before(*until) {
		return nil, false, nil
	}
	mine := time.Now().Add(ttl)
	s.leases[k] = &mine
	return &sharedLease{s, k, ttl, &mine}, true, nil
}

type sharedLease struct {
	store *sharedStore
	key   fetch.Key
	ttl   time.Duration
	until *time.Time
}

func (l *sharedLease) Renew(context.Context) (bool, error) {
	if err := l.store.failing(); err != nil {
		return false, err
	}
	l.store.leaseMu.Lock()
	defer l.store.leaseMu.Unlock()
	if l.store.leases[l.key] != l.until || !time.Now().Before(*l.until) {
		return false, nil
	}
	*l.until = time.Now().Add(l.ttl)
	return true, nil
}

func (l *sharedLease) Release() {
	l.store.leaseMu.Lock()
	defer l.store.leaseMu.Unlock()
	if l.store.leases[l.key] == l.until {
		delete(l.store.leases, l.key)
	}
}

// Two gateways with one store fetch each origin once in all.
func TestShared_OneFetchInTheCluster(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{took: 2 * time.Second}
		st := newSharedStore()
		a := newCache(t, robotscache.Config{Fetcher: s, Store: st}, hot)
		b := newCache(t, robotscache.Config{Fetcher: s, Store: st}, nil)
		defer a.Close()
		defer b.Close()
		var wg sync.WaitGroup
		for i := range 1000 {
			for _, c := range []*robotscache.Cache{a, b} {
				wg.Go(func() {
					e, _ := lookup(t, c, example(i))
					wantAccess(t, e, fetch.AccessRules)
				})
			}
		}
		wg.Wait()
		if n := s.count(); n != 1000 || s.twice {
			t.Errorf("%d fetches of 1000 origins, some at the same time: %v, want 1000 and false", n, s.twice)
		}
		synctest.Wait() // a retrieval releases its lease after its waiters have their answers
		if len(st.leases) != 0 {
			t.Errorf("%d leases were not released", len(st.leases))
		}
	})
}

// Another gateway finds a refresh that one gateway made, early or late.
func TestShared_RefreshInTheCluster(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{took: time.Second}
		st := newSharedStore()
		a := newCache(t, robotscache.Config{Fetcher: s, Store: st}, hot)
		b := newCache(t, robotscache.Config{Fetcher: s, Store: st}, nil)
		defer a.Close()
		defer b.Close()
		for range 72 {
			lookup(t, a, example(1))
			lookup(t, b, example(1))
			time.Sleep(time.Hour)
		}
		if n := s.count(); n != 4 {
			t.Errorf("%d fetches in three days, want 4", n)
		}
	})
}

// A gateway that was killed blocks its origins only until its lease expires: the first request to
// another gateway is answered.
func TestShared_TakesOverFromTheDead(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{took: time.Second}
		st := newSharedStore()
		c := newCache(t, robotscache.Config{Fetcher: s, Store: st}, hot)
		defer c.Close()
		if _, ok, err := st.Lease(t.Context(), fetch.Key{Origin: example(1)}, robotscache.LeaseTTL); !ok || err != nil {
			t.Fatal(ok, err)
		}
		began := time.Now()
		e, _ := lookup(t, c, example(1))
		wantAccess(t, e, fetch.AccessRules)
		if took := time.Since(began); took < robotscache.LeaseTTL || took > robotscache.LeaseTTL+2*time.Second {
			t.Errorf("another gateway fetched after %v, want the lifetime of a lease", took)
		}
		wantFetches(t, s, example(1), 1)
	})
}

// A lease lasts as long as its fetch, in steps of a few seconds. Others wait.
func TestShared_LeaseOfASlowFetch(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{took: 18 * time.Second}
		st := newSharedStore()
		a := newCache(t, robotscache.Config{Fetcher: s, Store: st}, hot)
		b := newCache(t, robotscache.Config{Fetcher: s, Store: st}, nil)
		defer a.Close()
		defer b.Close()
		var wg sync.WaitGroup
		for _, c := range []*robotscache.Cache{a, b} {
			wg.Go(func() {
				e, _ := lookup(t, c, example(1))
				wantAccess(t, e, fetch.AccessRules)
			})
		}
		time.Sleep(9500 * time.Millisecond)
		st.leaseMu.Lock()
		left := time.Until(*st.leases[fetch.Key{Origin: example(1)}])
		st.leaseMu.Unlock()
		if left > robotscache.LeaseTTL {
			t.Errorf("during the fetch the lease has %v left, want at most LeaseTTL", left)
		}
		wg.Wait()
		wantFetches(t, s, example(1), 1)
		synctest.Wait()
		if len(st.leases) != 0 {
			t.Errorf("%d leases were not released", len(st.leases))
		}
	})
}

// However long another gateway renews its lease, no fetch waits longer for it than one may take.
func TestShared_LeaseWithoutEnd(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{}
		st := newSharedStore()
		c := newCache(t, robotscache.Config{Fetcher: s, Store: st}, hot)
		defer c.Close()
		if _, ok, err := st.Lease(t.Context(), fetch.Key{Origin: example(1)}, time.Hour); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if _, _, err := c.Lookup(t.Context(), example(1), robotscache.Asker{}); !errors.Is(err, robotscache.ErrPending) {
			t.Errorf("Lookup while the lease is held: got %v, want ErrPending", err)
		}
		if s.count() != 0 {
			t.Error("the cache fetched although another gateway has the lease")
		}
		time.Sleep(robotscache.LeaseWait)
		wantFetches(t, s, example(1), 1)
	})
}

// Without leases every gateway fetches by itself, and reports it once.
func TestShared_LeaseFails(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s, ev := &site{took: time.Second}, &events{}
		st := newSharedStore()
		st.leaseErr = errAway
		c := newCache(t, robotscache.Config{Fetcher: s, Store: st, Observer: ev}, hot)
		defer c.Close()
		began := time.Now()
		for i := range 3 {
			e, _ := lookup(t, c, example(i))
			wantAccess(t, e, fetch.AccessRules)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("Lookup took %v, want 3s", took)
		}
		if _, failed := ev.store(); failed != 3 {
			t.Errorf("%d failures were observed, want 3", failed)
		}
	})
}

// 10,000 new origins are requested at once, and 30 % of them hang, while 100 others are in use.
// Requests for the origins in use never wait, and their rules are refreshed in time. The rules of
// the new origins that answer arrive before any request gives up.
func TestExt_FetchStormLeavesHotOriginsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &site{took: 100 * time.Millisecond}
		s.hang = func(o origin.Origin) bool { return o.Port != 443 }
		ev := &events{}
		c := newCache(t, robotscache.Config{Fetcher: s, Observer: ev}, nil)
		defer c.Close()
		const hot = 100
		for i := range hot {
			lookup(t, c, example(i))
		}
		c.WaitHot()
		time.Sleep(19*time.Hour + 11*time.Minute) // a minute before their refresh

		began := time.Now()
		var answered, pending atomic.Int32
		var last atomic.Int64
		var wg sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		for i := range 10000 {
			o := example(hot + i)
			if i%10 < 3 {
				o.Port = 8443
			}
			wg.Go(func() {
				for ctx.Err() == nil { // the crawlers keep trying
					switch e, _, err := c.Lookup(ctx, o, robotscache.Asker{}); {
					case err == nil && e.Record().State == fetch.StateRules:
						answered.Add(1)
						last.Store(int64(time.Since(began)))
						return
					case errors.Is(err, robotscache.ErrPending):
						if o.Port == 443 { // one that hangs is retried after the others
							pending.Add(1)
						}
					case err != nil && ctx.Err() == nil:
						t.Error(err)
					}
					time.Sleep(time.Minute)
				}
			})
		}
		for range 120 { // for ten minutes
			time.Sleep(5 * time.Second)
			for i := range hot {
				began := time.Now()
				e, source := lookup(t, c, example(i))
				if took := time.Since(began); took != 0 {
					t.Errorf("a request for hot origin %d waited %v, want 0", i, took)
				}
				if source != robotscache.SourceHot && source != robotscache.SourceStore {
					t.Errorf("hot origin %d: source = %v, want hot or store", i, source)
				}
				wantAccess(t, e, fetch.AccessRules)
			}
		}
		for i := range hot {
			wantFetches(t, s, example(i), 2) // refreshed during the storm
		}
		stop()
		wg.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if n := answered.Load(); n != 7000 || time.Duration(last.Load()) > 20*time.Second {
			t.Errorf("%d of 7000 new origins answered, the last one after %v, want all within 20s", n, time.Duration(last.Load()))
		}
		if n := pending.Load(); n != 0 {
			t.Errorf("%d requests to origins that answer got ErrPending, want 0", n)
		}
		if s.most > 4608 || s.twice {
			t.Errorf("%d fetches ran at once, twice for one origin: %v", s.most, s.twice)
		}
		t.Logf("the new origins had their answers after %v; %d fetches at once; longest time in the queue %v; drops %v",
			time.Duration(last.Load()), s.most, ev.longest, ev.dropped)
	})
}

// First requests that no client waits for any more let the others pass.
func TestExt_AbandonedFirstRequestsGoLast(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{took: 5 * time.Second}
		c := newCache(t, robotscache.Config{Fetcher: s, InFlight: 1}, hot)
		defer c.Close()
		for i := range 10 {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, _, err := c.Lookup(ctx, example(i), robotscache.Asker{}); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		began := time.Now()
		lookup(t, c, example(99))
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("a request waited %v for abandoned ones, want at most 11s", took)
		}
		time.Sleep(time.Minute)
		for i := range 10 {
			if _, ok := c.Peek(example(i), ""); !ok {
				t.Errorf("abandoned origin %d was not fetched", i)
			}
		}
	})
}

// A background flight moves to the front when a request waits for it.
func TestLookup_PromotesARefresh(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) {
		s := &site{}
		c := newCache(t, robotscache.Config{Fetcher: s, InFlight: 16}, hot)
		defer c.Close()
		for i := range 20 {
			lookup(t, c, example(i))
			lookup(t, c, example(i))
		}
		// All are due, and each takes longer than there is time: two can run at once.
		s.mu.Lock()
		s.took = 15 * time.Second
		s.mu.Unlock()
		time.Sleep(19*time.Hour + 12*time.Minute)
		synctest.Wait()
		if n, got := s.count(), c.Stats(); n != 22 || got.Queued != [...]int{0, 18, 0} {
			t.Fatalf("%d fetches with stats %+v, want 22 with 18 queued", n, got)
		}
		began := time.Now()
		if _, err := c.Refresh(t.Context(), example(19)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 15*time.Second {
			t.Errorf("a request waited %v, want 15s", took)
		}
	})
}
