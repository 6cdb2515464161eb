package robotscache

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/crawlgate/crawlgate/fetch"
)

// retrieve is the second part of a flight, when its turn has come: it makes the retrievals that are
// still needed.
func (c *Cache) retrieve(f *flight, reading *semaphore.Weighted) {
	defer c.completeIfPanicking(f)
	queued := time.Since(f.born)

	budget := c.tuned.Load().Budget // the same for both, even if the configuration changes
	known, endLease := c.takeLease(f, budget)
	keep := false
	defer func() { endLease(keep) }()
	if c.needsNoFetch(f, known) {
		c.complete(f, known, SourceStore, nil)
		return
	}
	out := c.fetch(f.key, known, reading, budget)
	c.cfg.Observer.Fetched(f.key, out, queued)
	// If the record could not be saved, the lease expires by itself. Until then the other gateways
	// wait for the record and do not fetch.
	keep = !c.finish(f, known, out)
	if f.key.Agent == "" { // an answer to one agent does not apply to others
		c.share(out)
	}
}

// finish turns an outcome into the entry that follows known and completes the flight. If the entry
// is not to be kept, only the flight's waiters get it. finish reports false if there is something
// to save that others do not see in the store yet.
func (c *Cache) finish(f *flight, known *Entry, out fetch.Outcome) (done bool) {
	e, kept, err := c.nextEntry(f.key, known, out)
	unsaved := kept && c.isRepeated(f, known, e)
	c.mu.Lock()
	f.discarded, f.unsaved = f.discarded || !kept, unsaved
	kept = !f.discarded
	c.mu.Unlock()
	before := known.Record()
	before.Origin, before.Agent = f.key.Origin, f.key.Agent
	if !errors.Is(err, ErrClosed) && !out.Refused() { // which ask nobody
		c.cfg.Observer.Recorded(before, e, out, kept)
	}
	if discarded := c.complete(f, e, SourceFetch, err); discarded {
		return true
	}
	return c.persist()
}

// fetch asks the fetcher, within the budget. It is bound to the life of the cache and to no
// request. Each answer takes one of the reading slots until it has been read.
func (c *Cache) fetch(k fetch.Key, known *Entry, reading *semaphore.Weighted, budget time.Duration) fetch.Outcome {
	ctx, cancel := context.WithTimeout(c.base, budget)
	defer cancel()
	var waited atomic.Int64 // for slots, in ns; during a wait, minus the time at which it began
	gate := func(ctx context.Context) {
		waited.Add(-time.Now().UnixNano())
		if reading.Acquire(ctx, 1) == nil {
			context.AfterFunc(ctx, func() { reading.Release(1) })
		}
		waited.Add(time.Now().UnixNano())
	}
	failing := known != nil && known.record.Failing()
	out := fetch.Try(failing, func() fetch.Outcome { return c.cfg.Fetcher.Fetch(ctx, k, gate) })
	ns := waited.Load()
	if ns < 0 {
		ns += time.Now().UnixNano()
	}
	if out.Cause == fetch.CauseTimeout && ns >= int64(budget/2) {
		return outcomeStarved
	}
	return out
}

// outcomeStarved is the outcome of a retrieval that spent its time waiting for a slot. It says
// nothing about the origin.
var outcomeStarved = fetch.Outcome{Cause: fetch.CauseLocal, Detail: "too many robots.txt files are being fetched"}

// nextEntry returns the entry that follows known (nil without one) after an outcome; kept says
// whether to keep it. A failure because the cache was closed says nothing about the origin; nor
// does one of our own machine, or a refusal by our own guard.
func (c *Cache) nextEntry(k fetch.Key, known *Entry, out fetch.Outcome) (e *Entry, kept bool, err error) {
	before := fetch.Record{Origin: k.Origin, Agent: k.Agent}
	if known != nil {
		before = known.record
	}
	as, now := c.interpretation(), time.Now()
	unreachable := out.Kind == fetch.KindUnreachable
	switch {
	case unreachable && c.base.Err() != nil:
		return nil, false, ErrClosed
	case unreachable && out.Cause == fetch.CauseCanceled:
		return nil, false, ErrPending
	case unreachable && out.Refused():
		return nil, false, &ForbiddenError{out.Cause, out.Detail}
	case unreachable && out.Ours():
		return newEntry(as.Policy.Provisional(before, out, now), as, known), false, nil
	default:
		return newEntry(as.Policy.Next(before, out, now), as, known), true, nil
	}
}

// needsNoFetch reports whether another gateway, or an earlier flight, has made the retrieval of a
// flight.
func (c *Cache) needsNoFetch(f *flight, known *Entry) bool {
	if known == nil {
		return false
	}
	c.mu.Lock()
	forced := f.forced
	c.mu.Unlock()
	now := time.Now()
	if forced && !attempted(known.record, now).After(f.born) {
		return false
	}
	return c.policy().Fresh(known.record, now) && !c.policy().RefreshDue(known.record, now)
}

const (
	// firstPoll and lastPoll are the pauses between two looks for the record that another gateway
	// is about to save.
	firstPoll = 50 * time.Millisecond
	lastPoll  = 500 * time.Millisecond
)

// takeLease returns the newest known entry, or nil, once the caller may fetch or the entry needs no
// fetch. If the store is shared, the caller then holds the lease, or sees the record of the gateway
// that held it, or has waited until any lease must have ended. The caller ends the lease if it
// holds one: see hold.
//
// While the store is away every gateway fetches for itself: origins are asked more often, but no
// request passes that rules forbid.
func (c *Cache) takeLease(f *flight, budget time.Duration) (known *Entry, end func(keep bool)) {
	if c.leaser == nil {
		return f.known(), func(bool) {}
	}
	ctx, cancel := context.WithTimeout(c.base, budget+leaseMargin)
	defer cancel()
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		bounded, cancel := context.WithTimeout(ctx, 2*storeTimeout) // it is worth a second try
		l, acquired, err := c.leaser.Lease(bounded, f.key, leaseTTL)
		cancel()
		c.reportStore("lease", err)
		// Only now: the gateway that held the lease saved its record before it released it.
		known = c.recall(f.key)
		switch {
		case acquired:
			return known, c.renewLease(l)
		case err != nil, c.needsNoFetch(f, known), !sleep(ctx, pause):
			return known, func(bool) {}
		}
	}
}

// renewLease renews a lease until end is called, which also releases it, or lets it expire if keep
// is set. A lost lease is no longer renewed: the fetch goes on, perhaps beside another gateway's.
func (c *Cache) renewLease(l Lease) (end func(keep bool)) {
	ctx, cancel := context.WithCancel(c.base)
	c.work.Go(func() {
		for held := true; held && sleep(ctx, leaseRenewal); {
			bounded, done := context.WithTimeout(c.base, storeTimeout)
			still, err := l.Renew(bounded)
			done()
			c.reportStore("lease", err)
			held = still || err != nil // perhaps
		}
	})
	return func(keep bool) {
		cancel()
		if !keep {
			l.Release()
		}
	}
}

// sleep waits for d and reports whether it did: it does not once ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// share uses an outcome that redirects brought from another origin's own robots.txt for the other
// origin too, unless more is known there. It is one of the gateway's own, not of an agent.
func (c *Cache) share(out fetch.Outcome) {
	o, out, ok := out.Shared()
	if !ok {
		return
	}
	k := fetch.Key{Origin: o}
	c.mu.Lock()
	if c.closed || c.flights[k] != nil {
		c.mu.Unlock()
		return
	}
	f := c.addFlight(k)
	c.mu.Unlock()

	defer c.completeIfPanicking(f)
	known := c.recall(k)
	if c.needsNoFetch(f, known) {
		c.complete(f, known, SourceStore, nil)
		return
	}
	c.finish(f, known, out)
}

// recall returns the newest entry of k in the hot tier, the pending writes or the store, under the
// current interpretation, or nil.
func (c *Cache) recall(k fetch.Key) *Entry {
	c.mu.Lock()
	best := c.pending.newest(k)
	c.mu.Unlock()
	now := time.Now()
	newer := func(r fetch.Record) bool { return best == nil || attempted(r, now).After(attempted(best.record, now)) }
	if hot := c.hot.get(k); hot != nil && newer(hot.record) {
		best = hot
	}
	r, err := c.load(k)
	switch as := c.interpretation(); {
	case err == nil && newer(r):
		return newEntry(r, as, best)
	case best != nil && best.interpretation != as:
		return newEntry(best.record, as, best)
	}
	return best
}

// skew is how far clocks of gateways that share a store may differ.
const skew = 2 * time.Minute

// attempted returns when a record's origin was last asked, which orders the versions of a record. A
// record dated in the future comes from a wrong clock and counts as the oldest, or nothing could
// replace it until then.
func attempted(r fetch.Record, now time.Time) time.Time {
	t := r.FetchedAt
	if r.LastFailure.At.After(t) {
		t = r.LastFailure.At
	}
	if t.After(now.Add(skew)) {
		return time.Time{}
	}
	return t
}

// load asks the store for a record, on behalf of a flight and not of the request that started it:
// see lead.
func (c *Cache) load(k fetch.Key) (fetch.Record, error) {
	ctx, cancel := context.WithTimeout(c.base, storeTimeout)
	defer cancel()
	r, err := c.cfg.Store.Load(ctx, k)
	if err == nil && r.Key() != k {
		err = errWrongRecord
	}
	c.reportStore("load", err)
	return r, err
}

var errWrongRecord = errors.Join(ErrCorrupt, errors.New("record of another origin or agent"))

// reportStore tells the observer how a call of the store went. A store that goes away, or fills its
// disk, is reported once and not at each call. Reading and writing are reported separately, because
// a store that can be read may still fail to write.
func (c *Cache) reportStore(op string, err error) {
	failed := err != nil && !errors.Is(err, ErrNotFound)
	if failed {
		if c.base.Err() != nil && op != "save" {
			return // ended by Close
		}
		c.cfg.Observer.StoreFailed(op, err)
		if !errors.Is(err, ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			return // it answers, if badly
		}
	}
	c.mu.Lock()
	before, cannot := c.cannotRead || c.cannotWrite, &c.cannotRead
	if op == "save" || op == "delete" {
		cannot = &c.cannotWrite
	}
	*cannot = failed
	after := c.cannotRead || c.cannotWrite
	c.mu.Unlock()
	switch {
	case before && !after:
		c.cfg.Observer.StoreAvailable(true, nil)
	case after && !before:
		c.cfg.Observer.StoreAvailable(false, err)
	}
}
