package engine

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/evidence/caddylog"
	"github.com/crawlgate/crawlgate/evidence/sealer"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/stall"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// RefusesUnlogged reports whether no request may pass because an access log accepts no lines and
// the operator requires one for each request.
func (e *Engine) RefusesUnlogged() bool { return !e.Config.ServeUnlogged && e.log.Stalls() }

// Line returns the log line of a new request.
func (e *Engine) Line() stall.Line { return stall.Line{Log: &e.log} }

// lost counts the lines that no log accepted and that no later line has reported yet.
var lost struct {
	sync.Mutex
	n     atomic.Int64
	since time.Time
}

// admit waits until the access log accepts a line. If it reports false, the line is lost.
func (e *Engine) admit() bool {
	if e.log.Admit() {
		return true
	}
	lostTotal.Inc()
	lost.Lock()
	defer lost.Unlock()
	if lost.n.Add(1) == 1 {
		lost.since = time.Now()
	}
	return false
}

// AdmitLine waits until the access log accepts the line of an answered request, and adds the
// number of lost lines to it. If it reports false, this line is lost too. A nil record stands for
// a request for the gateway itself, whose line does not count as lost.
func (e *Engine) AdmitLine(r *enforce.LogRecord) bool {
	if r == nil {
		return e.log.Admit()
	}
	if !e.admit() {
		return false
	}
	if lost.n.Load() > 0 {
		lost.Lock()
		defer lost.Unlock()
		if r.Lost = lost.n.Swap(0); r.Lost > 0 {
			r.LostSince = enforce.SecondsOf(lost.since)
		}
	}
	return true
}

// retentionPace is how often the gateway checks how long the sealed logs are kept.
const retentionPace = 10 * time.Minute

// EvidenceMissing returns why no request may pass: the operator requires a sealed access log, and
// a log cannot be written or sealed. It takes no lock.
func EvidenceMissing() error { return caddylog.Refused() }

// SealedLogs returns the state of each sealed access log.
func SealedLogs() []sealer.Status { return caddylog.Statuses() }

// accessLogs has the logs of each configuration that runs or still has lines to write. Two
// configurations may have the same log; each checks it for itself.
var accessLogs sync.Map // of *stall.Log

// watchLogs reports when the access log stalls and when it recovers, and checks from time to time
// how long logs are kept, until the configuration ends. The process log may be the one that
// stalls, so nothing waits for watchLogs.
func (e *Engine) watchLogs() {
	accessLogs.Store(&e.log, true)
	defer accessLogs.Delete(&e.log)
	var looked time.Time
	for stalled := false; e.ctx.Err() == nil || !e.log.Idle(); time.Sleep(time.Second) {
		if time.Since(looked) > retentionPace && e.ctx.Err() == nil {
			caddylog.CheckRetention(e.logger, looked.IsZero())
			looked = time.Now()
		}
		stalls := e.log.Stalls()
		if stalls && !stalled {
			e.logger.Error("an access log takes no lines: until it does, requests are refused or not logged", zap.Bool("refused", !e.Config.ServeUnlogged))
		} else if stalled && !stalls {
			e.logger.Info("the access log takes lines again")
		}
		stalled = stalls
	}
}

// anyStalls reports whether any access log stalls, and releases those who wait for its lines.
func anyStalls() (stalls bool) {
	accessLogs.Range(func(log, _ any) bool {
		log.(*stall.Log).Release()
		stalls = stalls || log.(*stall.Log).Stalls()
		return true
	})
	return stalls
}

// StopTimes are Caddy's shutdown_delay and the grace period for requests in progress, which is 10
// s if the configuration sets none.
func StopTimes(config caddy.Context) (delay, grace time.Duration) {
	app, err := App[*caddyhttp.App]("http", config.AppIfConfigured)
	if err != nil {
		app = new(caddyhttp.App)
	}
	return time.Duration(app.ShutdownDelay), cmp.Or(time.Duration(app.GracePeriod), 10*time.Second)
}

// endStalled releases the clients whose lines are not accepted. It also ends a process that should
// stop but cannot, because one of its logs accepts no lines: Caddy would wait for it forever. It
// may be called once, and writes nothing into a log before the process has to end.
func endStalled() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	for signaled := false; !signaled && !caddy.Exiting(); {
		select {
		case <-asked:
			signaled = true
		case <-time.After(time.Second):
		}
		anyStalls()
	}
	limit := 10 * time.Second
	if e := Current(); e != nil { // otherwise the last configuration has ended
		delay, grace := StopTimes(e.ctx)
		limit = delay + grace
	}
	for ; ; limit = 10 * time.Second {
		time.Sleep(limit)
		stalls := anyStalls()
		written := time.AfterFunc(time.Second, func() { os.Exit(caddy.ExitCodeFailedQuit) })
		caddy.Log().Named("robots").Warn("the process has not stopped in time", zap.Bool("access_log_stalls", stalls))
		if written.Stop(); stalls {
			os.Exit(caddy.ExitCodeFailedQuit)
		}
	}
}

// Lookup returns the record of an origin for a crawler, and fetches it if necessary. Before a
// record is used for the first time, Lookup writes a line about it into the access logs of the
// configuration, and all requests that find the record wait for that. Otherwise it takes no lock
// if the record is in memory. The caller must have called [Engine.Open].
func (e *Engine) Lookup(ctx context.Context, o origin.Origin, a robotscache.Asker) (*robotscache.Entry, robotscache.Source, error) {
	entry, source, err := e.records.cache.Lookup(ctx, o, a)
	if err != nil || entry.Told.Load() == e.loaded.UnixNano() || e.log.Stalls() {
		return entry, source, err
	}
	began := time.Now()
	e.introduce(entry)
	if time.Since(began) > 100*time.Millisecond { // the log took long, and the site may have answered in the meantime
		return e.records.cache.Lookup(ctx, o, a)
	}
	return entry, source, err
}

// introduce writes a line about an entry into the access logs, unless they already have one.
func (e *Engine) introduce(entry *robotscache.Entry) {
	select {
	case e.telling <- struct{}{}:
		defer func() { <-e.telling }()
	case <-time.After(stall.Wait): // another one waits for the log
		return
	}
	r := entry.Record()
	if entry.Told.Load() != e.loaded.UnixNano() && r.Cause != fetch.CauseLocal { // this is not a record: see robotscache.Cache.Lookup
		e.tell(robotscache.AnswerOf(robotscache.EventKnown, r.Key(), entry, time.Now()), entry)
	}
}

// tell writes a line into each access log. entry is the entry that the line introduces, or nil. If
// a log does not take the line, the next request that uses the entry tries again.
func (e *Engine) tell(a robotscache.Answer, entry *robotscache.Entry) {
	if !e.admit() {
		return
	}
	a.Gateway = e.Config.Name
	told := make(chan struct{})
	go func() { // a log that stalls may block it
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

// unwritten counts the lines that a log did not accept. zap reports each of them in one write.
type unwritten struct{ atomic.Int64 }

// Write implements io.Writer.
func (u *unwritten) Write(p []byte) (int, error) {
	u.Add(1)
	lostTotal.Inc()
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
	base := e.ctx.Logger(new(caddyhttp.App)).Named("log.access").WithOptions(zap.ErrorOutput(zapcore.AddSync(&e.unwritten))) // like Caddy's servers
	for _, name := range slices.Compact(names) {
		logs = append(logs, base.Named(name)) // an empty name adds nothing
	}
	return logs
}

// logNames returns the names from the directives log_name in routes.
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
