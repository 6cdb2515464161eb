package redisstore

import (
	"fmt"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/internal/storecodec"
)

// A record's value is in the form of package storecodec. Its head is the time of the
// record's last attempt in 16 decimal digits, for the script to compare.
// Microseconds are what Lua's numbers can hold.
const orderDigits = 16

func encodeRecord(r fetch.Record) ([]byte, error) {
	at := r.FetchedAt
	if r.LastFailure.At.After(at) {
		at = r.LastFailure.At
	}
	order := fmt.Appendf(nil, "%0*d", orderDigits, max(at.UnixMicro(), 0))
	if len(order) > orderDigits {
		return nil, fmt.Errorf("%w: attempted %s", robotscache.ErrInvalid, at.Format(time.RFC3339))
	}
	return storecodec.Encode(order, r)
}

func decodeRecord(value []byte) (r fetch.Record, err error) {
	return r, storecodec.Decode(value, orderDigits, &r)
}
