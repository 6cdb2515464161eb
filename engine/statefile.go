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

	"github.com/caddyserver/certmagic"
)

// stateFile keeps one small thing of the process over a restart, as JSON in a folder beside the
// store. Without a folder (store none) nothing is kept. Its owner writes it once at a time.
type stateFile struct {
	name   string
	holds  string // what is in it, for people
	remedy string // what to do besides removing a file that cannot be read
}

// read fills v from the file, and leaves it as it is where there is no such file. Its errors are
// for the operator: they name the loss and the way on.
func (f stateFile) read(folder string, v any) error {
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
	if err := json.Unmarshal(data, v); err != nil {
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

// remove deletes the file, if there is one.
func (f stateFile) remove(folder string) error {
	if folder == "" {
		return nil
	}
	if err := os.Remove(filepath.Join(folder, f.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a former file: %w", err)
	}
	return nil
}
