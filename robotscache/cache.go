package robotscache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
)

// Errors of [Cache.Lookup] and [Cache.Refresh], besides the errors of the context.
var (
	// ErrPending means that the origin's rules are not known yet and the request may not wait any
	// longer: a bound on waiters or on the queue was reached, or the budget ran out. If a retrieval
	// has started, it continues. Refuse the request as for an unreachable origin.
	ErrPending = errors.New("robots.txt is not fetched yet")
	// ErrClosed means that the cache is closed.
	ErrClosed = errors.New("robots.txt cache is closed")
)

// ForbiddenError is the error of [Cache.Lookup] and [Cache.Refresh] for an origin to which the
// gateway may not connect. It says nothing about the origin, so the cache keeps nothing, and the
// next request tries again.
type ForbiddenError struct {
	// Cause is a forbidden address, a forbidden port or an own listener.
	Cause fetch.Cause
	// Detail is the explanation of the guard, for humans.
	Detail string
}

func (e *ForbiddenError) Error() string { return string(e.Cause) + ": " + e.Detail }

// Cache keeps the robots.txt of origins, and fetches missing ones. All methods are safe for
// concurrent use.
type Cache struct {
	cfg    Config                 // the one of the start
	tuned  atomic.Pointer[Config] // the latest: see Configure
	hot    hotTier
	leaser Leaser // nil unless the store is shared

	base context.Context // ends with Close; all work is bound to it, none to a request
	stop context.CancelFunc
	work sync.WaitGroup // all work on flights; added to under mu while not closed

	mu      sync.Mutex // never held over I/O
	closed  bool
	flights map[fetch.Key]*flight
	waiters int
	slots   [classes]*slots
	pending *pendingWrites
	due     map[fetch.Key]*time.Timer // see refreshLater
	// cannotRead and cannotWrite report whether the latest calls of the store failed.
	cannotRead, cannotWrite bool

	writer *semaphore.Weighted // of size 1, held while the store is changed; acquired before mu
}

// New returns a cache that owns the store of its configuration. On an error in the configuration
// the caller still owns the store.
func New(cfg Config) (*Cache, error) {
	if cfg.Store == nil || cfg.Fetcher == nil {
		return nil, errors.New("robotscache: Config needs a Store and a Fetcher")
	}
	cfg = cfg.filled()
	hot, err := newRistrettoTier(cfg.MaxSize)
	if err != nil {
		return nil, err
	}
	return newCache(cfg, hot), nil
}

func newCache(cfg Config, hot hotTier) *Cache {
	c := &Cache{
		cfg:     cfg,
		hot:     hot,
		flights: make(map[fetch.Key]*flight),
		due:     make(map[fetch.Key]*time.Timer),
		writer:  semaphore.NewWeighted(1),
		pending: &pendingWrites{entries: make(map[fetch.Key][]*Entry), added: make(chan struct{}, 1)},
	}
	c.base, c.stop = context.WithCancel(context.Background())
	for cl := range classes {
		c.slots[cl] = &slots{starts: rate.NewLimiter(0, cl.share(cfg.Parallel))}
	}
	c.Configure(cfg)
	c.leaser, _ = cfg.Store.(Leaser)
	c.work.Go(c.runWriter)
	return c
}

// Source tells where the answer of a [Cache.Lookup] came from. It is the value of the access log's
// field "source" (docs/access-log.md).
type Source uint8

const (
	// SourceNone is the zero value: there was no answer.
	SourceNone Source = iota
	// SourceHot is the in-memory hot tier.
	SourceHot
	// SourceStore is the persistent store.
	SourceStore
	// SourceFetch is a robots.txt fetch that this request began.
	SourceFetch
	// SourceWait is work that another request had begun and this one waited for.
	SourceWait
)

// String returns "none", "hot", "store", "fetch" or "wait".
func (s Source) String() string { return [...]string{"none", "hot", "store", "fetch", "wait"}[s] }

// Lookup returns the entry of o. It waits for a retrieval only if no entry may be used: see
// fetch.Policy.Fresh. All requests that wait for o share the retrieval, which continues even if
// they leave.
//
// If the answer expires soon, or is a failure due for a retry, Lookup starts a retrieval in the
// background.
//
// Errors: ErrPending, ErrClosed, a [*ForbiddenError], or the error of ctx. The request must then be
// refused. A hot hit allocates nothing and takes no lock of the cache, except for the first hit of
// an entry.
//
// For a crawler: if the site refuses the gateway itself, its answer to the crawler counts. If too
// many other crawlers have asked before, the site is not asked, and the origin counts as
// unreachable.
func (c *Cache) Lookup(ctx context.Context, o origin.Origin, a Asker) (*Entry, Source, error) {
	k := fetch.Key{Origin: o}
	e, s, err := c.atHand(k), SourceHot, error(nil)
	if e == nil {
		e, s, err = c.lookupSlow(ctx, k, false)
	}
	if err == nil && a.Token != "" && e.turnedAway() {
		e, s, err = c.lookupVariant(ctx, e, s, a)
	}
	c.cfg.Observer.Looked(s, err)
	return e, s, err
}

func (c *Cache) lookupVariant(ctx context.Context, base *Entry, s Source, a Asker) (*Entry, Source, error) {
	k := fetch.Key{Origin: base.record.Origin, Agent: a.Token}
	e := c.atHand(k)
	if e == nil {
		k.Agent = strings.Clone(a.Token) // it is a part of a longer string
		a.Token = k.Agent
		if !base.askers.admit(a) {
			c.cfg.Observer.Dropped(DropAgent)
			return c.crowded(k), s, nil
		}
		var from Source
		var err error
		if e, from, err = c.lookupSlow(ctx, k, false); err != nil {
			return nil, SourceNone, err
		}
		s = max(s, from)
	}
	if e.repeats(base) {
		return base, s, nil
	}
	return e, s, nil
}

// atHand returns the entry of k from memory if it may be used, otherwise nil.
func (c *Cache) atHand(k fetch.Key) *Entry {
	now := time.Now()
	e := c.hot.get(k)
	if e == nil || e.interpretation != c.interpretation() || !e.Fresh(now) {
		return nil
	}
	c.markUsed(e, now)
	return e
}

// markPause is the least time between two calls of markUsed for one entry that have an effect.
const markPause = time.Second

// markUsed records that a request asked for e, and starts a refresh that is due.
func (c *Cache) markUsed(e *Entry, now time.Time) {
	n, last := now.UnixNano(), e.usedAt.Load()
	early := n >= last && n < last+int64(markPause)
	if early || !e.usedAt.CompareAndSwap(last, n) {
		return
	}
	if last == 0 {
		c.refreshLater(e.record.Key(), e.record.Failing(), time.Until(e.interpretation.Policy.RefreshAt(e.record)))
	}
	c.hot.touch(e.record.Key())
	if e.interpretation.Policy.RefreshDue(e.record, now) && !c.refresh(e.record.Key(), e.record.Failing()) {
		c.cfg.Observer.Dropped(DropRefresh)
	}
}

// Refresh fetches o, and then its variants, even if their entries are fresh, and returns its own
// result. It may share a retrieval that is in progress. The errors are those of Lookup.
func (c *Cache) Refresh(ctx context.Context, o origin.Origin) (*Entry, error) {
	e, _, err := c.lookupSlow(ctx, fetch.Key{Origin: o}, true)
	if err != nil || !e.turnedAway() {
		return e, err
	}
	keys := c.keys(o)[1:]
	kept, _ := c.Variants(ctx, o) // if the store is away, those in memory must do
	for i := range kept {
		keys = append(keys, kept[i].Key())
	}
	var all sync.WaitGroup
	for _, k := range keys {
		all.Go(func() { _, _, _ = c.lookupSlow(ctx, k, true) }) // its failure is in its record
	}
	all.Wait()
	return e, nil
}

var errNoOrigin = errors.New("looking up robots.txt: no origin")

func (c *Cache) lookupSlow(ctx context.Context, k fetch.Key, forced bool) (*Entry, Source, error) {
	if k.Origin.IsZero() {
		return nil, SourceNone, errNoOrigin
	}
	f, leads, err := c.join(k, forced)
	if err != nil {
		return nil, SourceNone, err
	}
	defer c.leave(f)
	if leads {
		c.lead(f)
	} else {
		if e := c.current(f); e != nil && !forced {
			c.markUsed(e, time.Now())
			return e, SourceStore, nil
		}
		c.promote(f)
	}
	e, err := c.wait(ctx, f)
	if err != nil {
		return nil, SourceNone, err
	}
	// A successful fetch is not a hit yet. A failed one will be requested again, so schedule its
	// retry.
	if f.source == SourceStore || e.record.Failing() {
		c.markUsed(e, time.Now())
	}
	if !leads {
		return e, SourceWait, nil
	}
	return e, f.source, nil
}

// Peek returns the entry of o fetched in the name of an agent (empty: of the gateway), fresh or
// not, and whether there is one. It never fetches, and waits only for the store.
func (c *Cache) Peek(o origin.Origin, agent string) (*Entry, bool) {
	k := fetch.Key{Origin: o, Agent: agent}
	e := c.hot.get(k)
	if e == nil && !k.Origin.IsZero() {
		e = c.recall(k)
	}
	return e, e != nil
}

// Purge forgets o and its variants: their records, last good copies and histories. The next Lookup
// fetches. A retrieval in progress still answers the requests that wait for it, but no
// others.
func (c *Cache) Purge(ctx context.Context, o origin.Origin) error {
	if err := c.Forget(o); err != nil {
		return err
	}
	// The write in progress may still store it. The time is for that write and for the deletion.
	ctx, cancel := context.WithTimeout(ctx, 2*storeTimeout)
	defer cancel()
	err := c.purge(ctx, fetch.Key{Origin: o})
	kept, listErr := c.Variants(ctx, o)
	for i := range kept {
		err = errors.Join(err, c.purge(ctx, kept[i].Key()))
	}
	return cmp.Or(err, listErr)
}

func (c *Cache) purge(ctx context.Context, k fetch.Key) error {
	if err := c.forget(k); err != nil {
		return err
	}
	err := c.writer.Acquire(ctx, 1)
	if err == nil {
		err = c.cfg.Store.Delete(ctx, k)
		c.reportStore("delete", err)
		c.writer.Release(1)
	}
	if err != nil {
		return fmt.Errorf("purging %s: %w", k, err)
	}
	return nil
}

// Forget drops o and its variants from memory, but not from the store: another gateway may have
// saved them. A retrieval in progress still answers the requests that wait for it, but no
// others.
func (c *Cache) Forget(o origin.Origin) error {
	for _, k := range c.keys(o) {
		if err := c.forget(k); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cache) forget(k fetch.Key) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	if f := c.flights[k]; f != nil {
		f.discarded = true
		delete(c.flights, k)
	}
	c.pending.drop(k)
	c.hot.drop(k)
	c.stopTimer(k)
	c.mu.Unlock()
	return nil
}

// ForgetAll drops all entries from memory, except those that are not saved yet.
func (c *Cache) ForgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		for k := range c.hot.keys() {
			c.hot.drop(k)
		}
	}
}

// Close ends all work, saves the pending writes, and closes the store. Waiting and later calls get
// ErrClosed. The outcome of a retrieval that Close broke off is not recorded. Calls after the first
// do nothing.
func (c *Cache) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	for k := range c.due {
		c.stopTimer(k)
	}
	c.mu.Unlock()
	c.stop()
	c.work.Wait()
	c.hot.close()
	c.flush(context.Background())
	c.mu.Lock()
	n := len(c.pending.entries)
	c.mu.Unlock()
	err := c.cfg.Store.Close()
	if n > 0 {
		err = errors.Join(fmt.Errorf("closing the robots.txt cache: %d records could not be saved", n), err)
	}
	return err
}

func (c *Cache) interpretation() Interpretation {
	cfg := c.tuned.Load()
	return Interpretation{cfg.Policy, cfg.IndexHTML}
}

func (c *Cache) policy() *fetch.Policy { return &c.tuned.Load().Policy }

// Configure changes Policy, IndexHTML, Budget, MaxSize, Parallel and InFlight, with the defaults of
// [Config]; it ignores the other fields. Records are facts, so nothing is fetched again: from the
// next request on they are read by the new configuration.
func (c *Cache) Configure(cfg Config) {
	cfg = cfg.filled()
	c.tuned.Store(&cfg)
	c.hot.resize(cfg.MaxSize)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending.limit = cfg.MaxSize / 4
	for cl := range classes {
		c.slots[cl].resize(cl, cfg.InFlight, cfg.Parallel)
		c.dispatch(c.slots[cl])
	}
}
