package robotscache

import (
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

// fullPause is how long an origin waits for room in the queues.
const fullPause = 10 * time.Second

// refreshLater has an origin that is asked about refreshed when that is due: early, at 80 % of the
// TTL, or for the retry of an unreachable one (docs/status-table.md). So an origin in use need not
// be asked about in the last fifth of its TTL to be refreshed in time, and a crawler that comes back
// after Retry-After finds the retry already made. An origin that nobody asks about is refreshed once
// at most.
//
// Of an origin the latest call counts. One for which there is no room is refreshed when a request
// finds it due.
func (c *Cache) refreshLater(k fetch.Key, retry bool, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopTimer(k)
	if c.closed || len(c.due) >= maxDue {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(wait, func() {
		c.mu.Lock()
		listed := c.due[k] == timer // it may have been stopped just now
		if listed {
			delete(c.due, k)
		}
		c.mu.Unlock()
		if listed && !c.refresh(k, retry) {
			c.refreshLater(k, retry, fullPause)
		}
	})
	c.due[k] = timer
}

// stopTimer undoes refreshLater. c.mu is held.
func (c *Cache) stopTimer(k fetch.Key) {
	if timer := c.due[k]; timer != nil {
		timer.Stop()
		delete(c.due, k)
	}
}
