package pace

import (
	"strconv"
	"testing"
	"time"
)

// BenchmarkAcquireUncontended is one request to a clock that is free: the
// decision that every request pays for.
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

// BenchmarkAcquireManyKeys is the same over 100,000 hosts: cold caches.
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

// BenchmarkAcquireRefused is a request to a host whose next slot is too far
// ahead: what a crawler costs that does not heed Retry-After.
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

// BenchmarkAcquireHotKey is 64 goroutines on one host whose eight places are
// the bottleneck: every grant is a hand-over of the turn.
func BenchmarkAcquireHotKey(b *testing.B) {
	b.ReportAllocs()
	p := New(Config{Wait: time.Hour})
	r := Request{Limit: Limit{Key: "www.example.com", Concurrency: 8}, Agent: "AcmeCrawl"}
	ctx := b.Context()
	b.SetParallelism(32) // times GOMAXPROCS
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			s, err := p.Acquire(ctx, r)
			if err != nil {
				b.Error(err)
				return
			}
			s.Done()
		}
	})
}
