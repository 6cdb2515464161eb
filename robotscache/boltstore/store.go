package boltstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/internal/storecodec"
)

// Config holds the settings of a [Store]. Only Path is required; other fields that are zero take
// their defaults.
type Config struct {
	// Path names the file. The file and its folder are made if they are missing, with access for
	// their owner only.
	Path string
	// Versions is the number of versions kept for each origin; default robotscache.MaxVersions.
	// Texts do not depend on it.
	Versions int
	// Retention says how long texts are kept. [Store.SetRetention] changes it.
	Retention robotscache.Retention
	// Dropped is called with the number of texts that a commit has deleted. Early says that they
	// were deleted for lack of room, and not because their time was over. It must not block; it may
	// be nil.
	Dropped func(texts int, early bool)
	// LockTimeout is how long Open waits for another process to close the file. Default: 2 s, which is
	// more than a stopping gateway needs to commit its last records. A service manager starts the next
	// gateway only after the previous one has ended.
	LockTimeout time.Duration
	// ReadOnly opens an existing file that no gateway has open, and does not change it. Several
	// processes may read it at once. Save and Delete fail.
	ReadOnly bool
}

// Store is a [robotscache.Store] in a bbolt file.
type Store struct {
	cfg       Config
	retention atomic.Pointer[robotscache.Retention]
	file      *file
	texts     *storecodec.TextCodec
	stop      context.CancelFunc // ends the sweeper
	sweeping  sync.WaitGroup
}

// Open opens the store, and creates a missing one. Its errors name the path and address the
// operator; [ErrLocked] is found in them. It waits at most for LockTimeout.
func Open(cfg Config) (*Store, error) {
	cfg.Versions = cmp.Or(cfg.Versions, robotscache.MaxVersions)
	cfg.LockTimeout = cmp.Or(cfg.LockTimeout, 2*time.Second)
	f, err := openFile(cfg.Path, cfg.LockTimeout, cfg.ReadOnly)
	if err != nil {
		return nil, fmt.Errorf("opening the robots.txt store %s: %w", cfg.Path, err)
	}
	s := &Store{cfg: cfg, file: f, texts: storecodec.NewTexts()}
	s.SetRetention(cfg.Retention)
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	if !cfg.ReadOnly {
		s.sweeping.Go(func() { s.runSweeper(ctx) })
	}
	return s, nil
}

// SetRetention changes how long texts are kept, from the next commit on.
func (s *Store) SetRetention(r robotscache.Retention) {
	r = r.Filled()
	s.retention.Store(&r)
}

// view runs a function that reads the file. An error is wrapped with the operation and the path of
// the store.
func (s *Store) view(ctx context.Context, doing string, read func(tx *bolt.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.file.view(read); err != nil {
		return fmt.Errorf("%s in %s: %w", doing, s.cfg.Path, err)
	}
	return nil
}

// commit runs a function that changes the file, in one commit. An error is wrapped as by view; one
// of the medium is an ErrUnavailable.
func (s *Store) commit(ctx context.Context, doing string, change func(tx *bolt.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := s.update(change)
	if err == nil {
		return nil
	}
	if !errors.Is(err, robotscache.ErrInvalid) && !errors.Is(err, robotscache.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", robotscache.ErrUnavailable, err)
	}
	return fmt.Errorf("%s in %s: %w", doing, s.cfg.Path, err)
}

// update runs a function that changes the file and drops texts, in one commit. The function returns
// errNothing if it has changed nothing.
func (s *Store) update(change func(tx *bolt.Tx) error) (d dropped, err error) {
	err = s.file.update(func(tx *bolt.Tx) error {
		changed := change(tx)
		if changed != nil && !errors.Is(changed, errNothing) {
			return changed
		}
		var err error
		if d, err = s.drop(tx, time.Now()); err != nil || d != (dropped{}) {
			return err
		}
		return changed
	})
	if errors.Is(err, errNothing) {
		return dropped{}, nil
	}
	if err != nil {
		return dropped{}, err
	}
	if s.cfg.Dropped != nil && d != (dropped{}) {
		s.cfg.Dropped(d.over, false)
		s.cfg.Dropped(d.early, true)
	}
	return d, nil
}

// Load implements [robotscache.Store]. It takes about 10 µs for a file of median length, and longer
// if it has to read the disk.
func (s *Store) Load(ctx context.Context, k fetch.Key) (r fetch.Record, err error) {
	err = s.view(ctx, "loading "+k.String(), func(tx *bolt.Tx) error {
		it, err := loadItem(tx, k)
		if err != nil {
			return err
		}
		r = it.Record
		return s.texts.SetText(&r, func(sha fetch.Sum) ([]byte, error) { return loadText(tx, sha) })
	})
	if err != nil {
		return fetch.Record{}, err
	}
	return r, nil
}

// Save implements [robotscache.Store], in one commit. A commit that fails is an ErrUnavailable.
func (s *Store) Save(ctx context.Context, records ...fetch.Record) error {
	now := time.Now()
	return s.commit(ctx, "saving", func(tx *bolt.Tx) error {
		for _, r := range records {
			if err := s.put(tx, r, now); err != nil {
				return fmt.Errorf("the record of %s: %w", r.Key(), err)
			}
		}
		return nil
	})
}

// Delete implements [robotscache.Store].
func (s *Store) Delete(ctx context.Context, k fetch.Key) error {
	name := k.String()
	return s.commit(ctx, "deleting "+name, func(tx *bolt.Tx) error { return tx.Bucket(originsBucket).Delete([]byte(name)) })
}

// List implements [robotscache.Store].
func (s *Store) List(ctx context.Context, after string, limit int) (records []fetch.Record, err error) {
	if limit <= 0 || limit > robotscache.MaxList {
		limit = robotscache.MaxList
	}
	err = s.view(ctx, "listing", func(tx *bolt.Tx) error {
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
		return nil, err
	}
	return records, nil
}

// History implements [robotscache.Store].
func (s *Store) History(ctx context.Context, k fetch.Key) ([]robotscache.Version, error) {
	var it item
	err := s.view(ctx, "history of "+k.String(), func(tx *bolt.Tx) (err error) {
		it, err = loadItem(tx, k)
		s.setKeptUntil(tx, it.History)
		return err
	})
	return it.History, err
}

// Body implements [robotscache.Store].
func (s *Store) Body(ctx context.Context, sha [32]byte) (text []byte, err error) {
	err = s.view(ctx, "reading a text", func(tx *bolt.Tx) error {
		data, err := loadText(tx, sha)
		if err == nil {
			text, err = s.texts.Decode(data, sha)
		}
		return err
	})
	return text, err
}

// Close implements [robotscache.Store].
func (s *Store) Close() error {
	s.stop()
	s.sweeping.Wait()
	if err := s.file.close(); err != nil {
		return fmt.Errorf("closing %s: %w", s.cfg.Path, err)
	}
	return nil
}

const (
	// firstSweep is when the first pass over the file begins. sweepEvery is the time from the end of a
	// pass to the next.
	firstSweep = time.Minute
	sweepEvery = 24 * time.Hour
	// sweepBatch is how many records one step of a pass checks. sweepPause is the time between two
	// steps. A million records take a quarter of an hour, and a step takes a millisecond or two if
	// there is nothing to delete.
	sweepBatch = 1000
	sweepPause = time.Second
)

// runSweeper passes over the file from time to time and deletes records past their retention, until
// ctx ends.
func (s *Store) runSweeper(ctx context.Context) {
	var next []byte // the key at which the next step begins; nil: at the first
	for pause := firstSweep; ; {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = sweepPause
		if next = s.sweep(next); next == nil {
			pause = sweepEvery
		}
	}
}

// sweep deletes the records past their retention among sweepBatch of them from the given key on,
// and drops texts. A failure ends the pass: the next one starts from the first key.
func (s *Store) sweep(from []byte) (next []byte) {
	limit := time.Now().Add(-s.retention.Load().Records())
	gone, err := s.update(func(tx *bolt.Tx) error {
		origins := tx.Bucket(originsBucket)
		c := origins.Cursor()
		var old [][]byte
		key, value := c.Seek(from)
		for n := 0; key != nil && n < sweepBatch; n++ {
			if savedBefore(value, limit) {
				old = append(old, bytes.Clone(key))
			}
			key, value = c.Next()
		}
		next = bytes.Clone(key)
		for _, key := range old {
			if err := origins.Delete(key); err != nil {
				return err
			}
		}
		if len(old) == 0 {
			return errNothing
		}
		return nil
	})
	switch {
	case err != nil:
		return nil
	case next == nil && gone.over+gone.early == sweepBatch:
		return []byte{0} // there may be more texts to drop
	}
	return next
}

// errNothing ends a transaction that has nothing to commit.
var errNothing = errors.New("nothing to commit")

var _ robotscache.Store = (*Store)(nil)
