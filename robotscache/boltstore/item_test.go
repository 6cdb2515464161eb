package boltstore

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// FuzzItem checks that reading an origin or a text does not panic for any bytes in the file, that
// damage is reported, and that a value that was read is written with the same bytes. Package
// storecodec tests the decoding itself.
func FuzzItem(f *testing.F) {
	now := time.Unix(1_800_000_000, 0).UTC()
	r := fetch.Policy{}.Next(fetch.Record{Origin: origin.Origin{Scheme: "https", Host: "example.com", Port: 443}},
		fetch.Outcome{Kind: fetch.KindRules, Status: 200, Body: []byte("User-agent: *\n")}, now)
	value, err := item{r, []robotscache.Version{robotscache.VersionOf(r)}}.encode(now)
	if err != nil {
		f.Fatal(err)
	}
	if savedBefore(value, now) || !savedBefore(value, now.Add(time.Second)) {
		f.Fatalf("savedBefore reads a wrong time from %x", value)
	}
	f.Add(value)
	f.Add(value[:len(value)/2])
	f.Add([]byte{})
	f.Add(textValue{used: 3, data: []byte("x")}.encode())
	f.Add([]byte("\x03x")) // no text
	f.Fuzz(func(t *testing.T, value []byte) {
		savedBefore(value, now)
		if _, err := decodeItem(value); err != nil && !errors.Is(err, robotscache.ErrCorrupt) {
			t.Fatal(err)
		}
		v, err := decodeTextValue(value)
		if err != nil {
			if !errors.Is(err, robotscache.ErrCorrupt) {
				t.Fatalf("decoding a text: got %v, want ErrCorrupt", err)
			}
			return
		}
		if again, err := decodeTextValue(v.encode()); err != nil || again.used != v.used || !bytes.Equal(again.data, v.data) {
			t.Fatalf("a text is read again as %+v, %v", again, err)
		}
	})
}
