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

// take takes n places for an agent until the returned function is called.
func take(t *testing.T, p *Pacer, n int, r Request) (giveBack func()) {
	t.Helper()
	slots := make([]Slot, n)
	for i := range slots {
		slots[i] = granted(t, p, r)
	}
	return func() {
		for _, s := range slots {
			s.Done()
		}
	}
}

// One agent takes its share of a clock and waits for more. Another agent is served as if it were
// alone.
func TestPlacesLeaveOneToAnotherAgent(t *testing.T) {
	t.Parallel()
	host := Limit{Key: "h", Concurrency: 8}
	for _, tt := range []struct {
		name  string
		limit Limit
		also  []Limit
		own   bool // each agent also has its own clock
	}{
		{"the host's clock", host, nil, false},
		{"with one of its own", host, nil, true},
		{"with one of the address", host, []Limit{{Key: "addr:1", Concurrency: 16}}, false},
		{"with one of the site", Limit{Key: "site:1", Concurrency: 16}, []Limit{host}, false},
		{"with a rate", Limit{Key: "h", Concurrency: 8, Interval: time.Second, Burst: 20}, nil, false},
	} {
		for _, waiting := range []int{0, 1, 20} {
			synctest.Test(t, func(t *testing.T) {
				p := New(Config{})
				request := func(agent string) Request {
					r := Request{Limit: tt.limit, Also: tt.also, Agent: agent}
					if tt.own {
						r.Also = []Limit{{Key: AgentKey(agent, "h"), Interval: time.Nanosecond, Burst: 1000}}
					}
					return r
				}
				slow := request("slow")
				giveBack := take(t, p, 7, slow)
				ctx, cancel := context.WithCancel(t.Context())
				var group sync.WaitGroup
				for range waiting {
					group.Go(func() {
						if s, err := p.Acquire(ctx, slow); err == nil {
							t.Errorf("%s: the agent got an eighth place", tt.name)
							s.Done()
						}
					})
				}
				synctest.Wait()
				for range 3 {
					s := granted(t, p, request("other"))
					if s.Wait != 0 {
						t.Errorf("%s, %d waiting: the other agent waited for %v", tt.name, waiting, s.Wait)
					}
					s.Done()
				}
				if why := refused(t, p, slow); why.Reason != ReasonConcurrency {
					t.Errorf("%s, %d waiting: refused with %+v, want concurrency", tt.name, waiting, why)
				}
				cancel()
				group.Wait()
				giveBack()
				take(t, p, 7, slow)()
				for i := range p.table.shards {
					if n := len(p.table.shards[i].inFlight); n > 0 {
						t.Errorf("%s: %d counts remain, want none", tt.name, n)
					}
				}
			})
		}
	}
}

func TestPlacesAreSharedAtOneClock(t *testing.T) {
	t.Parallel()
	own, host, addr := Limit{Key: AgentKey("a", "h")}, Limit{Key: "h", Concurrency: 8}, Limit{Key: "addr:1", Concurrency: 8}
	for _, tt := range []struct {
		r    Request
		want string
	}{
		{Request{Limit: host}, "h"},
		{Request{Limit: host, Also: []Limit{own, addr}}, "h"},
		{Request{Limit: addr, Also: []Limit{host, own}}, "h"},
		{Request{Limit: own, Also: []Limit{addr}}, "addr:1"},
		{Request{Limit: Limit{Key: "h", Concurrency: 1}, Also: []Limit{addr}}, ""},
		{Request{Limit: own}, ""},
	} {
		got := ""
		p := New(Config{})
		for _, s := range p.waiter(p.config.Load(), &tt.r).steps {
			if s.terms.shared {
				got += s.key
			}
		}
		if got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.r, got, tt.want)
		}
	}
}

// An agent that is alone gets all places, except in the Pacer's first minutes. From the first
// request of another agent on it gets no more of them, and its requests in flight count.
func TestPlacesOfALoneAgent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{})
		lone := Request{Limit: Limit{Key: "h", Concurrency: 4}, Agent: "lone", MaxWait: -1}
		giveBack := take(t, p, 3, lone)
		refused(t, p, lone)
		time.Sleep(loneAfter)
		last := granted(t, p, lone)
		other := lone
		other.Agent = "other"
		refused(t, p, other) // the only request that finds all places taken by one agent
		last.Done()
		refused(t, p, lone)
		granted(t, p, other).Done()
		giveBack()
	})
}

// field is the state of a simulation of places: the waiting requests and those with places.
type field struct {
	mu      sync.Mutex
	waiting map[string]int
	flying  map[string]int
	total   int
}

func (f *field) add(m map[string]int, agent string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m[agent] += n
}

// Random agents take places for random times. There are never more requests in flight than places,
// nor more of one agent than all but one, and no place stays unused while an agent that may have it
// waits.
func TestModelPlaces(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 3))
				l := Limit{Key: "h", Concurrency: 2 + rnd.IntN(4)}
				if seed%3 == 0 {
					l.Interval, l.Burst = time.Duration(1+rnd.IntN(900))*time.Millisecond, 1+rnd.IntN(3)
				}
				p := New(Config{})
				f := &field{waiting: map[string]int{}, flying: map[string]int{}}
				var wg sync.WaitGroup
				for range 150 {
					number := min(rnd.IntN(6), 2+int(seed%3)) // the last one asks most
					r := Request{Limit: l, Agent: fmt.Sprint(number), MaxWait: 3 * time.Hour}
					at, long, leave := rnd.IntN(60_000), rnd.IntN(8000), time.Hour
					if rnd.IntN(4) == 0 {
						leave = time.Duration(rnd.IntN(5000)) * time.Millisecond
					}
					wg.Go(func() {
						time.Sleep(time.Duration(at) * time.Millisecond)
						f.visit(t, p, r, time.Duration(long)*time.Millisecond, leave)
					})
				}
				for range 600 {
					time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
					synctest.Wait()
					f.noneUnused(t, p, l)
				}
				wg.Wait()
			})
		})
	}
}

func (f *field) visit(t *testing.T, p *Pacer, r Request, long, leave time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), leave)
	defer cancel()
	f.add(f.waiting, r.Agent, 1)
	s, err := p.Acquire(ctx, r)
	f.add(f.waiting, r.Agent, -1)
	if err != nil {
		return
	}
	f.mu.Lock()
	f.total++
	f.flying[r.Agent]++
	if f.total > r.Concurrency || f.flying[r.Agent] > r.Concurrency-1 {
		t.Errorf("%d requests in flight, %d of one agent, with %d places", f.total, f.flying[r.Agent], r.Concurrency)
	}
	f.mu.Unlock()
	time.Sleep(long)
	f.mu.Lock()
	f.total--
	f.flying[r.Agent]--
	f.mu.Unlock()
	s.Done()
}

// noneUnused fails the test if a waiting request could be sent.
func (f *field) noneUnused(t *testing.T, p *Pacer, l Limit) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	c, known := p.Status(l.Key, l)
	if !known || time.Until(c.Next) > 0 || f.total >= l.Concurrency {
		return
	}
	for agent, n := range f.waiting {
		if n > 0 && f.flying[agent] < l.Concurrency-1 {
			t.Errorf("%s waits with %d of %d in flight, %d of them its own", agent, f.total, l.Concurrency, f.flying[agent])
		}
	}
}

// A refused request is told exactly when it can be sent, even beside an agent whose requests must
// let it pass.
func TestModelPlacesRetryAfterIsExact(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 4))
				p := New(Config{})
				l := Limit{Key: "h", Concurrency: 3, Interval: time.Duration(rnd.IntN(9)+1) * time.Second, Burst: 3, Delay: time.Duration(rnd.IntN(4)) * time.Second}
				ctx, cancel := context.WithCancel(t.Context())
				defer take(t, p, 2, Request{Limit: l, Agent: "slow", MaxWait: time.Hour})()
				var group sync.WaitGroup
				for i := range rnd.IntN(12) {
					agent := "slow"
					if i%3 == 0 {
						agent = "quick"
					}
					group.Go(func() {
						s, err := p.Acquire(ctx, Request{Limit: l, Agent: agent, MaxWait: time.Hour})
						if err == nil {
							s.Done()
						}
					})
					synctest.Wait()
				}
				late := Request{Limit: l, Agent: "late", MaxWait: -1}
				why := time.Duration(0)
				if s, err := p.Acquire(ctx, late); err == nil {
					s.Done()
				} else if r := new(Refused); errors.As(err, &r) {
					why = r.RetryAfter
				}
				if why > 0 {
					late.MaxWait = time.Hour
					s := granted(t, p, late)
					s.Done()
					if s.Wait != why {
						t.Errorf("Retry-After is %s, but the slot was free after %s", why, s.Wait)
					}
				}
				cancel()
				group.Wait()
			})
		})
	}
}
