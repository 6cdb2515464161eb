package htmlhead

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

const (
	// maxZstdWindow is the largest window of the coding zstd (RFC 9659 section 3).
	maxZstdWindow = 8 << 20
	// maxBrotliWindow is the default of all encoders, 4 MiB, as its exponent. RFC 7932 goes up to 24.
	maxBrotliWindow = 22
)

var errCoding = errors.New("unknown coding")

// Decode undoes a content coding on the beginning of a body: the value of Content-Encoding, without
// case, which is identity (or nothing), gzip, deflate (with its zlib wrapper or without), br or
// zstd. It returns at most limit octets, and stops there. Cut reports that the text may go on
// behind what is returned: there is more, the copy ends early or is broken, or the coding is
// another one or more than one. The result of identity is the copy itself.
//
// One call needs at most some 8 MiB besides its result, whatever the copy says: a frame of zstd
// with a larger window than RFC 9659 allows, and a stream of br with one of more than 4 MiB, are
// cut. Callers bound how many run at once.
func Decode(coding string, body []byte, limit int) (text []byte, cut bool) {
	limit = max(limit, 0)
	coding = strings.ToLower(strings.Trim(coding, " \t"))
	if coding == "" || coding == "identity" {
		return body[:min(limit, len(body))], len(body) > limit
	}
	r, err := newDecoder(coding, bufio.NewReaderSize(bytes.NewReader(body), 16))
	if err != nil {
		return nil, true
	}
	defer r.Close() //nolint:errcheck // reads memory: it has nothing to lose
	text, err = io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if len(text) > limit {
		return text[:limit], true
	}
	return text, err != nil
}

// newDecoder returns the decoder of one coding.
func newDecoder(coding string, in *bufio.Reader) (io.ReadCloser, error) {
	switch coding {
	case "gzip", "x-gzip":
		return gzip.NewReader(in)
	case "deflate":
		if head, err := in.Peek(2); err == nil && head[0]&0x0f == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0 {
			return zlib.NewReader(in) // RFC 1950 section 2.2
		}
		return flate.NewReader(in), nil // RFC 9110 section 8.4.1.2: some leave the wrapper out
	case "br":
		if head, err := in.Peek(1); err != nil || brotliWindow(head[0]) > maxBrotliWindow {
			return nil, errCoding
		}
		return io.NopCloser(brotli.NewReader(in)), nil
	case "zstd":
		// One goroutine, no read-ahead, a bounded window: memory stays ours.
		d, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return nil, errCoding
}

// brotliWindow returns the exponent of the window that a stream begins with (RFC 7932 section 9.1:
// WBITS), or 16 for all that are below 18.
func brotliWindow(first byte) int {
	if first&1 == 0 || first&0x0f == 1 {
		return 16
	}
	return 17 + int(first>>1&7)
}
