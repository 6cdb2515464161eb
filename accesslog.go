package crawlgate

import (
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/crawlgate/crawlgate/enforce"
)

// logKey is the name of our object in an access-log line.
const logKey = "robots"

// logObject is a decision's record in the form that zap takes. docs/access-log.md lists its fields.
type logObject enforce.Record

// MarshalLogObject writes the record. Fields that say nothing are left out, as in its JSON form.
func (o logObject) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddInt(enforce.FieldSchema, o.Schema)
	enc.AddString(enforce.FieldDecision, o.Decision)
	enc.AddString(enforce.FieldReason, string(o.Reason))
	addString(enc, enforce.FieldDetail, o.Detail)
	enc.AddString(enforce.FieldMode, o.Mode)
	enc.AddBool(enforce.FieldWouldDeny, o.WouldDeny)
	enc.AddString(enforce.FieldAgent, o.Agent)
	if len(o.Tokens) > 0 {
		if err := enc.AddArray(enforce.FieldTokens, stringArray(o.Tokens)); err != nil {
			return err
		}
	}
	addString(enc, enforce.FieldOwner, o.Owner)
	addString(enc, enforce.FieldContact, o.Contact)
	addString(enc, enforce.FieldIdentifiedBy, o.IdentifiedBy)
	addString(enc, enforce.FieldUserAgent, o.UserAgent)
	enc.AddString(enforce.FieldOrigin, o.Origin)
	enc.AddString(enforce.FieldRobotsURL, o.RobotsURL)
	enc.AddString(enforce.FieldState, o.State)
	addString(enc, enforce.FieldCause, o.Cause)
	addString(enc, enforce.FieldGroup, o.Group)
	addString(enc, enforce.FieldRule, o.Rule)
	addInt(enc, enforce.FieldLine, int64(o.Line))
	addString(enc, enforce.FieldForm, string(o.Form))
	addString(enc, enforce.FieldSHA256, o.SHA256)
	addInt(enc, enforce.FieldAge, o.AgeSeconds)
	enc.AddString(enforce.FieldSource, o.Source)
	enc.AddBool(enforce.FieldPathVisible, o.PathVisible)
	addInt(enc, enforce.FieldWait, o.WaitMillis)
	if o.CrawlDelay > 0 {
		enc.AddFloat64(enforce.FieldCrawlDelay, o.CrawlDelay)
	}
	addInt(enc, enforce.FieldDial, o.DialMillis)
	addString(enc, enforce.FieldAddress, o.Address)
	addString(enc, enforce.FieldException, o.Exception)
	addString(enc, enforce.FieldGateway, o.Gateway)
	addString(enc, enforce.FieldVersion, o.Version)
	return nil
}

func addString(enc zapcore.ObjectEncoder, key, value string) {
	if value != "" {
		enc.AddString(key, value)
	}
}

func addInt(enc zapcore.ObjectEncoder, key string, value int64) {
	if value != 0 {
		enc.AddInt64(key, value)
	}
}

// stringArray is a list that zap writes without reflection.
type stringArray []string

// MarshalLogArray implements zapcore.ArrayMarshaler.
func (a stringArray) MarshalLogArray(enc zapcore.ArrayEncoder) error {
	for _, s := range a {
		enc.AppendString(s)
	}
	return nil
}

// logRecord puts the record into the request's access-log line. A request that is handled twice (by two gateways in one
// route) has the last one's.
func logRecord(r *http.Request, rec enforce.Record) {
	if extra, ok := r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
		extra.Set(zap.Object(logKey, logObject(rec)))
	}
}

var (
	_ zapcore.ObjectMarshaler = logObject{}
	_ zapcore.ArrayMarshaler  = stringArray{}
)
