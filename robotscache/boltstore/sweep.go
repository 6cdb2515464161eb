package boltstore

import (
	"bytes"
	"time"

	bolt "go.etcd.io/bbolt"
)

const (
	// firstSweep is when the first pass over the file begins, sweepEvery when the
	// next does after one has ended.
	firstSweep = time.Minute
	sweepEvery = 24 * time.Hour
	// sweepBatch is how many records a step of a pass looks at, sweepPause the time
	// between two: a million records take a quarter of an hour, and a step a
	// millisecond or two if there is nothing to delete.
	sweepBatch = 1000
	sweepPause = time.Second
)

// sweep is a pass over the file that deletes what is past its retention. Only the
// writer uses it.
type sweep struct {
	timer *time.Timer
	next  []byte // key at which the next step begins; nil: at the first
}

func newSweep() *sweep { return &sweep{timer: time.NewTimer(firstSweep)} }

func (w *sweep) due() <-chan time.Time { return w.timer.C }

func (w *sweep) stop() { w.timer.Stop() }

// sweepStep deletes what is past its retention among the next records. A failure
// leaves the step to be done again at the next pass.
func (s *Store) sweepStep(w *sweep) {
	limit := time.Now().Add(-s.retention)
	old, next, err := s.outdated(w.next, limit)
	if err == nil && len(old) > 0 {
		err = s.file.update(func(tx *bolt.Tx) error { return deleteAll(tx, old) })
	}
	w.next = next
	if err != nil {
		w.next = nil
	}
	if w.next == nil {
		w.timer.Reset(sweepEvery)
		return
	}
	w.timer.Reset(sweepPause)
}

// outdated returns the keys, among sweepBatch from the given one on, whose items
// were saved before limit, and the key that comes after them, nil at the end.
func (s *Store) outdated(from []byte, limit time.Time) (old [][]byte, next []byte, err error) {
	err = s.file.view(func(tx *bolt.Tx) error {
		c := tx.Bucket(originsBucket).Cursor()
		key, value := c.Seek(from)
		for n := 0; key != nil && n < sweepBatch; n++ {
			if len(value) >= savedSize && savedAt(value).Before(limit) {
				old = append(old, bytes.Clone(key))
			}
			key, value = c.Next()
		}
		next = bytes.Clone(key)
		return nil
	})
	return old, next, err
}

func deleteAll(tx *bolt.Tx, keys [][]byte) error {
	origins, texts := tx.Bucket(originsBucket), tx.Bucket(textsBucket)
	for _, key := range keys {
		_, had := former(origins.Get(key))
		if err := origins.Delete(key); err != nil {
			return err
		}
		if err := releaseAll(texts, had, nil); err != nil {
			return err
		}
	}
	return nil
}
