package robotscache

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
)

// Observer is told what a [Cache] does, for metrics and logs. Its methods are
// called on the path of requests by many goroutines at once, and must be quick.
type Observer interface {
	// Looked is called at the end of each Lookup: s is where the answer came from,
	// SourceNone if err is set. It is called for hot hits too, and must not
	// allocate there.
	Looked(s Source, err error)
	// Fetched is called after each retrieval. queued is how long it had waited for
	// its turn; background says that no request waited for it when it began.
	Fetched(o origin.Origin, out fetch.Outcome, queued time.Duration, background bool)
	// Recorded is called when an outcome has become part of the record of an origin,
	// be it by a retrieval of its own or by redirects that led another to its
	// robots.txt. before is what was known of it, zero but for the origin if that was
	// nothing.
	Recorded(before fetch.Record, out fetch.Outcome)
	// Dropped is called for each thing given up because a bound was reached.
	Dropped(d Drop)
	// StoreFailed is called for each call of the store that failed; op is the name
	// of its method in lower case.
	StoreFailed(op string, err error)
	// StoreAvailable is called when the store begins to fail (false, with the
	// error), and when it works again (true, nil). Each change is reported once.
	StoreAvailable(ok bool, err error)
	// Panicked is called when reading what o sent ran into a defect of ours.
	Panicked(o origin.Origin, value any, stack []byte)
}

// Drop names a bound that was reached.
type Drop uint8

const (
	// DropWaiter is a request refused with ErrPending by the bounds on waiters.
	DropWaiter Drop = iota + 1
	// DropQueue is a request refused with ErrPending by the bound on the queue.
	DropQueue
	// DropRefresh is an early refresh or a retry that found its queue full. It is
	// asked for again.
	DropRefresh
	// DropUnsaved is a record that the store could not take and for which there
	// was no more room beside it.
	DropUnsaved
)

// String returns "waiter", "queue", "refresh" or "unsaved".
func (d Drop) String() string {
	switch d {
	case DropWaiter:
		return "waiter"
	case DropQueue:
		return "queue"
	case DropRefresh:
		return "refresh"
	case DropUnsaved:
		return "unsaved"
	default:
		return "unknown"
	}
}

// NopObserver is an [Observer] that does nothing. It may be embedded by one that
// wants some of the events only.
type NopObserver struct{}

// Looked does nothing.
func (NopObserver) Looked(Source, error) {}

// Fetched does nothing.
func (NopObserver) Fetched(origin.Origin, fetch.Outcome, time.Duration, bool) {}

// Recorded does nothing.
func (NopObserver) Recorded(fetch.Record, fetch.Outcome) {}

// Dropped does nothing.
func (NopObserver) Dropped(Drop) {}

// StoreFailed does nothing.
func (NopObserver) StoreFailed(string, error) {}

// StoreAvailable does nothing.
func (NopObserver) StoreAvailable(bool, error) {}

// Panicked does nothing.
func (NopObserver) Panicked(origin.Origin, any, []byte) {}

// Source tells where the answer of a [Cache.Lookup] came from. It is the value
// of the access log's field "source" (DESIGN §9).
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
func (s Source) String() string {
	switch s {
	case SourceHot:
		return "hot"
	case SourceStore:
		return "store"
	case SourceFetch:
		return "fetch"
	case SourceWait:
		return "wait"
	default:
		return "none"
	}
}

// health remembers whether reading or writing the store fails, so that a store that
// goes away, or fills its disk, is reported once and not at each call. Reading and
// writing are apart: what can still be read is no sign that it can be written.
type health struct {
	mu               sync.Mutex
	reading, writing bool // failing
}

// set records how a call went, and reports whether the health of the store has
// changed by it, and to what.
func (h *health) set(op string, failing bool) (changed, healthy bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.reading || h.writing
	if op == "save" || op == "delete" {
		h.writing = failing
	} else {
		h.reading = failing
	}
	after := h.reading || h.writing
	return before != after, !after
}

// reportStore tells the observer how a call of the store went.
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
	if changed, healthy := c.health.set(op, failed); changed {
		if healthy {
			err = nil
		}
		c.cfg.Observer.StoreAvailable(healthy, err)
	}
}
