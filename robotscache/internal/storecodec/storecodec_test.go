package storecodec_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/internal/storecodec"
)

func TestTexts(t *testing.T) {
	t.Parallel()
	c := storecodec.NewTexts()
	noise := make([]byte, 500<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	for name, test := range map[string]struct {
		text []byte
		most int
	}{
		"empty": {nil, 10},
		"short": {[]byte("Allow: /"), 18},
		"long":  {[]byte(strings.Repeat("Disallow: /a\n", 1000)), 100},
		"noise": {noise, len(noise) + 32},
	} {
		b := c.Encode(test.text)
		got, err := c.Decompress(b)
		if err != nil || !bytes.Equal(got, test.text) || cap(got) > len(got)+32 {
			t.Errorf("%s: decoded %d bytes with capacity %d, error %v", name, len(got), cap(got), err)
		}
		if len(b) == 0 || len(b) > test.most {
			t.Errorf("%s: encoded as %d bytes", name, len(b))
		}
	}
}

// FuzzTexts checks that decoding any bytes neither panics nor allocates without limit, and that a
// text is decoded unchanged.
func FuzzTexts(f *testing.F) {
	c := storecodec.NewTexts()
	f.Add([]byte{})
	f.Add(c.Encode([]byte("User-agent: *\nDisallow: /\n")))
	f.Add(c.Encode([]byte(strings.Repeat("Disallow: /a\n", 1000))))
	bomb := c.Encode(bytes.Repeat([]byte{'a'}, 1<<20))
	f.Add(bomb)
	f.Add(append(append([]byte{}, bomb...), bomb...))
	f.Fuzz(func(t *testing.T, b []byte) {
		text, err := c.Decompress(b)
		if err != nil {
			if !errors.Is(err, robotscache.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again, err := c.Decompress(c.Encode(text))
		if err != nil || !bytes.Equal(again, text) {
			t.Errorf("%q is decoded as %q, %v", text, again, err)
		}
	})
}

// A frame that decompresses to more than any robots.txt is refused before that.
func TestTexts_Bomb(t *testing.T) {
	t.Parallel()
	c := storecodec.NewTexts()
	if text, err := c.Decompress(c.Encode(make([]byte, 65<<20))); !errors.Is(err, robotscache.ErrCorrupt) {
		t.Errorf("Decompress of 65 MiB = %d bytes, %v, want ErrCorrupt", len(text), err)
	}
}

// value is an example of what a store keeps.
type value struct {
	Record  fetch.Record
	History []robotscache.Version
}

func (v value) Check() error { return v.Record.Check() }

func sample() value {
	now := time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC)
	r := fetch.Record{Origin: origin.Origin{Scheme: "https", Host: "example.com", Port: 443}}
	r = fetch.Policy{}.Next(r, fetch.Outcome{Kind: fetch.KindRules, Status: 200, Body: []byte("User-agent: *\n")}, now)
	v := value{r, []robotscache.Version{robotscache.VersionOf(r)}}
	v.Record.Body = nil
	return v
}

// A changed, missing or additional byte anywhere, including the head, is an error.
func TestDecode_Damage(t *testing.T) {
	t.Parallel()
	b, err := storecodec.Encode([]byte("head"), sample())
	if err != nil {
		t.Fatal(err)
	}
	var got value
	if err := storecodec.Decode(b, 4, &got); err != nil || !reflect.DeepEqual(got, sample()) {
		t.Fatalf("Decode = %+v, %v", got, err)
	}
	refuse := func(what string, at int, b []byte) {
		t.Helper()
		var got value
		if err := storecodec.Decode(b, 4, &got); !errors.Is(err, robotscache.ErrCorrupt) {
			t.Errorf("%s at %d: Decode = %+v, %v, want ErrCorrupt", what, at, got, err)
		}
	}
	for n := range b {
		refuse("cut", n, b[:n])
		for bit := range 8 {
			flipped := bytes.Clone(b)
			flipped[n] ^= 1 << bit
			refuse("flipped", n, flipped)
		}
	}
	refuse("lengthened", len(b), append(bytes.Clone(b), 0))
	refuse("doubled", len(b), append(bytes.Clone(b), b...))
	refuse("zeroes", 0, make([]byte, 4096))
}

// FuzzDecode checks that decoding any bytes does not panic, that damage is reported, and that a
// value that was read is written with the same bytes. Half of the inputs get a correct checksum,
// because otherwise only the checksum would be tested.
func FuzzDecode(f *testing.F) {
	b, err := storecodec.Encode([]byte("head"), sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, false)
	f.Add(b[:len(b)/2], false)
	f.Add(b[:len(b)-4], true)
	f.Add([]byte{}, true)
	f.Add([]byte(`head{"Record":{"origin":"http://a","state":"absent"},"History":[{"state":"rules","sha256":"00"}]}`), true)
	f.Fuzz(func(t *testing.T, b []byte, sum bool) {
		if sum {
			b = storecodec.Sum(bytes.Clone(b))
		}
		var v value
		if err := storecodec.Decode(b, 4, &v); err != nil {
			if !errors.Is(err, robotscache.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again, err := storecodec.Encode(b[:4:4], v)
		if err != nil {
			t.Fatalf("encoding a decoded value: %v", err)
		}
		var n value
		if err := storecodec.Decode(again, 4, &n); err != nil || !reflect.DeepEqual(n, v) {
			t.Fatalf("%+v is decoded as %+v, %v", v, n, err)
		}
	})
}
