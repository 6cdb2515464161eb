package boltstore

import (
	"bytes"
	"errors"
	"sync"
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

// sweeper passes over the file from time to time and deletes records past their
// retention.
type sweeper struct {
	mu    sync.Mutex // held during a step
	timer *time.Timer
	next  []byte // key at which the next step begins; nil: at the first
	over  bool
}

// startSweeper has step called for each step of each pass. It gets the key at which
// to begin, and returns the one at which to go on, nil at the end of the pass.
func startSweeper(step func(from []byte) (next []byte)) *sweeper {
	w := new(sweeper)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(firstSweep, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.over {
			return
		}
		pause := sweepPause
		if w.next = step(w.next); w.next == nil {
			pause = sweepEvery
		}
		w.timer.Reset(pause)
	})
	return w
}

// stop waits for a step under way and ends the pass.
func (w *sweeper) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
}

// sweep deletes the records past their retention among sweepBatch of them from the
// given key on. A failure ends the pass: the next one starts from the first key.
func (s *Store) sweep(from []byte) (next []byte) {
	limit := time.Now().Add(-s.retention)
	err := s.file.update(func(tx *bolt.Tx) error {
		var old [][]byte
		c := tx.Bucket(originsBucket).Cursor()
		key, value := c.Seek(from)
		for n := 0; key != nil && n < sweepBatch; n++ {
			if savedBefore(value, limit) {
				old = append(old, bytes.Clone(key))
			}
			key, value = c.Next()
		}
		next = bytes.Clone(key)
		for _, key := range old {
			if err := remove(tx, key); err != nil {
				return err
			}
		}
		if len(old) == 0 {
			return errNothing
		}
		return nil
	})
	if err != nil && !errors.Is(err, errNothing) {
		return nil
	}
	return next
}

// errNothing ends a transaction that has nothing to commit.
var errNothing = errors.New("nothing to commit")
