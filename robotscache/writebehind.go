package robotscache

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
)

// Records are written behind the answers: a flight puts its entry among the pending writes and
// completes, and the writer saves them. The first is saved at once, and those that come during that
// save are saved together. While the store is away they stay pending, so an outage of the store
// costs no knowledge.
const (
	// coalesce is the pause after a write, for others to come. A gateway that is killed loses the
	// records of that time, of the write under way and of the one before it.
	coalesce = 20 * time.Millisecond
	// writeRetry is the pause after a write that failed.
	writeRetry = time.Second
	// maxBatch and maxBatchBytes bound one call of Store.Save, which must end within storeTimeout.
	maxBatch      = 1000
	maxBatchBytes = 8 << 20
)

// pendingWrites holds the entries of each origin that the store has not taken yet, oldest first:
// the newest, and those with another text or state before it, which belong to the origin's history.
// Not safe for concurrent use: Cache.mu guards it.
type pendingWrites struct {
	limit, size int64 // bytes
	failing     bool  // the last write failed
	entries     map[fetch.Key][]*Entry
	added       chan struct{} // holds a value while the writer has something to do
}

// newest returns the newest entry of an origin, or nil.
func (p *pendingWrites) newest(k fetch.Key) *Entry {
	list := p.entries[k]
	if len(list) == 0 {
		return nil
	}
	return list[len(list)-1]
}

// put adds e, in place of the entry before it where that has the same text or state, and has it
// written.
func (p *pendingWrites) put(e *Entry) {
	if old := p.newest(e.record.Key()); old != nil && VersionOf(e.record).Continues(VersionOf(old.record)) {
		p.remove([]*Entry{old})
	}
	p.entries[e.record.Key()] = append(p.entries[e.record.Key()], e)
	p.size += e.cost()
	select {
	case p.added <- struct{}{}:
	default:
	}
}

func (p *pendingWrites) drop(k fetch.Key) { p.remove(slices.Clone(p.entries[k])) }

// batch returns entries for one call of Store.Save, at least one if there is any.
func (p *pendingWrites) batch() (batch []*Entry) {
	size := int64(0)
	for _, list := range p.entries {
		for _, e := range list {
			size += e.cost()
			if len(batch) == maxBatch || size > maxBatchBytes && len(batch) > 0 {
				return batch
			}
			batch = append(batch, e)
		}
	}
	return batch
}

// remove drops the entries of a list that are still there.
func (p *pendingWrites) remove(entries []*Entry) {
	for _, e := range entries {
		list := p.entries[e.record.Key()]
		i := slices.Index(list, e)
		if i < 0 {
			continue
		}
		p.size -= e.cost()
		if list = slices.Delete(list, i, i+1); len(list) == 0 {
			delete(p.entries, e.record.Key())
		} else {
			p.entries[e.record.Key()] = list
		}
	}
}

// runWriter saves the pending writes until the cache is closed.
func (c *Cache) runWriter() {
	for {
		select {
		case <-c.pending.added:
		case <-c.base.Done():
			return
		}
		for !c.flush(c.base) {
			if !sleep(c.base, writeRetry) {
				return
			}
		}
		sleep(c.base, coalesce)
	}
}

// persist is called by a retrieval after its entry was added to the pending writes. If other
// gateways share the store, it reports whether the entry is there. When the pending writes are over
// their bound, the retrieval writes them itself, which slows retrievals down to the speed of the
// store; while the store is away entries are dropped instead.
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

// trimPending drops pending writes beyond their bound while the store is away.
func (c *Cache) trimPending() {
	dropped := 0
	c.mu.Lock()
	for k, list := range c.pending.entries {
		if c.pending.size <= c.pending.limit {
			break
		}
		dropped += len(list)
		c.pending.drop(k)
	}
	c.mu.Unlock()
	for range dropped {
		c.cfg.Observer.Dropped(DropUnsaved)
	}
}

// flush saves the pending writes, and reports whether that worked. It stops at the first failure: a
// store that is away is away for all. While it waits for another write, ctx can end it.
func (c *Cache) flush(ctx context.Context) (ok bool) {
	if c.writer.Acquire(ctx, 1) != nil {
		return false
	}
	defer c.writer.Release(1)
	for {
		c.mu.Lock()
		batch := c.pending.batch()
		c.mu.Unlock()
		if len(batch) == 0 {
			return true
		}
		if !c.write(batch) {
			return false
		}
	}
}

// write saves a batch, and reports whether the store is there to take the next. A record that
// cannot be kept is given up, so that it holds up no other.
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

// List is [Store.List] of the cache's store. It writes the pending records first, so it sees what
// was answered before the call, unless the store cannot be written.
func (c *Cache) List(ctx context.Context, after string, limit int) ([]fetch.Record, error) {
	c.flush(ctx)
	return c.cfg.Store.List(ctx, after, limit) //nolint:wrapcheck // it says all
}

// History is [Store.History], like [Cache.List].
func (c *Cache) History(ctx context.Context, k fetch.Key) ([]Version, error) {
	c.flush(ctx)
	return c.cfg.Store.History(ctx, k) //nolint:wrapcheck // it says all
}

// Body is [Store.Body], like [Cache.List].
func (c *Cache) Body(ctx context.Context, sha [32]byte) ([]byte, error) {
	c.flush(ctx)
	return c.cfg.Store.Body(ctx, sha) //nolint:wrapcheck // it says all
}
