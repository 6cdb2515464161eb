package robotscache

import (
	"time"

	"github.com/crawlgate/crawlgate/fetch"
)

// tuning is what of a Config may change while the cache runs and is read on the
// path of requests.
type tuning struct {
	policy fetch.Policy
	budget time.Duration
}

func (c *Cache) policy() *fetch.Policy { return &c.tuned.Load().policy }

func (c *Cache) budget() time.Duration { return c.tuned.Load().budget }

// Configure changes Policy, Budget, MaxSize, Parallel and Silent, with the defaults
// of [Config]; its other fields are left out of account. Records are facts, so
// nothing is fetched again for it: they are judged by the new policy from the
// next request on.
func (c *Cache) Configure(cfg Config) {
	cfg = cfg.filled()
	c.tuned.Store(&tuning{cfg.Policy, cfg.Budget})
	c.hot.resize(cfg.MaxSize)
	c.mu.Lock()
	c.unsaved.limit = cfg.MaxSize / 4
	c.schedule.resize(cfg.Parallel, cfg.Silent)
	c.dispatchAndUnlock()
}

// judged returns the entry as the policy in force judges it, nil for none.
func (c *Cache) judged(e *Entry) *Entry {
	if policy := c.policy(); e != nil && e.policy != *policy {
		return newEntry(e.record, *policy, e)
	}
	return e
}
