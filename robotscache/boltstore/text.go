package boltstore

import (
	"encoding/binary"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
)

// textValue is the value of a text, whose key is its SHA-256: a zero byte, the time of its last use
// (Unix nanoseconds, int64, big-endian) and the compressed text.
//
// A text has its place in usesBucket, under that time and its SHA-256, with the number
// of compressed bytes as a uvarint. Their sum is under textBytesKey in metaBucket.
type textValue struct {
	used int64
	data []byte
}

const (
	textHead = 1 + 8
	// useEvery is the least time between two recorded uses of a text, so a text costs one write per
	// day.
	useEvery = 24 * time.Hour
)

var textBytesKey = []byte("octets")

func decodeTextValue(value []byte) (textValue, error) {
	if len(value) <= textHead || value[0] != 0 {
		return textValue{}, fmt.Errorf("%w: malformed text", robotscache.ErrCorrupt)
	}
	return textValue{int64(binary.BigEndian.Uint64(value[1:])), value[textHead:]}, nil
}

func (v textValue) encode() []byte {
	return append(binary.BigEndian.AppendUint64([]byte{0}, uint64(v.used)), v.data...)
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

func useKey(used int64, sha fetch.Sum) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(used)), sha[:]...)
}

// use records that a text was used at a time. encode returns the text, and is called if the text is
// new or its value is damaged.
func use(tx *bolt.Tx, sha fetch.Sum, at time.Time, encode func() []byte) error {
	texts, uses := tx.Bucket(textsBucket), tx.Bucket(usesBucket)
	v, err := decodeTextValue(texts.Get(sha[:]))
	used, placed := v.used, v.used != 0
	switch {
	case placed && at.UnixNano() < used+int64(useEvery):
		return nil
	case err != nil:
		v.data = encode()
	}
	if placed {
		err = uses.Delete(useKey(used, sha))
	} else {
		err = setTextBytes(tx, textBytes(tx)+int64(len(v.data)))
	}
	if err != nil {
		return err
	}
	v.used = at.UnixNano()
	if err := uses.Put(useKey(v.used, sha), binary.AppendUvarint(nil, uint64(len(v.data)))); err != nil {
		return err
	}
	return texts.Put(sha[:], v.encode())
}

// textBytes returns the total size of the texts in usesBucket.
func textBytes(tx *bolt.Tx) int64 {
	value := tx.Bucket(metaBucket).Get(textBytesKey)
	if len(value) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(value))
}

func setTextBytes(tx *bolt.Tx, n int64) error {
	return tx.Bucket(metaBucket).Put(textBytesKey, binary.BigEndian.AppendUint64(nil, uint64(max(n, 0))))
}

// setKeptUntil sets until when the texts of a history are kept.
func (s *Store) setKeptUntil(tx *bolt.Tx, history []robotscache.Version) {
	for i, v := range history {
		text, err := decodeTextValue(tx.Bucket(textsBucket).Get(v.SHA256[:]))
		if err != nil {
			continue // not there
		}
		history[i].KeptUntil = time.Unix(0, text.used).UTC().Add(s.textTime())
	}
}

// dropped counts deleted texts. over counts expired ones, and early those deleted for lack of room.
type dropped struct{ over, early int }

// textTime is how long a text is kept after its last recorded use.
func (s *Store) textTime() time.Duration { return s.retention.Load().Texts() + useEvery }

// drop deletes expired texts and, while the texts exceed the size limit, the least recently used
// ones. It deletes at most sweepBatch texts.
func (s *Store) drop(tx *bolt.Tx, now time.Time) (d dropped, err error) {
	limit, most := now.Add(-s.textTime()).UnixNano(), s.retention.Load().Max
	texts, c, before := tx.Bucket(textsBucket), tx.Bucket(usesBucket).Cursor(), textBytes(tx)
	left := before
	for range sweepBatch {
		key, size := c.First()
		if key == nil {
			break
		}
		used := int64(binary.BigEndian.Uint64(key))
		early := used >= limit
		if early && left <= most {
			break
		}
		n, _ := binary.Uvarint(size)
		left -= int64(n)
		// A damaged text that was written again has a new entry.
		if v, err := decodeTextValue(texts.Get(key[8:])); err == nil && v.used == used {
			if err := texts.Delete(key[8:]); err != nil {
				return d, err
			}
			if early {
				d.early++
			} else {
				d.over++
			}
		}
		if err := c.Delete(); err != nil {
			return d, err
		}
	}
	if left == before {
		return d, nil
	}
	return d, setTextBytes(tx, left)
}
