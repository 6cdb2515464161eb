package proxy

import (
	"context"
	"net"
	"reflect"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// The spans of a request, below the span of Caddy's `tracing` handler. docs/tracing.md describes
// them.
const (
	spanDecide = "decide" // all steps up to the verdict
	spanFetch  = "fetch"  // in it: the wait for a robots.txt that was not at hand
	spanWait   = "wait"   // for the host's turn
	spanDial   = "dial"   // for a connection
)

// attributePrefix begins the name of every attribute; the rest is the field's in the log.
const attributePrefix = "robots."

const tracerName = "github.com/crawlgate/crawlgate"

// step is the span of one step of a request. Where the request is not traced it records nothing.
type step struct{ trace.Span }

// startStep begins a step in the span of the context, if that is recorded.
func startStep(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, step) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, step{parent}
	}
	ctx, s := parent.TracerProvider().Tracer(tracerName).Start(ctx, name, options...)
	return ctx, step{s}
}

// endFailed ends a step that failed, err nil if it did not. The text of an error may hold what a
// client or an origin said: only the kind of failure is told.
func (s step) endFailed(kind enforce.Reason, err error) {
	if err != nil {
		s.SetStatus(codes.Error, string(kind))
	}
	s.End()
}

// decideFields are the fields of the log that the span of a decision has. Empty texts are left out,
// and so is the line 0.
var decideFields = []string{
	"decision", "reason", "origin", "source", "would_deny", "agent", "state", "cause", "group", "rule", "line", "sha256",
}

// decided ends the step of a decision.
func (s step) decided(d *enforce.Decision) {
	defer s.End()
	if !s.IsRecording() {
		return
	}
	rec := d.Record()
	for _, field := range decideFields {
		switch v, _ := rec.Field(field); v.Kind() {
		case reflect.Bool:
			s.SetAttributes(attribute.Bool(attributePrefix+field, v.Bool()))
		case reflect.Int:
			if v.Int() > 0 {
				s.SetAttributes(attribute.Int64(attributePrefix+field, v.Int()))
			}
		default:
			if v.String() != "" {
				s.SetAttributes(attr(field, v.String()))
			}
		}
	}
}

// tracedLookup is the engine as package enforce sees it.
type tracedLookup struct{ *engine.Engine }

// Lookup implements enforce.Rules.
func (l tracedLookup) Lookup(ctx context.Context, o origin.Origin, a robotscache.Asker) (*robotscache.Entry, robotscache.Source, error) {
	began := time.Now()
	entry, source, err := l.Engine.Lookup(ctx, o, a)
	looked(ctx, began, o, source, err)
	return entry, source, err
}

// looked records the wait for a robots.txt that was not at hand, even where another request caused
// the fetch, which runs on its own.
func looked(ctx context.Context, began time.Time, o origin.Origin, source robotscache.Source, err error) {
	if err == nil && source != robotscache.SourceFetch && source != robotscache.SourceWait {
		return
	}
	_, s := startStep(ctx, spanFetch, trace.WithTimestamp(began))
	s.SetAttributes(attr("origin", o.String()), attr("source", source.String()))
	s.endFailed(enforce.ReasonUnreachable, err)
}

// waited ends the step of a wait for the host's turn.
func (s step) waited(d *enforce.Decision, err error) {
	s.SetAttributes(attribute.Int64(attributePrefix+"wait_ms", d.Wait.Milliseconds()),
		attribute.Float64(attributePrefix+"crawl_delay_s", d.CrawlDelay.Seconds()))
	s.endFailed(enforce.ReasonRateLimited, err)
}

// dialed ends the step of a connection.
func (s step) dialed(conn net.Conn) {
	if s.IsRecording() {
		s.SetAttributes(attr("address", conn.RemoteAddr().String()))
	}
	s.End()
}

func attr(field, value string) attribute.KeyValue {
	return attribute.String(attributePrefix+field, value)
}
