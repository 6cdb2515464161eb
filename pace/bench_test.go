package pace

import (
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkAcquireUncontended measures one request to a free clock: the decision that every request
// needs.
func BenchmarkAcquireUncontended(b *testing.B) {
	b.ReportAllocs()
	p := New(Config{})
	r := Request{Limit: Limit{Key: "www.example.com", Interval: time.Nanosecond, Burst: 5, Concurrency: 8}, Agent: "AcmeCrawl"}
	ctx := b.Context()
	for b.Loop() {
		s, err := p.Acquire(ctx, r)
		if err != nil {
			b.Fatal(err)
		}
		s.Done()
	}
}

// BenchmarkAcquireManyKeys does the same over 100,000 hosts, with cold caches.
func BenchmarkAcquireManyKeys(b *testing.B) {
	b.ReportAllocs()
	p := New(Config{})
	keys := make([]string, 100_000)
	for i := range keys {
		keys[i] = "host-" + strconv.Itoa(i) + ".example.com"
	}
	ctx := b.Context()
	i := 0
	for b.Loop() {
		s, err := p.Acquire(ctx, Request{Limit: Limit{Key: keys[i%len(keys)], Interval: time.Nanosecond, Concurrency: 8}, Agent: "AcmeCrawl"})
		if err != nil {
			b.Fatal(err)
		}
		s.Done()
		i++
	}
}

// BenchmarkAcquireRefused measures a request to a host whose next slot is too far ahead: the cost
// of a crawler that ignores Retry-After.
func BenchmarkAcquireRefused(b *testing.B) {
	b.ReportAllocs()
	p := New(Config{})
	r := Request{Limit: Limit{Key: "www.example.com", Delay: time.Hour}, Agent: "AcmeCrawl"}
	ctx := b.Context()
	if _, err := p.Acquire(ctx, r); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := p.Acquire(ctx, r); err == nil {
			b.Fatal("granted")
		}
	}
}

// BenchmarkAcquireHotKey runs 64 goroutines on one host whose eight places are the bottleneck:
// every grant hands on a place.
func BenchmarkAcquireHotKey(b *testing.B) {
	b.ReportAllocs()
	p := New(Config{Wait: time.Hour})
	r := Request{Limit: Limit{Key: "www.example.com", Concurrency: 8}, Agent: "AcmeCrawl"}
	ctx := b.Context()
	parallel64(b, func() error {
		s, err := p.Acquire(ctx, r)
		s.Done()
		return err
	})
}

// BenchmarkAcquireHotKeyFree runs 64 goroutines on one host with a slot for each: they only contend
// for the lock.
func BenchmarkAcquireHotKeyFree(b *testing.B) {
	b.ReportAllocs()
	p := New(Config{Wait: time.Hour})
	r := Request{Limit: Limit{Key: "www.example.com", Concurrency: 1000}, Agent: "AcmeCrawl"}
	ctx := b.Context()
	parallel64(b, func() error {
		s, err := p.Acquire(ctx, r)
		s.Done()
		return err
	})
}

func parallel64(b *testing.B, do func() error) {
	b.Helper()
	b.SetParallelism(max(1, 64/runtime.GOMAXPROCS(0)))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := do(); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkAcquireThreeKeys measures a request with free clocks of the agent at the host, of the
// host, and of the site.
func BenchmarkAcquireThreeKeys(b *testing.B) {
	b.ReportAllocs()
	p := New(Config{})
	r := Request{
		Limit: Limit{Key: "www.example.com", Interval: time.Nanosecond, Concurrency: 8},
		Also:  []Limit{{Key: AgentKey("AcmeCrawl", "www.example.com"), Interval: time.Nanosecond}, {Key: PerSite.Key("www.example.com", netip.Addr{}), Interval: time.Nanosecond}},
		Agent: "AcmeCrawl",
	}
	ctx := b.Context()
	for b.Loop() {
		s, err := p.Acquire(ctx, r)
		if err != nil {
			b.Fatal(err)
		}
		s.Done()
	}
}

// BenchmarkMillionKeys makes a million clocks and sweeps them. It measures the memory of each with
// its name, the cost of making one, and the processor time of a whole sweep as a share of its
// sweepRounds seconds.
func BenchmarkMillionKeys(b *testing.B) {
	const n = 1_000_000
	names := make([]string, n)
	for i := range names {
		names[i] = "www.host-" + strconv.Itoa(i) + ".example.com"
	}
	for b.Loop() {
		p := New(Config{Idle: time.Hour, MaxKeys: 2 * n})
		p.sweeping.Store(true) // the benchmark sweeps itself
		before := heapInUse()
		start := time.Now()
		for _, name := range names {
			// The caller's string ends with its request.
			s, err := p.Acquire(b.Context(), Request{Limit: Limit{Key: strings.Clone(name), Interval: time.Millisecond, Concurrency: 8}})
			if err != nil {
				b.Fatal(err)
			}
			s.Done()
		}
		b.ReportMetric(float64(time.Since(start).Nanoseconds())/n, "ns/new-key")
		b.ReportMetric(float64(heapInUse()-before)/n, "B/key")
		if p.Stats().Keys != n {
			b.Fatalf("%d keys", p.Stats().Keys)
		}
		start = time.Now()
		for range sweepRounds {
			p.table.sweepNext(p.config.Load(), p.now())
		}
		took := time.Since(start)
		b.ReportMetric(float64(took.Nanoseconds())/n, "ns/swept-key")
		b.ReportMetric(100*took.Seconds()/(sweepRounds*sweepEvery).Seconds(), "%cpu-sweep")

		p.Configure(Config{Idle: time.Nanosecond})
		for p.table.sweepNext(p.config.Load(), p.now()+time.Second) {
		}
		b.ReportMetric(float64(heapInUse()-before)/(1<<20), "MiB-left")
		runtime.KeepAlive(p)
	}
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
