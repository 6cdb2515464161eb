package boltstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/internal/textcodec"
)

// Config holds the settings of a [Store]. Only Path is required; other fields
// that are zero or negative take their defaults.
type Config struct {
	// Path names the file. It and its folder are made where they are missing, for
	// the owner only.
	Path string
	// Versions is the number of versions kept for each origin; default 10.
	Versions int
	// Retention is how long a record is kept that is not saved again; default 60
	// days, twice the longest time for which the past of an unreachable origin
	// matters.
	Retention time.Duration
	// LockTimeout is how long Open waits for another process to let go of the
	// file; default 2 s: a gateway that ends commits its last records in less. One
	// that a service manager restarts has ended before the next one starts.
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
	codec     *textcodec.Codec
	writes    *writes
	done      chan struct{} // closed when the writer has ended
}

var errClosed = errors.New("store is closed")

// Open opens the store, and makes it where there is none. Its errors name the
// path and are meant for the operator. It waits for LockTimeout at most, and for
// the migration of an older format.
func Open(cfg Config) (*Store, error) {
	return open(cfg, migrations)
}

func open(cfg Config, steps []migration) (*Store, error) {
	if cfg.Versions <= 0 {
		cfg.Versions = defaultVersions
	}
	if cfg.Retention <= 0 {
		cfg.Retention = defaultRetention
	}
	if cfg.LockTimeout <= 0 {
		cfg.LockTimeout = defaultLockTimeout
	}
	f, err := openFile(cfg.Path, cfg.LockTimeout, steps)
	if err != nil {
		return nil, fmt.Errorf("opening the robots.txt store %s: %w", cfg.Path, err)
	}
	s := &Store{
		path:      cfg.Path,
		versions:  cfg.Versions,
		retention: cfg.Retention,
		file:      f,
		writes:    newWrites(),
		done:      make(chan struct{}),
	}
	s.codec, err = textcodec.New()
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	go s.run()
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
	w, err := s.writes.get(o)
	switch {
	case err != nil:
		return fetch.Record{}, s.fault("loading "+o.String(), err)
	case w != nil && w.deleted:
		return fetch.Record{}, robotscache.ErrNotFound
	case w != nil:
		return w.record, nil
	}
	var r fetch.Record
	err = s.file.view(func(tx *bolt.Tx) error {
		value := tx.Bucket(originsBucket).Get([]byte(o.String()))
		if value == nil {
			return robotscache.ErrNotFound
		}
		it, err := decodeItem(value)
		if err != nil {
			return err
		}
		r, err = it.record()
		if err != nil {
			return err
		}
		return s.setText(tx, &r)
	})
	if err == nil || errors.Is(err, robotscache.ErrNotFound) {
		return r, err
	}
	return fetch.Record{}, s.fault("loading "+o.String(), err)
}

// setText gives r its text.
func (s *Store) setText(tx *bolt.Tx, r *fetch.Record) error {
	sha, ok := r.BodySHA256()
	if !ok {
		return nil
	}
	text, err := s.text(tx, sha)
	if err != nil {
		// Not as an ErrNotFound: the record is there, and it is of no use.
		return fmt.Errorf("%w: %v", robotscache.ErrCorrupt, err) //nolint:errorlint // see above
	}
	if err := r.SetBody(text); err != nil {
		return fmt.Errorf("%w: %w", robotscache.ErrCorrupt, err)
	}
	return nil
}

// Save implements [robotscache.Store]. It queues the record and returns, unless
// the queue is full (10,000 records or 64 MiB): then it waits for a commit. When
// a commit has failed, because the disk is full say, Save takes nothing until one
// has worked.
func (s *Store) Save(ctx context.Context, r fetch.Record) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w, err := newSave(r, time.Now())
	if err != nil {
		return s.fault("saving", err)
	}
	if err := s.writes.put(ctx, w); err != nil {
		return s.fault("saving "+r.Origin.String(), err)
	}
	return nil
}

// Delete implements [robotscache.Store]. It queues, as Save does. Texts that only
// o had are gone with the commit.
func (s *Store) Delete(ctx context.Context, o origin.Origin) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.writes.put(ctx, &write{origin: o, deleted: true}); err != nil {
		return s.fault("deleting "+o.String(), err)
	}
	return nil
}

// List implements [robotscache.Store]. It flushes first.
func (s *Store) List(ctx context.Context, after string, limit int) ([]fetch.Record, error) {
	if limit <= 0 || limit > robotscache.MaxList {
		limit = robotscache.MaxList
	}
	if err := s.Flush(ctx); err != nil {
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
			r, err := it.record()
			if err != nil {
				return err
			}
			records = append(records, r)
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, s.fault("listing", err)
	}
	return records, nil
}

// History implements [robotscache.Store]. It flushes first.
func (s *Store) History(ctx context.Context, o origin.Origin) ([]robotscache.Version, error) {
	if err := s.Flush(ctx); err != nil {
		return nil, err
	}
	var history []robotscache.Version
	err := s.file.view(func(tx *bolt.Tx) error {
		value := tx.Bucket(originsBucket).Get([]byte(o.String()))
		if value == nil {
			return robotscache.ErrNotFound
		}
		it, err := decodeItem(value)
		if err != nil {
			return err
		}
		history, err = it.versions()
		return err
	})
	if err != nil {
		return nil, s.fault("history of "+o.String(), err)
	}
	return history, nil
}

// Body implements [robotscache.Store]. It flushes first.
func (s *Store) Body(ctx context.Context, sha [32]byte) ([]byte, error) {
	if err := s.Flush(ctx); err != nil {
		return nil, err
	}
	var text []byte
	err := s.file.view(func(tx *bolt.Tx) error {
		var err error
		text, err = s.text(tx, sha)
		return err
	})
	if err != nil {
		return nil, s.fault("reading a text", err)
	}
	return text, nil
}

// Flush implements [robotscache.Store]: it commits at once.
func (s *Store) Flush(ctx context.Context) error {
	if err := s.writes.flush(ctx); err != nil {
		return s.fault("committing", err)
	}
	return nil
}

// Close implements [robotscache.Store]. The error says that the last records
// could not be committed.
func (s *Store) Close() error {
	if !s.writes.close() {
		<-s.done
		return nil
	}
	<-s.done
	if err := errors.Join(s.writes.lost(), s.codec.Close(), s.file.close()); err != nil {
		return s.fault("closing", err)
	}
	return nil
}

var _ robotscache.Store = (*Store)(nil)
