package boltstore

import (
	bolt "go.etcd.io/bbolt"
)

// SetMaxFile makes the disk full when the file reaches the given size; 0 means no limit.
func (s *Store) SetMaxFile(size int) {
	_ = s.file.update(func(tx *bolt.Tx) error { // for the lock
		tx.DB().MaxSize = size
		return errNothing
	})
}

// Counts returns the number of origins and of texts in the file.
func (s *Store) Counts() (origins, texts int, err error) {
	err = s.file.view(func(tx *bolt.Tx) error {
		origins = tx.Bucket(originsBucket).Stats().KeyN
		texts = tx.Bucket(textsBucket).Stats().KeyN
		return nil
	})
	return origins, texts, err
}

// Sweep removes expired records.
func (s *Store) Sweep() {
	for next := s.sweep(nil); next != nil; {
		next = s.sweep(next)
	}
}
