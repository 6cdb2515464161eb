package writer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
)

// replaceFile writes a file that is there as a whole or not at all, also after a power cut.
func replaceFile(name string, data []byte) error {
	if err := putFile(name, data); err != nil {
		return err
	}
	return syncFile(filepath.Dir(name))
}

// putFile is replaceFile for several files of a folder, which the caller brings to the disk.
func putFile(name string, data []byte) error {
	temporary := name + ".new"
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(temporary, name)
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

// takeLock keeps other processes from a log, until the file is closed or the process has ended.
func takeLock(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errors.New("another process writes this log")
		}
		return nil, errors.Join(fmt.Errorf("locking %s: %w", name, err), f.Close())
	}
	return f, nil
}

// position is how far the log is in the tree: the line before Offset, in one of its files, is the
// last of Size leaves.
type position struct {
	Size   int64 `json:"size"`
	Offset int64 `json:"offset"`
}

const positionFile = "position"

func readPosition(dir string) (p position, err error) {
	text, err := os.ReadFile(filepath.Join(dir, positionFile))
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err == nil && (p.Size < 1 || p.Offset < 1) {
		err = fmt.Errorf("%.200q is no position", text)
	}
	return p, err
}

// writePosition writes over the position, which has one length and thus one block of the disk. It
// does not wait for the disk: after a power cut an older position has more of the log read again.
func writePosition(dir string, p position) error {
	name := filepath.Join(dir, positionFile)
	text := fmt.Appendf(nil, "{\"size\": %19d, \"offset\": %19d}\n", p.Size, p.Offset)
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return replaceFile(name, text)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	return errors.Join(err, f.Close())
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
type tileFiles struct {
	dir   string
	tree  evidence.Tree
	saved int64           // leaves whose tiles are on disk
	full  []evidence.Tile // which are not
	tidy  int64           // leaves at the last tidyUp
}

// newTileFiles goes on with a tree whose tiles are on disk.
func newTileFiles(dir string, tree evidence.Tree) *tileFiles {
	f := &tileFiles{dir: dir, tree: tree, saved: tree.Size(), tidy: tree.Size()}
	f.tree.Full = func(t evidence.Tile) { f.full = append(f.full, t) }
	return f
}

// save brings the tree to the disk. What fails can be done again.
func (f *tileFiles) save() error {
	tiles := append(f.full, f.tree.Edge(f.saved)...)
	folders := make(map[string]bool)
	for _, t := range tiles {
		name, err := f.makeFolders(t.Path(), folders)
		if err == nil {
			err = putFile(name, t.Data)
		}
		if err != nil {
			return fmt.Errorf("writing hashes: %w", err)
		}
	}
	for folder := range folders {
		if err := syncFile(folder); err != nil {
			return fmt.Errorf("writing hashes: %w", err)
		}
	}
	f.saved, f.full = f.tree.Size(), nil
	return nil
}

// tidyUp removes what wider tiles have replaced. Clients may ask for the tiles of the checkpoint
// that they see, so that a newer one comes first.
func (f *tileFiles) tidyUp() error {
	for _, t := range tlog.NewTiles(evidence.TileHeight, f.tidy, f.saved) {
		if err := f.removeOthers(evidence.Tile{Tile: t}); err != nil {
			return fmt.Errorf("removing hashes that others have replaced: %w", err)
		}
	}
	f.tidy = f.saved
	return nil
}

// makeFolders makes the folders of a tile. It gives the tile's whole name, and notes the folders that
// have to be brought to the disk.
func (f *tileFiles) makeFolders(path string, unsynced map[string]bool) (name string, err error) {
	dir, name := filepath.Split(path)
	folder := f.dir
	for part := range strings.SplitSeq(filepath.Clean(dir), "/") {
		in := folder
		folder = filepath.Join(in, part)
		switch err := os.Mkdir(folder, 0o700); {
		case err == nil:
			unsynced[in] = true
		case !errors.Is(err, fs.ErrExist):
			return "", err
		}
	}
	unsynced[folder] = true
	return filepath.Join(folder, name), nil
}

// removeOthers removes the narrower tiles in whose place t is, and what a crash has left.
func (f *tileFiles) removeOthers(t evidence.Tile) error {
	name := filepath.Join(f.dir, t.Path())
	if t.W == evidence.TileSize {
		return os.RemoveAll(name + ".p")
	}
	folder, own := filepath.Split(name)
	others, err := os.ReadDir(folder)
	for _, other := range others {
		if other.Name() != own {
			err = errors.Join(err, os.Remove(filepath.Join(folder, other.Name())))
		}
	}
	return errors.Join(err, os.RemoveAll(strings.TrimSuffix(filepath.Clean(folder), ".p")))
}

// tailOf reads the end of a file, from the beginning of a line where it is longer than most.
func tailOf(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()                     // it was only read
	if _, err := f.Seek(-most, io.SeekEnd); err != nil { // it is shorter
		return io.ReadAll(io.LimitReader(f, most))
	}
	return io.ReadAll(f)
}
