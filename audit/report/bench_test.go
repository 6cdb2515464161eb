package report

import (
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/audit"
)

// manyDays returns a log of n days.
func manyDays(n int) ([][]audit.Source, int) {
	one := day()
	return logs(strings.Repeat(strings.Join(one, "\n")+"\n", n-1) + strings.Join(one, "\n")), n * len(one)
}

func unreported(audit.Fault) {}

// BenchmarkOf measures a report. An op is a line.
func BenchmarkOf(b *testing.B) {
	sources, _ := manyDays(b.N/len(day()) + 1)
	b.ReportAllocs()
	b.ResetTimer()
	if _, err := Of(b.Context(), sources, Filter{}, unreported); err != nil {
		b.Fatal(err)
	}
}

// TestCostOfALine checks that a report allocates little more per line than reading it: the line's
// origin and hour.
func TestCostOfALine(t *testing.T) {
	sources, n := manyDays(200)
	reported := testing.AllocsPerRun(3, func() { _, _ = Of(t.Context(), sources, Filter{}, unreported) })
	read := testing.AllocsPerRun(3, func() { _ = audit.Read(t.Context(), sources, func(*audit.Line) {}, unreported) })
	if each := (reported - read) / float64(n); read < float64(n) || each > 3 {
		t.Errorf("%d lines: %g allocations, %g of them to read: %g more per line", n, reported, read, each)
	}
}
