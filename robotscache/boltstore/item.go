package boltstore

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/internal/storecodec"
)

// item is the value of an origin in the file, in the form of package storecodec. Its head is the
// time at which it was saved: Unix seconds, int64, big-endian.
type item struct {
	Record  fetch.Record          `json:"record"`
	History []robotscache.Version `json:"history"` // newest first
}

const itemHead = 8

func (it item) encode(saved time.Time) ([]byte, error) {
	return storecodec.Encode(binary.BigEndian.AppendUint64(nil, uint64(saved.Unix())), it)
}

func decodeItem(value []byte) (it item, err error) {
	err = storecodec.Decode(value, itemHead, &it)
	return it, err
}

// Check implements storecodec.Checked.
func (it item) Check() error { return it.Record.Check() }

// savedBefore reports whether the value of an origin was saved before t.
func savedBefore(value []byte, t time.Time) bool {
	return len(value) >= itemHead && int64(binary.BigEndian.Uint64(value)) < t.Unix()
}

// loadItem returns what the file has of an origin.
func loadItem(tx *bolt.Tx, o origin.Origin) (item, error) {
	value := tx.Bucket(originsBucket).Get([]byte(o.String()))
	if value == nil {
		return item{}, robotscache.ErrNotFound
	}
	return decodeItem(value)
}

// put saves a record, and counts the texts that its origin refers to.
func (s *Store) put(tx *bolt.Tx, r fetch.Record, now time.Time) error {
	text, _, err := storecodec.TextOf(r)
	if err != nil {
		return err
	}
	key := []byte(r.Origin.String())
	history, had := former(tx, key)
	history = robotscache.AddVersion(history, robotscache.VersionOf(r), s.cfg.Versions)
	value, err := item{r, history}.encode(now)
	if err != nil {
		return err
	}
	if err := tx.Bucket(originsBucket).Put(key, value); err != nil {
		return err
	}
	has := robotscache.Texts(r, history)
	for _, sha := range has {
		// Only the record's own text can be new: the others are of the history.
		if sha != text.SHA256 || slices.Contains(had, sha) {
			continue
		}
		if err := s.refer(tx, sha, 1, text.Body); err != nil {
			return err
		}
	}
	return s.dropReferences(tx, had, has)
}

// remove deletes an origin, and the texts that only it referred to.
func (s *Store) remove(tx *bolt.Tx, key []byte) error {
	_, had := former(tx, key)
	if err := tx.Bucket(originsBucket).Delete(key); err != nil {
		return err
	}
	return s.dropReferences(tx, had, nil)
}

// former returns the history of an origin, and the texts that it refers to. A damaged item counts
// as none: it is replaced, and its texts stay in the file.
func former(tx *bolt.Tx, key []byte) ([]robotscache.Version, []fetch.Sum) {
	it, err := decodeItem(tx.Bucket(originsBucket).Get(key))
	if err != nil {
		return nil, nil
	}
	return it.History, robotscache.Texts(it.Record, it.History)
}

// textValue is the value of a text, whose key is its SHA-256: the number of origins that refer to
// it, as a uvarint, and the compressed text.
type textValue struct {
	refs int
	data []byte
}

func decodeTextValue(value []byte) (textValue, error) {
	refs, n := binary.Uvarint(value)
	if n <= 0 || len(value) == n {
		return textValue{}, fmt.Errorf("%w: malformed text", robotscache.ErrCorrupt)
	}
	return textValue{refs: int(refs), data: value[n:]}, nil
}

func (v textValue) encode() []byte {
	return append(binary.AppendUvarint(nil, uint64(v.refs)), v.data...)
}

// loadText returns a text, compressed.
func loadText(tx *bolt.Tx, sha fetch.Sum) ([]byte, error) {
	value := tx.Bucket(textsBucket).Get(sha[:])
	if value == nil {
		return nil, fmt.Errorf("text %x: %w", sha, robotscache.ErrNotFound)
	}
	v, err := decodeTextValue(value)
	return v.data, err
}

// refer adds n to the number of origins that refer to a text. The text itself is written if it is
// new, or if its value is damaged, and deleted with its last reference.
func (s *Store) refer(tx *bolt.Tx, sha fetch.Sum, n int, text []byte) error {
	texts := tx.Bucket(textsBucket)
	v, err := decodeTextValue(texts.Get(sha[:]))
	if err != nil {
		v = textValue{data: s.texts.Encode(text)}
	}
	if v.refs += n; v.refs <= 0 {
		return texts.Delete(sha[:])
	}
	return texts.Put(sha[:], v.encode())
}

// dropReferences counts one origin less for each text that an origin referred to before and does
// not now.
func (s *Store) dropReferences(tx *bolt.Tx, had, has []fetch.Sum) error {
	for _, sha := range had {
		if slices.Contains(has, sha) {
			continue
		}
		if err := s.refer(tx, sha, -1, nil); err != nil {
			return err
		}
	}
	return nil
}
