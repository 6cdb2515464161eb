package evidence

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/mod/sumdb/tlog"
)

// Tiles reads the tiles in the folder of a generation. It implements [tlog.TileReader]. It checks
// no hash; [tlog.TileHashReader] does.
type Tiles string

// Tree returns the tree of the first size leaves.
func (t Tiles) Tree(size int64) (Tree, error) {
	var tiles []tlog.Tile
	for level := 0; size>>(TileHeight*level) > 0; level++ {
		tiles = append(tiles, tlog.Tile{H: TileHeight, L: level, N: size >> (TileHeight * (level + 1)), W: int(size>>(TileHeight*level)) % TileSize})
	}
	edge, err := t.ReadTiles(tiles)
	return Tree{size: size, edge: edge}, err
}

// Hashes reads the hashes of one tile, from the n-th of its level on. The error is [fs.ErrNotExist]
// if the tile does not exist.
func (t Tiles) Hashes(level int, n int64) ([]tlog.Hash, error) {
	at := int(n % TileSize)
	data, err := t.read(tlog.Tile{H: TileHeight, L: level, N: n / TileSize, W: at + 1})
	if err != nil {
		return nil, err
	}
	var hashes []tlog.Hash
	for data := range slices.Chunk(data[at*tlog.HashSize:], tlog.HashSize) {
		hashes = append(hashes, tlog.Hash(data))
	}
	return hashes, nil
}

// Height implements [tlog.TileReader].
func (Tiles) Height() int { return TileHeight }

// SaveTiles implements [tlog.TileReader].
func (Tiles) SaveTiles([]tlog.Tile, [][]byte) {}

// ReadTiles implements [tlog.TileReader].
func (t Tiles) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	all := make([][]byte, len(tiles))
	for i, tile := range tiles {
		if tile.W == 0 {
			continue
		}
		data, err := t.read(tile)
		if err != nil {
			return nil, err
		}
		all[i] = data[: tile.W*tlog.HashSize : tile.W*tlog.HashSize]
	}
	return all, nil
}

// read returns the hashes of a tile, or more if a wider tile has replaced it. After a power cut a
// wider one may be empty, and after a full disk or a kill any may be short.
func (t Tiles) read(tile tlog.Tile) ([]byte, error) {
	full := Tile{Tile: tile}
	full.W = TileSize
	err := fs.ErrNotExist
	for try := 0; try < 3 && errors.Is(err, fs.ErrNotExist); try++ { // the sealer may replace it between the two reads
		for _, name := range files(filepath.Join(string(t), full.Path()), tile.W) {
			data, failure := os.ReadFile(name)
			if hashes := len(data) / tlog.HashSize; hashes >= tile.W {
				return data[:hashes*tlog.HashSize], nil
			}
			if errors.Is(err, fs.ErrNotExist) {
				err = cmp.Or(failure, io.ErrUnexpectedEOF)
			}
		}
	}
	if in, ok := errors.AsType[*fs.PathError](err); ok {
		err = in.Err // without the path
	}
	return nil, fmt.Errorf("reading %d hashes of %s: %w", tile.W, full.Path(), err)
}

// files returns the names of the tiles with at least width hashes, the narrowest first.
func files(full string, width int) (names []string) {
	entries, _ := os.ReadDir(full + ".p") // it may not exist
	var widths []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n >= width {
			widths = append(widths, n)
		}
	}
	slices.Sort(widths)
	for _, n := range widths {
		names = append(names, filepath.Join(full+".p", strconv.Itoa(n)))
	}
	return append(names, full)
}
