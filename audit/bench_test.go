package audit

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
)

// wildLog returns a log of lines about 150 real files, with lines of realistic length, and the
// texts.
func wildLog(tb testing.TB) (log string, n int, store memory) {
	tb.Helper()
	store = memory{}
	hosts := sites{}
	for i, text := range wild(tb) {
		store.keep(text)
		hosts[fmt.Sprintf("n%d.example", i)] = goodText(text)
	}
	e := &enforce.Enforcer{Rules: rulesOf(tb, hosts, fetch.Policy{}.Complete())}
	script := rand.New(rand.NewPCG(1, 2))
	var lines []object
	for host, site := range hosts {
		for _, path := range pathsOf(string(site.Body), script) {
			to := target(tb, "https://"+host+path)
			d := e.Decide(tb.Context(), enforce.Request{Method: http.MethodGet, Target: to, Identity: crawler(tb, "AcmeBot")})
			lines = append(lines, lineOf(tb, d.Record(), "GET", to.String(), noon.Add(time.Duration(len(lines))*time.Minute)))
		}
	}
	return logOf(tb, lines...), len(lines), store
}

// repeated returns the first n lines of a log that is repeated.
func repeated(log string, n int) [][]Source {
	return [][]Source{{{"log", func() (io.ReadCloser, error) {
		var again []io.Reader
		for lines := strings.Count(log, "\n"); n > 0; n -= lines {
			if n < lines {
				log = strings.Join(strings.SplitAfterN(log, "\n", n+1)[:n], "")
			}
			again = append(again, strings.NewReader(log))
		}
		return io.NopCloser(io.MultiReader(again...)), nil
	}}}}
}

func ignore(Finding) {}

func ignoreFault(Fault) {}

// BenchmarkRun measures an audit. An op is a line.
func BenchmarkRun(b *testing.B) {
	log, n, store := wildLog(b)
	b.SetBytes(int64(len(log) / n))
	b.ReportAllocs()
	answers := answersFor(log)
	logs := [][]Source{append(repeated(answers, strings.Count(answers, "\n"))[0], repeated(log, b.N)[0]...)}
	b.ResetTimer()
	totals, err := Run(b.Context(), Config{Texts: store}, logs, ignore, ignoreFault)
	if err != nil || totals.Checked != int64(b.N) || len(totals.NotProvable) > 0 || len(totals.Findings) > 0 && totals.Gaps.Short == 0 {
		b.Fatalf("Run = %+v, %v", totals, err)
	}
}

// BenchmarkRead measures the part of an audit that other readers of logs share. An op is a line.
func BenchmarkRead(b *testing.B) {
	log, n, _ := wildLog(b)
	b.SetBytes(int64(len(log) / n))
	b.ReportAllocs()
	b.ResetTimer()
	if err := Read(b.Context(), repeated(log, b.N), func(*Line) {}, ignoreFault); err != nil {
		b.Fatal(err)
	}
}

// TestReadsOnce checks that each reader of a log decodes a line once, like an audit. So it needs no
// more memory than an audit, except for the line that it may keep.
func TestReadsOnce(t *testing.T) {
	log, n, store := wildLog(t)
	audited := testing.AllocsPerRun(1, func() { _, _ = Run(t.Context(), Config{Texts: store}, repeated(log, n), ignore, ignoreFault) })
	read := testing.AllocsPerRun(1, func() { _ = Read(t.Context(), repeated(log, n), func(*Line) {}, ignoreFault) })
	if audited < float64(n) || read > audited+float64(n) {
		t.Errorf("%d lines: %g allocations to read, but %g to audit", n, read, audited)
	}
}
