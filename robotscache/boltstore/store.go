// Package boltstore keeps robots.txt records in one bbolt file, for a gateway that
// shares its records with no other.
//
// # Durability
//
// Each save and each deletion is one commit, which is synced to the disk before the
// call returns. The file is whole at every moment: a commit is there or not.
//
// # Size
//
// A text is kept once, compressed, however many origins and versions have it. A
// record that was not saved for Config.Retention is deleted, with its history: an
// origin in use is saved at least once a day, so nobody asks for this one. Free
// space is used again; the file does not shrink.
//
// # Trust
//
// A file that is not a store of ours, that is cut short, that another release with
// another format wrote or that another process has open is left as it is, and Open
// says so.
// Records carry a checksum, and texts are checked against their hash at each read:
// damage is an error. Damage to the file's structure that shows later ends its use
// until the process is started again.
package boltstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/internal/storecodec"
)

// Config holds the settings of a [Store]. Only Path is required; other fields
// that are zero or negative take their defaults.
type Config struct {
	// Path names the file. The file and its folder are made if they are missing, with
	// access for their owner only.
	Path string
	// Versions is the number of versions kept for each origin; default 10.
	Versions int
	// Retention is how long a record is kept after its last save; default 60 days,
	// twice the longest time for which the past of an unreachable origin matters.
	Retention time.Duration
	// LockTimeout is how long Open waits for another process to close the file;
	// default 2 s: a gateway that ends commits its last records in less. One that a
	// service manager restarts has ended before the next one starts.
	LockTimeout time.Duration
}

const (
	defaultVersions    = 10
	defaultRetention   = 60 * 24 * time.Hour
	defaultLockTimeout = 2 * time.Second
)

// Store is a [robotscache.Store] in a bbolt file.
type Store struct {
	path      string
	versions  int
	retention time.Duration
	file      *file
	texts     *storecodec.Texts
	sweeper   *sweeper
	close     func() error // closes the file, once
}

// Open opens the store, and makes it if there is none. Its errors name the path and
// are meant for the operator. It waits for LockTimeout at most.
func Open(cfg Config) (*Store, error) {
	if cfg.Versions <= 0 {
		cfg.Versions = defaultVersions
	}
	if cfg.Retention <= 0 {
		cfg.Retention = defaultRetention
	}
	if cfg.LockTimeout <= 0 {
		cfg.LockTimeout = defaultLockTimeout
	}
	f, err := openFile(cfg.Path, cfg.LockTimeout, false)
	if err != nil {
		return nil, fmt.Errorf("opening the robots.txt store %s: %w", cfg.Path, err)
	}
	s := &Store{path: cfg.Path, versions: cfg.Versions, retention: cfg.Retention, file: f}
	s.texts, err = storecodec.NewTexts()
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	s.close = sync.OnceValue(func() error { return errors.Join(s.texts.Close(), f.close()) })
	s.sweeper = startSweeper(s.sweep)
	return s, nil
}

// fault wraps an error of the medium with the store's path.
func (s *Store) fault(doing string, err error) error {
	return fmt.Errorf("%s in %s: %w", doing, s.path, err)
}

// Load implements [robotscache.Store]. It takes some 10 µs for a file of median
// length, and longer where the disk has to be read.
func (s *Store) Load(ctx context.Context, o origin.Origin) (fetch.Record, error) {
	if err := ctx.Err(); err != nil {
		return fetch.Record{}, err
	}
	var r fetch.Record
	err := s.file.view(func(tx *bolt.Tx) error {
		it, err := loadItem(tx, o)
		if err != nil {
			return err
		}
		r = it.Record
		return s.texts.SetText(&r, func(sha fetch.Sum) ([]byte, error) { return loadText(tx, sha) })
	})
	if err == nil || errors.Is(err, robotscache.ErrNotFound) {
		return r, err
	}
	return fetch.Record{}, s.fault("loading "+o.String(), err)
}

// Save implements [robotscache.Store], in one commit. A commit that fails is an
// ErrUnavailable.
func (s *Store) Save(ctx context.Context, records ...fetch.Record) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	now := time.Now()
	return s.commit("saving", func(tx *bolt.Tx) error {
		for _, r := range records {
			if err := s.put(tx, r, now); err != nil {
				return fmt.Errorf("the record of %s: %w", r.Origin, err)
			}
		}
		return nil
	})
}

// Delete implements [robotscache.Store]. Texts that only o had go with it.
func (s *Store) Delete(ctx context.Context, o origin.Origin) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.commit("deleting "+o.String(), func(tx *bolt.Tx) error { return remove(tx, []byte(o.String())) })
}

func (s *Store) commit(doing string, change func(tx *bolt.Tx) error) error {
	err := s.file.update(change)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, robotscache.ErrInvalid), errors.Is(err, robotscache.ErrUnavailable):
		return s.fault(doing, err)
	default:
		return s.fault(doing, fmt.Errorf("%w: %w", robotscache.ErrUnavailable, err))
	}
}

// List implements [robotscache.Store].
func (s *Store) List(ctx context.Context, after string, limit int) ([]fetch.Record, error) {
	if limit <= 0 || limit > robotscache.MaxList {
		limit = robotscache.MaxList
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var records []fetch.Record
	err := s.file.view(func(tx *bolt.Tx) error {
		c := tx.Bucket(originsBucket).Cursor()
		key, value := c.Seek([]byte(after))
		if string(key) == after {
			key, value = c.Next()
		}
		for ; key != nil && len(records) < limit; key, value = c.Next() {
			it, err := decodeItem(value)
			if err != nil {
				return err
			}
			records = append(records, it.Record)
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, s.fault("listing", err)
	}
	return records, nil
}

// History implements [robotscache.Store].
func (s *Store) History(ctx context.Context, o origin.Origin) ([]robotscache.Version, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var it item
	err := s.file.view(func(tx *bolt.Tx) (err error) {
		it, err = loadItem(tx, o)
		return err
	})
	if err != nil {
		return nil, s.fault("history of "+o.String(), err)
	}
	return it.History, nil
}

// Body implements [robotscache.Store].
func (s *Store) Body(ctx context.Context, sha [32]byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	text, err := s.file.text(s.texts, sha)
	if err != nil {
		return nil, s.fault("reading a text", err)
	}
	return text, nil
}

// Close implements [robotscache.Store].
func (s *Store) Close() error {
	s.sweeper.stop()
	if err := s.close(); err != nil {
		return s.fault("closing", err)
	}
	return nil
}

var _ robotscache.Store = (*Store)(nil)
