package crawlgate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/caddyserver/caddy/v2"
)

// notebook keeps small things of the process over a restart, each as one JSON file in a folder beside the store: the
// kill switch and the blocks of hosts. Without a folder (store none) nothing is kept. It is safe for concurrent use.
type notebook struct {
	mu     sync.Mutex
	folder string
}

// notePage is one file of a notebook.
type notePage struct {
	file   string
	holds  string // what stands in it, for people
	remedy string // what to do besides removing a file that cannot be read
}

// folderOf is where a store's notebook lies, empty if there is none.
func folderOf(c StoreConfig) string {
	switch c.Kind {
	case "none":
		return ""
	case "redis":
		return filepath.Join(caddy.AppDataDir(), "crawlgate")
	}
	return filepath.Dir(c.Path)
}

// read fills v from the page, and leaves it as it is where there is no such page. Its errors are
// for the operator: they name the loss and the way on.
func (n *notebook) read(p notePage, v any) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.folder == "" {
		return nil
	}
	path := filepath.Join(n.folder, p.file)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	if len(bytes.Trim(data, "\x00")) == 0 { // some file systems leave zeros
		return fmt.Errorf("%s are not known: %s is empty (%d octets), as a crash of the machine may leave it; "+
			"put back a copy of the file, or remove it %s", p.holds, path, len(data), p.remedy)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s are not known: %s is damaged (%w); put back a copy of the file, or remove it %s", p.holds, path, err, p.remedy)
	}
	return nil
}

// write replaces the page. When it returns nil the page is on the disk, whole; a crash leaves the old one or the new.
func (n *notebook) write(p notePage, v any) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.folder == "" {
		return nil
	}
	path := filepath.Join(n.folder, p.file)
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.MkdirAll(n.folder, 0o700); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	f, err := os.CreateTemp(n.folder, "."+p.file+"-")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // nothing is left of it once it has been renamed
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
