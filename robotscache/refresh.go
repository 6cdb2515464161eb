package robotscache

import (
	"sync"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
)

// refresh queues a retrieval in the background, unless there is a flight. It returns false if the
// queue is full.
func (c *Cache) refresh(k fetch.Key, retry bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.flights[k] != nil {
		return true
	}
	f, cl := c.addFlight(k), classRefresh
	f.background = true
	if retry {
		cl = classRetry
	}
	if c.enqueue(f, cl) != nil {
		delete(c.flights, k)
		return false
	}
	return true
}

// dueList has the origins that were asked about since their last attempt. It has each refreshed
// when that is due: early, at 80 % of the TTL, or for the retry of an unreachable one
// (docs/status-table.md). So an origin in use need not be asked about in the last fifth of its TTL
// to be refreshed in time, and a crawler that comes back after Retry-After finds the retry already
// made. An origin that nobody asks about is refreshed once at most.
//
// It holds at most limit origins, each with a timer. An origin for which there is no room is
// refreshed when a request finds it due.
type dueList struct {
	limit int
	// fire begins a refresh, or a retry; it reports whether it could be queued.
	fire func(k fetch.Key, retry bool) bool

	mu    sync.Mutex
	items map[fetch.Key]*dueItem // nil once stopped
}

type dueItem struct {
	key   fetch.Key
	retry bool // the last attempt failed
	timer *time.Timer
}

// fullPause is how long an origin waits for room in the queues.
const fullPause = 10 * time.Second

func newDueList(limit int, fire func(fetch.Key, bool) bool) *dueList {
	return &dueList{limit: limit, fire: fire, items: make(map[fetch.Key]*dueItem)}
}

// add puts the origin of r on the list, or moves it to a new time.
func (l *dueList) add(r fetch.Record, at time.Time) {
	l.remove(r.Key())
	l.set(&dueItem{key: r.Key(), retry: r.Failing()}, time.Until(at))
}

// set puts an item on the list, unless its origin is there or there is no room.
func (l *dueList) set(it *dueItem, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.items == nil || l.items[it.key] != nil || len(l.items) >= l.limit {
		return
	}
	l.items[it.key] = it
	it.timer = time.AfterFunc(wait, func() { l.run(it) })
}

// run is what the timer of an item calls.
func (l *dueList) run(it *dueItem) {
	l.mu.Lock()
	listed := l.items[it.key] == it // it may have been removed just now
	if listed {
		delete(l.items, it.key)
	}
	l.mu.Unlock()
	if listed && !l.fire(it.key, it.retry) {
		l.set(it, fullPause)
	}
}

// remove takes k off the list.
func (l *dueList) remove(k fetch.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if it := l.items[k]; it != nil {
		it.timer.Stop()
		delete(l.items, k)
	}
}

// stop ends the list: nothing fires after the timers that fire now.
func (l *dueList) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range l.items {
		it.timer.Stop()
	}
	l.items = nil
}
