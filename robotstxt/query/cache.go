package query

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/crawlgate/crawlgate/robotstxt"
)

// cache keeps parsed files up to a number of bytes.
type cache struct {
	room, used int
	options    robotstxt.Options
	entries    map[key]*robotstxt.Ruleset
}

// key names a file, with its size and time, or the text of one given inline.
type key struct {
	path           string
	size, modified int64
	sum            [sha256.Size]byte
}

// overhead is an estimate of what an entry takes besides its rules.
const overhead = 512

func newCache(room int, options robotstxt.Options) *cache {
	return &cache{room: room, options: options, entries: make(map[key]*robotstxt.Ruleset)}
}

// inline returns the rules of a file given in base64.
func (c *cache) inline(text string) (*robotstxt.Ruleset, error) {
	k := key{sum: sha256.Sum256([]byte(text))}
	if rs, ok := c.entries[k]; ok {
		return rs, nil
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("robots: not base64: %w", err)
	}
	return c.put(k, data), nil
}

// file returns the rules of a file on disk.
func (c *cache) file(path string) (*robotstxt.Ruleset, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("robots_file: %w", unpath(err))
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("robots_file: not a regular file")
	}
	k := key{path: path, size: info.Size(), modified: info.ModTime().UnixNano()}
	if rs, ok := c.entries[k]; ok {
		return rs, nil
	}
	data, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("robots_file: %w", unpath(err))
	}
	return c.put(k, data), nil
}

// readFile reads as much of a file as is parsed, and what shows that there is more.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, robotstxt.MaxSize+1))
	return data, errors.Join(err, f.Close())
}

// unpath leaves the system's words of an error: the asker knows the path.
func unpath(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}

// put parses a file and keeps it. Where there is no room for it all others are dropped.
func (c *cache) put(k key, data []byte) *robotstxt.Ruleset {
	rs := c.options.Parse(data)
	size := rs.Size() + overhead
	if c.used += size; c.used > c.room {
		clear(c.entries)
		c.used = size
	}
	c.entries[k] = rs
	return rs
}
