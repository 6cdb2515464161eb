package htmlhead

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zlib"
)

const (
	// maxZstdWindow is the largest window of the coding zstd (RFC 9659 section 3).
	maxZstdWindow = 8 << 20
	// maxBrotliWindow is the default of all encoders, 4 MiB, as its exponent. RFC 7932 goes up to 24.
	maxBrotliWindow = 22
	// usualRatio is how much longer than its coded form a page is. It sizes a buffer.
	usualRatio = 6
	// firstStep is how much of a coded page is decoded at first: some 8 KiB of its text.
	firstStep = 2 << 10
	// maxKept is how many decoders of a coding are kept: one of br or zstd may have 8 MiB.
	maxKept = 4
)

var errCoding = errors.New("unknown coding")

// Read is [Decode] and [Scan]. It decodes no more than the beginning where the head ends in it, as
// that of most pages does.
func Read(coding string, body []byte, limit int, o Options) (m Metas, cut bool) {
	begin := body
	if coding != "zstd" { // which decodes whole blocks, of up to 128 KiB
		begin = body[:min(firstStep, len(body))]
	}
	first, _ := Decode(coding, begin, min(smallHead, limit))
	if headEnds(first) {
		part := o
		part.Whole = false
		if m, cut = Scan(first, part); !cut {
			return m, false
		}
	}
	text, cut := Decode(coding, body, limit)
	o.Whole = o.Whole && !cut
	return Scan(text, o)
}

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
	r, err := newDecoder(coding, body)
	if err != nil {
		return nil, true
	}
	defer r.Close() //nolint:errcheck // reads memory: it has nothing to lose
	var out bytes.Buffer
	out.Grow(min(usualRatio*len(body), limit+1) + bytes.MinRead)
	_, err = out.ReadFrom(io.LimitReader(r, int64(limit)+1))
	if text = out.Bytes(); len(text) > limit {
		return text[:limit], true
	}
	return text, err != nil
}

// newDecoder returns the decoder of one coding.
func newDecoder(coding string, body []byte) (io.ReadCloser, error) {
	switch coding {
	case "gzip", "x-gzip":
		return gzips.decoder(body)
	case "deflate":
		in := bytes.NewReader(body)
		if len(body) >= 2 && body[0]&0x0f == 8 && (uint(body[0])<<8|uint(body[1]))%31 == 0 {
			return zlib.NewReader(in) // RFC 1950 section 2.2
		}
		return flate.NewReader(in), nil // RFC 9110 section 8.4.1.2: some leave the wrapper out
	case "br":
		if len(body) == 0 || brotliWindow(body[0]) > maxBrotliWindow {
			return nil, errCoding
		}
		return brs.decoder(body)
	case "zstd":
		return zstds.decoder(body)
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
