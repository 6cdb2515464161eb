package robotscache

import (
	"container/list"
	"context"

	"github.com/crawlgate/crawlgate/origin"
)

// unsaved holds the entries that the store could not take, so that a store which
// is away costs no knowledge: the oldest go first where there is no more room.
// Not safe for concurrent use; the zero value is not ready.
type unsaved struct {
	limit, size int64 // bytes
	order       list.List
	byOrigin    map[origin.Origin]*list.Element
}

func newUnsaved(limit int64) *unsaved {
	return &unsaved{limit: limit, byOrigin: make(map[origin.Origin]*list.Element)}
}

func (u *unsaved) get(o origin.Origin) *Entry {
	if el := u.byOrigin[o]; el != nil {
		return entryOf(el)
	}
	return nil
}

func (u *unsaved) oldest() *Entry {
	if el := u.order.Front(); el != nil {
		return entryOf(el)
	}
	return nil
}

func (u *unsaved) len() int { return len(u.byOrigin) }

// put keeps e in place of what it has of its origin, and returns how many entries
// had to go.
func (u *unsaved) put(e *Entry) (dropped int) {
	u.drop(e.record.Origin)
	u.byOrigin[e.record.Origin] = u.order.PushBack(e)
	u.size += e.cost()
	for ; u.size > u.limit; dropped++ {
		u.drop(u.oldest().record.Origin)
	}
	return dropped
}

func (u *unsaved) drop(o origin.Origin) {
	el := u.byOrigin[o]
	if el == nil {
		return
	}
	u.size -= entryOf(el).cost()
	u.order.Remove(el)
	delete(u.byOrigin, o)
}

func entryOf(el *list.Element) *Entry {
	e, _ := el.Value.(*Entry)
	return e
}

// save gives e to the store, or keeps it beside the store. It is called for a
// flight only, so by one goroutine for one origin at a time.
func (c *Cache) save(e *Entry) (ok bool) {
	// A result that came in while the cache is being closed is worth saving.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.base), storeTimeout)
	defer cancel()
	err := c.cfg.Store.Save(ctx, e.record)
	c.noteStore("save", err)

	c.mu.Lock()
	dropped := 0
	if err == nil {
		c.unsaved.drop(e.record.Origin)
	} else {
		dropped = c.unsaved.put(e)
	}
	c.mu.Unlock()
	for range dropped {
		c.cfg.Observer.Dropped(DropUnsaved)
	}
	return err == nil
}

// saveBatch is how many unsaved entries are saved after each one that the store
// took: enough to catch up, and a short while for the worker that does it.
const saveBatch = 64

// saveUnsaved gives the store what it could not take before. Each entry is saved
// under a flight of its own, so that it cannot overwrite a newer one.
func (c *Cache) saveUnsaved() {
	for range saveBatch {
		c.mu.Lock()
		e := c.unsaved.oldest()
		if e == nil || c.closed || c.flights[e.record.Origin] != nil {
			c.mu.Unlock()
			return
		}
		f := c.addFlight(e.record.Origin, "")
		c.mu.Unlock()
		ok := c.save(e)
		c.land(f, e, SourceStore, nil)
		if !ok {
			return
		}
	}
}

// forget deletes o from the store.
func (c *Cache) forget(ctx context.Context, o origin.Origin) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := c.cfg.Store.Delete(ctx, o)
	c.noteStore("delete", err)
	return err
}
