package evidence

import (
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// The hashes of a tree are kept in tiles of TileSize (C2SP tlog-tiles): those of level 0 are the
// leaves, and each hash of a higher level is that over a full tile of the level below.
const (
	TileHeight = 8
	TileSize   = 1 << TileHeight
)

// Tile is a tile with its hashes.
type Tile struct {
	tlog.Tile
	Data []byte
}

// Path is the name of a tile in the folder of a generation.
func (t Tile) Path() string { return strings.Replace(t.Tile.Path(), "tile/8/", "tile/", 1) }

// Tree is the right edge of a tree, by which a leaf can be added and the root is known. The zero
// value is the empty tree. It implements [tlog.HashReader] for what the root is made of.
type Tree struct {
	// Full is given each tile that is full; it may be nil.
	Full func(Tile)

	size int64
	edge [][]byte // by level, the hashes of the last tile, which is not full
}

// Size is the number of leaves.
func (t *Tree) Size() int64 { return t.size }

// Append adds a leaf.
func (t *Tree) Append(leaf tlog.Hash) {
	t.push(0, leaf)
	t.size++
}

// Skip adds a full tile of leaves by its hash. The size is a multiple of [TileSize].
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
	// Neither can fail: the tile is full.
	left, _ := tlog.HashFromTile(tile.Tile, data, tlog.StoredHashIndex(TileHeight*(level+1)-1, 2*tile.N))
	right, _ := tlog.HashFromTile(tile.Tile, data, tlog.StoredHashIndex(TileHeight*(level+1)-1, 2*tile.N+1))
	t.push(level+1, tlog.NodeHash(left, right))
}

func (t *Tree) last(level int) Tile {
	data := t.edge[level]
	return Tile{tlog.Tile{H: TileHeight, L: level, N: t.size >> (TileHeight * (level + 1)), W: len(data) / tlog.HashSize}, data}
}

// Edge gives the tiles that are not full, but for those that the tree had at an earlier size.
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

// Root is the hash of the tree.
func (t *Tree) Root() tlog.Hash {
	root, _ := tlog.TreeHash(t.size, t) // which asks for nothing but the edge
	return root
}

// Clone gives a copy that further leaves do not change.
func (t *Tree) Clone() Tree {
	edge := slices.Clone(t.edge)
	for i, data := range edge {
		edge[i] = slices.Clip(data)
	}
	return Tree{size: t.size, edge: edge}
}
