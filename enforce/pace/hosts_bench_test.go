package pace

import (
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/internal/testcpu"
)

// BenchmarkMillionHostsInTenMinutes asks for a million hosts, one after the other, in ten minutes
// by the clock, with the sweep as it is: how many keys there are at most, what each takes, and what
// part of one processor the sweep does. It runs where CRAWLGATE_TEN_MINUTES says how long they are,
// such as 10m.
func BenchmarkMillionHostsInTenMinutes(b *testing.B) {
	long, err := time.ParseDuration(os.Getenv("CRAWLGATE_TEN_MINUTES"))
	if err != nil {
		b.Skip("it takes ten minutes: CRAWLGATE_TEN_MINUTES=10m")
	}
	const n = 1_000_000
	for b.Loop() {
		p := New(Config{})
		p.sweeping.Store(true) // here, to be timed
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
