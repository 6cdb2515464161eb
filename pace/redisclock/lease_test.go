package redisclock

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/pace"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// watched returns n clocks that return and renew places.
func watched(t *testing.T, s *redistest.Server, n int) []*Clock {
	t.Helper()
	all := make([]*Clock, n)
	for i := range all {
		all[i] = clockAt(t, s)
		all[i].Watch(func(string, time.Duration, int) {}, func() {})
	}
	return all
}

func outcome(t *testing.T, k *Clock, d ...pace.Demand) (pace.Reservation, pace.ReserveOutcome) {
	t.Helper()
	r, err := k.Reserve(t.Context(), d, ever)
	if err != nil {
		t.Fatal(err)
	}
	return r, r.Outcome
}

// TestPlacesAreOfAllGateways checks that all gateways together have the demanded number of places.
// A place becomes free when it is returned, or when its gateway is silent for long.
func TestPlacesAreOfAllGateways(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	all := watched(t, s, 2)
	host, addr := pace.Demand{Key: "h.example", Places: 3}, pace.Demand{Key: "addr:192.0.2.1", Places: 2}
	first := reserve(t, all[0], host, addr)
	second := reserve(t, all[1], host)
	third := reserve(t, all[0], host)
	if r, got := outcome(t, all[1], host); got != pace.Full || r.Wait <= 0 {
		t.Errorf("Reserve = %+v, want full", r)
	}
	if err := all[1].Release(second); err != nil {
		t.Fatal(err)
	}
	reserve(t, all[1], host)
	done := make(chan struct{})
	all[0].Done(first, func() { close(done) })
	<-done
	reserve(t, all[1], host) // its turn, because it asked when there was no place
	reserve(t, all[0], addr)
	reserve(t, all[0], addr)
	if _, got := outcome(t, all[1], addr); got != pace.Full {
		t.Errorf("outcome %d at the address, want full", got)
	}
	again := make(chan struct{})
	all[0].Done(first, func() { close(again) }) // the second Done does nothing
	<-again
	if _, got := outcome(t, all[1], host); got != pace.Full {
		t.Errorf("outcome %d, want full", got)
	}
	s.Say(`EVAL "for _, k in ipairs(redis.call('KEYS', '*:h.example places')) do for _, m in ipairs(redis.call('ZRANGE', k, 0, 1)) do ` +
		`redis.call('ZADD', k, 1, m) end end" 0`) // as if two leases had expired
	reserve(t, all[1], host)
	reserve(t, all[1], host)
	if _, got := outcome(t, all[1], host); got != pace.Full {
		t.Errorf("outcome %d, want full: the third lease holds", got)
	}
	_ = third
}

// TestTheTurnAtAPlace checks that a gateway that found no place gets the next one before the
// gateway that had it.
func TestTheTurnAtAPlace(t *testing.T) {
	t.Parallel()
	all := watched(t, redistest.Start(t), 2)
	host := pace.Demand{Key: "h.example", Places: 1}
	hog := reserve(t, all[0], host)
	redistest.Eventually(t, "all is asked while the turn lasts", func() bool {
		began := time.Now()
		if _, got := outcome(t, all[1], host); got != pace.Full {
			t.Fatalf("outcome %d, want full", got)
		}
		if err := all[0].Release(hog); err != nil {
			t.Fatal(err)
		}
		r, got := outcome(t, all[0], host)
		if got != pace.Full && time.Since(began) < 200*time.Millisecond {
			t.Errorf("outcome %d for the gateway that had the place, want full in the other gateway's turn", got)
		}
		hog = r
		return got == pace.Full
	})
	mine := reserve(t, all[1], host)
	if err := all[1].Release(mine); err != nil {
		t.Fatal(err)
	}
	reserve(t, all[0], host)
}

// TestPlacesAreTakenAgainAfterALoss checks that gateways that have places take them again at once
// after a loss of memory.
func TestPlacesAreTakenAgainAfterALoss(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	all := watched(t, s, 2)
	host := pace.Demand{Key: "h.example", Places: 2}
	held := reserve(t, all[0], host)
	s.Say("FLUSHALL")
	redistest.Eventually(t, "the second is over", func() bool {
		_, got := outcome(t, all[1], host)
		return got == pace.Reserved
	})
	if _, got := outcome(t, all[1], host); got != pace.Full {
		t.Errorf("outcome %d, want full: the other gateway has a place", got)
	}
	all[0].Done(held, func() {})
	redistest.Eventually(t, "the place is free", func() bool {
		_, got := outcome(t, all[1], host)
		return got == pace.Reserved
	})
}

// TestTwelvePacersKeepEightPlaces checks that twelve Pacers use eight places and never more.
func TestTwelvePacersKeepEightPlaces(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var (
		open, most, served atomic.Int32
		wg                 sync.WaitGroup
	)
	all := make([]*Clock, 12)
	for i := range all {
		all[i] = clockAt(t, s)
	}
	redistest.Eventually(t, "all are counted", func() bool {
		for _, k := range all {
			if k.Peers().Count < len(all) {
				return false
			}
		}
		return strings.Contains(s.Say("ZCARD {crawlgate}:fleet:clocks"), ":12")
	})
	for i, k := range all {
		p := pace.New(pace.Config{Shared: k})
		for j := range 4 {
			wg.Go(func() {
				for range 4 {
					r := pace.Request{Limit: pace.Limit{Key: "h.example", Concurrency: 8}, Agent: fmt.Sprint(i, j), MaxWait: time.Minute}
					slot, err := p.Acquire(t.Context(), r)
					if err != nil {
						t.Error(err)
						return
					}
					n := open.Add(1)
					for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
					}
					time.Sleep(20 * time.Millisecond)
					open.Add(-1)
					slot.Done()
					served.Add(1)
				}
			})
		}
	}
	began := time.Now()
	wg.Wait()
	t.Logf("%d requests in %s, at most %d at once", served.Load(), time.Since(began), most.Load())
	if most.Load() > 8 || served.Load() != 12*4*4 {
		t.Errorf("%d requests at once, want at most 8; %d served", most.Load(), served.Load())
	}
}
