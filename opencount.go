package crawlgate

import "sync"

// openCount counts what is open for each key. A key is kept only while something of it is open, so there
// are never more keys than things that are counted. The zero value is ready for use. It is safe for
// concurrent use.
type openCount[K comparable] struct {
	mu   sync.Mutex
	open map[K]int
}

// enter counts one more of the key and reports true, unless there are as many as limit already. Each
// that was counted has to leave.
func (t *openCount[K]) enter(key K, limit int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.open[key]
	if n >= limit {
		return false
	}
	if t.open == nil {
		t.open = make(map[K]int)
	}
	t.open[key] = n + 1
	return true
}

// leave counts one less.
func (t *openCount[K]) leave(key K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.open[key]; n > 1 {
		t.open[key] = n - 1
	} else {
		delete(t.open, key)
	}
}
