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
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// The hashes of a tree are kept in tiles of TileSize hashes (C2SP tlog-tiles): level 0 has the
// leaves, and each hash of a higher level covers a full tile of the level below.
const (
	TileHeight = 8
	TileSize   = 1 << TileHeight
)

// Tile is a tile with its hashes.
type Tile struct {
	tlog.Tile
	Data []byte
}

// Path returns the name of a tile in the folder of a generation.
func (t Tile) Path() string { return strings.Replace(t.Tile.Path(), "tile/8/", "tile/", 1) }

// Tree is the right edge of a tree, which suffices to append leaves and to compute the root. The
// zero value is the empty tree. It implements [tlog.HashReader] for the hashes that make up the
// root.
type Tree struct {
	// Full is called with each tile that becomes full. It may be nil.
	Full func(Tile)

	size int64
	edge [][]byte // by level, the hashes of the last, partial tile
}

// Size returns the number of leaves.
func (t *Tree) Size() int64 { return t.size }

// Append adds a leaf.
func (t *Tree) Append(leaf tlog.Hash) {
	t.push(0, leaf)
	t.size++
}

// Skip adds a full tile of leaves by its hash. The size must be a multiple of [TileSize].
func (t *Tree) Skip(h tlog.Hash) {
	t.push(1, h)
	t.size += TileSize
}

func (t *Tree) push(level int, h tlog.Hash) {
	for len(t.edge) <= level {
		t.edge = append(t.edge, nil)
	}
	data := append(t.edge[level], h[:]...)
	t.edge[level] = data
	if len(data) < TileSize*tlog.HashSize {
		return
	}
	tile := t.last(level)
	t.edge[level] = nil
	if t.Full != nil {
		t.Full(tile)
	}
	// Neither can fail, because the tile is full.
	left, _ := tlog.HashFromTile(tile.Tile, data, tlog.StoredHashIndex(TileHeight*(level+1)-1, 2*tile.N))
	right, _ := tlog.HashFromTile(tile.Tile, data, tlog.StoredHashIndex(TileHeight*(level+1)-1, 2*tile.N+1))
	t.push(level+1, tlog.NodeHash(left, right))
}

func (t *Tree) last(level int) Tile {
	data := t.edge[level]
	return Tile{tlog.Tile{H: TileHeight, L: level, N: t.size >> (TileHeight * (level + 1)), W: len(data) / tlog.HashSize}, data}
}

// Edge returns the partial tiles, except those that the tree already had at an earlier size.
func (t *Tree) Edge(since int64) (tiles []Tile) {
	for level, data := range t.edge {
		if len(data) > 0 && since>>(TileHeight*level) != t.size>>(TileHeight*level) {
			tiles = append(tiles, t.last(level))
		}
	}
	return tiles
}

// ReadHashes implements [tlog.HashReader].
func (t *Tree) ReadHashes(indexes []int64) (hashes []tlog.Hash, err error) {
	hashes = make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		tile := t.last(tlog.TileForIndex(TileHeight, index).L)
		if hashes[i], err = tlog.HashFromTile(tile.Tile, tile.Data, index); err != nil {
			return nil, err
		}
	}
	return hashes, nil
}

// Root returns the hash of the tree.
func (t *Tree) Root() tlog.Hash {
	root, _ := tlog.TreeHash(t.size, t) // it needs only the edge
	return root
}

// Clone returns a copy that further leaves do not change.
func (t *Tree) Clone() Tree {
	edge := slices.Clone(t.edge)
	for i, data := range edge {
		edge[i] = slices.Clip(data)
	}
	return Tree{size: t.size, edge: edge}
}

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
