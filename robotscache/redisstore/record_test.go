package redisstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// FuzzRecordValue checks that reading a record of any bytes in Redis does not panic, that a damaged
// record is an error, and that a record keeps the time of its attempt when it is written again, by
// which gateways determine which record is newer. Half of the inputs get a correct checksum.
func FuzzRecordValue(f *testing.F) {
	now := time.Unix(1_800_000_000, 0).UTC()
	o := origin.Origin{Scheme: "https", Host: "example.com", Port: 443}
	var p fetch.Policy
	rules := p.Next(fetch.Record{Origin: o}, fetch.Outcome{Kind: fetch.KindRules, Status: 200, Body: []byte("User-agent: *\n")}, now)
	for _, r := range []fetch.Record{rules, p.Next(rules, fetch.Outcome{Cause: fetch.CauseDNS}, now.Add(time.Hour))} {
		value, err := encodeRecord(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(value, false)
		f.Add(value[:orderDigits], false)
		f.Add(value[orderDigits:], false)
		f.Add(value[:len(value)-crc32.Size], true)
	}
	f.Fuzz(func(t *testing.T, value []byte, sum bool) {
		if sum {
			value = binary.BigEndian.AppendUint32(bytes.Clone(value), crc32.Checksum(value, crc32.MakeTable(crc32.Castagnoli)))
		}
		r, err := decodeRecord(value)
		if err != nil {
			if !errors.Is(err, robotscache.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again, err := encodeRecord(r)
		if err != nil {
			return // attempted after the year 2286, by a wrong clock
		}
		order := again[:orderDigits]
		if bytes.ContainsFunc(order, func(c rune) bool { return c < '0' || c > '9' }) {
			t.Fatalf("the time of the attempt is %q, want digits", order)
		}
		next, err := decodeRecord(again)
		if err != nil || !next.FetchedAt.Equal(r.FetchedAt) || next.Origin != r.Origin || next.State != r.State {
			t.Fatalf("%+v is read again as %+v, %v", r, next, err)
		}
	})
}
