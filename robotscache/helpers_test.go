package robotscache_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/memstore"
)

// hotTiers are the tiers that every test of behaviour runs with: ristretto, one that keeps
// everything, and one that drops everything.
var hotTiers = map[string]func() robotscache.HotTier{
	"ristretto": func() robotscache.HotTier { return nil },
	"map":       func() robotscache.HotTier { return new(robotscache.MapTier) },
	"dropping":  func() robotscache.HotTier { return robotscache.DroppingTier{} },
}

// site is a scripted Fetcher.
type site struct {
	mu      sync.Mutex
	answer  func(o origin.Origin) fetch.Outcome // nil means rules
	took    time.Duration                       // how long each fetch takes
	hang    func(o origin.Origin) bool          // whether it hangs until ctx ends
	fetches []fetched
	running map[origin.Origin]int
	most    int // most fetches at once
	twice   bool
}

type fetched struct {
	origin origin.Origin
	at     time.Time
}

const someRules = "User-agent: *\nDisallow: /private\n"

func rulesOutcome(text string) fetch.Outcome {
	return fetch.Outcome{Kind: fetch.KindRules, Status: 200, Body: []byte(text)}
}

func failure() fetch.Outcome {
	return fetch.Outcome{Cause: fetch.CauseStatus, Status: 503}
}

func (s *site) Fetch(ctx context.Context, k fetch.Key, _ fetch.Gate) fetch.Outcome {
	o := k.Origin
	took, hang, answer := s.begin(o)
	defer s.end(o)
	if hang != nil && hang(o) {
		took = time.Hour
	}
	select {
	case <-time.After(took):
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return fetch.Outcome{Cause: fetch.CauseCanceled}
		}
		return fetch.Outcome{Cause: fetch.CauseTimeout}
	}
	if answer != nil {
		return answer(o)
	}
	return rulesOutcome(someRules)
}

func (s *site) begin(o origin.Origin) (time.Duration, func(origin.Origin) bool, func(origin.Origin) fetch.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetches = append(s.fetches, fetched{o, time.Now()})
	if s.running == nil {
		s.running = make(map[origin.Origin]int)
	}
	s.running[o]++
	s.twice = s.twice || s.running[o] > 1
	total := 0
	for _, n := range s.running {
		total += n
	}
	s.most = max(s.most, total)
	return s.took, s.hang, s.answer
}

func (s *site) end(o origin.Origin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[o]--; s.running[o] == 0 {
		delete(s.running, o)
	}
}

func (s *site) set(answer func(o origin.Origin) fetch.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// always makes the site answer out from now on.
func (s *site) always(out fetch.Outcome) { s.set(func(origin.Origin) fetch.Outcome { return out }) }

// of returns the fetches of o so far.
func (s *site) of(o origin.Origin) []fetched {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.fetches), func(f fetched) bool { return f.origin != o })
}

func (s *site) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.fetches)
}

// flakyStore is a store that can become unavailable.
type flakyStore struct {
	robotscache.Store
	mu    sync.Mutex
	err   error
	saves int
}

var errAway = fmt.Errorf("dial: connection refused: %w", robotscache.ErrUnavailable)

func (s *flakyStore) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *flakyStore) failing() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *flakyStore) Load(ctx context.Context, k fetch.Key) (fetch.Record, error) {
	if err := s.failing(); err != nil {
		return fetch.Record{}, err
	}
	return s.Store.Load(ctx, k)
}

func (s *flakyStore) Save(ctx context.Context, records ...fetch.Record) error {
	if err := s.failing(); err != nil {
		return err
	}
	s.mu.Lock()
	s.saves++
	s.mu.Unlock()
	return s.Store.Save(ctx, records...)
}

// lasting is a store that outlives its cache.
type lasting struct{ robotscache.Store }

func (lasting) Close() error { return nil }

// events records the calls of an observer.
type events struct {
	mu        sync.Mutex
	looked    map[robotscache.Source]int
	dropped   map[robotscache.Drop]int
	available []bool
	failed    int
	panics    int
	longest   time.Duration // longest time in the queue
	recorded  []string      // the origins, with the states before and after
	answered  []string      // the keys, with the states from then on, and whether they are kept
}

func (e *events) Looked(s robotscache.Source, _ error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.looked == nil {
		e.looked = make(map[robotscache.Source]int)
	}
	e.looked[s]++
}

func (e *events) Fetched(_ fetch.Key, _ fetch.Outcome, queued time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.longest = max(e.longest, queued)
}

func (e *events) Recorded(before fetch.Record, entry *robotscache.Entry, out fetch.Outcome, kept bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	state := robotscache.AnswerOf("", before.Key(), entry, time.Now()).State
	e.answered = append(e.answered, fmt.Sprintf("%s %s %t", before.Key(), state, kept))
	if kept {
		e.recorded = append(e.recorded, fmt.Sprintf("%s: %s, %s", before.Origin, before.State, out.Kind))
	}
	if entry != nil {
		entry.Told.Store(1)
	}
}

func (e *events) Dropped(d robotscache.Drop) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dropped == nil {
		e.dropped = make(map[robotscache.Drop]int)
	}
	e.dropped[d]++
}

func (e *events) StoreFailed(string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failed++
}

func (e *events) StoreAvailable(ok bool, _ error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.available = append(e.available, ok)
}

func (e *events) Panicked(fetch.Key, any, []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.panics++
}

// store returns the events about the store.
func (e *events) store() (available []bool, failed int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.available), e.failed
}

func (e *events) drops(d robotscache.Drop) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.dropped[d]
}

// newCache returns a cache over hot (nil: ristretto), which is closed at the end of the test.
func newCache(tb testing.TB, cfg robotscache.Config, hot robotscache.HotTier) *robotscache.Cache {
	tb.Helper()
	if cfg.Store == nil {
		cfg.Store = newMemory()
	}
	if cfg.MaxSize == 0 {
		cfg.MaxSize = 8 << 20
	}
	if hot == nil {
		c, err := robotscache.New(cfg)
		if err != nil {
			tb.Fatal(err)
		}
		return c
	}
	c, err := robotscache.NewWithHot(cfg, hot)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func example(i int) origin.Origin {
	return origin.Origin{Scheme: "https", Host: fmt.Sprintf("n%d.example", i), Port: 443}
}

func lookup(tb testing.TB, c *robotscache.Cache, o origin.Origin) (*robotscache.Entry, robotscache.Source) {
	tb.Helper()
	e, s, err := c.Lookup(tb.Context(), o, robotscache.Asker{})
	if err != nil {
		tb.Fatalf("looking up %s: %v", o, err)
	}
	return e, s
}

func wantAccess(tb testing.TB, e *robotscache.Entry, want fetch.Access) {
	tb.Helper()
	if got := e.View(time.Now()).Access; got != want {
		tb.Errorf("access %v, want %v; record %+v", got, want, e.Record())
	}
}

func wantFetches(tb testing.TB, s *site, o origin.Origin, want int) {
	tb.Helper()
	if got := len(s.of(o)); got != want {
		tb.Errorf("%d fetches of %s, want %d", got, o, want)
	}
}

func newMemory() robotscache.Store { return memstore.New(0) }
