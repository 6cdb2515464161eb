package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"reflect"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// FuzzItem holds that no octets in the file make reading an origin panic, that what is damaged says
// so, and that what is read is written again as it was. Half of the inputs get a right checksum.
func FuzzItem(f *testing.F) {
	now := time.Unix(1_800_000_000, 0).UTC()
	r := fetch.Policy{}.Next(fetch.Record{Origin: origin.Origin{Scheme: "https", Host: "example.com", Port: 443}},
		fetch.Outcome{Kind: fetch.KindRules, Status: 200, Body: []byte("User-agent: *\n")}, now)
	value, err := encodeItem(now, []robotscache.Version{robotscache.VersionOf(r)}, r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(value, false)
	f.Add(value[:len(value)/2], false)
	f.Add(value[:len(value)-crc32.Size], true)
	f.Add([]byte{}, true)
	f.Add(textValue{refs: 3, data: []byte("x")}.encode(), false)
	f.Fuzz(func(t *testing.T, value []byte, sum bool) {
		if it, err := decodeItem(value); err == nil && sum {
			value = binary.BigEndian.AppendUint32(bytes.Clone(value), crc32.Checksum(it.rest, crc32.MakeTable(crc32.Castagnoli)))
		}
		if v, err := decodeTextValue(value); err == nil {
			if again, err := decodeTextValue(v.encode()); err != nil || again.refs != v.refs || !bytes.Equal(again.data, v.data) {
				t.Fatalf("a text became %+v, %v", again, err)
			}
		} else if !errors.Is(err, robotscache.ErrCorrupt) {
			t.Fatalf("a text: %v", err)
		}
		it, err := decodeItem(value)
		if err != nil {
			if !errors.Is(err, robotscache.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		history, err := it.versions()
		if err != nil && !errors.Is(err, robotscache.ErrCorrupt) {
			t.Fatalf("a history: %v", err)
		}
		r, recordErr := it.record()
		if err != nil || recordErr != nil {
			if recordErr != nil && !errors.Is(recordErr, robotscache.ErrCorrupt) {
				t.Fatalf("a record: %v", recordErr)
			}
			return
		}
		again, err := encodeItem(it.saved, history, r)
		if err != nil {
			t.Fatalf("read, but not written: %v", err)
		}
		next, err := decodeItem(again)
		if err != nil || !next.saved.Equal(it.saved) || !bytes.Equal(next.rest, it.rest) {
			t.Fatalf("%+v became %+v, %v", it, next, err)
		}
		if got, err := next.versions(); err != nil || !reflect.DeepEqual(got, history) {
			t.Fatalf("%+v became %+v, %v", history, got, err)
		}
	})
}
