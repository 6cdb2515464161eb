package robotscache_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/boltstore"
	"github.com/crawlgate/crawlgate/robotscache/storetest"
)

// The benchmarks take their texts from the folder CRAWLGATE_CORPUS (real robots.txt files, *.txt)
// or from a few made-up ones, and the number of origins of large benchmarks from
// CRAWLGATE_BENCH_ORIGINS.
const (
	corpusEnv  = "CRAWLGATE_CORPUS"
	originsEnv = "CRAWLGATE_BENCH_ORIGINS"
)

// texts returns the corpus sorted by length, with each text cut to 500 KiB.
func texts(tb testing.TB) [][]byte {
	tb.Helper()
	var all [][]byte
	paths, err := filepath.Glob(filepath.Join(os.Getenv(corpusEnv), "*.txt"))
	if err != nil {
		tb.Fatal(err)
	}
	if os.Getenv(corpusEnv) == "" {
		paths = nil
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, text[:min(len(text), 500<<10)])
	}
	for i := 1; len(paths) == 0 && i <= 100; i++ {
		text := "User-agent: *\n"
		for j := range i {
			text += fmt.Sprintf("Disallow: /%d/%d/\n", i, j*j)
		}
		all = append(all, []byte(text))
	}
	slices.SortFunc(all, func(a, b []byte) int { return cmp.Compare(len(a), len(b)) })
	return all
}

// origins returns the number of origins of a large benchmark.
func origins(tb testing.TB, most int) int {
	tb.Helper()
	v := os.Getenv(originsEnv)
	if v == "" {
		return min(most, 20000)
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// record returns the record of origin i with a text of the corpus that is made unique.
func record(i int, texts [][]byte) fetch.Record {
	text := fmt.Appendf(nil, "# %d\n", i)
	text = append(text, texts[i%len(texts)]...)
	return storetest.Rules(example(i), string(text), time.Now())
}

// noFetch is a fetcher for benchmarks that must not fetch.
type noFetch struct{ testing.TB }

func (f noFetch) Fetch(_ context.Context, o fetch.Key, _ fetch.Gate) fetch.Outcome {
	f.Errorf("%s was fetched, want no fetch", o)
	return fetch.Outcome{}
}

// BenchmarkLookup_Hot measures nearly every request.
func BenchmarkLookup_Hot(b *testing.B) {
	const n = 1000
	st := newMemory()
	for i := range n {
		if err := st.Save(b.Context(), record(i, [][]byte{[]byte(someRules)})); err != nil {
			b.Fatal(err)
		}
	}
	c := newCache(b, robotscache.Config{Store: st, Fetcher: noFetch{b}, MaxSize: 64 << 20}, nil)
	defer c.Close()
	all := make([]origin.Origin, n)
	for i := range all {
		all[i] = example(i)
		lookup(b, c, all[i])
	}
	c.WaitHot()
	ctx := b.Context()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			_, s, err := c.Lookup(ctx, all[i%n], robotscache.Asker{})
			if err != nil || s != robotscache.SourceHot {
				b.Errorf("Lookup: source %v, error %v, want a hot entry", s, err)
			}
		}
	})
}

// BenchmarkView measures what follows a lookup.
func BenchmarkView(b *testing.B) {
	e := robotscache.NewEntry(record(0, [][]byte{[]byte(someRules)}), robotscache.Interpretation{})
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		if e.View(now).Rules == nil {
			b.Fatal("View has no rules")
		}
	}
}

// BenchmarkLookup_Store measures the first request for an origin after a restart: the record is
// read from the file, and its text is decompressed, checked and compiled.
func BenchmarkLookup_Store(b *testing.B) {
	all := texts(b)
	for _, of := range []struct {
		name string
		text []byte
	}{
		{"median", all[len(all)/2]},
		{"p90", all[len(all)*9/10]},
		{"largest", all[len(all)-1]},
	} {
		b.Run(fmt.Sprintf("%s=%dB", of.name, len(of.text)), func(b *testing.B) {
			st, err := boltstore.Open(boltstore.Config{Path: filepath.Join(b.TempDir(), "db")})
			if err != nil {
				b.Fatal(err)
			}
			n := max(min(10000, 64<<20/len(of.text)), 10)
			saveAll(b, st, n, [][]byte{of.text})
			c := newCache(b, robotscache.Config{Store: st, Fetcher: noFetch{b}}, robotscache.DroppingTier{})
			defer c.Close()
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				if _, s := lookup(b, c, example(i%n)); s != robotscache.SourceStore {
					b.Fatal(s)
				}
			}
		})
	}
}

// saveAll saves n records, a thousand at a time, and returns the size of their texts.
func saveAll(b *testing.B, st robotscache.Store, n int, texts [][]byte) (size int) {
	b.Helper()
	var batch []fetch.Record
	for i := range n {
		r := record(i, texts)
		size += len(r.Body)
		if batch = append(batch, r); len(batch) < 1000 && i < n-1 {
			continue
		}
		if err := st.Save(b.Context(), batch...); err != nil {
			b.Fatal(err)
		}
		batch = batch[:0]
	}
	return size
}

// BenchmarkBolt_Origins fills a file with many origins and opens it again.
func BenchmarkBolt_Origins(b *testing.B) {
	all, n := texts(b), origins(b, 20000)
	for b.Loop() {
		path := filepath.Join(b.TempDir(), "db")
		st, err := boltstore.Open(boltstore.Config{Path: path})
		if err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		size := saveAll(b, st, n, all)
		if err := st.Close(); err != nil {
			b.Fatal(err)
		}
		filled := time.Since(began)
		info, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}

		began = time.Now()
		st, err = boltstore.Open(boltstore.Config{Path: path})
		if err != nil {
			b.Fatal(err)
		}
		opened := time.Since(began)
		c := newCache(b, robotscache.Config{Store: st, Fetcher: noFetch{b}}, nil)
		lookup(b, c, example(n/2))
		ready := time.Since(began)
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(n)/filled.Seconds(), "saves/s")
		b.ReportMetric(float64(size)/float64(n), "text-B/origin")
		b.ReportMetric(float64(info.Size())/float64(n), "file-B/origin")
		b.ReportMetric(float64(opened.Microseconds())/1000, "open-ms")
		b.ReportMetric(float64(ready.Microseconds())/1000, "first-answer-ms")
	}
}

// BenchmarkHot_Memory compares the memory of hot records with the memory of their texts, and with
// the bytes that they count against the limit.
func BenchmarkHot_Memory(b *testing.B) {
	all, n := texts(b), origins(b, 100000)
	for b.Loop() {
		before := heap()
		st := newMemory()
		c := newCache(b, robotscache.Config{Store: st, Fetcher: noFetch{b}, MaxSize: 16 << 30}, nil)
		empty := heap()
		var size, cost int64
		for i := range n {
			r := record(i, all)
			size += int64(len(r.Body))
			if err := st.Save(b.Context(), r); err != nil {
				b.Fatal(err)
			}
			e, _ := lookup(b, c, r.Origin)
			cost += e.Cost()
			if err := st.Delete(b.Context(), r.Key()); err != nil {
				b.Fatal(err)
			}
			if i%1000 == 0 {
				c.WaitHot()
			}
		}
		c.WaitHot()
		held := heap() - empty
		hot := 0
		for i := range n {
			if _, ok := c.Peek(example(i), ""); ok {
				hot++
			}
		}
		b.ReportMetric(float64(size)/float64(n), "text-B/origin")
		b.ReportMetric(float64(cost)/float64(n), "cost-B/origin")
		b.ReportMetric(float64(held)/float64(n), "heap-B/origin")
		b.ReportMetric(float64(empty-before), "empty-B")
		b.ReportMetric(float64(hot)/float64(n), "hot-share")
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
