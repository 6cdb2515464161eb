package robotscache

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
)

func portOrigin(n int) origin.Origin {
	return origin.Origin{Scheme: "http", Host: "due.example", Port: uint16(n)}
}

// dueIn returns the record of an unreachable origin that is due after d.
func dueIn(n int, d time.Duration) fetch.Record {
	now := time.Now()
	return fetch.Record{Origin: portOrigin(n), State: fetch.StateUnreachable, UnreachableSince: now, NextAttempt: now.Add(d)}
}

func addDue(l *dueList, r fetch.Record) { l.add(r, r.NextAttempt) }

func TestDueList_FiresInOrderAndOnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var fired []int
		l := newDueList(100, func(k fetch.Key, _ bool) bool {
			n := int(k.Origin.Port)
			if want := time.Duration(n) * time.Minute; time.Since(began) != want {
				t.Errorf("%d fired after %v", n, time.Since(began))
			}
			mu.Lock()
			defer mu.Unlock()
			fired = append(fired, n)
			return true
		})
		defer l.stop()
		for _, n := range []int{5, 2, 9, 1, 7, 3} {
			addDue(l, dueIn(n, time.Duration(n)*time.Minute))
		}
		addDue(l, dueIn(9, time.Hour))
		addDue(l, dueIn(9, 9*time.Minute)) // it moves, there and back
		l.remove(fetch.Key{Origin: portOrigin(7)})
		l.remove(fetch.Key{Origin: portOrigin(7)})
		time.Sleep(time.Hour)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(fired, []int{1, 2, 3, 5, 9}) || l.len() != 0 {
			t.Errorf("fired %v, %d left", fired, l.len())
		}
	})
}

// A full list takes no more, and one that cannot fire tries again.
func TestDueList_Bounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var room, fired atomic.Int64
		l := newDueList(10, func(fetch.Key, bool) bool {
			if room.Load() == 0 {
				return false
			}
			room.Add(-1)
			fired.Add(1)
			return true
		})
		for n := range 20 {
			addDue(l, dueIn(n+1, time.Minute))
		}
		if l.len() != 10 {
			t.Errorf("%d on the list", l.len())
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if fired.Load() != 0 || l.len() != 10 {
			t.Errorf("%d fired without room, %d left", fired.Load(), l.len())
		}
		room.Store(4)
		time.Sleep(fullPause)
		synctest.Wait()
		if fired.Load() != 4 || l.len() != 6 {
			t.Errorf("%d fired with room for 4, %d left", fired.Load(), l.len())
		}
		l.stop()
		room.Store(100)
		time.Sleep(time.Hour)
		synctest.Wait()
		addDue(l, dueIn(99, time.Minute))
		if fired.Load() != 4 || l.len() != 0 {
			t.Errorf("%d fired after the stop, %d left", fired.Load(), l.len())
		}
	})
}
