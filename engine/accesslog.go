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

// RefusesUnlogged reports that no request may pass: an access log takes no lines, and the operator
// wants none to pass without.
func (e *Engine) RefusesUnlogged() bool { return !e.Config.ServeUnlogged && e.log.Stalls() }

// Line is the line of a request that comes in.
func (e *Engine) Line() stall.Line { return stall.Line{Log: &e.log} }

// lost counts the lines that no log took and that no later line has reported yet.
var lost struct {
	sync.Mutex
	n     atomic.Int64
	since time.Time
}

// admit waits until the access log takes a line. If it reports false, the line is lost.
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

// AdmitLine waits until the access log takes the line of a request that is answered, and adds the
// number of lost lines to it. If it reports false, this line is lost as well. A nil record stands
// for a request for the gateway itself, whose line does not count as lost.
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

// retentionPace is how often it is checked for how long the sealed logs are kept.
const retentionPace = 10 * time.Minute

// EvidenceMissing returns why no request may pass: the operator wants none that is not in a sealed
// access log, and a log cannot be written or sealed. It takes no lock.
func EvidenceMissing() error { return caddylog.Refused() }

// SealedLogs returns the state of each sealed access log.
func SealedLogs() []sealer.Status { return caddylog.Statuses() }

// accessLogs has the logs of each configuration that runs or still has lines to write. Two
// configurations may have the same log; each checks it for itself.
var accessLogs sync.Map // of *stall.Log

// watchLogs tells when the access log stalls and when it goes on, and looks now and then for how
// long logs are kept, until the configuration ends. The log of the process may be the one that
// stalls: nobody waits for this.
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
			e.logger.Error("an access log takes no lines: until it does, requests are refused or have none", zap.Bool("refused", !e.Config.ServeUnlogged))
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

// StopTimes are Caddy's shutdown_delay, and the grace period of requests under way: 10 s where the
// configuration sets none.
func StopTimes(config caddy.Context) (delay, grace time.Duration) {
	app, err := App[*caddyhttp.App]("http", config.AppIfConfigured)
	if err != nil {
		app = new(caddyhttp.App)
	}
	return time.Duration(app.ShutdownDelay), cmp.Or(time.Duration(app.GracePeriod), 10*time.Second)
}

// endStalled releases the clients whose lines are not taken, and ends a process that is asked to
// stop and cannot, because one of its logs takes no lines: Caddy would wait for that without end.
// It may be called once, and writes nothing into a log before the process has to end.
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
	if e := Current(); e != nil { // else the last configuration has ended by now
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

// Lookup returns the record of an origin for a crawler, and fetches it if it must. Before a record
// is used for the first time, it writes a line about it into the access logs of the configuration;
// all requests that find it wait for that. Otherwise it takes no lock if the record is in memory.
// The caller has called [Engine.Open].
func (e *Engine) Lookup(ctx context.Context, o origin.Origin, a robotscache.Asker) (*robotscache.Entry, robotscache.Source, error) {
	entry, source, err := e.records.cache.LookupAs(ctx, o, a)
	if err != nil || entry.Told.Load() == e.loaded.UnixNano() || e.log.Stalls() {
		return entry, source, err
	}
	began := time.Now()
	e.introduce(entry)
	if time.Since(began) > 100*time.Millisecond { // the log took long, and the site may have answered in the meantime
		return e.records.cache.LookupAs(ctx, o, a)
	}
	return entry, source, err
}

// introduce writes a line about an entry into the access logs, unless they have one.
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

// unwritten counts the lines that a log did not take. zap reports each of them in one write.
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
