package redisstore

import (
	"fmt"
	"strconv"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
)

// A record's value is the time of its last attempt in 16 decimal digits, for the
// script to compare, and its binary form. Microseconds are what Lua's numbers can
// hold.
const orderDigits = 16

func encodeRecord(r fetch.Record) ([]byte, error) {
	b, err := r.MarshalBinary()
	if err != nil {
		return nil, err
	}
	at := r.FetchedAt
	if r.LastFailure.At.After(at) {
		at = r.LastFailure.At
	}
	order := fmt.Sprintf("%0*d", orderDigits, max(at.UnixMicro(), 0))
	if len(order) > orderDigits {
		return nil, fmt.Errorf("encoding the record of %s: attempted %s", r.Origin, at.Format(time.RFC3339))
	}
	return append([]byte(order), b...), nil
}

func decodeRecord(value []byte) (fetch.Record, error) {
	var r fetch.Record
	if len(value) < orderDigits {
		return r, fmt.Errorf("%w: record of %s bytes", robotscache.ErrCorrupt, strconv.Itoa(len(value)))
	}
	if err := r.UnmarshalBinary(value[orderDigits:]); err != nil {
		return r, fmt.Errorf("%w: %w", robotscache.ErrCorrupt, err)
	}
	return r, nil
}
