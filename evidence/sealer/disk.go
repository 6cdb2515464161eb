package sealer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
)

// replaceFile writes a file that is there as a whole or not at all, also after a power cut.
func replaceFile(name string, data []byte) error {
	temporary := name + ".new"
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, name); err != nil {
		return err
	}
	return syncFile(filepath.Dir(name))
}

// syncFile waits until what was written to a file by anybody is on disk. Of a folder these are the
// names in it.
func syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// appendFile adds to the end of a file and waits until that is on disk. It adds all or nothing,
// unless the process ends within.
func appendFile(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		if _, err = f.Write(data); err != nil {
			err = errors.Join(err, f.Truncate(info.Size()))
		}
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// lock keeps other processes from a log, until the file is closed or the process has ended.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errors.New("another process writes this log, or it is sealed under another name or state folder: that takes a restart")
	}
	if err != nil {
		return fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	return nil
}

// positionFile has the number of lines whose hashes are on disk.
const positionFile = "position"

func (l *Log) readPosition() (int64, error) {
	text, err := l.readState(positionFile)
	if err != nil {
		return 0, err
	}
	size, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || size < 1 {
		return 0, fmt.Errorf("the file %s of the state has no number of lines: %.100q", positionFile, text)
	}
	return size, nil
}

// newestGeneration is the highest number of a generation in a state folder, 0 for none.
func newestGeneration(dir string) (newest int, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && e.IsDir() && strconv.Itoa(n) == e.Name() {
			newest = max(newest, n)
		}
	}
	return newest, nil
}

// tileFiles keeps the tree of a generation in its folder. It is not safe for concurrent use.
//
// To wait for the disk for each tile would cost more than all else. It is done once in a while, and
// a start reads the lines behind that from the log again.
type tileFiles struct {
	dir   string
	tree  evidence.Tree
	full  []evidence.Tile // not written yet
	saved int64           // leaves whose tiles are written
	disk  int64           // leaves whose tiles are on disk
	since time.Time       // when they were brought there
}

// The tiles of so many leaves, or of so long, may not be on disk.
const (
	mostUnsynced    = 1 << 20
	longestUnsynced = time.Minute
)

// newTileFiles goes on with a tree whose tiles are on disk.
func newTileFiles(dir string, tree evidence.Tree) *tileFiles {
	f := &tileFiles{dir: dir, tree: tree, saved: tree.Size(), disk: tree.Size()}
	f.tree.Full = func(t evidence.Tile) { f.full = append(f.full, t) }
	return f
}

// save writes the tiles. What fails can be done again.
func (f *tileFiles) save() error {
	if _, err := os.Stat(f.dir); err != nil { // it is not for us to make it
		return fmt.Errorf("writing hashes: %w", err)
	}
	for _, t := range append(f.full, f.tree.Edge(f.saved)...) {
		name := filepath.Join(f.dir, t.Path())
		err := os.MkdirAll(filepath.Dir(name), 0o700)
		if err == nil {
			err = os.WriteFile(name, t.Data, 0o600) // no checkpoint has it yet
		}
		if err != nil {
			return fmt.Errorf("writing hashes: %w", err)
		}
	}
	f.saved, f.full = f.tree.Size(), nil
	return nil
}

// sync brings the tiles to the disk, with their folders. A start goes on from there.
func (f *tileFiles) sync() error {
	names := map[string]bool{f.dir: true}
	for _, t := range tlog.NewTiles(evidence.TileHeight, f.disk, f.saved) {
		for name := (evidence.Tile{Tile: t}).Path(); name != "."; name = filepath.Dir(name) {
			names[filepath.Join(f.dir, name)] = true
		}
	}
	for name := range names {
		if err := syncFile(name); err != nil {
			return fmt.Errorf("bringing hashes to the disk: %w", err)
		}
	}
	return replaceFile(filepath.Join(f.dir, positionFile), fmt.Appendln(nil, f.saved))
}

// tidyUp removes the narrower tiles in whose places others are, which are on disk and those of the
// checkpoint that clients see.
func (f *tileFiles) tidyUp() {
	for _, t := range tlog.NewTiles(evidence.TileHeight, f.disk, f.saved) {
		width := t.W
		t.W = evidence.TileSize
		folder := filepath.Join(f.dir, evidence.Tile{Tile: t}.Path()+".p")
		partial, _ := os.ReadDir(folder) // there may be none
		for _, other := range partial {
			if other.Name() != strconv.Itoa(width) {
				_ = os.Remove(filepath.Join(folder, other.Name())) // it only takes room
			}
		}
		_ = os.Remove(folder) // if it is empty
	}
	f.disk, f.since = f.saved, time.Now()
}

// tailOf reads the end of a file, at most so many bytes and what is written meanwhile.
func tailOf(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	_, _ = f.Seek(-most, io.SeekEnd) // one that is shorter is read from its beginning
	return io.ReadAll(f)
}
