package robotscache

import (
	"cmp"
	"context"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
)

// Fetcher retrieves one robots.txt; *fetch.Fetcher is one. Fetch ends soon after ctx does. It is
// called for many origins at once, but for one origin by one goroutine only, unless the origin is
// purged during the retrieval. It must be bounded in the bytes that it reads, and should ask the
// gate before it reads an answer.
type Fetcher interface {
	Fetch(ctx context.Context, k fetch.Key, gate fetch.Gate) fetch.Outcome
}

// Observer receives the events of a [Cache], for metrics and logs. Many goroutines call its methods
// at once on the path of requests, so they must be quick.
type Observer interface {
	// Looked is called at the end of each Lookup: s is where the answer came from, SourceNone if
	// err is set. It is called for hot hits too, and must not allocate there.
	Looked(s Source, err error)
	// Fetched is called after each retrieval. queued is how long it had waited for its turn.
	Fetched(k fetch.Key, out fetch.Outcome, queued time.Duration)
	// Recorded is called before anybody gets the entry (or nil) that results from an outcome. The
	// outcome is from a retrieval of this robots.txt, or from another origin's redirects to it. before
	// is the previous record, with only its key set if there was none. kept says that later requests
	// get the entry too, and not only those that wait for it. Recorded is not called for an origin
	// that our own guard forbids.
	Recorded(before fetch.Record, e *Entry, out fetch.Outcome, kept bool)
	// Dropped is called for each thing given up because a bound was reached.
	Dropped(d Drop)
	// StoreFailed is called for each call of the store that failed; op is the name of its method in
	// lower case.
	StoreFailed(op string, err error)
	// StoreAvailable is called once for each change: when the store starts to fail (false, with the
	// error), and when it works again (true, nil).
	StoreAvailable(ok bool, err error)
	// Panicked is called when a defect of ours caused a panic while reading an origin's data.
	Panicked(k fetch.Key, value any, stack []byte)
}

// Drop names a bound that was reached.
type Drop string

// The bounds.
const (
	// DropWaiter is a request refused with ErrPending by the bounds on waiters.
	DropWaiter Drop = "waiter"
	// DropQueue is a request refused with ErrPending by the bound on the queue.
	DropQueue Drop = "queue"
	// DropAgent is a request of an agent in whose name the origin was not asked: see [Cache.Lookup].
	DropAgent Drop = "agent"
	// DropRefresh is an early refresh or a retry that found its queue full. A later request asks
	// for it again.
	DropRefresh Drop = "refresh"
	// DropUnsaved is a record that neither the store nor the pending writes had room for.
	DropUnsaved Drop = "unsaved"
)

// NopObserver is the default [Observer], which does nothing.
type NopObserver struct{ nopObserver }

type nopObserver struct{}

func (nopObserver) Looked(Source, error)                               {}
func (nopObserver) Fetched(fetch.Key, fetch.Outcome, time.Duration)    {}
func (nopObserver) Recorded(fetch.Record, *Entry, fetch.Outcome, bool) {}
func (nopObserver) Dropped(Drop)                                       {}
func (nopObserver) StoreFailed(string, error)                          {}
func (nopObserver) StoreAvailable(bool, error)                         {}
func (nopObserver) Panicked(fetch.Key, any, []byte)                    {}

// Config configures a [Cache]. Only Store and Fetcher are required. Every other field that is zero
// takes its default.
type Config struct {
	// Store is the source of truth. [New] takes ownership of it. Use a memstore to keep nothing beyond
	// the process.
	Store Store
	// Fetcher retrieves the files that the store does not have.
	Fetcher Fetcher
	// Policy determines how records age and what they permit.
	Policy fetch.Policy
	// IndexHTML is robotstxt.Options.IndexHTML; default off.
	IndexHTML bool
	// Observer receives events; default: none.
	Observer Observer

	// MaxSize bounds the memory of the hot tier, in bytes of records, bodies and compiled rulesets;
	// default 256 MiB. A quarter as much again may be used for records that the store could not
	// take while it is away.
	MaxSize int64

	// Budget is how long one retrieval may take, and how long a request waits for one, its time in the
	// queue included; default 20 s. A retrieval that was queued for a while continues after its
	// requests have given up.
	Budget time.Duration
	// Parallel bounds the retrievals that read what a server sends, at once; default
	// 256. First requests may take three quarters of it, early refreshes and retries of
	// unreachable origins an eighth each. Of each, 3*Parallel may begin in a second.
	Parallel int
	// InFlight bounds the retrievals in progress; most of them wait for silent servers. It is divided
	// like Parallel. Each costs a connection, about 40 KiB. Default and maximum: 18 times Parallel,
	// which is 4,608 retrievals and 180 MiB by default, enough for a storm of 10,000 new origins if
	// three in ten hang.
	InFlight int
	// Queue bounds the origins that wait for their retrieval to begin, in each of the three
	// classes; default 16,384, which holds a burst of 10,000 new origins and costs about 4 MiB when
	// full.
	Queue int

	// WaitersPerOrigin bounds the requests that wait for one origin; default 4,096: 2,000 crawlers
	// that meet a new origin at once are served twice over, and a stampede upon one hanging origin
	// cannot take all places of Waiters.
	WaitersPerOrigin int
	// Waiters bounds the requests that wait in total; default 32,768. A waiter costs the cache itself
	// under 1 KiB, but its connection, goroutine and buffers cost a gateway some 40 KiB: the default
	// bounds the memory of all waiters at 1.3 GiB.
	Waiters int
}

const (
	// waitGrace is added to the budget of waiting requests, so that they see the record of a
	// retrieval that used its whole budget, and not ErrPending.
	waitGrace = 250 * time.Millisecond
	// storeTimeout bounds each call of the store. Stores have tighter bounds of their own; this one
	// is for a disk that hangs.
	storeTimeout = 2 * time.Second
	// leaseTTL is how long a lease lasts without renewal. A gateway that dies blocks its origins for
	// the others no longer than that. leaseRenewal is the time between renewals: two may be lost and a
	// third be late.
	leaseTTL     = 4 * time.Second
	leaseRenewal = time.Second
	// leaseMargin is the time to save a record. A gateway waits for another one's lease this much
	// longer than a retrieval may take.
	leaseMargin = 5 * time.Second
	// maxDue bounds the origins that are scheduled for their next refresh, at about 300 bytes each.
	// Others are refreshed when a request asks for them.
	maxDue = 65536
)

// filled returns c with the default for every field that is not required.
func (c Config) filled() Config {
	if c.Observer == nil {
		c.Observer = NopObserver{}
	}
	c.MaxSize = cmp.Or(c.MaxSize, 256<<20)
	c.Budget = cmp.Or(c.Budget, 20*time.Second)
	c.Parallel = cmp.Or(c.Parallel, 256)
	most := 18 * c.Parallel
	c.InFlight = min(cmp.Or(c.InFlight, most), most)
	c.Queue = cmp.Or(c.Queue, 16_384)
	c.WaitersPerOrigin = cmp.Or(c.WaitersPerOrigin, 4096)
	c.Waiters = cmp.Or(c.Waiters, 32_768)
	return c
}
