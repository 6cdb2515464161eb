package pace

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestFairnessByDelay(t *testing.T) {
	t.Parallel()
	const long = 1000 * time.Second
	tests := []struct {
		name string
		all  []crawler
		want map[string]int
	}{
		{
			// Half of the time for each agent: 500 s are 100 visits 5 s apart, or 500.
			"shares are shares of the time: an agent with a longer delay gets fewer requests",
			[]crawler{{agent: "slow", workers: 9, limit: Limit{Key: "h", Interval: 5 * time.Second}}, {agent: "fast", workers: 9, limit: Limit{Key: "h", Interval: time.Second}}},
			map[string]int{"slow": 100, "fast": 500},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got := crawl(t, New(Config{}), time.Hour, long, tt.all)
				for agent, want := range tt.want {
					if n := got[agent]; n < want*95/100 || n > want*105/100 {
						t.Errorf("%s got %d, want %d", agent, n, want)
					}
				}
			})
		})
	}
}

// waiting starts n waiting requests, and returns a function that ends them.
func waiting(t *testing.T, p *Pacer, n int, r Request) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if s, err := p.Acquire(ctx, r); err == nil {
				s.Done()
			}
		})
		synctest.Wait() // they come one after another
	}
	return func() { cancel(); wg.Wait() }
}

func TestQueueFullHasRoomForWhoHasLess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Queue: 10})
		r := Request{Limit: Limit{Key: "h", Delay: time.Minute}, Agent: "flood", MaxWait: time.Hour}
		granted(t, p, r).Done()
		defer waiting(t, p, 10, r)()
		if why := refused(t, p, r); why.Reason != ReasonQueueFull || why.RetryAfter != 11*time.Minute {
			t.Errorf("an eleventh request of the same agent: %+v, want queue full, 11 min", why)
		}
		small := r
		small.Agent = "small"
		defer waiting(t, p, 5, small)()
		if n := p.Stats().Waiting; n != 15 {
			t.Errorf("%d wait, want the ten of one agent and the share of the other", n)
		}
		if why := refused(t, p, small); why.Reason != ReasonQueueFull {
			t.Errorf("a sixth, with five each: %+v, want queue full", why)
		}
		other := r
		other.Agent = "other"
		start := time.Now()
		s := granted(t, p, other)
		s.Done()
		// Only the first requests of flood and small are before it.
		if at := time.Since(start); at != 3*time.Minute {
			t.Errorf("a third agent's first request was sent after %s, want 3 min", at)
		}
	})
}

// An agent with its share of a full queue gets no more, although another agent has more.
func TestQueueFullEndsAtTheShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Queue: 9})
		r := Request{Limit: Limit{Key: "h", Delay: time.Minute}, MaxWait: time.Hour}
		granted(t, p, r).Done()
		large, small := r, r
		large.Agent, small.Agent = "large", "small"
		defer waiting(t, p, 5, large)()
		defer waiting(t, p, 4, small)()
		if why := refused(t, p, small); why.Reason != ReasonQueueFull {
			t.Errorf("a fifth, with five of the other: %+v, want queue full", why)
		}
	})
}

func TestWaitersAreBoundedInAllAndShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Waiters: 100})
		end := func() {}
		for i := range 60 {
			r := Request{Limit: Limit{Key: fmt.Sprintf("h%d", i), Delay: time.Hour}, Agent: "flood", MaxWait: 2 * time.Hour}
			granted(t, p, r).Done()
			next, before := waiting(t, p, 1, r), end
			end = func() { before(); next() }
		}
		defer func() { end() }()
		if n := p.Stats().Waiting; n != 50 {
			t.Errorf("one agent has %d waiting, want half", n)
		}
		r := Request{Limit: Limit{Key: "h0", Delay: time.Hour}, Agent: "flood", MaxWait: 5 * time.Hour}
		if why := refused(t, p, r); why.Reason != ReasonWaitersFull || why.RetryAfter != 2*time.Hour {
			t.Errorf("refused with %+v, want waiters full, 2 h", why)
		}
		r.Agent = "other"
		defer waiting(t, p, 1, r)()
		if n := p.Stats().Waiting; n != 51 {
			t.Errorf("%d wait, want 51: there is room for another agent", n)
		}
	})
}

// After all requests have ended, in any way, no state remains.
func TestQueueKeepsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Queue: 5, Waiters: 50})
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				time.Sleep(time.Duration(i%17) * 100 * time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%7)*time.Second)
				defer cancel()
				s, err := p.Acquire(ctx, Request{
					Limit:   Limit{Key: fmt.Sprintf("h%d", i%5), Delay: time.Duration(i%3) * time.Second, Concurrency: 1 + i%2},
					Also:    []Limit{{Key: "site:x", Interval: 10 * time.Millisecond, Concurrency: 3}},
					Agent:   fmt.Sprintf("a%d", i%4),
					MaxWait: time.Duration(i%5-1) * time.Second,
				})
				var why *Refused
				if err != nil && !errors.As(err, &why) && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				time.Sleep(time.Duration(i%5) * 100 * time.Millisecond)
				switch i % 11 {
				case 0:
					p.RecordFailure(fmt.Sprintf("h%d", i%5), time.Duration(i%3)*time.Second)
				case 1:
					s.Cancel()
				case 2:
					s.Sent()
				case 3:
					p.Configure(Config{Queue: 3 + i%5, Waiters: 50})
				}
				s.Done()
			})
		}
		wg.Wait()
		if s := p.Stats(); s.Waiting != 0 {
			t.Errorf("Stats = %+v, want no waiting request", s)
		}
		time.Sleep(30 * time.Second) // claims end
		for i := range p.table.shards {
			s := &p.table.shards[i]
			s.mu.Lock()
			for key, c := range s.clocks {
				if c.expire(p.now()); c.inFlight != 0 || c.queue != nil {
					t.Errorf("%s: %d in flight, queue %+v", key, c.inFlight, c.queue)
				}
			}
			s.mu.Unlock()
		}
		time.Sleep(24 * time.Hour)
		if s := p.Stats(); s.Keys != 0 {
			t.Errorf("Stats = %+v, want all keys swept", s)
		}
	})
}

func TestAcquireEndsWithItsContext(t *testing.T) {
	t.Parallel()
	p := New(Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Acquire(ctx, Request{Limit: Limit{Key: "h"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("Acquire with an ended context = %v", err)
	}
	if n := p.Stats().Keys; n != 0 {
		t.Errorf("Acquire with an ended context made %d keys", n)
	}
}
