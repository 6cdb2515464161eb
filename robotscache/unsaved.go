package robotscache

import (
	"container/list"
	"context"
	"time"

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
		c.saveLater()
	}
	c.mu.Unlock()
	for range dropped {
		c.cfg.Observer.Dropped(DropUnsaved)
	}
	return err == nil
}

// unsavedPause is the time between a save that failed and the next attempt.
const unsavedPause = time.Second

// saveLater has saveUnsaved called after a pause. c.mu is held.
func (c *Cache) saveLater() {
	if !c.closed && c.saving == nil {
		c.saving = time.AfterFunc(unsavedPause, c.saveUnsaved)
	}
}

// saveUnsaved gives the store what it could not take before, on the goroutine of
// a timer; no request waits for it, and it does not wait for one that happens to
// fetch. Each entry is saved under a flight of its own, so that it cannot
// overwrite a newer one.
func (c *Cache) saveUnsaved() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saving = nil
	if c.closed {
		return
	}
	c.work.Add(1)
	defer c.work.Done()
	for !c.closed {
		e := c.unsaved.oldest()
		if e == nil {
			return
		}
		if c.flights[e.record.Origin] != nil { // which will save it, or have it saved
			c.saveLater()
			return
		}
		f := c.addFlight(e.record.Origin)
		c.mu.Unlock()
		saved := c.save(e)
		c.land(f, e, SourceStore, nil)
		c.mu.Lock()
		if !saved {
			return // save sees to the next attempt
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
