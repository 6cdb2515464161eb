package fetch

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// acceptEncoding lists the codings that decode knows.
const acceptEncoding = "gzip, br, zstd, deflate"

const (
	// maxCodings bounds how often one body may have been coded. More than one is a mistake already.
	maxCodings = 3
	// maxZstdWindow is the largest window of the coding "zstd" (RFC 9659 section 3).
	maxZstdWindow = 8 << 20
)

// errBloated is a coding whose data is larger than what it stands for.
var errBloated = errors.New("coded data is out of proportion")

// parseCodings returns the content codings of an answer in the order in which they were applied
// (RFC 9110 section 8.4), without identity. It fails for those that are registered with IANA and
// are not decoded here, and for codings of mail, whose data is text that would pass for a file
// without rules. Any other name is that of no coding: a charset, a media type, "none".
// Named reports that there is a name besides identity: the data must then turn out to be text.
func parseCodings(h http.Header) (codings []string, named bool, err error) {
	for _, coding := range headerList(h, "Content-Encoding") {
		switch coding = strings.ToLower(coding); coding {
		case "identity":
			continue
		case "gzip", "x-gzip", "br", "zstd", "deflate":
			codings = append(codings, coding)
		case "aes128gcm", "compress", "x-compress", "dcb", "dcz", "exi", "pack200-gzip",
			"base64", "quoted-printable", "uuencode", "x-uuencode", "x-uue", "hex":
			return nil, false, fmt.Errorf("content coding %q is not known here", coding)
		}
		named = true
	}
	if len(codings) > maxCodings {
		return nil, false, errors.New("too many content codings")
	}
	return codings, named, nil
}

// Magic numbers, with which no text begins (RFC 1952 section 2.3.1, RFC 8878 section 3.1.1).
var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// undeclared returns the coding of data that names none, by its beginning. Such data would pass for
// a file without rules.
func undeclared(head []byte) []string {
	switch {
	case bytes.HasPrefix(head, gzipMagic):
		return []string{"gzip"}
	case bytes.HasPrefix(head, zstdMagic):
		return []string{"zstd"}
	}
	return nil
}

// isText reports whether data is text, not what another coding has left: nearly no control
// characters, and UTF-8 or mostly ASCII.
func isText(data []byte) bool {
	control, high := 0, 0
	for _, c := range data {
		switch {
		case c >= utf8.RuneSelf:
			high++
		case c < ' ' && c != '\t' && c != '\n' && c != '\r':
			control++
		}
	}
	return control <= len(data)/32 && (high <= len(data)/8 || utf8.Valid(data))
}

// codedLimit is how much coded data may stand for limit bytes of text. All codings can store what
// they cannot compress at an overhead below a percent, so an honest one needs less.
func codedLimit(limit int) int { return limit + limit/8 + 64<<10 }

// decode undoes codings on data and returns at most limit bytes; more says that there were more. It
// reads no further than it must to know that, so a bomb costs no more than an honest file. Data
// that ends early or goes on after its end (but see [members]) is an error unless limit bytes came
// before.
func decode(data []byte, codings []string, limit int) (text []byte, more bool, err error) {
	var inputs []*bufio.Reader
	var r io.Reader = bytes.NewReader(data)
	for _, coding := range slices.Backward(codings) {
		in := bufio.NewReader(&boundedReader{r: r, left: codedLimit(limit)})
		dec, err := newDecoder(coding, in)
		if err != nil {
			return nil, false, fmt.Errorf("decoding %s: %w", coding, err)
		}
		defer dec.Close() //nolint:errcheck // reads memory: it has nothing to lose
		inputs = append(inputs, in)
		r = dec
	}
	var buf bytes.Buffer
	_, err = io.Copy(&buf, io.LimitReader(r, int64(limit)+1))
	if buf.Len() > limit {
		return buf.Bytes()[:limit:limit], true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("decoding %s: %w", strings.Join(codings, ", "), err)
	}
	for _, in := range inputs {
		if _, err := in.Peek(1); !errors.Is(err, io.EOF) {
			return nil, false, fmt.Errorf("decoding %s: data after the end", strings.Join(codings, ", "))
		}
	}
	return buf.Bytes(), false, nil
}

// newDecoder returns the decoder of one coding that parseCodings accepts.
func newDecoder(coding string, in *bufio.Reader) (io.ReadCloser, error) {
	switch coding {
	case "br":
		return io.NopCloser(brotli.NewReader(in)), nil
	case "zstd":
		// One goroutine, no read-ahead, a bounded window: memory stays ours.
		dec, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, err
		}
		return dec.IOReadCloser(), nil
	case "deflate":
		if isZlib(in) {
			return zlib.NewReader(in)
		}
		// RFC 9110 section 8.4.1.2: some senders leave out the zlib wrapper.
		return flate.NewReader(in), nil
	default:
		if isZlib(in) {
			return zlib.NewReader(in) // curl and wget take it so, too
		}
		m := &members{in: in}
		return m, m.next()
	}
}

// members reads the members of a gzip file (RFC 1952 section 2.2). What follows the last of them
// and is not the beginning of another is left out, as gzip, wget and browsers do: their checksums
// say that the text is complete.
type members struct {
	gzip.Reader

	in *bufio.Reader
}

func (m *members) next() error {
	err := m.Reset(m.in)
	m.Multistream(false)
	return err
}

func (m *members) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if head, _ := m.in.Peek(len(gzipMagic)); len(head) > 0 && bytes.HasPrefix(gzipMagic, head) {
		return n, m.next()
	}
	if _, err := io.Copy(io.Discard, m.in); err != nil {
		return n, err
	}
	return n, io.EOF
}

// isZlib reports whether the data begins with a zlib header (RFC 1950 section 2.2).
func isZlib(in *bufio.Reader) bool {
	head, err := in.Peek(2)
	return err == nil && head[0]&0x0f == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0
}

// boundedReader fails after so many bytes: a layer of a stack must not expand without end into
// another one that swallows it.
type boundedReader struct {
	r    io.Reader
	left int
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errBloated
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
