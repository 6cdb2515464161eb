package proxy

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// TestStepsAreChildrenOfTheRequest checks the spans of the steps of a traced request.
func TestStepsAreChildrenOfTheRequest(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	ctx, parent := provider.Tracer("test").Start(t.Context(), "request")
	o, err := origin.FromAuthority("https", "example.com")
	if err != nil {
		t.Fatal(err)
	}
	inner, decide := startStep(ctx, spanDecide)
	looked(inner, time.Now().Add(-time.Second), o, robotscache.SourceFetch, nil)
	looked(inner, time.Now(), o, robotscache.SourceHot, nil) // in memory: no wait, no span
	decide.decided(&enforce.Decision{Allowed: true, Reason: enforce.ReasonAllowedByRule, Agent: "acme", Origin: o, Line: 7, Detail: "secret"})
	_, wait := startStep(ctx, spanWait)
	wait.waited(&enforce.Decision{Wait: 1500 * time.Millisecond, CrawlDelay: 2 * time.Second}, nil)
	_, dial := startStep(ctx, spanDial)
	dial.endFailed("dns", errors.New("secret"))

	want := []struct {
		name, parent, status string
		attributes           map[string]string
	}{
		{"fetch", "decide", "", map[string]string{"robots.origin": "https://example.com", "robots.source": "fetch"}},
		{"decide", "request", "", map[string]string{"robots.decision": "allow", "robots.agent": "acme", "robots.line": "7", "robots.would_deny": "false"}},
		{"wait", "request", "", map[string]string{"robots.wait_ms": "1500", "robots.crawl_delay_s": "2"}},
		{"dial", "request", "dns", nil},
	}
	ids := map[string]string{parent.SpanContext().SpanID().String(): "request"}
	for _, s := range recorder.Ended() {
		ids[s.SpanContext().SpanID().String()] = s.Name()
	}
	ended := recorder.Ended()
	if len(ended) != len(want) {
		t.Fatalf("%d spans, want %d", len(ended), len(want))
	}
	for i, w := range want {
		s := ended[i]
		if s.Name() != w.name || ids[s.Parent().SpanID().String()] != w.parent || s.Status().Description != w.status || (s.Status().Code == codes.Error) != (w.status != "") {
			t.Errorf("span %s in %s, status %+v; want %+v", s.Name(), ids[s.Parent().SpanID().String()], s.Status(), w)
		}
		got := map[string]string{}
		for _, kv := range s.Attributes() {
			got[string(kv.Key)] = kv.Value.String()
			if kv.Value.String() == "secret" {
				t.Errorf("span %s has an internal detail", s.Name())
			}
		}
		for k, v := range w.attributes {
			if got[k] != v {
				t.Errorf("span %s: %s is %q, want %q", s.Name(), k, got[k], v)
			}
		}
	}
	if took := ended[0].EndTime().Sub(ended[0].StartTime()); took < time.Second {
		t.Errorf("the fetch took %s, want the second that the request waited", took)
	}
}

// BenchmarkStepsUntraced measures the steps of a request that is not traced.
func BenchmarkStepsUntraced(b *testing.B) {
	b.ReportAllocs()
	type key struct{ int }
	ctx := b.Context()
	for i := range 12 { // as deep as in Caddy's requests
		ctx = context.WithValue(ctx, key{i}, i)
	}
	d := enforce.Decision{Allowed: true}
	for b.Loop() {
		inner, decide := startStep(ctx, spanDecide)
		looked(inner, time.Time{}, origin.Origin{}, robotscache.SourceHot, nil)
		decide.decided(&d)
		_, wait := startStep(ctx, spanWait)
		wait.waited(&d, nil)
		_, dial := startStep(ctx, spanDial)
		dial.dialed(nil)
	}
}
