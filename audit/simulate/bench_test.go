package simulate

import (
	"crypto/sha256"
	"io"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
)

// sameLines returns a log of n lines of one request.
func sameLines(tb testing.TB, n int) [][]audit.Source {
	tb.Helper()
	text := strings.Repeat(disallowed().line(tb), n)
	return [][]audit.Source{{{Name: "a.log", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}}}
}

func simulated(tb testing.TB, logs [][]audit.Source) {
	tb.Helper()
	totals, err := Run(tb.Context(), Config{Policy: policy(tb, nil, enforce.PolicyConfig{}), Texts: newStored()}, logs,
		func(*audit.Line, Result) {}, func(audit.Fault) {})
	if err != nil || totals.Same != totals.Lines || totals.Lines == 0 {
		tb.Fatalf("Run = %+v, %v", totals, err)
	}
}

// BenchmarkRun measures a simulation. An op is a line.
func BenchmarkRun(b *testing.B) {
	logs := sameLines(b, b.N)
	b.ReportAllocs()
	b.ResetTimer()
	simulated(b, logs)
}

// TestCostOfALine checks that a simulation allocates no more per line than an audit, which also
// replays it.
func TestCostOfALine(t *testing.T) {
	const n = 2000
	logs := sameLines(t, n)
	audited := testing.AllocsPerRun(3, func() {
		totals, err := audit.Run(t.Context(), audit.Config{Texts: newStored()}, logs, func(audit.Finding) {}, func(audit.Fault) {})
		if err != nil || totals.Checked != n {
			t.Fatalf("audit = %+v, %v", totals, err)
		}
	})
	if got := testing.AllocsPerRun(3, func() { simulated(t, logs) }); got > audited {
		t.Errorf("%d lines: %g allocations, but %g to audit", n, got, audited)
	}
}

// TestRedactedLinesReadATextOnce checks that a line with a redacted query costs no more than twice
// another one, because its text is not read again to see whether a rule depends on the query.
func TestRedactedLinesReadATextOnce(t *testing.T) {
	const n = 200
	long := text + strings.Repeat("Disallow: /a*?b\n", 1000)
	sha := sha256.Sum256([]byte(long))
	cost := func(uri string) float64 {
		r := disallowed()
		r.URI, r.Robots.SHA256 = uri, fetch.Sum(sha).Hex()
		source := audit.Source{Name: "a.log", Open: func() (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(strings.Repeat(r.line(t), n))), nil
		}}
		cfg := Config{Policy: policy(t, nil, enforce.PolicyConfig{}), Texts: stored{bodies: map[[32]byte]string{sha: long}}, Redacted: "REDACTED"}
		return testing.AllocsPerRun(1, func() {
			totals, err := Run(t.Context(), cfg, [][]audit.Source{{source}}, func(*audit.Line, Result) {}, func(audit.Fault) {})
			if err != nil || totals.Same+totals.NotComputed[CauseQuery] != n {
				t.Fatalf("%s: Run = %+v, %v", uri, totals, err)
			}
		})
	}
	plain, redacted := cost("https://example.com/private/x?q"), cost("https://example.com/private/x?REDACTED")
	if redacted > 2*plain {
		t.Errorf("%d lines: %g allocations with a redacted query, %g without", n, redacted, plain)
	}
}
