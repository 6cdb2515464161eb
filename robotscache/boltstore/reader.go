package boltstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/crawlgate/crawlgate/robotscache/internal/storecodec"
)

// Reader reads the texts of a store that no gateway has open, and changes nothing: it
// makes no file and deletes nothing that is past its retention. Its methods are safe
// for concurrent use.
type Reader struct {
	path  string
	file  *file
	texts *storecodec.Texts
}

// OpenReader opens a store that is there. It waits for lockTimeout at most for another
// process to close the file; zero or less is the default of [Config]. [ErrLocked] is
// found in its error.
func OpenReader(path string, lockTimeout time.Duration) (*Reader, error) {
	if lockTimeout <= 0 {
		lockTimeout = defaultLockTimeout
	}
	f, err := openFile(path, lockTimeout, true)
	if err != nil {
		return nil, fmt.Errorf("opening the robots.txt store %s: %w", path, err)
	}
	texts, err := storecodec.NewTexts()
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	return &Reader{path: path, file: f, texts: texts}, nil
}

// Body returns the text with the given SHA-256, as [Store.Body] does. The caller
// checks the hash.
func (r *Reader) Body(ctx context.Context, sha [32]byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	text, err := r.file.text(r.texts, sha)
	if err != nil {
		return nil, fmt.Errorf("reading a text in %s: %w", r.path, err)
	}
	return text, nil
}

// Close closes the file.
func (r *Reader) Close() error {
	if err := errors.Join(r.texts.Close(), r.file.close()); err != nil {
		return fmt.Errorf("closing %s: %w", r.path, err)
	}
	return nil
}
