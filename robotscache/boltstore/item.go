package boltstore

import (
	"encoding/binary"
	"fmt"
	"time"

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

// encodeItem makes the value of an origin from its encoded record.
func encodeItem(saved time.Time, history []robotscache.Version, record []byte) ([]byte, error) {
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
