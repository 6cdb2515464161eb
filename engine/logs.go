package engine

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
)

// warnOfLogs tells of the logs that keep lines of a gateway for longer than the store keeps the
// texts by which they can be proven. Caddy has no way to ask for the logs of a configuration. Where
// they are not found, nothing is said.
func (e *Engine) warnOfLogs() {
	retain := e.Config.Store.Retention.Filled().For
	config := reflect.ValueOf(e.ctx).FieldByName("cfg")
	if e.Config.Store.Kind == "none" || !config.IsValid() || config.Type() != reflect.TypeFor[*caddy.Config]() || config.IsNil() {
		return
	}
	logs, loggers := config.Elem().FieldByName("Logging").Elem().FieldByName("Logs"), e.accessLoggers()
	for it := logs.MapRange(); it.Next(); {
		log := it.Value().Elem()
		keeps := time.Duration(keepDays(log.FieldByName("writerOpener"))) * 24 * time.Hour
		if keeps > retain && slices.ContainsFunc(loggers, func(logger string) bool { return takes(log, logger) }) {
			e.logger.Warn("a log keeps lines longer than the store keeps the texts that prove them: set retain of store",
				zap.String("log", it.Key().String()), zap.Duration("log_keeps", keeps), zap.Duration("retain", retain))
		}
	}
}

// accessLoggers are the names of the loggers to which lines of the gateways go.
func (e *Engine) accessLoggers() (names []string) {
	for _, site := range e.sites.all() {
		if site.Server == nil || site.Server.Logs == nil {
			continue
		}
		names = append(names, "http.log.access."+site.Server.Logs.DefaultLoggerName)
		for _, list := range site.Server.Logs.LoggerNames {
			for _, name := range list {
				names = append(names, "http.log.access."+name)
			}
		}
	}
	return names
}

// takes reports whether a caddy.CustomLog takes what a logger says: the longest name that it
// includes or excludes decides.
func takes(log reflect.Value, logger string) bool {
	longest := func(names reflect.Value) (n int) {
		for i := range names.Len() {
			if name := names.Index(i).String(); strings.HasPrefix(logger+".", name+".") {
				n = max(n, len(name))
			}
		}
		return n
	}
	include := log.FieldByName("Include")
	accept, reject := longest(include), longest(log.FieldByName("Exclude"))
	return (include.Len() == 0 || accept > 0) && (reject == 0 || accept > reject)
}

// keepDays returns for how many days a log writer, or one inside it, keeps files: what the option
// roll_keep_for of Caddy's file writer says; 0 if that is not known.
func keepDays(writer reflect.Value) (days int64) {
	for writer.Kind() == reflect.Pointer || writer.Kind() == reflect.Interface {
		writer = writer.Elem()
	}
	if writer.Kind() != reflect.Struct {
		return 0
	}
	if option := writer.FieldByName("RollKeepDays"); option.IsValid() && option.CanInt() {
		return option.Int()
	}
	for field, value := range writer.Fields() {
		if field.Type.Implements(reflect.TypeFor[caddy.WriterOpener]()) {
			days = max(days, keepDays(value))
		}
	}
	return days
}
