package caddylog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/evidence"
	"github.com/crawlgate/crawlgate/evidence/sealer"
)

// all connects log writers with configurations, which Caddy keeps apart: it opens writers first,
// keeps them over reloads and (2.11.9) never closes them. A log that no configuration has any
// longer is signed to its end and stays open, because the last requests may still be logged.
var all = logs{byKey: make(map[string]*sealed)}

func init() {
	caddy.OnExit(func(context.Context) { all.end() })
}

type logs struct {
	mu      sync.Mutex
	modules []*Evidence        // provisioned and not cleaned up
	byKey   map[string]*sealed // open, by WriterKey
	strict  atomic.Pointer[[]*sealed]
}

// open returns the writer of a log for Caddy.
func (l *logs) open(key string) *sealed {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &sealed{reporting: make(chan struct{}, 64)}
	l.byKey[key] = s
	return s
}

// remove removes a configuration from its log. If it was the current one, because its start failed,
// the one before becomes current again.
func (l *logs) remove(e *Evidence) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.modules = slices.DeleteFunc(l.modules, func(o *Evidence) bool { return o == e })
	if s := l.byKey[e.WriterKey()]; s != nil {
		s.drop(e)
	}
	l.updateStrict()
}

// end closes all logs in parallel, because the process is about to end and each may wait for its
// witnesses.
func (l *logs) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	var each sync.WaitGroup
	for _, s := range l.byKey {
		each.Go(func() {
			if err := s.Close(); err != nil {
				s.reportError(caddy.Log(), notSealed, err)
			}
		})
	}
	each.Wait()
}

// updateStrict collects the logs without which no request may pass.
func (l *logs) updateStrict() {
	var strict []*sealed
	for _, s := range l.byKey {
		if n := len(s.settings); n > 0 && s.settings[n-1].OnFailure == "refuse" {
			strict = append(strict, s)
		}
	}
	l.strict.Store(&strict)
}

// Start opens the logs of a configuration that is about to run. done is the channel that closes
// when the configuration ends. A log that is already open goes on, or is reopened if its settings
// have changed. After an error the caller cleans the configuration up, which restores the logs.
// fleet says that other gateways record the checkpoints of this one.
func Start(done <-chan struct{}, gateway string, fleet bool, logger *zap.Logger) error {
	all.mu.Lock()
	defer all.mu.Unlock()
	defer all.updateStrict()
	for _, e := range all.modules {
		if e.done != done {
			continue
		}
		s := all.byKey[e.WriterKey()]
		if s == nil {
			continue // Caddy has opened no writer for it
		}
		if err := s.use(settings{e, gateway, fleet, logger}); err != nil {
			return err
		}
	}
	return nil
}

// Refused returns why no request may pass: a log that must be written and sealed cannot be. It
// takes no lock.
func Refused() error {
	if strict := all.strict.Load(); strict != nil {
		for _, s := range *strict {
			if log := s.log.Load(); log == nil || log.Failed() {
				return errUnsealed
			}
		}
	}
	return nil
}

var errUnsealed = errors.New("the access log cannot be written or sealed, and without that no request may pass")

// running returns the open logs, in the order of their keys. They may be closed at any time.
func (l *logs) running() (open []*sealer.Log) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(l.byKey)) {
		if log := l.byKey[key].log.Load(); log != nil {
			open = append(open, log)
		}
	}
	return open
}

// Statuses returns the status of all open logs.
func Statuses() (statuses []sealer.Status) {
	for _, log := range all.running() {
		statuses = append(statuses, log.Status())
	}
	return statuses
}

// Checkpoints returns the newest checkpoint of each log for the other gateways, as a signed note
// without cosignatures.
func Checkpoints() (notes []string) {
	for _, s := range Statuses() {
		if s.Checkpoint != "" {
			notes = append(notes, evidence.StripCosignatures(s.Checkpoint))
		}
	}
	return notes
}

// RecordPeerCheckpoints writes the checkpoints of other gateways into the logs. It may wait for a
// disk.
func RecordPeerCheckpoints(notes []string) {
	for _, log := range all.running() {
		log.RecordPeerCheckpoints(notes)
	}
}

// settings are a configuration's settings for a log.
type settings struct {
	*Evidence
	gateway string
	fleet   bool
	logger  *zap.Logger
}

// staysLocal reports whether all checkpoints stay on this machine, according to the configuration.
func (t settings) staysLocal() bool { return t.Heads == "" && len(t.witnesses) == 0 && !t.fleet }

func (t settings) equal(o settings) bool { return t.text == o.text && t.gateway == o.gateway }

// sealed is the log writer that Caddy holds. Its lock is taken after the one of all.
type sealed struct {
	settings  []settings    // of the running configurations, in order; under all.mu
	reporting chan struct{} // bounds the events on their way into the process log

	mu  sync.RWMutex // held for writing while the log is reopened
	log atomic.Pointer[sealer.Log]
}

// Write implements io.Writer.
func (s *sealed) Write(p []byte) (int, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	log := s.log.Load()
	if log == nil {
		return 0, fmt.Errorf("the gateway has not begun to seal its log: %w", fs.ErrClosed)
	}
	return log.Write(p)
}

// lastWait bounds how long witnesses may take to cosign the last checkpoint of a log.
const lastWait = 5 * time.Second

// Close implements io.Closer.
func (s *sealed) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if log := s.log.Swap(nil); log != nil {
		return log.Close(lastWait)
	}
	return nil
}

const notSealed = "access log was not sealed to its end"

func (s *sealed) reportError(logger *zap.Logger, message string, err error) {
	s.report(logger, sealer.Event{Message: message, Detail: err.Error(), Failure: true})
}

// report never waits: the process log may be the very log that the event is about.
func (s *sealed) report(logger *zap.Logger, e sealer.Event) {
	level := zap.InfoLevel
	if e.Failure {
		level = zap.ErrorLevel
	}
	select {
	case s.reporting <- struct{}{}:
		go func() {
			logger.Log(level, e.Message, zap.String("detail", e.Detail))
			<-s.reporting
		}()
	default: // drop it: nobody reads this many
	}
}

// use makes t the current settings.
func (s *sealed) use(t settings) error {
	n := len(s.settings)
	if n > 0 && s.settings[n-1].done == t.done && !s.settings[n-1].equal(t) {
		return fmt.Errorf("log %s in %s is configured twice, with different settings", t.Name, t.paths.state)
	}
	if n == 0 || !s.settings[n-1].equal(t) {
		if err := s.reopen(t); err != nil {
			if n > 0 {
				err = errors.Join(err, s.reopen(s.settings[n-1]))
			}
			return err
		}
	}
	if t.staysLocal() && (n == 0 || !s.settings[n-1].staysLocal()) {
		t.logger.Warn("the checkpoints of an access log stay on this machine, where anyone who has the key can write another log: "+
			"set heads or witness, or join a fleet", zap.String("log", t.paths.log))
	}
	s.settings = append(s.settings, t)
	return nil
}

func (s *sealed) drop(e *Evidence) {
	n := len(s.settings)
	if n == 0 {
		return
	}
	last := s.settings[n-1]
	s.settings = slices.DeleteFunc(s.settings, func(t settings) bool { return t.Evidence == e })
	if n := len(s.settings); n > 0 && last.Evidence == e && !s.settings[n-1].equal(last) {
		if err := s.reopen(s.settings[n-1]); err != nil {
			s.reportError(last.logger, "access log cannot be sealed as before the refused configuration", err)
		}
	}
	if log := s.log.Load(); log != nil && len(s.settings) == 0 {
		if err := log.Flush(); err != nil {
			s.reportError(last.logger, notSealed, err)
		}
	}
}

// reopen closes the log, if it is open, and opens it with settings t. Writes wait for it.
func (s *sealed) reopen(t settings) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if log := s.log.Load(); log != nil {
		if err := log.Close(0); err != nil { // requests wait, and the next checkpoint follows at once
			s.reportError(t.logger, notSealed, err)
		}
	}
	log, err := sealer.Open(t.config(t.gateway, func(e sealer.Event) { s.report(t.logger, e) }))
	s.log.Store(log) // nil with an error
	return err
}
