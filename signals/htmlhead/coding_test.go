package htmlhead

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// encode applies one coding; "raw" is deflate without its zlib wrapper.
func encode(tb testing.TB, coding string, text []byte) []byte {
	tb.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	var err error
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "deflate":
		w = zlib.NewWriter(&b)
	case "raw":
		w, err = flate.NewWriter(&b, flate.BestCompression)
	case "br":
		w = brotli.NewWriter(&b)
	case "zstd":
		w, err = zstd.NewWriter(&b)
	default:
		return text
	}
	if err != nil {
		tb.Fatal(err)
	}
	if _, err = w.Write(text); err == nil {
		err = w.Close()
	}
	if err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// noise returns text that is hardly compressible.
func noise(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + r.IntN(26))
	}
	return b
}

func TestDecode(t *testing.T) {
	t.Parallel()
	text := append([]byte(page(300, 300)), noise(20000)...)
	for _, coding := range []string{"identity", "gzip", "deflate", "raw", "br", "zstd"} {
		name := strings.Replace(coding, "raw", "deflate", 1)
		data := encode(t, coding, text)
		if got, cut := Decode(name, data, len(text)); cut || !bytes.Equal(got, text) {
			t.Errorf("Decode of %s = %d bytes, cut %t, want all", coding, len(got), cut)
		}
		if got, cut := Decode(" "+strings.ToUpper(name), data, 100); !cut || !bytes.Equal(got, text[:100]) {
			t.Errorf("Decode of %s to 100 bytes = %q, cut %t", coding, got, cut)
		}
		if got, cut := Decode(name, data, -1); !cut || len(got) != 0 {
			t.Errorf("Decode of %s to nothing = %d bytes, cut %t", coding, len(got), cut)
		}
		if coding == "identity" {
			continue
		}
		// A truncated stream gives a part of the text, and a longer stream a longer part.
		got, cut := Decode(name, data[:len(data)-20], len(text))
		if !cut || !bytes.HasPrefix(text, got) {
			t.Errorf("Decode of %s without its end = %d bytes, cut %t", coding, len(got), cut)
		}
	}
	for _, coding := range []string{"gzip", "deflate", "br", "zstd"} {
		// Encoders end a block when a server flushes, and after about 100 KiB at the latest.
		data := encode(t, coding, noise(1<<20))
		if got, cut := Decode(coding, data[:256<<10], 64<<10); !cut || !bytes.Equal(got, noise(64<<10)) {
			t.Errorf("Decode of %s, a quarter of 1 MiB = %d bytes, cut %t", coding, len(got), cut)
		}
	}
	for _, coding := range []string{"compress", "gzip, br", "gzip;q=1", "gzip", "br", "zstd", "deflate"} {
		if got, cut := Decode(coding, []byte("\x01\x02 no such data"), 100); !cut || len(got) > 0 {
			t.Errorf("Decode of invalid %s = %q, cut %t", coding, got, cut)
		}
	}
	if got, cut := Decode("gzip", nil, 100); !cut || len(got) > 0 {
		t.Errorf("Decode of nothing = %q, cut %t", got, cut)
	}
}

// TestDecodeMemory limits the memory of a decoder, for bombs and for windows that a stream
// requests.
func TestDecodeMemory(t *testing.T) {
	zeros := make([]byte, 64<<20)
	wide := func(size int, single bool) []byte {
		var b bytes.Buffer
		w, err := zstd.NewWriter(&b, zstd.WithWindowSize(size), zstd.WithSingleSegment(single))
		if err != nil {
			t.Fatal(err)
		}
		w.Write(zeros)
		w.Close()
		return b.Bytes()
	}
	brotliWide := func(lgWin int) []byte {
		var b bytes.Buffer
		w := brotli.NewWriterOptions(&b, brotli.WriterOptions{Quality: 1, LGWin: lgWin})
		w.Write(zeros)
		w.Close()
		return b.Bytes()
	}
	for name, c := range map[string]struct {
		coding string
		data   []byte
		none   bool // refused
	}{
		"gzip":         {"gzip", encode(t, "gzip", zeros), false},
		"deflate":      {"deflate", encode(t, "deflate", zeros), false},
		"br":           {"br", encode(t, "br", zeros), false},
		"br, 4 MiB":    {"br", brotliWide(22), false},
		"br, 8 MiB":    {"br", brotliWide(23), true},
		"br, 16 MiB":   {"br", brotliWide(24), true},
		"zstd":         {"zstd", encode(t, "zstd", zeros), false},
		"zstd, 8 MiB":  {"zstd", wide(8<<20, false), false},
		"zstd, 16 MiB": {"zstd", wide(16<<20, false), true},
		"zstd, a frame whose window is all of it": {"zstd", wide(8<<20, true), false},
	} {
		data := c.data[:min(len(c.data), 64<<10)]
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		text, cut := Decode(c.coding, data, 64<<10)
		runtime.ReadMemStats(&after)
		used := after.TotalAlloc - before.TotalAlloc
		t.Logf("%s: %d bytes of %d, cut %t, %d KiB", name, len(text), len(data), cut, used>>10)
		if !cut || used > 12<<20 || c.none != (len(text) == 0) {
			t.Errorf("%s: %d bytes, cut %t, %d KiB of memory", name, len(text), cut, used>>10)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, coding := range []string{"gzip", "deflate", "br", "zstd", "identity", "compress"} {
		f.Add(coding, encode(f, coding, []byte(page(300, 300))), 1000)
	}
	f.Add("deflate", encode(f, "raw", []byte(page(300, 300))), 100)
	// The first step contains a false end of the head.
	f.Add("gzip", encode(f, "gzip", []byte(page(3000, 30000, "<!-- </head> -->", "<meta name=robots content=noindex>"))), 64<<10)
	f.Add("br", encode(f, "br", []byte("<!-- </head> "+page(30000, 0)+"--><meta name=robots content=noindex>")), 64<<10)
	f.Fuzz(func(t *testing.T, coding string, data []byte, limit int) {
		limit = min(limit, 64<<10)
		text, cut := Decode(coding, data, limit)
		if len(text) > max(limit, 0) {
			t.Errorf("got %d bytes with limit %d", len(text), limit)
		}
		if more, _ := Decode(coding, data, limit+1000); !bytes.HasPrefix(more, text) || !cut && len(more) != len(text) {
			t.Errorf("with another limit, got another text: %q, %q", text, more)
		}
		want, wantCut := Scan(text, Options{Whole: !cut})
		if got, gotCut := Read(coding, data, limit, Options{Whole: true}); gotCut != wantCut || !reflect.DeepEqual(got, want) {
			t.Errorf("in steps %+v, cut %t; at once %+v, cut %t", got, gotCut, want, wantCut)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	text := []byte(page(4<<10, 60<<10))
	for _, coding := range []string{"gzip", "deflate", "br", "zstd"} {
		data := encode(b, coding, text)
		b.Run(coding, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, benchCut = Decode(coding, data, 64<<10)
			}
		})
	}
}
