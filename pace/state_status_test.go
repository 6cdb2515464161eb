package pace

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestStatusesInPages(t *testing.T) {
	t.Parallel()
	p := New(Config{Random: noJitter})
	var want []string
	for i := range 1000 {
		key := fmt.Sprintf("host-%03d", i)
		granted(t, p, Request{Limit: Limit{Key: key}}).Done()
		want = append(want, key)
	}
	for _, limit := range []int{1, 7, 999, 1000, 1001} {
		var got []string
		for after := ""; ; {
			page := p.Statuses(after, limit, nil, Limit{})
			for _, c := range page {
				got = append(got, c.Key)
			}
			if len(page) < limit {
				break
			}
			after = page[len(page)-1].Key
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d hold %d keys, want all 1000 in their order", limit, len(got))
		}
	}
}

func TestStatusesTellHowTheyStand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Random: noJitter})
		rate := Limit{Interval: time.Second, Burst: 2}
		limit := func(key string, l Limit) Limit { l.Key = key; return l }
		now := time.Now()
		granted(t, p, Request{Limit: limit("burst", rate)}).Done()
		granted(t, p, Request{Limit: limit("spent", rate)}).Done()
		granted(t, p, Request{Limit: limit("spent", rate)}).Done()
		busy := granted(t, p, Request{Limit: limit("busy", Limit{Delay: 5 * time.Second, Concurrency: 3})})
		p.RecordFailure("struck", 0)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				granted(t, p, Request{Limit: limit("busy", Limit{Delay: 5 * time.Second}), MaxWait: time.Minute}).Done()
			})
		}
		synctest.Wait()
		want := []Status{
			{Key: "burst", Next: now},
			{Key: "busy", Next: now.Add(5 * time.Second), InFlight: 1, Waiting: 3, Delay: 5 * time.Second},
			{Key: "spent", Next: now.Add(time.Second)},
			{Key: "struck", Next: now.Add(time.Minute), BlockedUntil: now.Add(time.Minute), Strikes: 1},
		}
		busyOnes := func(c Status) bool { return c.InFlight > 0 }
		if got := p.Statuses("", 10, nil, rate); !slices.EqualFunc(got, want, equalStatus) {
			t.Errorf("all: %+v, want %+v", got, want)
		}
		if got := p.Statuses("", 10, busyOnes, rate); !slices.EqualFunc(got, want[1:2], equalStatus) {
			t.Errorf("busy: %+v, want %+v", got, want[1:2])
		}
		if c, ok := p.Status("spent", rate); !ok || !equalStatus(c, want[2]) {
			t.Errorf("spent: %+v, %v", c, ok)
		}
		if _, ok := p.Status("unknown", rate); ok {
			t.Error("a clock is known that nobody asked for")
		}
		busy.Done()
		wg.Wait()
	})
}

func equalStatus(a, b Status) bool {
	same := a.Next.Equal(b.Next) && a.BlockedUntil.Equal(b.BlockedUntil)
	a.Next, a.BlockedUntil, b.Next, b.BlockedUntil = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	return same && a == b
}
