package proxy

import (
	"context"
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/testcpu"
	"github.com/crawlgate/crawlgate/internal/version"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// atHand returns the rules of one origin from memory.
type atHand struct{ entry *robotscache.Entry }

// Lookup implements enforce.Lookup.
func (a atHand) Lookup(context.Context, origin.Origin, robotscache.Asker) (*robotscache.Entry, robotscache.Source, error) {
	return a.entry, robotscache.SourceHot, nil
}

// BenchmarkDecisionAndLog measures what the gateway adds to a request whose rules are in memory:
// identification, decision, the object in the access log, and its line. "line" measures the line
// without the object, so the difference is the cost of the object.
func BenchmarkDecisionAndLog(b *testing.B) {
	body := []byte("User-agent: *\nDisallow: /private/\nAllow: /private/open/\nCrawl-delay: 1\n")
	entry := robotscache.NewEntry(fetch.Record{
		State: fetch.StateRules, Body: body, SHA256: sha256.Sum256(body), Status: http.StatusOK,
		FetchedAt: time.Now(), FreshUntil: time.Now().Add(time.Hour),
	}, robotscache.Interpretation{Policy: fetch.Policy{}.Complete()})
	enforcer := &enforce.Enforcer{Rules: atHand{entry}}
	identifier, _, err := enforce.NewIdentifier(enforce.IdentifierConfig{Agents: []enforce.Agent{{Name: "AcmeBot"}}})
	if err != nil {
		b.Fatal(err)
	}
	for _, bm := range []struct {
		name, path string
		added      bool
	}{{"line", "", false}, {"allowed", "/shop/item?id=12345&lang=en", true}, {"disallowed", "/private/x", true}} {
		b.Run(bm.name, func(b *testing.B) {
			encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
			logger := zap.New(zapcore.NewCore(encoder, zapcore.AddSync(nowhere{}), zap.InfoLevel))
			r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "http://www.example.com"+bm.path, http.NoBody)
			r.Header.Set("User-Agent", "AcmeBot/1.0 (+https://acme.example/bot)")
			target, err := origin.NewTarget(r.URL)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			used := testcpu.Used(b)
			for b.Loop() {
				fields := make([]zap.Field, 0, 2)
				fields = append(fields, zap.Int("status", http.StatusOK))
				if bm.added {
					id := identifier.Identify(r.Context(), senderOf(r))
					d := enforcer.Decide(r.Context(), enforce.Request{Method: http.MethodGet, Target: target, Identity: id})
					rec := d.Record()
					rec.Gateway, rec.Version = "east-1", version.Read()
					fields = append(fields, zap.Object(logKey, logObject{&rec}))
					engine.CountDecision(d, http.MethodGet, id.Config, false, 0)
				}
				logger.Info("handled request", fields...)
			}
			b.ReportMetric(float64((testcpu.Used(b)-used).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}

// nowhere discards log entries.
type nowhere struct{}

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
