package evidence

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/mod/sumdb/tlog"
)

// The leaves of a tree are kept in files of LeavesPerFile each. The hash over all leaves of a full
// file is kept beside, so that the oldest files can go.
const (
	FileLevel     = 20
	LeavesPerFile = 1 << FileLevel
)

// LeavesFile is the name of a file of leaves.
func LeavesFile(number int64) string { return fmt.Sprintf("leaves-%06d", number) }

// SubtreesFile holds the hash of each full file of leaves, in order.
const SubtreesFile = "subtrees"

// Edge is the right edge of a tree: what it takes to add a leaf and to know the root. The zero
// value is the empty tree. A copy by [Edge.Clone] stays as it is.
type Edge struct {
	size  int64
	nodes []tlog.Hash // of the full subtrees, the largest first
	full  tlog.Hash   // of the last full file of leaves
}

// Append adds a leaf.
func (e *Edge) Append(leaf tlog.Hash) { e.push(0, leaf) }

// push adds a full subtree of 1<<level leaves; the size is a multiple of that.
func (e *Edge) push(level int, h tlog.Hash) {
	at := e.size >> level
	e.size += 1 << level
	for ; ; level++ {
		if level == FileLevel {
			e.full = h
		}
		if at&1 == 0 {
			break
		}
		last := len(e.nodes) - 1
		h = tlog.NodeHash(e.nodes[last], h)
		e.nodes = e.nodes[:last]
		at >>= 1
	}
	e.nodes = append(e.nodes, h)
}

// Size is the number of leaves.
func (e *Edge) Size() int64 { return e.size }

// Full is the hash of the last full file of leaves.
func (e *Edge) Full() tlog.Hash { return e.full }

// Root is the hash of the tree.
func (e *Edge) Root() tlog.Hash {
	if len(e.nodes) == 0 {
		return sha256.Sum256(nil)
	}
	h := e.nodes[len(e.nodes)-1]
	for _, left := range slices.Backward(e.nodes[:len(e.nodes)-1]) {
		h = tlog.NodeHash(left, h)
	}
	return h
}

// Clone gives a copy that further leaves do not change.
func (e *Edge) Clone() Edge { return Edge{e.size, slices.Clone(e.nodes), e.full} }

// Leaves reads the leaf hashes of one generation. It implements [tlog.HashReader]. It is safe for
// concurrent use, also while leaves are added.
type Leaves struct {
	dir string

	mu    sync.Mutex
	nodes map[[2]int64]tlog.Hash // by level and number: those that are dear
}

// NewLeaves reads those in the folder of a generation.
func NewLeaves(dir string) *Leaves { return &Leaves{dir: dir, nodes: make(map[[2]int64]tlog.Hash)} }

// Len is the number of leaves, those in files that are gone included.
func (l *Leaves) Len() (int64, error) {
	names, err := filepath.Glob(filepath.Join(l.dir, "leaves-[0-9][0-9][0-9][0-9][0-9][0-9]"))
	if err != nil {
		return 0, fmt.Errorf("looking for leaves: %w", err)
	}
	full, err := fileSize(filepath.Join(l.dir, SubtreesFile))
	if err != nil {
		return 0, err
	}
	n := full / tlog.HashSize * LeavesPerFile
	if len(names) > 0 {
		var number int64
		last := slices.Max(names)
		if _, err := fmt.Sscanf(filepath.Base(last), "leaves-%d", &number); err != nil {
			return 0, fmt.Errorf("name %s: %w", last, err)
		}
		size, err := fileSize(last)
		if err != nil {
			return 0, err
		}
		n = max(n, number*LeavesPerFile+size/tlog.HashSize)
	}
	return n, nil
}

func fileSize(name string) (int64, error) {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("reading leaves: %w", err)
	}
	return info.Size(), nil
}

// Hash gives the hash of a leaf. The error is [fs.ErrNotExist] where its file is gone.
func (l *Leaves) Hash(seq int64) (tlog.Hash, error) {
	hashes, err := l.read(LeavesFile(seq/LeavesPerFile), seq%LeavesPerFile, 1)
	if err != nil {
		return tlog.Hash{}, err
	}
	return hashes[0], nil
}

// Some reads leaves from seq on: n of them, or fewer where their file ends. The error is
// [fs.ErrNotExist] where the file is gone.
func (l *Leaves) Some(seq, n int64) ([]tlog.Hash, error) {
	at := seq % LeavesPerFile
	return l.read(LeavesFile(seq/LeavesPerFile), at, min(n, LeavesPerFile-at))
}

func (l *Leaves) read(name string, from, n int64) ([]tlog.Hash, error) {
	f, err := os.Open(filepath.Join(l.dir, name))
	if err != nil {
		return nil, fmt.Errorf("reading leaves: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	data := make([]byte, n*tlog.HashSize)
	if _, err := f.ReadAt(data, from*tlog.HashSize); err != nil {
		return nil, fmt.Errorf("reading %d leaves from %d of %s: %w", n, from, name, err)
	}
	hashes := make([]tlog.Hash, n)
	for i := range hashes {
		hashes[i] = tlog.Hash(data[i*tlog.HashSize:])
	}
	return hashes, nil
}

// Edge is the edge of the tree of the first size leaves. Only the leaves behind the last full file
// are read.
func (l *Leaves) Edge(size int64) (Edge, error) {
	var e Edge
	for e.size+LeavesPerFile <= size {
		h, err := l.node(FileLevel, e.size/LeavesPerFile)
		if err != nil {
			return e, err
		}
		e.push(FileLevel, h)
	}
	if e.size == size {
		return e, nil
	}
	hashes, err := l.read(LeavesFile(size/LeavesPerFile), 0, size-e.size)
	for _, h := range hashes {
		e.Append(h)
	}
	return e, err
}

// ReadHashes implements [tlog.HashReader].
func (l *Leaves) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		level, n := tlog.SplitStoredHashIndex(index)
		var err error
		if hashes[i], err = l.node(level, n); err != nil {
			return nil, err
		}
	}
	return hashes, nil
}

// Nodes of at least keptLevel are kept once computed: a proof needs the same ones again and again.
const (
	keptLevel = 10
	mostKept  = 100_000
)

// node is the hash of the subtree of 1<<level leaves from n<<level on.
func (l *Leaves) node(level int, n int64) (h tlog.Hash, err error) {
	if level < keptLevel {
		return l.compute(level, n)
	}
	key := [2]int64{int64(level), n}
	l.mu.Lock()
	h, ok := l.nodes[key]
	l.mu.Unlock()
	if ok {
		return h, nil
	}
	if h, err = l.subtree(level, n); err != nil {
		return h, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.nodes) >= mostKept {
		clear(l.nodes)
	}
	l.nodes[key] = h
	return h, nil
}

// subtree finds a large subtree: that of a full file beside it, others in their halves.
func (l *Leaves) subtree(level int, n int64) (tlog.Hash, error) {
	switch level {
	case FileLevel:
		if hashes, err := l.read(SubtreesFile, n, 1); err == nil {
			return hashes[0], nil
		}
	case keptLevel:
		return l.compute(level, n)
	}
	left, err := l.node(level-1, 2*n)
	if err != nil {
		return left, err
	}
	right, err := l.node(level-1, 2*n+1)
	return tlog.NodeHash(left, right), err
}

func (l *Leaves) compute(level int, n int64) (tlog.Hash, error) {
	from := n << level
	hashes, err := l.read(LeavesFile(from/LeavesPerFile), from%LeavesPerFile, 1<<level)
	if err != nil {
		return tlog.Hash{}, err
	}
	var e Edge
	for _, h := range hashes {
		e.Append(h)
	}
	return e.Root(), nil
}
