package coding_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"

	"github.com/crawlgate/crawlgate/internal/coding"
)

const text = "User-agent: *\nDisallow: /private\n"

// encode applies a coding; "raw" is deflate without its zlib wrapper.
func encode(t *testing.T, name string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch name {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "zlib":
		w = zlib.NewWriter(&b)
	case "raw":
		w, _ = flate.NewWriter(&b, flate.BestSpeed)
	case "br 4 MiB":
		w = brotli.NewWriterOptions(&b, brotli.WriterOptions{LGWin: 22})
	case "br 8 MiB":
		w = brotli.NewWriterOptions(&b, brotli.WriterOptions{LGWin: 23})
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestReaders checks which data each of the two readers accepts.
func TestReaders(t *testing.T) {
	t.Parallel()
	gz := encode(t, "gzip")
	for _, c := range []struct {
		name, coding, data string
		strict, lenient    bool
	}{
		{"gzip", "gzip", gz, true, true},
		{"two members", "x-gzip", gz + gz, true, true},
		{"gzip cut short", "gzip", gz[:len(gz)-1], false, false},
		{"a comment behind gzip", "gzip", gz + "<!-- cached -->", false, true},
		{"zlib called gzip", "gzip", encode(t, "zlib"), false, true},
		{"zlib", "deflate", encode(t, "zlib"), true, true},
		{"no zlib wrapper", "deflate", encode(t, "raw"), true, true},
		{"br, 4 MiB", "br", encode(t, "br 4 MiB"), true, true},
		{"br, 8 MiB", "br", encode(t, "br 8 MiB"), false, true},
		{"unknown", "compress", gz, false, false},
	} {
		for name, open := range map[string]func(string, io.Reader) (*coding.Reader, error){
			"strict": coding.NewReader, "lenient": coding.NewLenientReader,
		} {
			for range 2 { // the second time with a pooled decoder
				var got []byte
				r, err := open(c.coding, strings.NewReader(c.data))
				if err == nil {
					got, err = io.ReadAll(r)
					if err == nil && !r.AtEnd() {
						t.Errorf("%s, %s: AtEnd = false after all was read", c.name, name)
					}
					r.Close()
				}
				if want := name == "strict" && c.strict || name == "lenient" && c.lenient; want != (err == nil) {
					t.Errorf("%s, %s: error %v, want success %t", c.name, name, err, want)
				}
				if err == nil && strings.ReplaceAll(string(got), text, "") != "" {
					t.Errorf("%s, %s: decoded as %q", c.name, name, got)
				}
			}
		}
	}
}
