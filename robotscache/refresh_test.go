package robotscache

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
)

func portKey(n int) fetch.Key {
	return fetch.Key{Origin: origin.Origin{Scheme: "http", Host: "due.example", Port: uint16(n)}}
}

// refreshing returns a cache that records its fetches, which end when the cache is closed.
func refreshing(t *testing.T, cfg Config) (c *Cache, fetched func() []int) {
	t.Helper()
	var mu sync.Mutex
	var ports []int
	cfg.Store = noStore{}
	cfg.Fetcher = fetcherFunc(func(ctx context.Context, k fetch.Key, _ fetch.Gate) fetch.Outcome {
		mu.Lock()
		ports = append(ports, int(k.Origin.Port))
		mu.Unlock()
		<-ctx.Done()
		return fetch.Outcome{Cause: fetch.CauseCanceled}
	})
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, func() []int {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(ports)
	}
}

func TestRefreshLater_InOrderAndOnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, fetched := refreshing(t, Config{})
		began := time.Now()
		later := func(n int, wait time.Duration) { c.refreshLater(portKey(n), true, wait) }
		for _, n := range []int{5, 2, 9, 1, 7, 3} {
			later(n, time.Duration(n)*time.Minute)
		}
		later(9, time.Hour)
		later(9, 9*time.Minute) // it moves and moves back
		for range 2 {
			if err := c.forget(portKey(7)); err != nil {
				t.Fatal(err)
			}
		}
		want := []int{1, 2, 3, 5, 9}
		for i, n := range want {
			time.Sleep(time.Until(began.Add(time.Duration(n)*time.Minute - 1)))
			if got := fetched(); !slices.Equal(got, want[:i]) {
				t.Errorf("before %d minutes: fetched %d, want %d", n, got, want[:i])
			}
			time.Sleep(time.Nanosecond)
			if got := fetched(); !slices.Equal(got, want[:i+1]) {
				t.Errorf("after %d minutes: fetched %d, want one more", n, got)
			}
		}
		time.Sleep(time.Hour)
		if got := fetched(); !slices.Equal(got, want) || c.Stats().Due != 0 {
			t.Errorf("fetched %d, and %d are due, want all and 0", got, c.Stats().Due)
		}
	})
}

// A refresh that cannot be queued is tried again, and none is made once the cache is closed.
func TestRefreshLater_WithoutRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// One retrieval in progress and one in the queue take all the room until the budget is used
		// up.
		c, fetched := refreshing(t, Config{InFlight: 1, Queue: 1, Budget: 6 * time.Minute})
		if !c.refresh(portKey(98), true) || !c.refresh(portKey(99), true) {
			t.Fatal("refresh found no room in the queue")
		}
		for n := range 10 {
			c.refreshLater(portKey(n+1), true, time.Minute)
		}
		time.Sleep(5 * time.Minute)
		if got, due := fetched(), c.Stats().Due; !slices.Equal(got, []int{98}) || due != 10 {
			t.Errorf("without room: fetched %d, and %d are due", got, due)
		}
		time.Sleep(time.Minute + fullPause)
		if got, due := fetched(), c.Stats().Due; !slices.Equal(got, []int{98, 99}) || due != 9 {
			t.Errorf("with room for one: fetched %d, and %d are due", got, due)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		c.refreshLater(portKey(97), true, time.Minute)
		if got, due := fetched(), c.Stats().Due; len(got) != 2 || due != 0 {
			t.Errorf("after Close: fetched %d, and %d are due", got, due)
		}
	})
}

// A full list takes no new origins, but still moves those that it contains.
func TestRefreshLater_Bounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, fetched := refreshing(t, Config{})
		for n := range maxDue {
			k := portKey(n)
			k.Agent = "bounded"
			c.refreshLater(k, true, time.Hour)
		}
		c.refreshLater(portKey(1), true, time.Minute)
		moved := portKey(2)
		moved.Agent = "bounded"
		c.refreshLater(moved, true, time.Minute)
		time.Sleep(time.Minute)
		if got := fetched(); !slices.Equal(got, []int{2}) || c.Stats().Due != maxDue-1 {
			t.Errorf("fetched %d, and %d are due", got, c.Stats().Due)
		}
	})
}
