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

// BenchmarkRun is an audit of lines about 150 real files, of the length that lines have. An op is a
// line.
func BenchmarkRun(b *testing.B) {
	store, hosts := memory{}, sites{}
	for i, text := range wild(b) {
		store.keep(text)
		hosts[fmt.Sprintf("n%d.example", i)] = goodText(text)
	}
	e := &enforce.Enforcer{Rules: rulesOf(b, hosts, fetch.DefaultPolicy())}
	script := rand.New(rand.NewPCG(1, 2))
	var lines []object
	for host, site := range hosts {
		for _, path := range pathsOf(string(site.Body), script) {
			to := target(b, "https://"+host+path)
			d := e.Decide(b.Context(), enforce.Request{Method: http.MethodGet, Target: to, Identity: crawler(b, "AcmeBot")})
			lines = append(lines, lineOf(b, d.Record(), "GET", to.String(), noon.Add(time.Duration(len(lines))*time.Minute)))
		}
	}
	log := logOf(b, lines...)
	b.SetBytes(int64(len(log) / len(lines)))
	b.ReportAllocs()
	repeat := func() (io.ReadCloser, error) {
		var again []io.Reader
		for left := b.N; left > 0; left -= len(lines) {
			if left >= len(lines) {
				again = append(again, strings.NewReader(log))
				continue
			}
			again = append(again, strings.NewReader(logOf(b, lines[:left]...)))
		}
		return io.NopCloser(io.MultiReader(again...)), nil
	}
	ignore := Report{Finding: func(Finding) error { return nil }, Fault: func(Fault) error { return nil }}
	b.ResetTimer()
	totals, err := Run(b.Context(), Config{Texts: store}, [][]Source{{{"log", repeat}}}, ignore)
	if err != nil || totals.Checked != int64(b.N) || len(totals.Findings) > 0 && totals.Gaps.Short == 0 {
		b.Fatalf("%+v %v", totals, err)
	}
}
