package pace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// visit is one request in the simple simulator.
type visit struct {
	arrived, left time.Duration // left when it was sent or gave up
	went          bool
	serial        uint32 // order of sending
	limit         Limit
}

// visits collects visits in the order in which the requests were sent.
type visits struct {
	mu  sync.Mutex
	all []visit
}

func (v *visits) add(one visit) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all = append(v.all, one)
}

// went returns the visits that were sent, in that order.
func (v *visits) went() []visit {
	var out []visit
	for _, o := range v.all {
		if o.went {
			out = append(out, o)
		}
	}
	slices.SortStableFunc(out, func(a, b visit) int { return cmp.Compare(a.serial, b.serial) })
	return out
}

// earliest returns when a request may be sent after those in history. It uses the whole history
// instead of GCRA's one timestamp: over every window of the past, the intervals of its requests
// must have passed except for the burst, and the gap to the last request must hold for both.
func earliest(history []visit, l Limit) time.Duration {
	t := time.Duration(0)
	var sum time.Duration
	for _, v := range slices.Backward(history) {
		sum += v.limit.Interval
		t = max(t, v.left+sum-time.Duration(max(l.Burst, 1)-1)*l.Interval)
	}
	if n := len(history); n > 0 {
		t = max(t, history[n-1].left+max(history[n-1].limit.Delay, l.Delay))
	}
	return t
}

// schedule is a random run against one key.
type schedule struct {
	seed     uint64
	requests int
	limits   []Limit // each request has one of them at random
	cancel   float64 // share of the requests whose client leaves
	maxWait  time.Duration
}

func (sc schedule) run(t *testing.T) *visits {
	t.Helper()
	rnd := rand.New(rand.NewPCG(sc.seed, 1))
	p := New(Config{Queue: 1 << 20, Waiters: 1 << 20})
	start := time.Now()
	out := &visits{}
	var wg sync.WaitGroup
	for i := range sc.requests {
		at := time.Duration(rnd.Int64N(int64(sc.requests) * int64(400*time.Millisecond)))
		leave := time.Hour * 1000
		if rnd.Float64() < sc.cancel {
			leave = time.Duration(rnd.Int64N(int64(30 * time.Second)))
		}
		l := sc.limits[rnd.IntN(len(sc.limits))]
		l.Key = "h"
		agent := fmt.Sprintf("agent-%d", i%4)
		wg.Go(func() {
			time.Sleep(at)
			ctx, cancel := context.WithTimeout(t.Context(), leave)
			defer cancel()
			v := visit{arrived: time.Since(start), limit: l}
			s, err := p.Acquire(ctx, Request{Limit: l, Agent: agent, MaxWait: sc.maxWait})
			v.left, v.went = time.Since(start), err == nil
			if v.went {
				v.serial = s.grant.charges[0].serial
			}
			s.Done()
			out.add(v)
		})
	}
	wg.Wait()
	return out
}

// safe fails the test if a request was sent earlier than every window of the past permits.
func safe(t *testing.T, went []visit) {
	t.Helper()
	for i, v := range went {
		if least := earliest(went[:i], v.limit); v.left < least {
			t.Fatalf("request %d was sent at %s, want not before %s", i, v.left, least)
		}
	}
}

// lossless fails the test if a slot passed unused while a request waited for it. It requires that
// all requests have the same limits.
func lossless(t *testing.T, all, went []visit) {
	t.Helper()
	waiting := slices.DeleteFunc(slices.Clone(all), func(o visit) bool { return o.went })
	last := time.Duration(0)
	for i, v := range went {
		free := max(last, earliest(went[:i], v.limit))
		want := v.left // the first later moment at which a request waited
		for _, o := range slices.Concat(waiting, went[i:]) {
			if o.left > free || o.went && o.left == free {
				want = min(want, max(free, o.arrived))
			}
		}
		if v.left != want {
			t.Fatalf("request %d was sent at %s, but the slot was free at %s and a request waited at %s", i, v.left, free, want)
		}
		last = v.left
	}
}

func TestModelNoWindowExceedsTheRateAndNoSlotIsLost(t *testing.T) {
	t.Parallel()
	limits := []Limit{
		{Delay: time.Second},
		{Interval: 500 * time.Millisecond},
		{Interval: 200 * time.Millisecond, Burst: 5},
		{Interval: 700 * time.Millisecond, Burst: 3, Delay: 100 * time.Millisecond},
		{Interval: 200 * time.Millisecond, Burst: 5, Delay: 600 * time.Millisecond},
	}
	for _, l := range limits {
		for seed := range uint64(12) {
			t.Run(fmt.Sprintf("%s,%d,%s/seed=%d", l.Interval, l.Burst, l.Delay, seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					sc := schedule{seed: seed, requests: 120, limits: []Limit{l}, cancel: float64(seed%3) * 0.3, maxWait: 1000 * time.Hour}
					v := sc.run(t)
					went := v.went()
					if len(went) < sc.requests/4 {
						t.Fatalf("only %d requests were sent", len(went))
					}
					safe(t, went)
					lossless(t, v.all, went)
				})
			})
		}
	}
}

func TestModelIntervalChangesFromRequestToRequest(t *testing.T) {
	t.Parallel()
	limits := []Limit{
		{Delay: time.Second},
		{Delay: 5 * time.Second},
		{Interval: 300 * time.Millisecond, Burst: 4},
		{Interval: 2 * time.Second},
		{},
	}
	for seed := range uint64(24) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sc := schedule{seed: seed, requests: 120, limits: limits, cancel: float64(seed%3) * 0.3, maxWait: time.Duration(seed%4+1) * 10 * time.Second}
				safe(t, sc.run(t).went())
			})
		})
	}
}

// A refused request is told when it could be sent. Without other requests, it is sent exactly then.
func TestModelRetryAfterIsExact(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 2))
				p := New(Config{})
				l := Limit{Key: "h", Interval: time.Duration(rnd.IntN(9)+1) * time.Second, Burst: rnd.IntN(4), Delay: time.Duration(rnd.IntN(4)) * time.Second}
				var wg sync.WaitGroup
				for i := range 1 + rnd.IntN(12) { // some are sent, some wait
					agent := fmt.Sprintf("agent-%d", i%3)
					wg.Go(func() {
						granted(t, p, Request{Limit: l, Agent: agent, MaxWait: time.Hour}).Done()
					})
					synctest.Wait()
				}
				time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
				synctest.Wait()
				late := Request{Limit: l, Agent: "agent-3", MaxWait: -1}
				s, err := p.Acquire(t.Context(), late)
				if err == nil {
					s.Done()
					return
				}
				var why *Refused
				if !errors.As(err, &why) {
					t.Fatal(err)
				}
				patient := late
				patient.MaxWait = time.Hour
				s = granted(t, p, patient)
				s.Done()
				wg.Wait()
				if s.Wait != why.RetryAfter {
					t.Errorf("Retry-After is %s, but the slot was free after %s", why.RetryAfter, s.Wait)
				}
			})
		})
	}
}
