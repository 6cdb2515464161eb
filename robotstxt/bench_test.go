package robotstxt_test

import (
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/robotstxt"
)

// BenchmarkParse parses every file once per iteration. Besides the mean, it reports the sum of each
// file's best time, which other work on the machine disturbs less.
func BenchmarkParse(b *testing.B) {
	files := corpus(b)
	best := make([]time.Duration, len(files))
	input := 0
	for i, f := range files {
		input += len(f.data)
		best[i] = math.MaxInt64
	}
	b.SetBytes(int64(input))
	b.ReportAllocs()
	for b.Loop() {
		for i, f := range files {
			start := time.Now()
			robotstxt.Parse(f.data)
			best[i] = min(best[i], time.Since(start))
		}
	}
	kb := float64(input) / 1024
	sum := time.Duration(0)
	for _, t := range best {
		sum += t
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/kb, "ns/KB")
	b.ReportMetric(float64(sum.Nanoseconds())/kb, "best-ns/KB")
}

// prepared is a question whose group is not chosen yet.
type prepared struct {
	rs     *robotstxt.Ruleset
	agent  robotstxt.Agent
	target string
}

// prepare makes n questions per file, in an order that jumps from file to file.
func prepare(tb testing.TB, n int) []prepared {
	tb.Helper()
	files := corpus(tb)
	all := make([]prepared, 0, n*len(files))
	rulesets := make([]*robotstxt.Ruleset, len(files))
	askers := make([]*asker, len(files))
	for i, f := range files {
		rulesets[i], askers[i] = robotstxt.Parse(f.data), newAsker(f.data, uint64(i))
	}
	for range n {
		for i, a := range askers {
			q := a.next()
			all = append(all, prepared{rulesets[i], robotstxt.Agent{Tokens: q.tokens}, q.target})
		}
	}
	return all
}

// BenchmarkDecide answers one question per iteration, including the choice of the group, each time
// about another file.
func BenchmarkDecide(b *testing.B) {
	questions := prepare(b, 20)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		q := &questions[i]
		q.rs.Select(q.agent).Match(q.target)
		if i++; i == len(questions) {
			i = 0
		}
	}
}

// BenchmarkDecideSpread measures every question separately, as the mean of a few answers, and
// reports the distribution of the times.
func BenchmarkDecideSpread(b *testing.B) {
	const answers = 8
	questions := prepare(b, 20)
	times := make([]time.Duration, 0, len(questions))
	for b.Loop() {
		times = times[:0]
		for i := range questions {
			q := &questions[i]
			q.rs.Select(q.agent).Match(q.target)
			start := time.Now()
			for range answers {
				q.rs.Select(q.agent).Match(q.target)
			}
			times = append(times, time.Since(start)/answers)
		}
	}
	slices.Sort(times)
	for name, part := range map[string]float64{"p50-ns": 0.5, "p90-ns": 0.9, "p99-ns": 0.99, "max-ns": 1} {
		b.ReportMetric(float64(times[int(part*float64(len(times)-1))]), name)
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRetained measures the memory of the rulesets of all files.
func BenchmarkRetained(b *testing.B) {
	files := corpus(b)
	input := 0
	for _, f := range files {
		input += len(f.data)
	}
	var heap, size uint64
	for b.Loop() {
		before := heapInUse()
		kept := make([]*robotstxt.Ruleset, len(files))
		for i, f := range files {
			kept[i] = robotstxt.Parse(f.data)
		}
		heap, size = heapInUse()-before, 0
		for _, rs := range kept {
			size += uint64(rs.Size())
		}
		runtime.KeepAlive(kept)
	}
	b.ReportMetric(float64(heap)/float64(input), "B/byte")
	b.ReportMetric(float64(size)/float64(input), "Size/byte")
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
