package sealer

import (
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/internal/testcpu"
)

// BenchmarkSeal measures the cost of a checkpoint for each line, with one every 1,000 lines.
func BenchmarkSeal(b *testing.B) {
	line := []byte(strings.TrimSuffix(entry(1), "}") + `,"pad":"` + strings.Repeat("x", 1090) + "\"}\n")
	bench := newBench(b)
	l := bench.open()
	defer l.Close(0)
	var used time.Duration
	for b.Loop() {
		b.StopTimer()
		for range 1000 {
			l.Write(line)
		}
		before := testcpu.Used(b)
		b.StartTimer()
		bench.flush(l)
		used += testcpu.Used(b) - before
	}
	b.ReportMetric(float64(used)/float64(b.N)/1000, "cpu-ns/line")
}
