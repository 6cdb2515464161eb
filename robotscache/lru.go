package robotscache

import (
	"container/list"
	"iter"
	"sync"

	"github.com/puzpuzpuz/xsync/v4"
)

// lru holds values in memory, up to a bound on their sizes in bytes. Beyond it, those go first that
// were used least recently. It must be made by newLRU. All methods are safe for concurrent use.
type lru[K comparable, V any] struct {
	items *xsync.Map[K, *lruItem[K, V]]

	mu        sync.Mutex // held by changes
	order     list.List  // of *lruItem, least recently used first
	size, max int64
}

type lruItem[K comparable, V any] struct {
	key   K
	value V
	size  int64
	place *list.Element // in lru.order
}

func newLRU[K comparable, V any](limit int64) *lru[K, V] {
	return &lru[K, V]{items: xsync.NewMap[K, *lruItem[K, V]](), max: limit}
}

// get returns the value of k, zero without one. It does not count as a use.
func (l *lru[K, V]) get(k K) (value V) {
	if it, ok := l.items.Load(k); ok {
		value = it.value
	}
	return value
}

// touch says that the value of k is used.
func (l *lru[K, V]) touch(k K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if it, ok := l.items.Load(k); ok {
		l.order.MoveToBack(it.place)
	}
}

// put puts a value, in place of any other of k.
func (l *lru[K, V]) put(k K, value V, size int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	it := &lruItem[K, V]{key: k, value: value, size: size}
	it.place = l.order.PushBack(it)
	l.size += size
	if old, had := l.items.LoadAndStore(k, it); had {
		l.unlist(old)
	}
	l.trim()
}

// drop removes the value of k, if there is one.
func (l *lru[K, V]) drop(k K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if it, had := l.items.LoadAndDelete(k); had {
		l.unlist(it)
	}
}

// close drops all values, and keeps none from then on.
func (l *lru[K, V]) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.max = 0
	l.trim()
}

// all yields the values, in no order.
func (l *lru[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		l.items.Range(func(k K, it *lruItem[K, V]) bool { return yield(k, it.value) })
	}
}

// trim removes values until the others are within the bound. l.mu is held.
func (l *lru[K, V]) trim() {
	for l.size > l.max {
		it := l.order.Front().Value.(*lruItem[K, V]) //nolint:forcetypeassert // it holds nothing else
		l.items.Delete(it.key)
		l.unlist(it)
	}
}

// unlist removes an item from all but the map. l.mu is held.
func (l *lru[K, V]) unlist(it *lruItem[K, V]) {
	l.order.Remove(it.place)
	l.size -= it.size
}
