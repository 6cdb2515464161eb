package proxy

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/stall"
	"github.com/crawlgate/crawlgate/internal/version"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// logKey is the name of our object in an access-log line.
const logKey = "robots"

// account writes the exchange into the access log and counts it, on every way out.
func (x *exchange) account() {
	if x.own {
		x.writeLine(nil)
		return
	}
	e := x.site.Engine
	e.CloseIdle()
	x.readPassed(x.sent.Err == nil)
	if failure := x.sent.Err; failure != nil && x.decision.Allowed {
		// The answer broke off in the middle. The client sees that it is incomplete, and the log says
		// why.
		x.deny(reasonOf(failure), failure.Err.Error())
		x.noteStop()
	}
	rec := x.decision.Record()
	rec.Gateway, rec.Version, rec.Config = e.Config.Name, version.Read(), e.ConfigDigest()
	rec.DecidedAt, rec.SentAt = enforce.SecondsOf(cmp.Or(x.decision.At, x.began)), enforce.SecondsOf(x.sentAt)
	rec.EndedAt = enforce.SecondsOf(time.Now())
	x.accountIdentity(&rec)
	rec.Removed, rec.PaymentRequired = x.sent.Removed, x.sent.Status == http.StatusPaymentRequired
	rec.DialMillis = (x.sent.Dialed.DNS + x.sent.Dialed.Connect).Milliseconds()
	if x.budget != nil && x.budget.taken.Limited {
		rec.BudgetLeft = &x.budget.taken.Left
	}
	if x.sent.Dialed.Addr.IsValid() {
		rec.Address = x.sent.Dialed.Addr.String()
	}
	if x.sent.Started {
		e.Config.Redact.HideSent(x.w.Header())
	}
	block := engine.OtherAgent
	if c := x.identity.Config; c != nil {
		block = c.Name
	}
	engine.CountDecision(x.decision, x.r.Method, x.identity.Config, x.early, x.sent.Bytes)
	if wait := enforce.RetrySeconds(x.decision.RetryAfter); wait > 0 && !x.decision.Allowed && !x.sent.Started {
		engine.ComeBack(x.decision.Agent, x.r, time.Now().Add(time.Duration(wait)*time.Second))
	}
	if rec.PaymentRequired {
		engine.PaymentsTotal.Inc()
	}
	engine.RecordRecent(&rec, x.r.Method, block, x.early, func() string { return x.asked().URL })
	if rec.Decision == enforce.OutcomeDeny || rec.WouldDeny {
		e.EmitDenied(logObject{&rec}, x.r.Method, x.withoutQuery)
	}
	x.writeLine(&rec)
}

// accountIdentity records and counts what the sent request said about its sender.
func (x *exchange) accountIdentity(rec *enforce.LogRecord) {
	if sent := x.sent.Send["User-Agent"]; sent != nil && !x.sentAt.IsZero() {
		rec.UserAgentSent = sent[0]
	}
	rec.Signed, rec.SignatureForm, rec.Unsigned = x.signature.Key, string(x.signature.Form), x.signature.Unsigned
	engine.CountSignature(x.identity.Config, x.signature, x.sent.Status)
}

// writeLine adds our object to Caddy's line about the request, or suppresses the line while the log
// accepts none. If two gateways in one route handle a request, its line has the object of the last.
func (x *exchange) writeLine(rec *enforce.LogRecord) {
	ctx := x.r.Context()
	extra, ok := ctx.Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields)
	if skip, _ := caddyhttp.GetVar(ctx, caddyhttp.LogSkipVar).(bool); !ok || skip {
		return
	}
	if x.line != nil && x.site.Server.Logs != nil && !x.site.Engine.AdmitLine(rec) {
		caddyhttp.SetVar(ctx, caddyhttp.LogSkipVar, true)
		return
	}
	extra.Set(zap.Inline(logLine{x.line, rec}))
}

// logLine is what the gateway adds to a line. Caddy writes the line right after it has marshaled
// logLine.
type logLine struct {
	*stall.Line
	rec *enforce.LogRecord // nil for none
}

// MarshalLogObject implements [zapcore.ObjectMarshaler].
func (l logLine) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	if l.Line != nil {
		l.Begin()
	}
	if l.rec == nil {
		return nil
	}
	return enc.AddObject(logKey, logObject{l.rec})
}

// withoutQuery returns the URL or authority of the request, without its user information, query and
// fragment: they may be private.
func (x *exchange) withoutQuery() string {
	if x.r.Method == http.MethodConnect {
		return x.r.Host
	}
	u := *x.r.URL
	u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
	return u.String()
}

// logObject is a decision's record in the form that zap takes. docs/access-log.md lists its fields.
type logObject struct{ *enforce.LogRecord }

// MarshalLogObject writes the fields that the JSON form has, in the same order.
func (o logObject) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	for name, v := range o.Fields() {
		switch v.Kind() {
		case reflect.String:
			enc.AddString(name, v.String())
		case reflect.Bool:
			enc.AddBool(name, v.Bool())
		case reflect.Int, reflect.Int64:
			enc.AddInt64(name, v.Int())
		case reflect.Float64:
			enc.AddFloat64(name, v.Float())
		case reflect.Pointer:
			enc.AddInt64(name, v.Elem().Int())
		default:
			if list, ok := reflect.TypeAssert[[]string](v); ok {
				zap.Strings(name, list).AddTo(enc)
			}
		}
	}
	return nil
}

// placeholderPrefix starts the names of the placeholders that the gateway sets. docs/caddyfile.md
// lists them.
const placeholderPrefix = "http.robots."

// placeholderMessage is the placeholder that is not a field of the log: the refusal in one line.
const placeholderMessage = "message"

// placeholderFields are the fields of the log that are placeholders too.
var placeholderFields = []string{
	"decision", "reason", "mode", "would_deny", "agent", "origin", "robots_url", "state", "group", "rule", "line", "form", "sha256",
}

// placeholders lets other handlers, error routes and log_append read the decision, in its state at
// that moment.
func (x *exchange) placeholders() {
	if repl, ok := x.r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Map(x.placeholder)
	}
}

func (x *exchange) placeholder(key string) (any, bool) {
	name, ours := strings.CutPrefix(key, placeholderPrefix)
	if !ours || x.own {
		return nil, false
	}
	if name == placeholderMessage {
		return x.message, true
	}
	if !slices.Contains(placeholderFields, name) {
		return nil, false
	}
	rec := x.decision.Record()
	value, ok := rec.Field(name)
	if value.Kind() == reflect.String { // of any type
		return value.String(), ok
	}
	return value.Interface(), ok
}

// The spans of a request, below the span of Caddy's `tracing` handler. docs/tracing.md describes
// them.
const (
	spanDecide = "decide" // all steps up to the verdict
	spanFetch  = "fetch"  // within decide: the wait for a robots.txt that was not cached
	spanWait   = "wait"   // for the host's turn
	spanDial   = "dial"   // for a connection
)

// attributePrefix starts the name of every attribute. The rest is the name of the field in the log.
const attributePrefix = "robots."

const tracerName = "github.com/crawlgate/crawlgate"

// step is the span of one step of a request. It records nothing if the request is not traced.
type step struct{ trace.Span }

// startStep starts a step in the span of the context, if that span is recorded.
func startStep(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, step) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, step{parent}
	}
	ctx, s := parent.TracerProvider().Tracer(tracerName).Start(ctx, name, options...)
	return ctx, step{s}
}

// endFailed ends a step. err is nil if the step did not fail. The text of an error may quote a
// client or an origin, so only the kind of failure is recorded.
func (s step) endFailed(kind enforce.Reason, err error) {
	if err != nil {
		s.SetStatus(codes.Error, string(kind))
	}
	s.End()
}

// decideFields are the fields of the log that the span of a decision has. Empty texts and the line
// 0 are left out.
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

// tracedLookup is the engine's lookup with spans, for package enforce.
type tracedLookup struct{ *engine.Engine }

// Lookup implements enforce.Rules.
func (l tracedLookup) Lookup(ctx context.Context, o origin.Origin, a robotscache.Asker) (*robotscache.Entry, robotscache.Source, error) {
	began := time.Now()
	entry, source, err := l.Engine.Lookup(ctx, o, a)
	looked(ctx, began, o, source, err)
	return entry, source, err
}

// looked records the wait for a robots.txt that was not cached, even if another request caused the
// fetch. The fetch itself runs independently.
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
	if !s.IsRecording() {
		return
	}
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
