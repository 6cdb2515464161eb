package admission

import "sync"

// openCount counts what is open for each key. A key is kept only while something of it is open, so
// there are never more keys than things that are counted. The zero value is ready for use. It is
// safe for concurrent use.
type openCount[K comparable] struct {
	mu   sync.Mutex
	open map[K]int
}

// Enter counts one more of the key and reports true, unless there are as many as limit already.
// Each that was counted has to leave.
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
