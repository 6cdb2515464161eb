package sealer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
)

// positionFile has the number of lines whose hashes were synced.
const positionFile = "position"

func (l *Log) readPosition() (int64, error) {
	text, err := l.readState(positionFile)
	if err != nil {
		return 0, err
	}
	if strings.HasPrefix(string(text), `{"size":`) {
		return 0, errors.New("release 0.1 sealed the lines before, and its state has another form")
	}
	size, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || size < 1 {
		return 0, fmt.Errorf("the state is damaged: the file %s should be a number of lines, and is %.100q", positionFile, text)
	}
	return size, nil
}

// tileFiles keeps the tree of a generation in its folder. It is not safe for concurrent use.
//
// Syncing each tile would cost more than everything else. Tiles are synced from time to time, and a
// start reads the lines after the last sync from the log again.
type tileFiles struct {
	dir   string
	tree  evidence.Tree
	full  []evidence.Tile // not yet written
	saved int64           // leaves whose tiles are written
	disk  int64           // leaves whose tiles were synced
	since time.Time       // when
}

// Tiles are synced after this many leaves, or this long.
const (
	mostUnsynced    = 1 << 20
	longestUnsynced = time.Minute
)

// newTileFiles continues a tree whose tiles are on disk.
func newTileFiles(dir string, tree evidence.Tree) *tileFiles {
	f := &tileFiles{dir: dir, tree: tree, saved: tree.Size(), disk: tree.Size()}
	f.tree.Full = func(t evidence.Tile) { f.full = append(f.full, t) }
	return f
}

// save writes the tiles. It can be repeated after an error.
func (f *tileFiles) save() error {
	if _, err := os.Stat(f.dir); err != nil { // the folder must exist: making it would hide that the state is gone
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
			return fmt.Errorf("syncing hashes: %w", err)
		}
	}
	return replaceFile(filepath.Join(f.dir, positionFile), fmt.Appendln(nil, f.saved))
}

// tidyUp removes partial tiles that wider ones have replaced. The wider ones are synced and belong
// to the checkpoint that clients see.
func (f *tileFiles) tidyUp() {
	for _, t := range tlog.NewTiles(evidence.TileHeight, f.disk, f.saved) {
		width := t.W
		t.W = evidence.TileSize
		folder := filepath.Join(f.dir, evidence.Tile{Tile: t}.Path()+".p")
		partial, _ := os.ReadDir(folder) // there may be none
		for _, other := range partial {
			if other.Name() != strconv.Itoa(width) {
				_ = os.Remove(filepath.Join(folder, other.Name())) // a leftover only takes space
			}
		}
		_ = os.Remove(folder) // if it is empty
	}
	f.disk, f.since = f.saved, time.Now()
}
