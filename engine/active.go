package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
)

// During a reload, Caddy provisions and starts the new configuration before it stops the old one,
// so for a moment both use the shared values. Each configuration acquires shared values from the
// pool when it is opened, by an identity (the store's, the Redis's) and not by its settings, and
// releases them when it is closed. Shared values follow the settings of the current configuration,
// which changes when a start is complete. A configuration whose start fails never replaces the
// current one: a rejected reload must not change how the running gateway behaves.

// pool holds the values that outlive a reload.
var pool = caddy.NewUsagePool()

// acquire returns the pool's value for a key, and calls open if the pool has no value yet. The
// engine releases its values when it is closed, the last one first.
func acquire[T caddy.Destructor](e *Engine, key string, open func() (T, error)) (T, error) {
	value, _, err := pool.LoadOrNew(key, func() (caddy.Destructor, error) { return open() })
	if err == nil {
		e.acquired = append(e.acquired, key)
	}
	v, _ := value.(T) // each kind has its own keys
	return v, err
}

// active are the running configurations.
var active activeConfigs

// activeConfigs are configurations in the order of their start. The last one that has not ended is
// the current one. Shared values follow its settings.
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

// leave removes e. If e was the current one, the one before becomes current again.
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
		e.pacing.importBlocks(before.pacing)
	}
	e.budgets.apply(e)
	e.fleet.apply(e)
}

// countAgents sets the agents whose requests are counted: those of all running configurations. A
// refused configuration runs for a moment, next to the one before.
func (a *activeConfigs) countAgents() {
	a.mu.Lock()
	defer a.mu.Unlock()
	var sites []*SitePolicy
	for _, e := range a.engines {
		sites = append(sites, e.Sites()...)
	}
	byAgent.follow(sites)
}

// stateFile keeps a small piece of state over a restart, as JSON in the folder of the store.
// Without a folder (store none) nothing is kept. Its owner makes one write at a time.
type stateFile struct {
	name   string
	holds  string // its content, for the operator
	remedy string // what to do in addition to removing an unreadable file
}

// read fills v from the file. If there is no file, it does not change v. Its errors are for the
// operator: they name the loss and the remedy.
func (f stateFile) read(folder string, v any) error {
	return f.decode(folder, func(data []byte) error { return json.Unmarshal(data, v) })
}

func (f stateFile) decode(folder string, into func([]byte) error) error {
	if folder == "" {
		return nil
	}
	path := filepath.Join(folder, f.name)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	if len(bytes.Trim(data, "\x00")) == 0 { // some file systems leave zeros
		return fmt.Errorf("%s are not known: %s is empty (%d bytes), as a crash of the machine may leave it; "+
			"put back a copy of the file, or remove it %s", f.holds, path, len(data), f.remedy)
	}
	if err := into(data); err != nil {
		return fmt.Errorf("%s are not known: %s is damaged (%w); put back a copy of the file, or remove it %s", f.holds, path, err, f.remedy)
	}
	return nil
}

// write replaces the file atomically. When it returns nil, the new file is on the disk. A crash
// leaves the old file or the new one.
func (f stateFile) write(folder string, v any) error {
	if folder == "" {
		return nil
	}
	data, err := json.Marshal(v)
	if err == nil {
		storage := certmagic.FileStorage{Path: folder}
		err = storage.Store(context.Background(), f.name, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Join(folder, f.name), err)
	}
	return nil
}
