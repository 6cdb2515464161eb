// Package opencount counts what is open for each key, such as connections of a source.
package opencount

import "sync"

// Count counts what is open for each key. A key is kept only while something of it is open, so
// there are never more keys than things that are counted. The zero value is ready for use. It is
// safe for concurrent use.
type Count[K comparable] struct {
	mu   sync.Mutex
	open map[K]int
}

// Enter counts one more of the key and reports true, unless there are as many as limit already.
// Each that was counted has to leave.
func (c *Count[K]) Enter(key K, limit int) bool {
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
func (c *Count[K]) Leave(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.open[key]; n > 1 {
		c.open[key] = n - 1
	} else {
		delete(c.open, key)
	}
}
