package engine

import (
	"cmp"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/stall"
)

// RefusesUnlogged reports that no request may pass: an access log takes no lines, and the operator
// wants none to pass without.
func (e *Engine) RefusesUnlogged() bool { return !e.Config.ServeUnlogged && e.log.Stalls() }

// Line is the line of a request that comes in.
func (e *Engine) Line() stall.Line { return stall.Line{Log: &e.log} }

// lost are the lines that no log took, and of which no line tells yet.
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
	instruments.lost.Inc()
	lost.Lock()
	defer lost.Unlock()
	if lost.n.Add(1) == 1 {
		lost.since = time.Now()
	}
	return false
}

// AdmitLine waits until the access log takes the line of a request that is answered, and tells in
// it of those that were lost. If it reports false, this one is lost as well. A nil record is that
// of a request for the gateway itself, which is no loss.
func (e *Engine) AdmitLine(r *enforce.Record) bool {
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

// accessLogs are those of the configurations that run, or have lines on their way. Another
// configuration may have other logs, or the same: it finds out for itself.
var accessLogs sync.Map // of *stall.Log

// watchLogs tells when the access log stalls and when it goes on, and looks now and then for how
// long logs are kept, until the configuration ends. The log of the process may be the one that
// stalls: nobody waits for this.
func (e *Engine) watchLogs() {
	accessLogs.Store(&e.log, true)
	defer accessLogs.Delete(&e.log)
	var looked time.Time
	for stalled := false; e.ctx.Err() == nil || !e.log.Idle(); time.Sleep(time.Second) {
		if time.Since(looked) > lookPace && e.ctx.Err() == nil {
			e.lookAtLogs(looked.IsZero())
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
