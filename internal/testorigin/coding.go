package testorigin

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// Codings are the content codings (RFC 9110 section 8.4.1) that a site can use.
// "deflate" is the zlib format as registered.
var Codings = []string{"gzip", "deflate", "br", "zstd"}

// Encoded answers 200 with rules in a content coding. Like CutCoding and Bomb, it panics if the
// coding is not one of Codings.
func Encoded(coding, rules string) Behaviour {
	mustKnow(coding)
	b := codedBody(coding, func() []byte { return Encode(coding, []byte(rules)) })
	b.Name, b.Meaning, b.Rules = coding, MeansRules, []byte(rules)
	return b
}

// RawDeflate answers 200 with rules in a deflate stream without its zlib wrapper, which is wrong
// but widespread. It means rules to a lenient crawler, and otherwise unreachable: change Meaning
// for the former.
func RawDeflate(rules string) Behaviour {
	b := codedBody("deflate", func() []byte {
		return compress(func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestSpeed) }, []byte(rules))
	})
	b.Name, b.Meaning, b.Rules = "raw deflate", MeansRules, []byte(rules)
	return b
}

// LyingCoding answers 200 with plain rules that are declared as encoded.
func LyingCoding(coding, rules string) Behaviour {
	b := codedBody(coding, func() []byte { return []byte(rules) })
	b.Name = "invalid " + coding
	return b
}

// CutCoding answers 200 with an encoded body whose last quarter is missing, in a correct message.
func CutCoding(coding, rules string) Behaviour {
	mustKnow(coding)
	b := codedBody(coding, func() []byte {
		raw := Encode(coding, []byte(rules))
		return raw[:len(raw)*3/4]
	})
	b.Name = coding + " cut short"
	return b
}

// UnknownCoding answers 200 with a registered coding that no client decodes.
func UnknownCoding(rules string) Behaviour {
	b := codedBody("compress", func() []byte { return []byte(rules) })
	b.Name = "unknown coding"
	return b
}

// Bomb answers 200 with a small body that decodes to size bytes: rules, then an endless comment. To
// a crawler that only reads the first 500 KiB it means rules: change Meaning for that.
func Bomb(coding, rules string, size int) Behaviour {
	mustKnow(coding)
	b := codedBody(coding, func() []byte {
		parts := [][]byte{[]byte(rules + "#")}
		block := bytes.Repeat([]byte{'.'}, 64<<10)
		for left := size - len(rules) - 1; left > 0; left -= len(block) {
			parts = append(parts, block[:min(left, len(block))])
		}
		return Encode(coding, parts...)
	})
	b.Name, b.Rules = coding+" bomb", []byte(rules)
	return b
}

// UTF16 answers 200 with rules in UTF-16, with a byte order mark and the right charset. According
// to RFC 9309 section 2.3, a robots.txt is UTF-8, so the result of parsing these bytes as UTF-8
// counts.
func UTF16(rules string) Behaviour {
	raw := []byte{0xff, 0xfe}
	for _, unit := range utf16.Encode([]rune(rules)) {
		raw = binary.LittleEndian.AppendUint16(raw, unit)
	}
	return textBody("UTF-16", "text/plain; charset=utf-16", raw)
}

// WrongCharset answers 200 with rules in UTF-8 that are declared as UTF-16.
func WrongCharset(rules string) Behaviour {
	return textBody("wrong charset", "text/plain; charset=utf-16", []byte(rules))
}

// HTML answers 200 with a page, like sites that have neither a robots.txt nor a 404.
func HTML() Behaviour {
	return textBody("HTML", "text/html", htmlPage(robotsPath, []string{"/"}))
}

// Oversize answers 200 with rules and then comment lines up to size bytes.
func Oversize(rules string, size int) Behaviour {
	const line = "# A line that means nothing and is here to be long.\n"
	lines := strings.Repeat(line, 100)
	size = max(size, len(rules))
	return Behaviour{Name: "oversize", Meaning: MeansRules, Rules: []byte(rules), serve: func(s *session) error {
		err := s.writeHead(http.StatusOK, "Content-Type: text/plain", "Content-Length: "+strconv.Itoa(size))
		if err == nil {
			err = s.write([]byte(rules))
		}
		for left := size - len(rules); err == nil && left > 0; left -= len(lines) {
			err = s.write([]byte(lines[:min(left, len(lines))]))
		}
		s.keep = s.request.keepAlive()
		return err
	}}
}

func textBody(name, contentType string, raw []byte) Behaviour {
	b := Respond(Response{Status: http.StatusOK, Header: http.Header{"Content-Type": {contentType}}, Body: raw})
	b.Name = name
	return b
}

// codedBody returns a 200 with a body that is declared as encoded; it means unreachable. The bytes
// are made when they are first sent, since many sites have behaviours that they never use.
func codedBody(coding string, raw func() []byte) Behaviour {
	raw = sync.OnceValue(raw)
	return Behaviour{serve: func(s *session) error {
		return s.respond(Response{Status: http.StatusOK, Header: http.Header{"Content-Encoding": {coding}}, Body: raw()})
	}}
}

func mustKnow(coding string) {
	if !slices.Contains(Codings, coding) {
		panic(fmt.Sprintf("testorigin: unknown content coding %q", coding))
	}
}

// Encode returns the concatenated parts in a content coding. It panics if the coding is not one of
// Codings.
func Encode(coding string, parts ...[]byte) []byte {
	mustKnow(coding)
	return compress(func(w io.Writer) (io.WriteCloser, error) {
		switch coding {
		case "gzip":
			return gzip.NewWriterLevel(w, gzip.BestSpeed)
		case "deflate":
			return zlib.NewWriterLevel(w, zlib.BestSpeed)
		case "br":
			return brotli.NewWriterLevel(w, brotli.BestSpeed), nil
		default: // zstd, since mustKnow refuses others
			return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
		}
	}, parts...)
}

// compress panics if the encoder fails, which is impossible with a buffer.
func compress(newWriter func(io.Writer) (io.WriteCloser, error), parts ...[]byte) []byte {
	var out bytes.Buffer
	w, err := newWriter(&out)
	for i := 0; err == nil && i < len(parts); i++ {
		_, err = w.Write(parts[i])
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic("testorigin: " + err.Error())
	}
	return out.Bytes()
}
