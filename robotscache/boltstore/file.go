package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
)

// The buckets of the file.
var (
	metaBucket    = []byte("crawlgate")
	originsBucket = []byte("origins") // origin.String() -> item
	textsBucket   = []byte("texts")   // SHA-256 -> text
)

// formatKey is the key of the format's number in metaBucket: uint32, big-endian.
var formatKey = []byte("format")

// migration changes a file from one format to the next.
type migration func(tx *bolt.Tx) error

// migrations lead from format 1 to the present one, which is len(migrations)+1.
// A step that a release has had is never changed.
var migrations []migration

// Reasons for which a file is refused. None of them is ever met by emptying it.
var (
	errForeign = errors.New("it is not a robots.txt store of Crawlgate; move it away or name another file")
	errTorn    = errors.New("it is damaged; restore a copy, or move it away to begin anew (what is known of unreachable origins is then lost)")
	errNewer   = errors.New("a later release of Crawlgate wrote it")
	errLocked  = errors.New("another process has it open")
)

func openFile(path string, lockTimeout time.Duration, steps []migration) (*file, error) {
	if path == "" {
		return nil, errors.New("no path given")
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = create(path, len(steps)+1)
	case err == nil && !info.Mode().IsRegular():
		err = errForeign
	}
	if err != nil {
		return nil, err
	}
	if err := inspect(path); err != nil {
		return nil, err
	}
	f := new(file)
	if err := f.open(path, lockTimeout, false); err != nil {
		return nil, err
	}
	if err := f.do(func() error { return prepare(f.db, steps) }); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// create makes an empty store under another name and then gives it its own, so
// that there is no moment at which the path names half a file.
func create(path string, format int) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	name := tmp.Name()
	defer func() { _ = os.Remove(name) }()
	if err := tmp.Close(); err != nil {
		return err
	}
	db, err := bolt.Open(name, 0o600, nil)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, bucket := range [][]byte{metaBucket, originsBucket, textsBucket} {
			if _, err := tx.CreateBucket(bucket); err != nil {
				return err
			}
		}
		return setFormat(tx, format)
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	return publish(name, path)
}

// publish gives the finished file its name. It does not replace one that another
// process has made meanwhile: that process may have it open.
func publish(name, path string) error {
	err := os.Link(name, path)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil { // a file system without links
		err = os.Rename(name, path)
	}
	if err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	_ = dir.Sync() // not every file system can, and then none need
	return dir.Close()
}

// inspect refuses what bbolt would not survive: it maps the file into memory, and
// touching a page beyond its end is a fault. The two header pages say how many
// pages there must be.
func inspect(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return fmt.Errorf("%w: it is empty", errTorn)
	}
	best, anyMagic := header{}, false
	for _, at := range headerOffsets(f) {
		h, magic := readHeader(f, at)
		anyMagic = anyMagic || magic
		if h.valid && (!best.valid || h.tx > best.tx) {
			best = h
		}
	}
	switch {
	case !anyMagic:
		return errForeign
	case !best.valid:
		return fmt.Errorf("%w: no valid header", errTorn)
	case info.Size() < best.size():
		return fmt.Errorf("%w: %d of %d bytes are there", errTorn, info.Size(), best.size())
	}
	return nil
}

// header is what matters of a bbolt meta page. Its form has not changed since the
// first Bolt: page header of 16 bytes, then magic, version, page size and flags
// (uint32), root bucket (two uint64), freelist, pages, transaction and an FNV-1a
// checksum of what follows the page header (uint64), in the machine's byte order.
type header struct {
	valid     bool
	pageSize  int64
	pages, tx uint64
}

const (
	boltMagic  = 0xED0CDAED
	pageHeader = 16
	metaSize   = 64
)

func (h header) size() int64 {
	return int64(min(h.pages, 1<<40)) * h.pageSize
}

// headerOffsets returns where the two header pages may begin: the second follows
// the first by the page size, which is the first's to say, or unknown.
func headerOffsets(f io.ReaderAt) []int64 {
	if h, _ := readHeader(f, 0); h.valid {
		return []int64{0, h.pageSize}
	}
	offsets := []int64{0}
	for size := int64(1 << 10); size <= 16<<20; size *= 2 {
		offsets = append(offsets, size)
	}
	return offsets
}

// readHeader reads the header page at an offset, and reports whether there is at
// least the mark of one.
func readHeader(f io.ReaderAt, at int64) (h header, magic bool) {
	buf := make([]byte, pageHeader+metaSize)
	if _, err := f.ReadAt(buf, at); err != nil {
		return header{}, false
	}
	meta, order := buf[pageHeader:], binary.NativeEndian
	if order.Uint32(meta) != boltMagic {
		return header{}, false
	}
	sum := fnv.New64a()
	_, _ = sum.Write(meta[:metaSize-8])
	size := int64(order.Uint32(meta[8:]))
	return header{
		valid:    sum.Sum64() == order.Uint64(meta[metaSize-8:]) && size >= 1<<10 && size <= 16<<20,
		pageSize: size,
		pages:    order.Uint64(meta[40:]),
		tx:       order.Uint64(meta[48:]),
	}, true
}

// prepare checks that the file is ours and brings it to the present format, in
// one transaction: it is migrated, or as it was.
func prepare(db *bolt.DB, steps []migration) error {
	format, present := 0, len(steps)+1
	err := db.View(func(tx *bolt.Tx) error {
		var err error
		format, err = formatOf(tx)
		return err
	})
	switch {
	case err != nil:
		return err
	case format > present:
		return fmt.Errorf("%w: its format is %d, this release knows up to %d", errNewer, format, present)
	case format == present:
		return nil
	}
	return db.Update(func(tx *bolt.Tx) error {
		for ; format < present; format++ {
			if err := steps[format-1](tx); err != nil {
				return fmt.Errorf("migrating it from format %d to %d: %w", format, format+1, err)
			}
		}
		return setFormat(tx, present)
	})
}

func formatOf(tx *bolt.Tx) (int, error) {
	meta := tx.Bucket(metaBucket)
	if meta == nil {
		return 0, errForeign
	}
	value := meta.Get(formatKey)
	if len(value) != 4 || binary.BigEndian.Uint32(value) == 0 {
		return 0, errForeign
	}
	for _, bucket := range [][]byte{originsBucket, textsBucket} {
		if tx.Bucket(bucket) == nil {
			return 0, fmt.Errorf("%w: it has no %s", errTorn, bucket)
		}
	}
	return int(binary.BigEndian.Uint32(value)), nil
}

func setFormat(tx *bolt.Tx, format int) error {
	return tx.Bucket(metaBucket).Put(formatKey, binary.BigEndian.AppendUint32(nil, uint32(format)))
}
