package crawlgate

import (
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

// read fills v from the page, and leaves it as it is where there is no such page.
func (n *notebook) read(page string, v any) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.folder == "" {
		return nil
	}
	path := filepath.Join(n.folder, page)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

// write replaces the page. When it returns nil the page is on the disk, whole; a crash leaves the old one or the new.
func (n *notebook) write(page string, v any) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.folder == "" {
		return nil
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("writing %s: %w", page, err)
	}
	if err := os.MkdirAll(n.folder, 0o700); err != nil {
		return fmt.Errorf("writing %s: %w", page, err)
	}
	f, err := os.CreateTemp(n.folder, "."+page+"-")
	if err != nil {
		return fmt.Errorf("writing %s: %w", page, err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // nothing is left of it once it has been renamed
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", page, err)
	}
	if err := os.Rename(f.Name(), filepath.Join(n.folder, page)); err != nil {
		return fmt.Errorf("writing %s: %w", page, err)
	}
	return nil
}
