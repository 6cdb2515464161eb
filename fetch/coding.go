package fetch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/crawlgate/crawlgate/internal/coding"
)

// errBloated reports coded data that is larger than its text can need.
var errBloated = errors.New("coded data is out of proportion")

// acceptEncoding lists the codings that decode knows.
const acceptEncoding = "gzip, br, zstd, deflate"

// maxCodings bounds how many codings a body may have. Even two are a mistake of the server.
const maxCodings = 3

// parseCodings returns the content codings of an answer in the order in which they were applied
// (RFC 9110 section 8.4), without identity. It fails for codings that are registered with IANA but
// not decoded here, and for codings of mail: their data is text, and would look like a file without
// rules. Any other name, such as a charset, a media type or "none", is not a coding. named reports
// whether there is a name other than identity: the data must then be text.
func parseCodings(h http.Header) (codings []string, named bool, err error) {
	for _, name := range headerList(h, "Content-Encoding") {
		switch name = strings.ToLower(name); name {
		case "identity":
			continue
		case "gzip", "x-gzip", "br", "zstd", "deflate":
			codings = append(codings, name)
		case "aes128gcm", "compress", "x-compress", "dcb", "dcz", "exi", "pack200-gzip",
			"base64", "quoted-printable", "uuencode", "x-uuencode", "x-uue", "hex":
			return nil, false, fmt.Errorf("content coding %q is not supported", name)
		}
		named = true
	}
	if len(codings) > maxCodings {
		return nil, false, errors.New("too many content codings")
	}
	return codings, named, nil
}

// undeclared detects a coding that the answer does not name, by the first bytes of the data. Such
// data would look like a file without rules.
func undeclared(head []byte) []string {
	switch {
	case bytes.HasPrefix(head, coding.GzipMagic):
		return []string{"gzip"}
	case bytes.HasPrefix(head, coding.ZstdMagic):
		return []string{"zstd"}
	}
	return nil
}

// isText reports whether data is text and not still coded: it has almost no control characters, and
// is UTF-8 or mostly ASCII.
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

// codedLimit is the most coded data that limit bytes of text may need. All codings can store
// incompressible data with an overhead below a percent, so an honest body needs less.
func codedLimit(limit int) int { return limit + limit/8 + 64<<10 }

// decode undoes codings on data and returns at most limit bytes; more says that there were more. It
// reads only as far as necessary, so a bomb costs no more than an honest file. Data that ends early
// or continues after its end (but see [coding.NewLenientReader]) is an error, unless limit bytes
// came before.
func decode(data []byte, codings []string, limit int) (text []byte, more bool, err error) {
	var decoders []*coding.Reader
	var r io.Reader = bytes.NewReader(data)
	for _, name := range slices.Backward(codings) {
		dec, err := coding.NewLenientReader(name, &boundedReader{r: r, left: codedLimit(limit)})
		if err != nil {
			return nil, false, fmt.Errorf("decoding %s: %w", name, err)
		}
		decoders = append(decoders, dec)
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
	for _, dec := range decoders {
		if !dec.AtEnd() {
			return nil, false, fmt.Errorf("decoding %s: data after the end", strings.Join(codings, ", "))
		}
	}
	return buf.Bytes(), false, nil
}

// boundedReader fails after left bytes, even if there are no more. One of several codings must not
// expand without end into another that swallows it, and nobody knows what followed a body that was
// cut at its bound. [http.MaxBytesReader] would end such a body as if it were complete.
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
