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
			{State: State{Key: "burst"}, Next: now},
			{State: State{Key: "busy", Last: now, Gap: 5 * time.Second}, Next: now.Add(5 * time.Second), InFlight: 1, Waiting: 3},
			{State: State{Key: "spent"}, Next: now.Add(time.Second)},
			{State: State{Key: "struck", Until: now.Add(time.Minute), Strikes: 1}, Next: now.Add(time.Minute)},
		}
		busyOnes := func(c Status) bool { return c.InFlight > 0 }
		if got := p.Statuses("", 10, nil, rate); !slices.EqualFunc(got, want, equalStatus) {
			t.Errorf("all: %+v, want %+v", got, want)
		}
		if got := p.Statuses("", 10, busyOnes, rate); !slices.EqualFunc(got, want[1:2], equalStatus) {
			t.Errorf("busy: %+v, want %+v", got, want[1:2])
		}
		if c, ok := p.Status("spent", rate); !ok || !equalStatus(c, want[2]) {
			t.Errorf("Status(spent) = %+v, %v", c, ok)
		}
		if _, ok := p.Status("unknown", rate); ok {
			t.Error("Status found a clock without requests")
		}
		busy.Done()
		wg.Wait()
	})
}

func equalStatus(a, b Status) bool {
	same := a.Next.Equal(b.Next) && a.Until.Equal(b.Until) && a.Last.Equal(b.Last)
	for _, t := range []*time.Time{&a.Next, &a.Until, &a.Last, &b.Next, &b.Until, &b.Last} {
		*t = time.Time{}
	}
	return same && a == b
}
