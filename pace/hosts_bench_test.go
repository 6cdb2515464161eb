package pace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/internal/testcpu"
)

// BenchmarkMillionHostsInTenMinutes requests a million hosts, one after the other, in ten minutes
// of real time, with the usual sweep. It measures the largest number of keys, the memory of each,
// and the sweep's share of one processor. It runs only if CRAWLGATE_TEN_MINUTES sets the duration,
// such as 10m.
func BenchmarkMillionHostsInTenMinutes(b *testing.B) {
	long, err := time.ParseDuration(os.Getenv("CRAWLGATE_TEN_MINUTES"))
	if err != nil {
		b.Skip("it takes ten minutes: CRAWLGATE_TEN_MINUTES=10m")
	}
	const n = 1_000_000
	for b.Loop() {
		p := New(Config{})
		p.sweeping.Store(true) // the benchmark sweeps itself, to measure it
		before, used := heapInUse(), testcpu.Used(b)
		var swept time.Duration
		most, heapAtMost := 0, int64(0)
		start := time.Now()
		for tick, done := time.Duration(0), 0; tick < long; {
			for ; done < int(float64(n)*float64(tick)/float64(long)); done++ {
				s, err := p.Acquire(b.Context(), Request{Limit: Limit{Key: "www.host-" + strconv.Itoa(done) + ".example.com", Interval: time.Second, Burst: 5, Concurrency: 8}})
				if err != nil {
					b.Fatal(err)
				}
				s.Done()
			}
			began := time.Now()
			p.table.sweepNext(p.config.Load(), p.now())
			swept += time.Since(began)
			if keys := p.Stats().Keys; keys > most*21/20 {
				most, heapAtMost = keys, heapInUse()-before
			}
			tick += sweepEvery
			time.Sleep(time.Until(start.Add(tick)))
		}
		took := time.Since(start)
		b.ReportMetric(float64(most), "keys-at-most")
		b.ReportMetric(float64(heapAtMost)/float64(most), "B/key")
		b.ReportMetric(100*swept.Seconds()/took.Seconds(), "%cpu-sweep")
		b.ReportMetric(100*(testcpu.Used(b)-used).Seconds()/took.Seconds(), "%cpu-all")
		runtime.KeepAlive(p)
	}
}

// TestWaiterIsSmall checks the memory of one held request, without its connection and the stack of
// its goroutine. There may be 65,536 of them.
func TestWaiterIsSmall(t *testing.T) {
	const waiters, most = 10_000, 2048
	p := New(Config{Queue: waiters, Waiters: 4 * waiters})
	hold := Limit{Delay: time.Hour}
	for i := range 100 {
		hold.Key = fmt.Sprintf("host%d.example", i)
		granted(t, p, Request{Limit: hold}).Done()
	}
	ctx, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer leave()
	before := heapInUse()
	for i := range waiters {
		all.Go(func() {
			l := Limit{Delay: time.Hour, Key: fmt.Sprintf("host%d.example", i%100)}
			if _, err := p.Acquire(ctx, Request{Limit: l, Agent: fmt.Sprint(i % 10), MaxWait: 1000 * time.Hour}); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	for p.Stats().Waiting < waiters {
		runtime.Gosched()
	}
	each := (heapInUse() - before) / waiters
	t.Logf("%d bytes for each", each)
	if each > most {
		t.Errorf("%d bytes for each, want at most %d", each, most)
	}
}
