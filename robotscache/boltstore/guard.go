package boltstore

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/crawlgate/crawlgate/robotscache"
)

// file is a bbolt database that fails instead of crashing.
//
// When bbolt meets a damaged page, or a file that was cut while it is open, it
// panics or faults in its memory map, perhaps with a lock held. That is caught
// here and is the end of the file's use: to go on could hang, or make the damage
// worse. The gateway goes on without its store, and says so.
type file struct {
	db     *bolt.DB
	handle *os.File // of db, which is not closed in the usual way after a panic
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
		return fmt.Errorf("%w%s (waited %v)", errLocked, holder(path), lockTimeout)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum):
		return fmt.Errorf("%w: %w", errTorn, err)
	}
	return err
}

func (f *file) view(do func(*bolt.Tx) error) error {
	return f.do(func() error { return f.db.View(do) })
}

func (f *file) update(do func(*bolt.Tx) error) error {
	return f.do(func() error { return f.db.Update(do) })
}

// do calls a function that uses the database, unless it is broken. The named
// result is how the deferred function gets its error out.
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

// close lets go of the file, and of its lock.
func (f *file) close() error {
	if f.broken.Load() != nil {
		return f.handle.Close()
	}
	return f.db.Close()
}
