package engine

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/stall"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// Lookup gives the record of an origin for a crawler, fetching it if it must: what package enforce
// needs. The access logs of the configuration are told of it before it is used; all requests that
// find it first wait for that. Else Lookup takes no lock if the record is at hand. The caller has
// called [Engine.Open].
func (e *Engine) Lookup(ctx context.Context, o origin.Origin, a robotscache.Asker) (*robotscache.Entry, robotscache.Source, error) {
	entry, source, err := e.records.cache.LookupAs(ctx, o, a)
	if err != nil || entry.Told.Load() == e.loaded.UnixNano() || e.log.Stalls() {
		return entry, source, err
	}
	began := time.Now()
	e.introduce(entry)
	if time.Since(began) > 100*time.Millisecond { // the log held this up, and the site may have answered meanwhile
		return e.records.cache.LookupAs(ctx, o, a)
	}
	return entry, source, err
}

// introduce tells the access logs of an entry that they do not know, one after the other.
func (e *Engine) introduce(entry *robotscache.Entry) {
	select {
	case e.telling <- struct{}{}:
		defer func() { <-e.telling }()
	case <-time.After(stall.Wait): // another one waits for the log
		return
	}
	r := entry.Record()
	if entry.Told.Load() != e.loaded.UnixNano() && r.Cause != fetch.CauseLocal { // which is no record: see robotscache.Cache.LookupAs
		e.tell(robotscache.AnswerOf(robotscache.EventKnown, r.Key(), entry, time.Now()), entry)
	}
}

// tell writes a line into each access log. entry is what it introduces, nil for nothing. If a log
// does not take the line, the next one that uses the entry tries again.
func (e *Engine) tell(a robotscache.Answer, entry *robotscache.Entry) {
	if !e.admit() {
		return
	}
	a.Gateway = e.Config.Name
	told := make(chan struct{})
	go func() { // of which a log holds up some
		defer close(told)
		line, before := e.Line(), e.unwritten.Load()
		defer line.End()
		for _, log := range e.accessLogs() {
			line.Begin()
			log.Info("robots.txt", zap.Reflect("robots_txt", a))
		}
		if entry != nil && e.unwritten.Load() == before {
			entry.Told.Store(e.loaded.UnixNano())
		}
	}()
	select {
	case <-told:
	case <-time.After(stall.Wait):
	}
}

// unwritten counts the lines that a log did not take, each of which zap reports in one write.
type unwritten struct{ atomic.Int64 }

// Write implements io.Writer.
func (u *unwritten) Write(p []byte) (int, error) {
	u.Add(1)
	instruments.lost.Inc()
	return os.Stderr.Write(p)
}

// findAccessLogs finds the access logs of the servers that have sites. All are provisioned.
func (e *Engine) findAccessLogs() (logs []*zap.Logger) {
	var names []string
	for _, site := range e.Sites() {
		if site.Server == nil || site.Server.Logs == nil {
			continue
		}
		if c := site.Server.Logs; !c.SkipUnmappedHosts {
			names = append(names, c.DefaultLoggerName)
		}
		for _, list := range site.Server.Logs.LoggerNames {
			names = append(names, list...)
		}
		names = append(names, logNames(site.Server.Routes)...)
	}
	slices.Sort(names)
	base := e.ctx.Logger(new(caddyhttp.App)).Named("log.access").WithOptions(zap.ErrorOutput(zapcore.AddSync(&e.unwritten))) // as Caddy's servers have it
	for _, name := range slices.Compact(names) {
		logs = append(logs, base.Named(name)) // an empty name adds nothing
	}
	return logs
}

// logNames are the names that the directive log_name gives in routes.
func logNames(routes caddyhttp.RouteList) (names []string) {
	for _, route := range routes {
		for _, handler := range route.Handlers {
			switch h := handler.(type) {
			case *caddyhttp.VarsMiddleware:
				list, _ := (*h)[caddyhttp.AccessLoggerNameVarKey].([]any)
				for _, name := range list {
					names = append(names, fmt.Sprint(name))
				}
			case *caddyhttp.Subroute:
				names = append(names, logNames(h.Routes)...)
			}
		}
	}
	return names
}
