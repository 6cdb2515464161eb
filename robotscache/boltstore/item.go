package boltstore

import (
	"encoding/binary"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/crawlgate/crawlgate/fetch"
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

// loadItem returns the item of an origin.
func loadItem(tx *bolt.Tx, k fetch.Key) (item, error) {
	value := tx.Bucket(originsBucket).Get([]byte(k.String()))
	if value == nil {
		return item{}, robotscache.ErrNotFound
	}
	return decodeItem(value)
}

// put saves a record, and records the use of its text.
func (s *Store) put(tx *bolt.Tx, r fetch.Record, now time.Time) error {
	text, hasText, err := storecodec.TextOf(r)
	if err != nil {
		return err
	}
	origins, key := tx.Bucket(originsBucket), []byte(r.Key().String())
	former, _ := decodeItem(origins.Get(key)) // a damaged item counts as none: it is replaced
	history := robotscache.AddVersion(former.History, robotscache.VersionOf(r), s.cfg.Versions)
	value, err := item{r, history}.encode(now)
	if err != nil {
		return err
	}
	if err := origins.Put(key, value); err != nil || !hasText {
		return err
	}
	return use(tx, text.SHA256, now, func() []byte { return s.texts.Encode(text.Body) })
}
