package robotscache

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
)

// Records are written behind the answers: a flight puts its entry among the pending
// writes and completes, and a timer writes them to the store together. While the store
// is away they stay pending, so an outage of the store costs no knowledge.
const (
	// coalesce is how long a record waits at most for others to be written with it.
	// A gateway that is killed loses the records of that time and the write under way.
	coalesce = 200 * time.Millisecond
	// writeRetry is the pause after a write that failed.
	writeRetry = time.Second
	// maxBatch and maxBatchBytes bound one call of Store.Save, which must end within
	// storeTimeout. maxBatch records are written at once.
	maxBatch      = 1000
	maxBatchBytes = 8 << 20
)

// pendingWrites holds the newest entry of each origin that the store has not taken
// yet, oldest first. Not safe for concurrent use: Cache.mu guards it.
type pendingWrites struct {
	limit, size int64 // bytes
	failing     bool  // the last write failed
	timer       *time.Timer
	scheduled   bool // the timer runs
	order       list.List
	byOrigin    map[origin.Origin]*list.Element
}

func newPendingWrites(limit int64, write func()) *pendingWrites {
	p := &pendingWrites{limit: limit, byOrigin: make(map[origin.Origin]*list.Element)}
	p.timer = time.AfterFunc(time.Hour, write)
	p.timer.Stop()
	return p
}

// schedule has the pending writes written after d.
func (p *pendingWrites) schedule(d time.Duration) {
	p.timer.Reset(d)
	p.scheduled = true
}

func (p *pendingWrites) len() int { return p.order.Len() }

func (p *pendingWrites) get(o origin.Origin) *Entry {
	if el := p.byOrigin[o]; el != nil {
		return el.Value.(*Entry) //nolint:forcetypeassert // it holds nothing else
	}
	return nil
}

// put adds e in place of an older entry of its origin, and has it written.
func (p *pendingWrites) put(e *Entry) {
	p.drop(e.record.Origin)
	p.byOrigin[e.record.Origin] = p.order.PushBack(e)
	p.size += e.cost()
	switch {
	case p.len() == maxBatch && !p.failing:
		p.schedule(0)
	case !p.scheduled && p.failing: // the retry is under way
		p.schedule(writeRetry)
	case !p.scheduled:
		p.schedule(coalesce)
	}
}

func (p *pendingWrites) drop(o origin.Origin) {
	if e := p.get(o); e != nil {
		p.size -= e.cost()
		p.order.Remove(p.byOrigin[o])
		delete(p.byOrigin, o)
	}
}

// batch returns the oldest entries, at most n and at least one if there is any.
func (p *pendingWrites) batch(n int) (batch []*Entry) {
	size := int64(0)
	for el := p.order.Front(); el != nil && len(batch) < min(n, maxBatch); el = el.Next() {
		e := el.Value.(*Entry) //nolint:forcetypeassert // it holds nothing else
		if size += e.cost(); size > maxBatchBytes && len(batch) > 0 {
			break
		}
		batch = append(batch, e)
	}
	return batch
}

// remove drops the entries of a batch that no newer ones have replaced.
func (p *pendingWrites) remove(batch []*Entry) {
	for _, e := range batch {
		if p.get(e.record.Origin) == e {
			p.drop(e.record.Origin)
		}
	}
}

// trim drops the oldest entries that are beyond the limit and returns their number.
func (p *pendingWrites) trim() (dropped int) {
	for ; p.size > p.limit; dropped++ {
		p.remove(p.batch(1))
	}
	return dropped
}

// writeScheduled is called by the timer.
func (c *Cache) writeScheduled() {
	c.mu.Lock()
	c.pending.scheduled = false
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.work.Add(1)
	c.mu.Unlock()
	defer c.work.Done()
	c.flush(context.WithoutCancel(c.base))
}

// persist is called by a retrieval after its entry was added to the pending writes. If
// other gateways share the store, it reports whether the entry is there. When the
// pending writes are over their bound, the retrieval writes them itself, which slows
// retrievals down to the speed of the store; while the store is away the oldest
// entries are dropped instead.
func (c *Cache) persist() (ok bool) {
	c.mu.Lock()
	failing, full := c.pending.failing, c.pending.size > c.pending.limit
	c.mu.Unlock()
	switch {
	case failing:
		c.trimPending()
		return false
	case full || c.leaser != nil:
		return c.flush(context.WithoutCancel(c.base))
	default:
		return true
	}
}

// trimPending keeps the pending writes within their bound while the store is away.
func (c *Cache) trimPending() {
	c.mu.Lock()
	dropped := c.pending.trim()
	c.mu.Unlock()
	for range dropped {
		c.cfg.Observer.Dropped(DropUnsaved)
	}
}

// flush writes all entries that are pending now, and reports whether that worked. It
// stops at the first failure: a store that is away is away for all.
func (c *Cache) flush(ctx context.Context) (ok bool) {
	if !c.takeWriter(ctx) {
		return false
	}
	defer c.releaseWriter()
	c.mu.Lock()
	left := c.pending.len()
	c.mu.Unlock()
	for left > 0 {
		c.mu.Lock()
		batch := c.pending.batch(left)
		c.mu.Unlock()
		if len(batch) == 0 { // purged
			return true
		}
		if !c.write(batch) {
			return false
		}
		left -= len(batch)
	}
	return true
}

// takeWriter waits until the caller alone may change the store, or ctx ends.
func (c *Cache) takeWriter(ctx context.Context) bool {
	select {
	case c.writer <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *Cache) releaseWriter() { <-c.writer }

// write saves a batch, and reports whether the store is there to take the next. A
// record that cannot be kept is given up, so that it holds up no other.
func (c *Cache) write(batch []*Entry) (ok bool) {
	// A result that came in while the cache is being closed is worth saving.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.base), storeTimeout)
	defer cancel()
	records := make([]fetch.Record, len(batch))
	for i, e := range batch {
		records[i] = e.record
	}
	err := c.cfg.Store.Save(ctx, records...)
	c.reportStore("save", err)
	switch {
	case err != nil && !errors.Is(err, ErrInvalid):
		c.mu.Lock()
		c.pending.failing = true
		c.pending.schedule(writeRetry)
		c.mu.Unlock()
		c.trimPending()
		return false
	case err != nil && len(batch) > 1:
		for i := range batch {
			if !c.write(batch[i : i+1]) {
				return false
			}
		}
		return true
	case err != nil:
		c.cfg.Observer.Dropped(DropUnsaved)
	}
	c.mu.Lock()
	c.pending.failing = false
	c.pending.remove(batch)
	c.mu.Unlock()
	return true
}

// flushLast makes a last attempt to save what is pending.
func (c *Cache) flushLast() error {
	c.flush(context.WithoutCancel(c.base))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending.timer.Stop()
	if n := c.pending.len(); n > 0 {
		return fmt.Errorf("closing the robots.txt cache: %d records could not be saved", n)
	}
	return nil
}

// List is [Store.List] of the cache's store. It writes the pending records first, so
// it sees what was answered before the call, unless the store cannot be written.
func (c *Cache) List(ctx context.Context, after string, limit int) ([]fetch.Record, error) {
	c.flush(ctx)
	return c.cfg.Store.List(ctx, after, limit) //nolint:wrapcheck // it says all
}

// History is [Store.History], like [Cache.List].
func (c *Cache) History(ctx context.Context, o origin.Origin) ([]Version, error) {
	c.flush(ctx)
	return c.cfg.Store.History(ctx, o) //nolint:wrapcheck // it says all
}

// Body is [Store.Body], like [Cache.List].
func (c *Cache) Body(ctx context.Context, sha [32]byte) ([]byte, error) {
	c.flush(ctx)
	return c.cfg.Store.Body(ctx, sha) //nolint:wrapcheck // it says all
}
