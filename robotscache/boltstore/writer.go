package boltstore

import (
	"errors"
	"fmt"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/crawlgate/crawlgate/robotscache"
)

// run is the store's only writer. It ends when the store is closed and the queue
// is empty, or cannot be emptied.
func (s *Store) run() {
	defer close(s.done)
	sweep := newSweep()
	defer sweep.stop()
	for {
		select {
		case <-s.writes.wake:
			s.linger()
			s.commit()
		case <-sweep.due():
			s.sweepStep(sweep)
		}
		if s.writes.isClosed() {
			s.commit()
			return
		}
	}
}

// linger gives others the time to join a commit.
func (s *Store) linger() {
	timer := time.NewTimer(commitEvery)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.writes.urgent:
	}
}

// commit writes what is queued. What is queued meanwhile waits for others in its
// turn, or a slow disk would have a commit for every few records; unless there
// are many, or the store is about to close. It gives up when a commit fails, and
// sees to it that the next attempt comes after a pause.
func (s *Store) commit() {
	for {
		batch := s.writes.batch()
		if len(batch) == 0 {
			return
		}
		if err := s.file.update(func(tx *bolt.Tx) error { return s.apply(tx, batch) }); err != nil {
			s.writes.failed(err)
			if !s.writes.isClosed() {
				time.AfterFunc(retryCommit, func() { signal(s.writes.wake) })
			}
			return
		}
		s.writes.committed(batch)
		if len(batch) < commitAt && !s.writes.isClosed() {
			return
		}
	}
}

// apply makes the changes of a batch, in their order.
func (s *Store) apply(tx *bolt.Tx, batch []*write) error {
	for _, w := range batch {
		if err := s.applyOne(tx, w); err != nil {
			return fmt.Errorf("writing %s: %w", w.origin, err)
		}
	}
	return nil
}

func (s *Store) applyOne(tx *bolt.Tx, w *write) error {
	origins, texts := tx.Bucket(originsBucket), tx.Bucket(textsBucket)
	key := []byte(w.origin.String())
	history, had := former(origins.Get(key))
	if w.deleted {
		if err := origins.Delete(key); err != nil {
			return err
		}
		return releaseAll(texts, had, nil)
	}
	history = robotscache.AddVersion(history, robotscache.VersionOf(w.record), s.versions)
	value, err := encodeItem(w.saved, history, w.encoded)
	if err != nil {
		return err
	}
	if err := origins.Put(key, value); err != nil {
		return err
	}
	has := robotscache.Texts(w.record, history)
	text, _ := w.record.Text()
	for _, sha := range has {
		// Only the record's own text can be new: the others are of the history.
		if sha != text.SHA256 || slices.Contains(had, sha) {
			continue
		}
		if err := s.hold(texts, sha, text.Body); err != nil {
			return err
		}
	}
	return releaseAll(texts, had, has)
}

// former returns the history of an origin's value, and the texts that it refers
// to. What cannot be read any more is replaced; its texts then stay in the file.
func former(value []byte) ([]robotscache.Version, [][32]byte) {
	if value == nil {
		return nil, nil
	}
	it, err := decodeItem(value)
	if err != nil {
		return nil, nil
	}
	r, err1 := it.record()
	history, err2 := it.versions()
	if errors.Join(err1, err2) != nil {
		return nil, nil
	}
	return history, robotscache.Texts(r, history)
}

// releaseAll releases the texts that an origin had and has no more.
func releaseAll(texts *bolt.Bucket, had, has [][32]byte) error {
	for _, sha := range had {
		if slices.Contains(has, sha) {
			continue
		}
		if err := release(texts, sha); err != nil {
			return err
		}
	}
	return nil
}
