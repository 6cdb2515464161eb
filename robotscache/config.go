package robotscache

import (
	"context"
	"errors"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
)

// Fetcher retrieves one robots.txt; *fetch.Fetcher is one. Fetch ends soon after ctx does. It is
// called for many origins at once, though for one origin by one goroutine only (unless it is
// purged meanwhile), must be bounded in the bytes that it reads, and should ask the gate before it
// reads an answer.
type Fetcher interface {
	Fetch(ctx context.Context, o origin.Origin, gate fetch.Gate) fetch.Outcome
}

// Config holds what a [Cache] is made of. Only Store and Fetcher are required:
// every other field that is zero or negative takes its default.
type Config struct {
	// Store is the truth; [New] takes ownership of it. Where nothing is to be kept
	// beyond the process, it is a memstore.
	Store Store
	// Fetcher retrieves what the store does not hold.
	Fetcher Fetcher
	// Policy says how records age and what they permit.
	Policy fetch.Policy
	// IndexHTML is robotstxt.Options.IndexHTML; default off.
	IndexHTML bool
	// Observer is told what happens; default: nobody.
	Observer Observer

	// MaxSize bounds the memory of the hot tier, in bytes of records, bodies and
	// compiled rulesets; default 256 MiB. A quarter as much again may be used for
	// records that the store could not take while it is away.
	MaxSize int64

	// Budget is how long one retrieval may take, and how long a request waits for
	// one, its time in the queue included; default 20 s. A retrieval that was in
	// the queue for a while goes on when its requests have given up.
	Budget time.Duration
	// Parallel bounds the retrievals that read what a server sends, at once; default
	// 256. First requests may take three quarters of it, early refreshes and retries of
	// unreachable origins an eighth each. Of each, 3*Parallel may begin in a second.
	Parallel int
	// InFlight bounds the retrievals under way, most of which wait for servers that have
	// not said anything yet. It is divided as Parallel is. They cost a connection each,
	// some 40 KiB. Default and most 18 times Parallel, which is 4,608 of them and 180 MiB:
	// enough for a storm of 10,000 new origins of which three in ten hang.
	InFlight int
	// Queue bounds the origins that wait for their retrieval to begin, in each of
	// the three classes; default 16,384, which holds a burst of 10,000 new origins
	// and costs about 4 MiB when full.
	Queue int

	// WaitersPerOrigin bounds the requests that wait for one origin; default
	// 4,096: 2,000 crawlers that meet a new origin at once are served twice over,
	// and a stampede upon one hanging origin cannot take all places of Waiters.
	WaitersPerOrigin int
	// Waiters bounds the requests that wait in all; default 32,768. A waiter costs
	// the cache itself under 1 KiB, but its connection, goroutine and buffers cost
	// a gateway some 40 KiB: the default bounds what is held open at 1.3 GiB.
	Waiters int
}

const (
	defaultMaxSize          = 256 << 20
	defaultBudget           = 20 * time.Second
	defaultParallel         = 256
	defaultQueue            = 16384
	inFlightPerReading      = 18
	defaultWaitersPerOrigin = 4096
	defaultWaiters          = 32768

	// waitGrace is added to the budget of waiting requests, so that they see the
	// record of a retrieval that used its whole budget, and not ErrPending.
	waitGrace = 250 * time.Millisecond
	// storeTimeout bounds each call of the store. Stores have tighter bounds of
	// their own; this one is for a disk that hangs.
	storeTimeout = 2 * time.Second
	// leaseTTL is how long a lease lasts that is not renewed: a gateway that dies
	// keeps its origins from the others for no longer. leaseRenewal is the time
	// between renewals, so that two may be lost and a third be late.
	leaseTTL     = 4 * time.Second
	leaseRenewal = time.Second
	// leaseMargin is how much longer than a retrieval may take a gateway waits for
	// another that holds the lease: the time to save the record.
	leaseMargin = 5 * time.Second
	// maxDue bounds the origins that are on the list for their next refresh, some
	// 300 bytes each. Those beyond are refreshed when a request asks for them.
	maxDue = 65536
)

var errConfig = errors.New("robotscache: Config needs a Store and a Fetcher")

// withDefaults returns c with every unset field set.
func (c Config) withDefaults() (Config, error) {
	if c.Store == nil || c.Fetcher == nil {
		return c, errConfig
	}
	return c.filled(), nil
}

// filled returns c with the default for every field that is not required.
func (c Config) filled() Config {
	if c.Observer == nil {
		c.Observer = NopObserver{}
	}
	setDefault(&c.MaxSize, defaultMaxSize)
	setDefault(&c.Budget, defaultBudget)
	setDefault(&c.Parallel, defaultParallel)
	setDefault(&c.InFlight, inFlightPerReading*c.Parallel)
	c.InFlight = min(c.InFlight, inFlightPerReading*c.Parallel)
	setDefault(&c.Queue, defaultQueue)
	setDefault(&c.WaitersPerOrigin, defaultWaitersPerOrigin)
	setDefault(&c.Waiters, defaultWaiters)
	return c
}

func setDefault[T ~int | ~int64](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// tuning is what of a Config may change while the cache runs and is read on the
// path of requests.
type tuning struct {
	interpretation Interpretation
	budget         time.Duration
}

func (c Config) tuning() *tuning { return &tuning{Interpretation{c.Policy, c.IndexHTML}, c.Budget} }

func (c *Cache) interpretation() *Interpretation { return &c.tuned.Load().interpretation }

func (c *Cache) policy() *fetch.Policy { return &c.interpretation().Policy }

func (c *Cache) budget() time.Duration { return c.tuned.Load().budget }

// Configure changes Policy, IndexHTML, Budget, MaxSize, Parallel and InFlight, with
// the defaults of [Config]; it ignores the other fields. Records are
// facts, so nothing is fetched again: from the next request on they are read by
// the new configuration.
func (c *Cache) Configure(cfg Config) {
	cfg = cfg.filled()
	c.tuned.Store(cfg.tuning())
	c.hot.resize(cfg.MaxSize)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending.limit = cfg.MaxSize / 4
	for cl := range classes {
		c.slots[cl].resize(cl, cfg.InFlight, cfg.Parallel)
		c.dispatch(c.slots[cl])
	}
}
