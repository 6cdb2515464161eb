package robotscache

import (
	"time"

	"github.com/crawlgate/crawlgate/fetch"
)

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
// the defaults of [Config]; its other fields are left out of account. Records are
// facts, so nothing is fetched again for it: they are read anew from the next
// request on.
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

// judged returns the entry as records are read now, nil for none.
func (c *Cache) judged(e *Entry) *Entry {
	if as := c.interpretation(); e != nil && e.interpretation != *as {
		return newEntry(e.record, *as, e)
	}
	return e
}
