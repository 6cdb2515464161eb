package engine

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
)

// A reload: Caddy provisions and starts the new configuration before it stops the old one, so for a
// moment both hold what they share. Each takes it from the pool when it is opened, by an identity
// (the store's, the Redis's) and not by its settings, and gives back what it has acquired when it
// is closed. The settings are those of the current configuration, which changes when a start is
// done. A configuration whose start fails ends without ever having replaced the one before: a
// rejected reload must not change how the running gateway behaves.

// pool holds what outlives a reload.
var pool = caddy.NewUsagePool()

// acquire gives the value of the pool under a key, which open makes where there is none. Each value
// has to be released.
func acquire[T caddy.Destructor](key string, open func() (T, error)) (T, error) {
	value, _, err := pool.LoadOrNew(key, func() (caddy.Destructor, error) { return open() })
	v, _ := value.(T) // each kind has keys of its own
	return v, err
}

// release gives back one use of a key.
func release(key string) error {
	_, err := pool.Delete(key)
	return err
}

// active are the configurations that run.
var active activeConfigs

// activeConfigs are configurations in the order of their start. The last one that has not ended is
// the current one, whose settings all that is shared follows.
type activeConfigs struct {
	mu      sync.Mutex
	engines []*Engine
	current atomic.Pointer[Engine]
}

// Current returns the engine of the current configuration, nil if none runs. It takes no lock.
func Current() *Engine { return active.current.Load() }

// enter adds e and makes it the current one.
func (a *activeConfigs) enter(e *Engine) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.engines = append(a.engines, e)
	a.follow(e)
}

// leave takes e out; if it was the current one, the one before is again.
func (a *activeConfigs) leave(e *Engine) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.engines = slices.DeleteFunc(a.engines, func(other *Engine) bool { return other == e })
	if n := len(a.engines); n > 0 {
		a.follow(a.engines[n-1])
	} else {
		a.current.Store(nil)
	}
}

// follow makes e the current one, under the lock.
func (a *activeConfigs) follow(e *Engine) {
	before := a.current.Swap(e)
	if before == e {
		return
	}
	if err := e.stops.follow(e.Config.Store.folder()); err != nil {
		e.logger.Error("stops may be forgotten by a restart", zap.Error(err))
	}
	e.records.apply(e)
	e.pacing.apply(e)
	if before != nil {
		e.pacing.take(before.pacing)
	}
	e.fleet.apply(e)
}
