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
	"sync"

	"github.com/caddyserver/certmagic"
)

// stateFolder keeps small things of the process over a restart, each as one JSON file in a folder
// beside the store. Without a path (store none) nothing is kept. It is safe for concurrent use.
type stateFolder struct {
	mu   sync.Mutex
	path string
}

// stateFile is one file of a folder.
type stateFile struct {
	name   string
	holds  string // what is in it, for people
	remedy string // what to do besides removing a file that cannot be read
}

// read fills v from the file, and leaves it as it is where there is no such file. Its errors are
// for the operator: they name the loss and the way on.
func (d *stateFolder) read(f stateFile, v any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.path == "" {
		return nil
	}
	path := filepath.Join(d.path, f.name)
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
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s are not known: %s is damaged (%w); put back a copy of the file, or remove it %s", f.holds, path, err, f.remedy)
	}
	return nil
}

// move makes another folder the one that is written to, and reports whether it is another.
func (d *stateFolder) move(path string) (moved bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	moved = d.path != path
	d.path = path
	return moved
}

// write replaces the file. When it returns nil the file is on the disk, whole; a crash leaves the
// old one or the new.
func (d *stateFolder) write(f stateFile, v any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.path == "" {
		return nil
	}
	data, err := json.Marshal(v)
	if err == nil {
		storage := certmagic.FileStorage{Path: d.path}
		err = storage.Store(context.Background(), f.name, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Join(d.path, f.name), err)
	}
	return nil
}
