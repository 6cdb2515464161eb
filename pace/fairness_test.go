package pace

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// crawler is one agent of a fairness test with some workers. Each worker sends the next request
// when its last one was answered.
type crawler struct {
	agent   string
	workers int
	// obedient workers come back when they were told to, others after 200 ms.
	obedient bool
	limit    Limit
}

// crawl lets all agents crawl the same host until the time is over, and returns the number of slots
// of each.
func crawl(t *testing.T, p *Pacer, maxWait, long time.Duration, all []crawler) map[string]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	var (
		mu  sync.Mutex
		got = map[string]int{}
		wg  sync.WaitGroup
	)
	rnd := rand.New(rand.NewPCG(7, 7))
	for _, c := range all {
		r := Request{Limit: c.limit, Agent: c.agent, MaxWait: maxWait}
		for range c.workers {
			start := time.Duration(rnd.Int64N(int64(time.Second)))
			wg.Go(func() {
				sleep(ctx, start)
				for ctx.Err() == nil {
					s, err := p.Acquire(ctx, r)
					if err == nil {
						sleep(ctx, 5*time.Millisecond) // the answer
						s.Done()
						mu.Lock()
						got[c.agent]++
						mu.Unlock()
						continue
					}
					pause := 200 * time.Millisecond
					if why := (*Refused)(nil); errors.As(err, &why) && c.obedient {
						pause = max(time.Second, (why.RetryAfter + time.Second - 1).Truncate(time.Second)) // in whole seconds, like the gateway
					}
					sleep(ctx, pause)
				}
			})
		}
	}
	wg.Wait()
	return got
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// crew returns n agents with the same limit. The first one has flood workers of the disobedient
// kind, the others the given number.
func crew(l Limit, n, flood, workers int) []crawler {
	all := make([]crawler, 0, n)
	for i := range n {
		c := crawler{agent: fmt.Sprintf("agent-%d", i), workers: workers, obedient: i%2 == 1, limit: l}
		if i == 0 {
			c.workers = flood
		}
		all = append(all, c)
	}
	return all
}

// shares checks that each agent got an equal share within a tenth, and that nearly all slots were
// used.
func shares(t *testing.T, got map[string]int, all []crawler, slots int) {
	t.Helper()
	total := 0
	for _, c := range all {
		total += got[c.agent]
	}
	for _, c := range all {
		want := float64(total) / float64(len(all))
		if part := float64(got[c.agent]); part < 0.9*want || part > 1.1*want {
			t.Errorf("%s got %d of %d, want %.0f within a tenth", c.agent, got[c.agent], total, want)
		}
	}
	if total < slots*9/10 || total > slots+5 {
		t.Errorf("%d requests were sent, want %d", total, slots)
	}
}

func TestFairnessFiveAgentsShareOneHost(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name           string
		limit          Limit
		maxWait        time.Duration
		flood, workers int
		slots          int
	}{
		{"20 workers each, held as long as needed", Limit{Delay: 2 * time.Second}, time.Hour, 20, 20, 500},
		{"one floods, held as long as needed", Limit{Delay: 2 * time.Second}, time.Hour, 400, 20, 500},
		{"one floods, held 10 s", Limit{Delay: 2 * time.Second}, 10 * time.Second, 60, 20, 250},
		{"one floods, two slots in the time held", Limit{Delay: 5 * time.Second}, 10 * time.Second, 30, 5, 150},
		{"one floods, one slot in the time held", Limit{Delay: 10 * time.Second}, 10 * time.Second, 30, 5, 150},
		{"one floods, a slot is longer than the time held", Limit{Delay: 15 * time.Second}, 10 * time.Second, 20, 3, 150},
		{"one floods, the others have one worker each", Limit{Delay: 2 * time.Second}, 20 * time.Second, 30, 1, 500},
		{"rate with a burst", Limit{Interval: time.Second, Burst: 5}, 10 * time.Second, 30, 20, 500},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tt.limit.Key = "h"
				all := crew(tt.limit, 5, tt.flood, tt.workers)
				long := time.Duration(tt.slots) * max(tt.limit.Delay, tt.limit.Interval)
				shares(t, crawl(t, New(Config{}), tt.maxWait, long, all), all, tt.slots)
			})
		})
	}
}
