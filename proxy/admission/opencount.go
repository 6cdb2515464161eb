package admission

import "sync"

// openCount counts the open connections of each key. It drops a key with its last connection, so
// there are never more keys than connections. The zero value is ready for use. It is
// safe for concurrent use.
type openCount[K comparable] struct {
	mu   sync.Mutex
	open map[K]int
}

// Enter counts one more of the key and reports true, unless there are as many as limit already.
// Whoever entered must call Leave.
func (c *openCount[K]) Enter(key K, limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.open[key]
	if n >= limit {
		return false
	}
	if c.open == nil {
		c.open = make(map[K]int)
	}
	c.open[key] = n + 1
	return true
}

// Leave counts one less.
func (c *openCount[K]) Leave(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.open[key]; n > 1 {
		c.open[key] = n - 1
	} else {
		delete(c.open, key)
	}
}
