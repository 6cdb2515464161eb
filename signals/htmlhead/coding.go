package htmlhead

import (
	"bytes"
	"io"
	"strings"

	"github.com/crawlgate/crawlgate/internal/coding"
)

const (
	// usualRatio is how much longer than its coded form a page is. It sizes a buffer.
	usualRatio = 6
	// firstStep is how much of a coded page is decoded first: about 8 KiB of its text.
	firstStep = 2 << 10
)

// Read is [Decode] and [Scan]. It decodes only the beginning of a page if the head ends there, as
// in most pages.
func Read(contentCoding string, body []byte, limit int, o Options) (m Metas, cut bool) {
	begin := body
	if contentCoding != "zstd" { // which decodes whole blocks, of up to 128 KiB
		begin = body[:min(firstStep, len(body))]
	}
	first, _ := Decode(contentCoding, begin, min(smallHead, limit))
	if headEnds(first) {
		part := o
		part.Whole = false
		if m, cut = Scan(first, part); !cut {
			return m, false
		}
	}
	text, cut := Decode(contentCoding, body, limit)
	o.Whole = o.Whole && !cut
	return Scan(text, o)
}

// Decode undoes a content coding on the beginning of a body. The coding is the value of
// Content-Encoding, without case: identity (or empty), gzip, deflate (with its zlib wrapper or
// without), br or zstd. Decode returns at most limit bytes. Cut reports that the text may go on:
// there is more, the copy ends early or is broken, or the coding is unknown or more than one. The
// result of identity is the copy itself.
//
// One call needs at most about 8 MiB in addition to its result, for any data: a frame of zstd with
// a larger window than RFC 9659 allows, and a stream of br with a window of more than 4 MiB, are
// cut. Callers bound how many run at once.
func Decode(contentCoding string, body []byte, limit int) (text []byte, cut bool) {
	limit = max(limit, 0)
	name := strings.ToLower(strings.Trim(contentCoding, " \t"))
	if name == "" || name == "identity" {
		return body[:min(limit, len(body))], len(body) > limit
	}
	r, err := coding.NewReader(name, bytes.NewReader(body))
	if err != nil {
		return nil, true
	}
	defer r.Close()
	var out bytes.Buffer
	out.Grow(min(usualRatio*len(body), limit+1) + bytes.MinRead)
	_, err = out.ReadFrom(io.LimitReader(r, int64(limit)+1))
	if text = out.Bytes(); len(text) > limit {
		return text[:limit], true
	}
	return text, err != nil
}
