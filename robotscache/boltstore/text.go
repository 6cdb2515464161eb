package boltstore

import (
	"encoding/binary"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/internal/textcodec"
)

// textValue is the value of a text, whose key is its SHA-256: the number of
// origins that refer to it, as a uvarint, and the form of package textcodec.
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

func (v textValue) encode() []byte {
	value := make([]byte, 0, binary.MaxVarintLen64+len(v.data))
	value = binary.AppendUvarint(value, v.refs)
	return append(value, v.data...)
}

// text reads a text. Its hash is for the caller to check.
func (s *Store) text(tx *bolt.Tx, sha [32]byte) ([]byte, error) { return readText(tx, s.codec, sha) }

func readText(tx *bolt.Tx, codec *textcodec.Codec, sha [32]byte) ([]byte, error) {
	value := tx.Bucket(textsBucket).Get(sha[:])
	if value == nil {
		return nil, fmt.Errorf("text %x: %w", sha, robotscache.ErrNotFound)
	}
	v, err := decodeTextValue(value)
	if err != nil {
		return nil, err
	}
	text, err := codec.Decode(v.data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", robotscache.ErrCorrupt, err)
	}
	return text, nil
}

// hold counts one more origin that refers to a text. The text is given in case it
// is new, or cannot be read any more: a commit must not fail for damage that it
// can mend.
func (s *Store) hold(texts *bolt.Bucket, sha [32]byte, text []byte) error {
	v, err := decodeTextValue(texts.Get(sha[:]))
	if err != nil {
		v = textValue{data: s.codec.Encode(text)}
	}
	v.refs++
	return texts.Put(sha[:], v.encode())
}

// release counts one origin less, and deletes the text with the last.
func release(texts *bolt.Bucket, sha [32]byte) error {
	v, err := decodeTextValue(texts.Get(sha[:]))
	if err != nil || v.refs <= 1 {
		return texts.Delete(sha[:])
	}
	v.refs--
	return texts.Put(sha[:], v.encode())
}
