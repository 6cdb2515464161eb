package textcodec_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/robotscache/internal/textcodec"
)

func newCodec(tb testing.TB) *textcodec.Codec {
	tb.Helper()
	c, err := textcodec.New()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

func TestCodec(t *testing.T) {
	t.Parallel()
	c := newCodec(t)
	noise := make([]byte, 500<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	for name, test := range map[string]struct {
		text []byte
		most int
	}{
		"empty": {nil, 2},
		"short": {[]byte("Allow: /"), 10},
		"long":  {[]byte(strings.Repeat("Disallow: /a\n", 1000)), 100},
		"noise": {noise, len(noise) + 4},
	} {
		b := c.Encode(test.text)
		got, err := c.Decode(b)
		if err != nil || !bytes.Equal(got, test.text) || cap(got) != len(got) {
			t.Errorf("%s: %d octets of capacity %d, %v", name, len(got), cap(got), err)
		}
		if len(b) > test.most {
			t.Errorf("%s: %d octets encoded", name, len(b))
		}
	}
}

// A form that says more than it has, or has more than it says, is refused: none
// can make us allocate without bound.
func FuzzDecode(f *testing.F) {
	c := newCodec(f)
	f.Add([]byte{})
	f.Add([]byte{0, 0})
	f.Add([]byte{0, 200, 1})
	f.Add([]byte{1, 255, 255, 255, 255, 15})
	f.Add(c.Encode([]byte("User-agent: *\nDisallow: /\n")))
	f.Add(c.Encode([]byte(strings.Repeat("Disallow: /a\n", 1000))))
	bomb := c.Encode(bytes.Repeat([]byte{'a'}, 1<<20))
	f.Add(bomb)
	f.Add(append([]byte{1, 5}, bomb[4:]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		text, err := c.Decode(b)
		if err != nil {
			return
		}
		again, err := c.Decode(c.Encode(text))
		if err != nil || !bytes.Equal(again, text) {
			t.Errorf("%q came back as %q, %v", text, again, err)
		}
	})
}
