package query

import (
	"container/list"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/crawlgate/crawlgate/robotstxt"
)

// cache keeps parsed files, those used last, up to a number of bytes.
type cache struct {
	room    int
	options robotstxt.Options
	entries map[key]*list.Element
	recent  *list.List // of *entry, last used first
}

// key names a file, with what changes when it is written anew, or the text of one given inline.
type key struct {
	path           string
	size, modified int64
	sum            [sha256.Size]byte
}

type entry struct {
	key   key
	rules *robotstxt.Ruleset
}

// overhead is an estimate of what an entry takes besides its rules.
const overhead = 512

func newCache(room int, options robotstxt.Options) *cache {
	return &cache{room: room, options: options, entries: make(map[key]*list.Element), recent: list.New()}
}

// inline returns the rules of a file given in base64.
func (c *cache) inline(text []byte) (*robotstxt.Ruleset, error) {
	k := key{sum: sha256.Sum256(text)}
	if rs := c.get(k); rs != nil {
		return rs, nil
	}
	data, err := base64.StdEncoding.AppendDecode(nil, text)
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
	if rs := c.get(k); rs != nil {
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

func (c *cache) get(k key) *robotstxt.Ruleset {
	e, ok := c.entries[k]
	if !ok {
		return nil
	}
	c.recent.MoveToFront(e)
	return e.Value.(*entry).rules
}

func (c *cache) put(k key, data []byte) *robotstxt.Ruleset {
	rs := c.options.Parse(data)
	c.entries[k] = c.recent.PushFront(&entry{key: k, rules: rs})
	c.room -= rs.Size() + overhead
	for c.room < 0 && c.recent.Len() > 1 {
		last := c.recent.Remove(c.recent.Back()).(*entry)
		delete(c.entries, last.key)
		c.room += last.rules.Size() + overhead
	}
	return rs
}
