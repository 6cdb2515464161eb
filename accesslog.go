package crawlgate

import (
	"net/http"
	"reflect"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/crawlgate/crawlgate/enforce"
)

// logKey is the name of our object in an access-log line.
const logKey = "robots"

// logObject is a decision's record in the form that zap takes. docs/access-log.md lists its fields.
type logObject struct{ *enforce.Record }

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
		default:
			if list, ok := reflect.TypeAssert[[]string](v); ok {
				if err := enc.AddArray(name, stringArray(list)); err != nil {
					return err
				}
			}
		}
	}
	return nil
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
		extra.Set(zap.Object(logKey, logObject{&rec}))
	}
}

var (
	_ zapcore.ObjectMarshaler = logObject{}
	_ zapcore.ArrayMarshaler  = stringArray{}
)
