package boltstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/crawlgate/crawlgate/robotscache/internal/textcodec"
)

// Reader reads the texts of a store that no gateway has open, and changes nothing: it
// makes no file, migrates none and deletes nothing that is over. Its methods are safe
// for concurrent use.
type Reader struct {
	path  string
	file  *file
	codec *textcodec.Codec
}

// ErrLocked is found in the error of [OpenReader] while another process, such as a
// running gateway, has the file open.
var ErrLocked = errLocked

// OpenReader opens a store that is there. It waits for lockTimeout at most for another
// process to let go of the file; zero or less is the default of [Config].
func OpenReader(path string, lockTimeout time.Duration) (*Reader, error) {
	if lockTimeout <= 0 {
		lockTimeout = defaultLockTimeout
	}
	r, err := openReader(path, lockTimeout)
	if err != nil {
		return nil, fmt.Errorf("opening the robots.txt store %s: %w", path, err)
	}
	return r, nil
}

func openReader(path string, lockTimeout time.Duration) (*Reader, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, unpath(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errForeign
	}
	if err := inspect(path); err != nil {
		return nil, err
	}
	r := &Reader{path: path, file: new(file)}
	if err := r.file.open(path, lockTimeout, true); err != nil {
		return nil, err
	}
	if err := r.file.view(checkFormat); err != nil {
		return nil, errors.Join(err, r.file.close())
	}
	if r.codec, err = textcodec.New(); err != nil {
		return nil, errors.Join(err, r.file.close())
	}
	return r, nil
}

// checkFormat refuses a file of another format than the present one.
func checkFormat(tx *bolt.Tx) error {
	format, err := formatOf(tx)
	switch present := len(migrations) + 1; {
	case err != nil:
		return err
	case format > present:
		return fmt.Errorf("%w: its format is %d, this release knows up to %d", errNewer, format, present)
	case format < present:
		return fmt.Errorf("its format is %d; start a gateway of this release with it once, to bring it to %d", format, present)
	}
	return nil
}

// unpath leaves the system's words of an error: the path is named once.
func unpath(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}

// Body returns the text with the given SHA-256, as [Store.Body] does. Whether it still
// has that hash is for the caller to check.
func (r *Reader) Body(ctx context.Context, sha [32]byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var text []byte
	err := r.file.view(func(tx *bolt.Tx) error {
		var err error
		text, err = readText(tx, r.codec, sha)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading a text in %s: %w", r.path, err)
	}
	return text, nil
}

// Close lets go of the file.
func (r *Reader) Close() error {
	if err := errors.Join(r.codec.Close(), r.file.close()); err != nil {
		return fmt.Errorf("closing %s: %w", r.path, err)
	}
	return nil
}
