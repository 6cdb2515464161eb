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
// caller must release it.
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
		e.pacing.importBlocks(before.pacing)
	}
	e.budgets.apply(e)
	e.fleet.apply(e)
}

// countAgents has the agents of all configurations that run counted. One that is refused ran for a
// moment, beside the one before.
func (a *activeConfigs) countAgents() {
	a.mu.Lock()
	defer a.mu.Unlock()
	var sites []*SitePolicy
	for _, e := range a.engines {
		sites = append(sites, e.Sites()...)
	}
	byAgent.follow(sites)
}

// stateFile keeps one small thing of the process over a restart, as JSON in a folder beside the
// store. Without a folder (store none) nothing is kept. Its owner writes it once at a time.
type stateFile struct {
	name   string
	holds  string // its content, for the operator
	remedy string // what to do besides removing a file that cannot be read
}

// read fills v from the file, and leaves it as it is where there is no such file. Its errors are
// for the operator: they name the loss and the way on.
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

// write replaces the file. When it returns nil the file is on the disk, whole; a crash leaves the
// old one or the new.
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
