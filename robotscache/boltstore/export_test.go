package boltstore

import (
	"context"
	"errors"

	bolt "go.etcd.io/bbolt"
)

// Migration is a step between two formats.
type Migration = func(tx *bolt.Tx) error

// OpenWith opens a store as a release with other migrations would.
func OpenWith(cfg Config, steps ...Migration) (*Store, error) {
	all := make([]migration, len(steps))
	for i, step := range steps {
		all[i] = step
	}
	return open(cfg, all)
}

// SetMaxFile makes the disk full when the file has the given size; 0: no limit.
func (s *Store) SetMaxFile(size int) {
	_ = s.file.update(func(tx *bolt.Tx) error { // for the lock
		tx.DB().MaxSize = size
		return errNothing
	})
}

var errNothing = errors.New("nothing to commit")

// Counts returns the number of origins and of texts in the file.
func (s *Store) Counts(ctx context.Context) (origins, texts int, err error) {
	if err := s.Flush(ctx); err != nil {
		return 0, 0, err
	}
	err = s.file.view(func(tx *bolt.Tx) error {
		origins = tx.Bucket(originsBucket).Stats().KeyN
		texts = tx.Bucket(textsBucket).Stats().KeyN
		return nil
	})
	return origins, texts, err
}

// Queued returns the number of writes that are not committed.
func (s *Store) Queued() int {
	s.writes.mu.Lock()
	defer s.writes.mu.Unlock()
	return len(s.writes.queue)
}
