package redisclock

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/pace"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// BenchmarkAcquire measures a whole decision with a real Redis on this machine, which is one round
// trip. The 99th percentile is the time that users notice.
func BenchmarkAcquire(b *testing.B) {
	for _, clocks := range []int{1, 3} {
		b.Run(fmt.Sprintf("clocks=%d", clocks), func(b *testing.B) {
			b.ReportAllocs()
			k := clockAt(b, redistest.Start(b))
			p := pace.New(pace.Config{Shared: k})
			took := make([]time.Duration, 0, b.N)
			i := 0
			for b.Loop() {
				i++
				host := fmt.Sprintf("host-%d.example.com", i%10_000)
				r := pace.Request{Limit: pace.Limit{Key: host, Interval: time.Microsecond, Burst: 1_000_000, Concurrency: 8}}
				if clocks == 3 {
					r.Also = []pace.Limit{{Key: pace.PerSite.Key(host, netip.Addr{})}, {Key: "addr:192.0.2.1"}}
				}
				start := time.Now()
				s, err := p.Acquire(b.Context(), r)
				if err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
				s.Done()
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs-p99")
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-p50")
		})
	}
}
