package robotstxt_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/crawlgate/crawlgate/robotstxt"
)

// TestSizeIsWhatIsRetained checks that the size of a Ruleset is the memory that it takes, within a
// fifth.
func TestSizeIsWhatIsRetained(t *testing.T) {
	files := corpus(t)
	kept := make([]*robotstxt.Ruleset, len(files))
	before := heapInUse()
	for i, f := range files {
		kept[i] = robotstxt.Parse(f.data)
	}
	heap := float64(heapInUse() - before)
	size := 0.0
	for _, rs := range kept {
		size += float64(rs.Size())
	}
	if size < 0.8*heap || size > 1.2*heap {
		t.Errorf("the sizes add up to %.0f, but the heap grew by %.0f", size, heap)
	}
	runtime.KeepAlive(files)
	runtime.KeepAlive(kept)
}

// TestDecisionsDoNotAllocate checks targets in their usual spelling.
func TestDecisionsDoNotAllocate(t *testing.T) {
	rs := robotstxt.Parse([]byte("User-agent: *\nDisallow: /a b\nDisallow: /*?u=http://\nDisallow: /%24*%2A\nAllow: /x$\nDisallow: /*a*b"))
	for _, target := range []string{"/x", "/private/x?y=z", "/robots.txt", "/a/b/" + strings.Repeat("c", 10_000)} {
		agent := robotstxt.Agent{Tokens: []string{"ExampleBot", "Other"}}
		if n := testing.AllocsPerRun(100, func() { rs.Select(agent).Match(target) }); n != 0 {
			t.Errorf("%.40q: %v allocations, want 0", target, n)
		}
	}
}

// TestRepeatedNamesCostNothing checks that a file that repeats the name of its crawler before every
// rule makes the same rules as one that does not.
func TestRepeatedNamesCostNothing(t *testing.T) {
	t.Parallel()
	var once, repeated strings.Builder
	once.WriteString("User-agent: *\n")
	for i := range 200 {
		fmt.Fprintf(&once, "Disallow: /%d\n", i)
		fmt.Fprintf(&repeated, "User-agent: *\nDisallow: /%d\n", i)
	}
	a, b := robotstxt.Parse([]byte(once.String())), robotstxt.Parse([]byte(repeated.String()))
	if a.Size() < b.Size()*8/10 {
		t.Errorf("%d bytes with one line but %d bytes with many", a.Size(), b.Size())
	}
}

// TestConcurrentUse is for the race detector: decisions share only immutable data.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	var data strings.Builder
	data.WriteString("User-agent: *\nDisallow: /*?u=:\n")
	for i := range 8000 {
		fmt.Fprintf(&data, "Allow: *%03x*a*b\n", i)
	}
	rs := robotstxt.Parse([]byte(data.String()))
	g := rs.Select(robotstxt.Agent{Tokens: []string{"a"}})
	targets := []string{"/" + strings.Repeat("ba", 4000), "/a b", "/x?u=%3A", "/x?u=:*%2A", "/zyx"}
	want := make([]robotstxt.Match, len(targets))
	for i, target := range targets {
		want[i] = g.Match(target)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				for i, target := range targets {
					if got := g.Match(target); got != want[i] {
						t.Errorf("%.40s: got %+v, want %+v", target, got, want[i])
					}
				}
				robotstxt.Parse([]byte("User-agent: *\nDisallow: /a b*c"))
			}
		})
	}
	wg.Wait()
}
