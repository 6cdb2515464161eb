package boltstore

import (
	"encoding/binary"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/internal/storecodec"
)

// textValue is the value of a text, whose key is its SHA-256: the number of origins
// that refer to it, as a uvarint, and the compressed text.
type textValue struct {
	refs uint64
	data []byte
}

func decodeTextValue(value []byte) (textValue, error) {
	refs, n := binary.Uvarint(value)
	if n <= 0 || len(value) == n {
		return textValue{}, fmt.Errorf("%w: malformed text", robotscache.ErrCorrupt)
	}
	return textValue{refs: refs, data: value[n:]}, nil
}

func (v textValue) encode() []byte { return append(binary.AppendUvarint(nil, v.refs), v.data...) }

// loadText returns a text, compressed.
func loadText(tx *bolt.Tx, sha fetch.Sum) ([]byte, error) {
	value := tx.Bucket(textsBucket).Get(sha[:])
	if value == nil {
		return nil, fmt.Errorf("text %x: %w", sha, robotscache.ErrNotFound)
	}
	v, err := decodeTextValue(value)
	return v.data, err
}

// text reads a text. Its hash is for the caller to check.
func (f *file) text(texts *storecodec.Texts, sha fetch.Sum) (text []byte, err error) {
	err = f.view(func(tx *bolt.Tx) error {
		data, err := loadText(tx, sha)
		if err == nil {
			text, err = texts.Decode(data)
		}
		return err
	})
	return text, err
}

// addReference counts one more origin that refers to a text. The text itself is
// written if it is new, or if its value is damaged.
func (s *Store) addReference(tx *bolt.Tx, sha fetch.Sum, text []byte) error {
	texts := tx.Bucket(textsBucket)
	v, err := decodeTextValue(texts.Get(sha[:]))
	if err != nil {
		v = textValue{data: s.texts.Encode(text)}
	}
	v.refs++
	return texts.Put(sha[:], v.encode())
}

// dropReferences counts one origin less for each text that an origin referred to
// before and does not now, and deletes texts without references.
func dropReferences(tx *bolt.Tx, had, has []fetch.Sum) error {
	texts := tx.Bucket(textsBucket)
	for _, sha := range had {
		if slices.Contains(has, sha) {
			continue
		}
		v, err := decodeTextValue(texts.Get(sha[:]))
		if err != nil || v.refs <= 1 {
			err = texts.Delete(sha[:])
		} else {
			v.refs--
			err = texts.Put(sha[:], v.encode())
		}
		if err != nil {
			return err
		}
	}
	return nil
}
