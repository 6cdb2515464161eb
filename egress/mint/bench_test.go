package mint

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/crawlgate/crawlgate/internal/testca"
)

func BenchmarkMint(b *testing.B) {
	m := newTestMinter(b, testca.New(b))
	m.limit = 1
	hosts := [2]string{"a.example.com", "b.example.com"}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, err := m.Certificate(hosts[i&1]); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

func BenchmarkMintKept(b *testing.B) {
	m := newTestMinter(b, testca.New(b))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := m.Certificate("a.example.com"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkMintManyHosts measures the memory of one kept leaf.
func BenchmarkMintManyHosts(b *testing.B) {
	const hosts = MaxLeaves
	for b.Loop() {
		m := newTestMinter(b, testca.New(b))
		before := heap()
		for i := range hosts {
			if _, err := m.Certificate(fmt.Sprintf("host-%d.example.com", i)); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(heap()-before)/hosts, "B/leaf")
		runtime.KeepAlive(m)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}
