package robotscache

import (
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
)

func (e *Entry) putIn(l *lru[fetch.Key, *Entry]) { l.put(e.record.Key(), e, e.cost()) }

// checkBounds holds that the map and the order have the same items, within the bound.
func checkBounds[K comparable, V any](t *testing.T, l *lru[K, V]) {
	t.Helper()
	var size int64
	n := 0
	for e := l.order.Front(); e != nil; e = e.Next() {
		it := e.Value.(*lruItem[K, V])
		if in, ok := l.items.Load(it.key); !ok || in != it {
			t.Errorf("%v is in the order, and not in the map", it.key)
		}
		size += it.size
		n++
	}
	if n != l.items.Size() || size != l.size || size > l.max {
		t.Errorf("%d items of %d bytes in the order, %d of %d in the map, bound %d", n, size, l.items.Size(), l.size, l.max)
	}
}

// An entry that is put again stays, as when a store that was away has taken it at last.
func TestLRU_KeepsWhatIsPutAgain(t *testing.T) {
	t.Parallel()
	l := newLRU[fetch.Key, *Entry](1 << 20)
	e := numbered(origin.Origin{Scheme: "http", Host: "again.example", Port: 80}, 1)
	for range 3 {
		e.putIn(l)
		if got := l.get(fetch.Key{Origin: e.record.Origin}); got != e {
			t.Fatalf("got %p, want the entry that was put, %p", got, e)
		}
	}
	checkBounds(t, l)
}

// Entries that are dropped leave nothing behind, even if others are put and used at the same time.
func TestLRU_LeavesNothingBehind(t *testing.T) {
	t.Parallel()
	l := newLRU[fetch.Key, *Entry](200 << 10)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 50000 {
				o := origin.Origin{Scheme: "http", Host: "many.example", Port: uint16(i)}
				if g%2 == 0 {
					o.Scheme = "https"
				}
				numbered(o, i).putIn(l)
				l.touch(fetch.Key{Origin: o})
			}
		})
	}
	wg.Wait()
	checkBounds(t, l)
}

// The value that was used least recently goes first, and one that is larger than the bound does not stay.
func TestLRU_Order(t *testing.T) {
	t.Parallel()
	l := newLRU[int, string](30)
	for i := range 3 {
		l.put(i, "value", 10)
	}
	l.touch(0)
	l.get(1) // which is no use
	l.touch(99)
	l.put(3, "new", 10)
	if got := slices.Sorted(maps.Keys(maps.Collect(l.all()))); !slices.Equal(got, []int{0, 2, 3}) {
		t.Errorf("%d are left", got)
	}
	l.put(4, "large", 31)
	if got := l.items.Size(); got != 0 {
		t.Errorf("%d are left beside one that is too large", got)
	}
	l.close()
	l.put(5, "late", 10)
	if got := l.items.Size(); got != 0 {
		t.Errorf("%d are left after close", got)
	}
	checkBounds(t, l)
}
