package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/crawlgate/crawlgate/robotscache"
)

// The buckets of the file.
var (
	metaBucket    = []byte("crawlgate")
	originsBucket = []byte("origins") // fetch.Key.String() -> item
	textsBucket   = []byte("texts")   // SHA-256 -> text
	usesBucket    = []byte("uses")    // last use and SHA-256 of a text -> its size
)

// format is the number of the file's form, uint32, big-endian, under formatKey in metaBucket. A
// file of the former one has the same form and gets this number if it is opened for writing, so
// that 0.1.0, which would not know the stops beside it, refuses the file. Any other one is refused.
const (
	format       = 4
	formerFormat = 3
)

var formatKey = []byte("format")

// Reasons to refuse a file. A refused file is not changed.
var (
	errForeign = errors.New("it is not a robots.txt store of Crawlgate, or its beginning is damaged; move it away or name another file")
	errTorn    = errors.New("it is damaged; restore a copy or move it away (the last good copies of unreachable origins are then lost)")
	errEmpty   = errors.New("it holds nothing")
	errFormat  = errors.New("another release of Crawlgate wrote it")

	// ErrLocked means that another process, such as a running gateway, has the file open.
	ErrLocked = errors.New("another process has it open")
)

// openFile opens a store. It creates a missing one, unless the file is opened only for reading.
func openFile(path string, lockTimeout time.Duration, readOnly bool) (*file, error) {
	info, err := os.Stat(path)
	isNew := errors.Is(err, fs.ErrNotExist) && !readOnly
	if isNew {
		info, err = nil, os.MkdirAll(filepath.Dir(path), 0o700)
	}
	pathErr, failed := errors.AsType[*fs.PathError](err)
	switch {
	case failed: // the caller names the path
		return nil, pathErr.Err
	case isNew:
	case !info.Mode().IsRegular():
		return nil, errForeign
	case info.Size() == 0: // bbolt would fill it
		return nil, fmt.Errorf("%w: it is empty", errTorn)
	}
	f := new(file)
	if err := f.open(path, lockTimeout, readOnly); err != nil {
		return nil, err
	}
	former := false
	err = f.view(func(tx *bolt.Tx) (err error) {
		former, err = check(tx, info)
		return err
	})
	if (err == nil && former || errors.Is(err, errEmpty)) && !readOnly {
		err = f.update(create)
	}
	if f.broken.Load() != nil {
		err = fmt.Errorf("%w: %w", errTorn, err)
	}
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// create makes the missing buckets of a store, and sets its format.
func create(tx *bolt.Tx) error {
	for _, bucket := range [][]byte{metaBucket, originsBucket, textsBucket, usesBucket} {
		if _, err := tx.CreateBucketIfNotExists(bucket); err != nil {
			return err
		}
	}
	return tx.Bucket(metaBucket).Put(formatKey, binary.BigEndian.AppendUint32(nil, format))
}

// check refuses a file that is not ours, has another format or is truncated, and reports whether it
// has the former format. info is nil for a file that was just made.
func check(tx *bolt.Tx, info fs.FileInfo) (former bool, err error) {
	// bbolt maps the file into memory, and an access to a page beyond its end is a fault.
	if info != nil && tx.Size() > info.Size() {
		return false, fmt.Errorf("%w: %d of %d bytes are there", errTorn, info.Size(), tx.Size())
	}
	if name, _ := tx.Cursor().First(); name == nil {
		return false, errEmpty
	}
	meta := tx.Bucket(metaBucket)
	if meta == nil || len(meta.Get(formatKey)) != 4 {
		return false, errForeign
	}
	n := binary.BigEndian.Uint32(meta.Get(formatKey))
	if n != format && n != formerFormat {
		return false, fmt.Errorf("%w: its format is %d, and this release uses format %d; move it away or name another file", errFormat, n, format)
	}
	for _, bucket := range [][]byte{originsBucket, textsBucket, usesBucket} {
		if tx.Bucket(bucket) == nil {
			return false, fmt.Errorf("%w: it has no %s", errTorn, bucket)
		}
	}
	return n == formerFormat, nil
}

// file is a bbolt database that fails instead of crashing.
//
// When bbolt meets a damaged page, or a file that was cut while it is open, it panics or faults in
// its memory map, perhaps with a lock held. The panic is caught here, and the file is no longer
// used, because that could hang or make the damage worse. The gateway continues without its store,
// and reports it.
type file struct {
	db     *bolt.DB
	handle *os.File // of db, to unlock the file after a panic, when db cannot be closed
	broken atomic.Pointer[error]
}

func (f *file) open(path string, lockTimeout time.Duration, readOnly bool) error {
	err := f.do(func() error {
		var err error
		f.db, err = bolt.Open(path, 0o600, &bolt.Options{
			Timeout:      lockTimeout,
			FreelistType: bolt.FreelistMapType,
			NoStatistics: true,
			ReadOnly:     readOnly,
			OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
				var err error
				f.handle, err = os.OpenFile(name, flag, mode)
				return f.handle, err
			},
		})
		return err
	})
	switch {
	case f.broken.Load() != nil:
		return errors.Join(fmt.Errorf("%w: %w", errTorn, err), f.close())
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("%w%s (waited %v)", ErrLocked, holder(path), lockTimeout)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
		return errForeign
	}
	return err
}

func (f *file) view(do func(*bolt.Tx) error) error {
	return f.do(func() error { return f.db.View(do) })
}

func (f *file) update(do func(*bolt.Tx) error) error {
	return f.do(func() error { return f.db.Update(do) })
}

// do calls a function that uses the database, unless the file is broken. The deferred function sets
// the named result.
func (f *file) do(use func() error) (err error) {
	if broken := f.broken.Load(); broken != nil {
		return *broken
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %w: %v; the file is not used any more",
				robotscache.ErrUnavailable, robotscache.ErrCorrupt, v)
			f.broken.CompareAndSwap(nil, &err)
		}
	}()
	return use()
}

// close closes the file, and so unlocks it.
func (f *file) close() error {
	if f.broken.Load() != nil {
		return f.handle.Close()
	}
	return f.db.Close()
}
