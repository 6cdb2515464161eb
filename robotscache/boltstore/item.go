package boltstore

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
)

// item is the value of an origin in the file:
//
//	int64   when it was saved, Unix seconds, big-endian
//	uvarint length of the history
//	        the history, newest version first
//	        the record
//
// Its slices may be those of the file's memory map, and are then not to be used
// after the transaction.
type item struct {
	saved   time.Time
	history []byte
	rest    []byte
}

const savedSize = 8

func decodeItem(value []byte) (item, error) {
	if len(value) < savedSize {
		return item{}, errItem
	}
	n, size := binary.Uvarint(value[savedSize:])
	if size <= 0 || n > uint64(len(value)-savedSize-size) {
		return item{}, errItem
	}
	rest := value[savedSize+size:]
	return item{saved: savedAt(value), history: rest[:n], rest: rest[n:]}, nil
}

// savedAt is the first part of decodeItem, for whoever wants no more.
func savedAt(value []byte) time.Time {
	return time.Unix(int64(binary.BigEndian.Uint64(value)), 0)
}

var errItem = fmt.Errorf("%w: malformed item", robotscache.ErrCorrupt)

func (it item) record() (fetch.Record, error) {
	var r fetch.Record
	if err := r.UnmarshalBinary(it.rest); err != nil {
		return r, fmt.Errorf("%w: %w", robotscache.ErrCorrupt, err)
	}
	return r, nil
}

func (it item) versions() ([]robotscache.Version, error) {
	history, err := robotscache.DecodeVersions(it.history)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", robotscache.ErrCorrupt, err)
	}
	return history, nil
}

// encodeItem makes the value of an origin.
func encodeItem(saved time.Time, history []robotscache.Version, r fetch.Record) ([]byte, error) {
	record, err := r.MarshalBinary()
	if err != nil {
		return nil, err
	}
	var versions []byte
	for _, v := range history {
		var err error
		if versions, err = v.AppendBinary(versions); err != nil {
			return nil, err
		}
	}
	value := make([]byte, 0, savedSize+binary.MaxVarintLen32+len(versions)+len(record))
	value = binary.BigEndian.AppendUint64(value, uint64(saved.Unix()))
	value = binary.AppendUvarint(value, uint64(len(versions)))
	value = append(value, versions...)
	return append(value, record...), nil
}

// put saves a record, and counts the texts that its origin refers to.
func (s *Store) put(tx *bolt.Tx, r fetch.Record, now time.Time) error {
	text, ok := r.Text()
	if ok && sha256.Sum256(text.Body) != text.SHA256 {
		return fmt.Errorf("%w: its text is not the one of its hash", robotscache.ErrInvalid)
	}
	origins, texts := tx.Bucket(originsBucket), tx.Bucket(textsBucket)
	key := []byte(r.Origin.String())
	history, had := former(origins.Get(key))
	history = robotscache.AddVersion(history, robotscache.VersionOf(r), s.versions)
	value, err := encodeItem(now, history, r)
	if err != nil {
		return fmt.Errorf("%w: %w", robotscache.ErrInvalid, err)
	}
	if err := origins.Put(key, value); err != nil {
		return err
	}
	has := robotscache.Texts(r, history)
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

// remove deletes an origin, and the texts that only it referred to.
func remove(tx *bolt.Tx, key []byte) error {
	origins, texts := tx.Bucket(originsBucket), tx.Bucket(textsBucket)
	_, had := former(origins.Get(key))
	if err := origins.Delete(key); err != nil {
		return err
	}
	return releaseAll(texts, had, nil)
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
