package proxy

import (
	"context"
	"net"
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

// step is one step of a request, with its span. The zero step records nothing: where the request is
// not traced, none costs anything.
type step struct{ otel trace.Span }

// startStep begins a step in the span of the context, if that is recorded.
func startStep(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, step) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, step{}
	}
	ctx, s := parent.TracerProvider().Tracer(tracerName).Start(ctx, name, options...)
	return ctx, step{s}
}

func (s step) recorded() bool { return s.otel != nil }

func (s step) end() {
	if s.recorded() {
		s.otel.End()
	}
}

// endFailed ends the span of a step that failed, err nil if it did not. The text of an error may
// hold what a client or an origin said: only the kind of failure is told.
func (s step) endFailed(kind enforce.Reason, err error) {
	if !s.recorded() {
		return
	}
	if err != nil {
		s.otel.SetStatus(codes.Error, string(kind))
	}
	s.otel.End()
}

// decided ends the span of a decision.
func (s step) decided(d enforce.Decision) {
	if !s.recorded() {
		return
	}
	rec := d.Record()
	attrs := []attribute.KeyValue{
		attr("decision", rec.Decision), attr("reason", string(rec.Reason)), attr("origin", rec.Origin),
		attr("source", rec.Source), attribute.Bool(attributePrefix+"would_deny", rec.WouldDeny),
	}
	for field, value := range map[string]string{
		"agent": rec.Agent, "state": rec.State, "cause": rec.Cause, "group": rec.Group, "rule": rec.Rule, "sha256": rec.SHA256,
	} {
		if value != "" {
			attrs = append(attrs, attr(field, value))
		}
	}
	if rec.Line > 0 {
		attrs = append(attrs, attribute.Int(attributePrefix+"line", rec.Line))
	}
	s.otel.SetAttributes(attrs...)
	s.otel.End()
}

// tracedLookup is the engine as package enforce sees it.
type tracedLookup struct{ *engine.Engine }

// Lookup implements enforce.Rules.
func (l tracedLookup) Lookup(ctx context.Context, o origin.Origin) (*robotscache.Entry, robotscache.Source, error) {
	began := time.Now()
	entry, source, err := l.Engine.Lookup(ctx, o)
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
	if s.recorded() {
		s.otel.SetAttributes(attr("origin", o.String()), attr("source", source.String()))
	}
	s.endFailed(enforce.ReasonUnreachable, err)
}

// waited ends the span of a wait for the host's turn.
func (s step) waited(d enforce.Decision, err error) {
	if s.recorded() {
		s.otel.SetAttributes(attribute.Int64(attributePrefix+"wait_ms", d.Wait.Milliseconds()),
			attribute.Float64(attributePrefix+"crawl_delay_s", d.CrawlDelay.Seconds()))
	}
	s.endFailed(enforce.ReasonRateLimited, err)
}

// dialed ends the span of a connection.
func (s step) dialed(conn net.Conn) {
	if s.recorded() {
		s.otel.SetAttributes(attr("address", conn.RemoteAddr().String()))
	}
	s.end()
}

func attr(field, value string) attribute.KeyValue {
	return attribute.String(attributePrefix+field, value)
}
