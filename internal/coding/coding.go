package coding

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

const (
	// maxZstdWindow is the largest window of the coding zstd (RFC 9659 section 3).
	maxZstdWindow = 8 << 20
	// maxBrotliWindow is the exponent of 4 MiB, the default of all encoders. RFC 7932 goes up to
	// 24.
	maxBrotliWindow = 22
	// maxKept is how many decoders of a coding are kept: one of br or zstd may have 8 MiB.
	maxKept = 4
)

// GzipMagic and ZstdMagic are the first bytes of these codings (RFC 1952 section 2.3.1, RFC 8878
// section 3.1.1). No text begins with them.
var (
	GzipMagic = []byte{0x1f, 0x8b}
	ZstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

var (
	errUnknown = errors.New("unknown coding")
	errWindow  = errors.New("br: window too large")
)

// decoder is the interface of all decoders. Reset gets a [bufio.Reader].
type decoder interface {
	io.Reader
	Reset(in io.Reader) error
}

// Reader decodes one content coding.
type Reader struct {
	dec  decoder
	in   bufio.Reader
	idle chan *Reader // takes the Reader when it is closed; nil if it is not kept
}

// idle holds the decoders that wait for the next body.
var idle = map[string]chan *Reader{
	"gzip": make(chan *Reader, maxKept), "br": make(chan *Reader, maxKept), "zstd": make(chan *Reader, maxKept),
}

// NewReader returns a decoder of one coding, by its name in lower case: gzip, x-gzip, deflate (with
// its zlib wrapper or without), br or zstd. It refuses br with a window of more than 4 MiB.
// [Reader.Close] keeps the decoder for the next body.
func NewReader(name string, in io.Reader) (*Reader, error) {
	if name == "x-gzip" {
		name = "gzip"
	}
	var r *Reader
	select {
	case r = <-idle[name]:
	default:
		d, err := newDecoder(name)
		if err != nil {
			return nil, err
		}
		r = &Reader{dec: d, idle: idle[name]}
	}
	r.in.Reset(in)
	if name == "br" && brotliWindow(&r.in) > maxBrotliWindow {
		r.Close()
		return nil, errWindow
	}
	return r, r.dec.Reset(&r.in)
}

// NewLenientReader returns a decoder for data that clients such as curl, wget and browsers accept:
// zlib data that is called gzip, gzip data followed by something else, and br with any window.
func NewLenientReader(name string, in io.Reader) (*Reader, error) {
	r := &Reader{}
	r.in.Reset(in)
	var err error
	switch {
	case name != "gzip" && name != "x-gzip":
		r.dec, err = newDecoder(name)
	case isZlib(&r.in):
		r.dec = new(deflate)
	default:
		r.dec = new(members)
	}
	if err != nil {
		return nil, err
	}
	return r, r.dec.Reset(&r.in)
}

func newDecoder(name string) (decoder, error) {
	switch name {
	case "gzip":
		return new(gzip.Reader), nil
	case "deflate":
		return new(deflate), nil
	case "br":
		return new(brotli.Reader), nil
	case "zstd":
		// One goroutine, no read-ahead and a bounded window keep its memory bounded.
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxZstdWindow))
	}
	return nil, errUnknown
}

func (r *Reader) Read(p []byte) (int, error) { return r.dec.Read(p) }

// AtEnd reports whether the input ends where the coded data ends.
func (r *Reader) AtEnd() bool {
	_, err := r.in.Peek(1)
	return errors.Is(err, io.EOF)
}

// Close keeps the decoder for the next body, if it came from [NewReader] and few are kept already.
func (r *Reader) Close() {
	r.in.Reset(nil)
	select {
	case r.idle <- r:
	default:
	}
}

// deflate reads zlib data (RFC 1950), or bare deflate data from senders that leave the wrapper out
// (RFC 9110 section 8.4.1.2).
type deflate struct{ io.Reader }

func (d *deflate) Reset(in io.Reader) (err error) {
	if isZlib(in.(*bufio.Reader)) {
		d.Reader, err = zlib.NewReader(in)
		return err
	}
	d.Reader = flate.NewReader(in)
	return nil
}

// isZlib reports whether the data begins with a zlib header (RFC 1950 section 2.2).
func isZlib(in *bufio.Reader) bool {
	head, err := in.Peek(2)
	return err == nil && head[0]&0x0f == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0
}

// brotliWindow returns the exponent of the window that a stream begins with (RFC 7932 section 9.1:
// WBITS), or 16 for all below 18.
func brotliWindow(in *bufio.Reader) int {
	head, err := in.Peek(1)
	if err != nil || head[0]&1 == 0 || head[0]&0x0f == 1 {
		return 16
	}
	return 17 + int(head[0]>>1&7)
}

// members reads the members of a gzip file (RFC 1952 section 2.2). After the last member it drops
// anything that does not begin another, as gzip, wget and browsers do: the checksums show that the
// text is complete.
type members struct {
	gzip.Reader
	in *bufio.Reader
}

func (m *members) Reset(in io.Reader) error {
	m.in = in.(*bufio.Reader)
	err := m.Reader.Reset(in)
	m.Multistream(false)
	return err
}

func (m *members) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if head, _ := m.in.Peek(len(GzipMagic)); len(head) > 0 && bytes.HasPrefix(GzipMagic, head) {
		return n, m.Reset(m.in)
	}
	if _, err := io.Copy(io.Discard, m.in); err != nil {
		return n, err
	}
	return n, io.EOF
}
